"""The protocol between worker and orchestrator: typed, newline-delimited JSON.

A worker sends events and receives ``Start`` and ``Stop``. Times are seconds of CLOCK_MONOTONIC, which all processes of
a node share. Every field has the bounds of the record that it goes into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from milabench_ng.model.bounds import LARGEST, Amount, Latencies, Moment, WholeNumber
from milabench_ng.model.plain import whole_json

EVENT_SCHEMA = 1

Positive = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
Cause = Literal[
    "exit",
    "exception",
    "signal",
    "oom",
    "host_oom",
    "device_oom",
    "device_lost",
    "device_error",
    "pids_limit",
    "isolation_lost",
    "timeout",
    "data_error",
    "nan",
    "mismatch",
    "short",
    "interrupted",
    "harness_error",
]
"""Why a launch failed; `NOT_TRIED` of them say nothing about it."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="event"):
    """Base of all events; ``rank`` is 0 except in launches over several devices."""

    rank: WholeNumber = 0


class Entered(Event, frozen=True, kw_only=True):
    """The process is inside its fence and has sized its thread pools. What the fence gives it, the kernel says."""

    pid: Positive
    torch_threads: Positive


class Phase(Event, frozen=True, kw_only=True):
    """A phase before ``ready`` is over."""

    name: str
    seconds: Moment


class Ready(Event, frozen=True, kw_only=True):
    """Model and data are built; the worker waits for ``Start``."""

    time_s: Moment
    precision: str
    """The requested mode."""
    dtypes: dict[str, WholeNumber] = {}
    """Parameters of the model by dtype."""
    parameters: WholeNumber = 0
    ran: str
    """The mode that the weights' types and a matrix product on the device show."""
    matmul_error: float
    """Relative error of that product."""
    skips: bool = False
    """Whether the mode skips steps with infinite gradients."""


class Slice(Event, frozen=True, kw_only=True):
    """At least the sample duration of work, closed by one device synchronisation."""

    start_s: Moment
    length_s: Annotated[float, msgspec.Meta(ge=1e-6, le=LARGEST)]
    count: WholeNumber
    steps: WholeNumber
    wait_s: Amount
    backlog: WholeNumber | None = None
    """Items made but not yet requested, the mean over the slice's steps; None if nothing is made ahead."""
    latency: Latencies = ()
    """Latencies of its batches as ``(bucket, count)``, in at most 256 buckets; empty except for inference."""
    notes: dict[str, Amount] = {}
    """Sums over its steps of what the workload noted, by name."""
    item_latency: dict[str, Latencies] = {}
    """Latencies of its items, by what of them the workload timed."""


class Loss(Event, frozen=True, kw_only=True):
    """The loss of one step."""

    step: WholeNumber
    value: float | None
    """None if it is not finite."""


class GradientNorm(Event, frozen=True, kw_only=True):
    """The 2-norm of all gradients of one step, unscaled and not clipped."""

    step: WholeNumber
    value: float | None
    """None if it is not finite."""


class Skips(Event, frozen=True, kw_only=True):
    """Optimizer steps up to the end of the slice just reported, in modes whose loss scale skips some."""

    steps: WholeNumber
    skipped: WholeNumber
    """Steps skipped for infinite gradients."""


class Digest(Event, frozen=True, kw_only=True):
    """A digest of all parameters after one step: equal seeds and software give equal digests."""

    step: WholeNumber
    sha256: str


WorkUnit = Literal["TFLOP", "GB"]
"""What verified work is counted in: 1e12 operations, 1e9 bytes read, written or copied."""


class Checked(Event, frozen=True, kw_only=True):
    """Results compared with what they must be, from the first step to the end of the slice just reported."""

    unit: WorkUnit
    values: str
    """The data that it was done on, in words."""
    checks: WholeNumber
    work: Amount
    """Everything that went into the results compared."""
    wrong: WholeNumber
    """Checks whose result was another."""


class Mismatch(Event, frozen=True, kw_only=True):
    """A result that is not the one that it must be; the first few of a launch are told."""

    what: str
    """What was compared, such as ``product``."""
    check: WholeNumber
    """Which check of it: the first is 1."""
    time_s: Moment
    """When it was read, at the end of a slice."""


class Full(Event, frozen=True, kw_only=True):
    """The count is done and the averaging window is full; the worker continues until it is told to stop."""

    time_s: Moment
    count: WholeNumber


class Done(Event, frozen=True, kw_only=True):
    """The worker stopped as commanded."""

    time_s: Moment
    count: WholeNumber
    steps: WholeNumber
    ran: str
    matmul_error: float
    layer_dtype: str | None = None
    """The type of the first output of a linear or convolution layer in the first step; None if none ran."""
    kernels: dict[str, str] = {}
    """What of torch's libraries worked: ``attention``, ``collectives``; only what was seen."""
    peak_device_bytes: WholeNumber | None = None
    read_bytes: WholeNumber | None = None
    """What the readers of the dataset read within their budget, if they have one, and in how many seconds."""
    read_s: Amount | None = None


class Peak(Event, frozen=True, kw_only=True):
    """The end of a trial of a batch size."""

    bytes: WholeNumber
    """The most memory in use on the device or, on the CPU, the most that this process added to its resident memory."""


class Failed(Event, frozen=True, kw_only=True):
    """The worker raised. ``kind`` is the cause in the record."""

    kind: Cause
    message: str
    traceback: str


class Command(msgspec.Struct, frozen=True, tag=True, tag_field="command"):
    """Base of all commands to a worker."""


class Start(Command, frozen=True):
    """Begin the timed loop."""


class Stop(Command, frozen=True):
    """End it after the current step."""


AnyEvent = (
    Entered
    | Phase
    | Ready
    | Slice
    | Loss
    | GradientNorm
    | Skips
    | Digest
    | Checked
    | Mismatch
    | Full
    | Done
    | Peak
    | Failed
)
AnyCommand = Start | Stop


def encode(message: msgspec.Struct) -> bytes:
    """One line, newline included."""
    return whole_json(message) + b"\n"


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
