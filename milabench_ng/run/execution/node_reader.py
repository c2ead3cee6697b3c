"""Reads the node's conditions at the edges of batches. A driver that hangs costs its figures, and not the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import msgspec

from milabench_ng.model.errors import MnbError
from milabench_ng.node.conditions import Conditions, read_conditions
from milabench_ng.node.drivers.opening import Drivers, open_drivers
from milabench_ng.node.gpus import Gpu
from milabench_ng.run.execution.waiting import in_thread

T = TypeVar("T")

OPEN_S = 120.0
"""Limit for opening the drivers, which wakes the GPUs of a node without persistence mode."""
ANSWER_S = 20.0
"""Limit for reading all GPUs."""


@asynccontextmanager
async def driver_sessions() -> AsyncIterator[Drivers]:
    """Sessions with the drivers of the GPUs. Raises MnbError if one does not answer."""
    try:
        async with asyncio.timeout(OPEN_S):
            drivers = await in_thread(open_drivers)
    except TimeoutError:
        raise MnbError(
            f"the driver of the GPUs did not answer within {OPEN_S:g} s. Check whether nvidia-smi or amd-smi answers"
        ) from None
    try:
        yield drivers
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await in_thread(drivers.close)


class NodeReader:
    """Reads host and GPUs; once a driver has not answered in time, only the host."""

    def __init__(self, drivers: Drivers, gpus: Sequence[Gpu]) -> None:
        self._drivers = drivers
        self._gpus = gpus
        self._faults = drivers.faults(gpus)
        self._problem = ""

    async def conditions(self, own_pids: Collection[int]) -> Conditions:
        """The current conditions; ``own_pids`` are processes of the run."""
        seen = await self._ask(lambda: read_conditions(self._drivers, self._gpus, own_pids))
        if seen is None:
            seen = msgspec.structs.replace(read_conditions(self._drivers, ()), errors={"driver": self._problem})
        return seen

    async def xids(self) -> Mapping[str, Sequence[int]]:
        """The XID numbers since the last call, by UUID of the physical GPU."""
        return await self._ask(self._drain) or {}

    def _drain(self) -> dict[str, tuple[int, ...]]:
        return {uuid: numbers for faults in self._faults for uuid, numbers in faults.drain().items()}

    async def _ask(self, question: Callable[[], T]) -> T | None:
        """The answer; None if there was none in time, now or before."""
        if self._problem:
            return None
        try:
            async with asyncio.timeout(ANSWER_S):
                return await in_thread(question)
        except TimeoutError:
            self._problem = f"the driver did not answer within {ANSWER_S:g} s and is not queried again"
            return None
