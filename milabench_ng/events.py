"""The protocol between worker and orchestrator: typed, newline-delimited JSON.

A worker sends events and receives ``Start`` and ``Stop``. Times are seconds of CLOCK_MONOTONIC, which all processes of
a node share.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

EVENT_SCHEMA = 1


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="event"):
    """Base of all events; ``rank`` is 0 except in launches over several devices."""

    rank: Annotated[int, msgspec.Meta(ge=0)] = 0


class Entered(Event, frozen=True, kw_only=True):
    """The process is inside its fence and has sized its thread pools. What the fence gives it, the kernel says."""

    pid: Annotated[int, msgspec.Meta(gt=0)]
    torch_threads: Annotated[int, msgspec.Meta(gt=0)]


class Phase(Event, frozen=True, kw_only=True):
    """A phase before ``ready`` is over."""

    name: str
    seconds: float


class Ready(Event, frozen=True, kw_only=True):
    """Model and data are built; the worker waits for ``Start``."""

    time_s: float
    precision: str
    """The requested mode."""
    dtypes: dict[str, int] = {}
    """Parameters of the model by dtype."""
    parameters: int = 0
    ran: str
    """The mode that the weights' types and a matrix product on the device show."""
    matmul_error: float
    """Relative error of that product."""
    skips: bool = False
    """Whether the mode skips steps with infinite gradients."""


class Slice(Event, frozen=True, kw_only=True):
    """At least the sample duration of work, closed by one device synchronisation."""

    start_s: float
    length_s: Annotated[float, msgspec.Meta(ge=1e-6)]
    count: Annotated[int, msgspec.Meta(ge=0)]
    steps: Annotated[int, msgspec.Meta(ge=0)]
    wait_s: Annotated[float, msgspec.Meta(ge=0)]
    backlog: int | None = None
    """Items made but not yet requested, the mean over the slice's steps; None if nothing is made ahead."""
    latency: tuple[tuple[int, int], ...] = ()
    """Latencies of its batches as ``(bucket, count)``, in at most 256 buckets; empty except for inference."""
    notes: dict[str, float] = {}
    """Sums over its steps of what the workload noted, by name."""


class Loss(Event, frozen=True, kw_only=True):
    """The loss of one step."""

    step: int
    value: float | None
    """None if it is not finite."""


class GradientNorm(Event, frozen=True, kw_only=True):
    """The 2-norm of all gradients of one step, unscaled and not clipped."""

    step: int
    value: float | None
    """None if it is not finite."""


class Skips(Event, frozen=True, kw_only=True):
    """Optimizer steps up to the end of the slice just reported, in modes whose loss scale skips some."""

    steps: int
    skipped: int
    """Steps skipped for infinite gradients."""


class Digest(Event, frozen=True, kw_only=True):
    """A digest of all parameters after one step: equal seeds and software give equal digests."""

    step: int
    sha256: str


class Full(Event, frozen=True, kw_only=True):
    """The count is done and the averaging window is full; the worker continues until it is told to stop."""

    time_s: float
    count: int


class Done(Event, frozen=True, kw_only=True):
    """The worker stopped as commanded."""

    time_s: float
    count: int
    steps: int
    ran: str
    matmul_error: float
    layer_dtype: str | None = None
    """The type of the first output of a linear or convolution layer in the first step; None if none ran."""
    kernels: dict[str, str] = {}
    """What of torch's libraries worked: ``attention``, ``collectives``; only what was seen."""
    peak_device_bytes: int | None = None
    read_bytes: int | None = None
    """What the readers of the data set read within their budget, if they have one, and in how many seconds."""
    read_s: float | None = None


class Peak(Event, frozen=True, kw_only=True):
    """The end of a trial of a batch size."""

    bytes: int
    """The most memory in use on the device or, on the CPU, the most that this process added to its resident memory."""


class Failed(Event, frozen=True, kw_only=True):
    """The worker raised. ``kind`` is the cause in the record (``exception``, ``nan``, ``device_oom``...)."""

    kind: str
    message: str
    traceback: str


class Command(msgspec.Struct, frozen=True, tag=True, tag_field="command"):
    """Base of all commands to a worker."""


class Start(Command, frozen=True):
    """Begin the timed loop."""


class Stop(Command, frozen=True):
    """End it after the current step."""


AnyEvent = Entered | Phase | Ready | Slice | Loss | GradientNorm | Skips | Digest | Full | Done | Peak | Failed
AnyCommand = Start | Stop

_encoder = msgspec.json.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """One line, newline included."""
    return _encoder.encode(message) + b"\n"


class Lines:
    """Splits a byte stream into typed messages; a last line without newline stays in the buffer."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._buffer = b""

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """The messages that ``chunk`` completes. Raises msgspec.DecodeError on an invalid line."""
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            yield self._decoder.decode(line)
