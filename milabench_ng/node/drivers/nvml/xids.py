"""The XID events of GPUs (docs.nvidia.com/deploy/xid-errors); `node.faults` says what their numbers mean."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from milabench_ng.node.drivers.nvml.session import Session

_XID_EVENT = 8
"""nvmlEventTypeXidCriticalError."""


class XidEvents:
    """The XID events of some GPUs, by UUID of the physical GPU. None arrive without NVML or its events."""

    def __init__(self, session: Session, boards: Collection[str]) -> None:
        self._module: Any = session.module
        self._boards: list[str] = []
        self._set: Any = None
        if session.problem is not None or not boards:
            return
        try:
            self._set = self._module.nvmlEventSetCreate()
            for uuid in boards:
                handle = self._module.nvmlDeviceGetHandleByUUID(uuid)
                self._module.nvmlDeviceRegisterEvents(handle, _XID_EVENT, self._set)
                self._boards.append(uuid)
        except self._module.NVMLError:  # some virtual machines and containers have none
            return

    def drain(self) -> dict[str, tuple[int, ...]]:
        """The XID numbers since the last call, without waiting."""
        found: dict[str, tuple[int, ...]] = {}
        while self._boards:
            try:
                event = self._module.nvmlEventSetWait_v2(self._set, 0)
                uuid = self._module.nvmlDeviceGetUUID(event.device)
            except self._module.NVMLError:  # nothing more, or the GPU does not answer, which the conditions show
                break
            found[uuid] = (*found.get(uuid, ()), int(event.eventData))
        return found
