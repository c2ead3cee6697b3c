"""A session with NVML, and the reader of one GPU, by UUID: NVML may enumerate in another order than CUDA.

Without the driver, the library or the Python module there is no session, and the reason is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

# nvml.h: invalid argument, not supported, no permission, not found, function not found, version of argument, deprecated
_UNSUPPORTED = frozenset({2, 3, 4, 6, 13, 25, 26})

# Member of the value union by NVML_VALUE_TYPE_* (nvml.h).
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class GpuReader:
    """Reads one GPU. What cannot be read is None, and named in ``unsupported`` or ``errors``."""

    def __init__(self, module: Any, locate: Callable[[], Any]) -> None:
        self._module = module
        self.unsupported: set[str] = set()
        """Names of values unavailable with this GPU, driver or permission."""
        self.errors: dict[str, str] = {}
        """Other failures, such as a lost GPU, by name of the value."""
        self._handle = self._try("handle", locate)

    def ask(self, name: str, question: str, *args: Any) -> Any:
        """The answer of ``nvmlDeviceGet<question>``; ``name`` identifies the value if it cannot be read."""
        if self._handle is None:
            return None
        # Looked up inside: with a driver older than the module, functions are missing, and the module raises only then.
        return self._try(name, lambda: getattr(self._module, f"nvmlDeviceGet{question}")(self._handle, *args))

    def fields(self, wanted: Mapping[str, int]) -> dict[str, float | None]:
        """Field values by name, in one call: ``wanted`` maps names to NVML_FI_DEV_* numbers."""
        answers = self.ask("fields", "FieldValues", list(wanted.values()))
        if answers is None:
            return dict.fromkeys(wanted)
        return {name: self._field(name, answer) for name, answer in zip(wanted, answers, strict=True)}

    def instances(self) -> Iterator[GpuReader]:
        """Readers of the GPU's MIG instances; none if MIG is off."""
        for position in range(self.ask("mig_instances", "MaxMigDeviceCount") or 0):
            handle = self.ask("mig_instance", "MigDeviceHandleByIndex", position)
            if handle is not None:
                yield GpuReader(self._module, lambda found=handle: found)  # type: ignore[misc]

    def _field(self, name: str, answer: Any) -> float | None:
        if answer.nvmlReturn == 0:
            value: float = getattr(answer.value, _VALUE_MEMBERS[answer.valueType])
            return value
        self._note(name, answer.nvmlReturn, f"NVML error {answer.nvmlReturn}")
        return None

    def _try(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except self._module.NVMLError as error:
            self._note(name, error.value, str(error))
            return None

    def _note(self, name: str, code: int, text: str) -> None:
        if code in _UNSUPPORTED:
            self.unsupported.add(name)
        else:
            self.errors[name] = text


class Session:
    """An NVML session. If there is none, ``problem`` says why, and no GPU is shown."""

    def __init__(self, module: Any, problem: str | None = None) -> None:
        self.module = module
        self.problem = problem

    def close(self) -> None:
        """End the session; the library stays loaded."""
        if self.problem is None:
            self.module.nvmlShutdown()
            self.problem = "NVML cannot be used: the session is closed"

    def ask(self, question: str) -> Any:
        """The answer of ``nvml<question>``, which concerns no particular GPU; None if there is none."""
        try:
            return getattr(self.module, f"nvml{question}")()
        except self.module.NVMLError:
            return None

    def reader(self, uuid: str) -> GpuReader:
        """The reader of a GPU or MIG instance."""
        return GpuReader(self.module, lambda: self.module.nvmlDeviceGetHandleByUUID(uuid))

    def readers(self) -> Iterator[GpuReader]:
        """The readers of all GPUs that NVML lists, in NVML's order."""
        if self.problem is None:
            for position in range(self.ask("DeviceGetCount") or 0):
                yield GpuReader(self.module, lambda at=position: self.module.nvmlDeviceGetHandleByIndex(at))  # type: ignore[misc]


def open_session(module: Any = None) -> Session:
    """Open an NVML session, through ``pynvml`` unless another module with its interface is given.

    Opening can take seconds on a node without persistence mode: keep the session, so that reads stay cheap.
    """
    if module is None:
        try:
            import pynvml
        except ImportError:
            return Session(
                None, "NVML cannot be used: the Python module pynvml is not installed. Run: pip install nvidia-ml-py"
            )
        module = pynvml
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        return Session(
            None, f"NVML cannot be used: {error}. If this node has NVIDIA GPUs, run nvidia-smi to check the driver"
        )
    return Session(module)
