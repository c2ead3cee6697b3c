"""A stand-in for the module ``pynvml``, with the GPUs that a test describes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


NOT_SUPPORTED = NVMLError(3, "Not Supported")
NOT_FOUND = NVMLError(6, "Not Found")
LOST = NVMLError(15, "GPU is lost")


class FakeGpu:
    """Answers by question (``"PowerUsage"``), or by question and first argument (``("ClockInfo", 1)``); an answer that
    is an exception is raised, one that is missing is not supported. ``fields`` maps field numbers to values."""

    def __init__(self, uuid: str, bus_id: str, fields: dict[int, Any] | None = None, **answers: Any) -> None:
        self.uuid = uuid
        self.fields = fields or {}
        self.answers: dict[Any, Any] = {"UUID": uuid, "PciInfo": SimpleNamespace(busId=bus_id), "Name": "NVIDIA H200"}
        self.answers |= {"MemoryInfo": SimpleNamespace(total=150 << 30, used=3 << 20)}
        self.answers |= answers
        self.instances: list[FakeGpu | NVMLError] = []
        self.asked: list[str] = []


class FakeNvml:
    """Has the functions of ``pynvml`` that are asked of it, as far as they are about GPUs."""

    NVMLError = NVMLError

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.03"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return 13000

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        everything = [*self.gpus, *(part for gpu in self.gpus for part in gpu.instances)]
        for gpu in everything:
            if isinstance(gpu, FakeGpu) and gpu.uuid == uuid:
                return gpu
        raise NOT_FOUND

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        return len(gpu.instances)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        part = gpu.instances[index]
        if isinstance(part, NVMLError):
            raise part
        return part

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, wanted: list[int]) -> list[SimpleNamespace]:  # noqa: N802
        gpu.asked.append("FieldValues")
        return [_field(gpu.fields.get(number)) for number in wanted]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        question = name.removeprefix("nvmlDeviceGet")

        def ask(gpu: FakeGpu, *args: Any) -> Any:
            gpu.asked.append(question)
            answer = gpu.answers.get((question, *args[:1]), gpu.answers.get(question, NOT_SUPPORTED))
            if isinstance(answer, NVMLError):
                raise answer
            return answer

        return ask


def _field(value: Any) -> SimpleNamespace:
    """As unsigned long long, the type of the counters."""
    if value is None:
        return SimpleNamespace(nvmlReturn=3, valueType=0, value=SimpleNamespace())
    return SimpleNamespace(nvmlReturn=0, valueType=3, value=SimpleNamespace(ullVal=value, dVal=-1.0))
