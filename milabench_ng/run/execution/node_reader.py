"""Reads the node's conditions at the edges of batches. A driver that hangs costs its figures, and not the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import msgspec

from milabench_ng.model.errors import MnbError
from milabench_ng.node.conditions import Conditions, read_conditions
from milabench_ng.node.faults import XidEvents
from milabench_ng.node.gpus import Gpu, Nvml, open_nvml
from milabench_ng.run.execution.waiting import in_thread

T = TypeVar("T")

OPEN_S = 120.0
"""Limit for opening NVML, which wakes the GPUs of a node without persistence mode."""
ANSWER_S = 20.0
"""Limit for reading all GPUs."""


@asynccontextmanager
async def nvml_session() -> AsyncIterator[Nvml]:
    """An NVML session. Raises MnbError if the driver does not answer."""
    try:
        async with asyncio.timeout(OPEN_S):
            nvml = await in_thread(open_nvml)
    except TimeoutError:
        raise MnbError(f"NVML did not answer within {OPEN_S:g} s. Check whether nvidia-smi answers") from None
    try:
        yield nvml
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                await in_thread(nvml.close)


class NodeReader:
    """Reads host and GPUs; once NVML has not answered in time, only the host."""

    def __init__(self, nvml: Nvml, gpus: Sequence[Gpu]) -> None:
        self._nvml = nvml
        self._gpus = gpus
        self._xids = XidEvents(nvml, gpus)
        self._problem = ""

    async def conditions(self, own_pids: Collection[int]) -> Conditions:
        """The current conditions; ``own_pids`` are processes of the run."""
        seen = await self._ask(lambda: read_conditions(self._nvml, self._gpus, own_pids))
        if seen is None:
            seen = msgspec.structs.replace(read_conditions(self._nvml, ()), errors={"NVML": self._problem})
        return seen

    async def xids(self) -> Mapping[str, Sequence[int]]:
        """The XID numbers since the last call, by UUID of the physical GPU."""
        return await self._ask(self._xids.drain) or {}

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
