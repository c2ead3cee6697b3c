"""The protocol between orchestrator and worker server, and a worker's task."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from milabench_ng.model.catalogue import Catalogue, Scalar
from milabench_ng.model.events import Failed
from milabench_ng.model.plan import Device
from milabench_ng.records.proof import CodeProof, DataProof
from milabench_ng.records.window import WindowRule


class RankSlot(msgspec.Struct, frozen=True, kw_only=True):
    """Where one process of a launch runs: a slot with its device and its share."""

    slot: str
    device: Device
    entry: dict[str, Any]
    """What the process has to do to enter its fence: the JSON form of ``fence.interface.FenceEntry``."""
    threads: int
    """Size of its thread pools: the physical cores of the share."""
    memory_part: float | msgspec.UnsetType = msgspec.UNSET
    """The part of the device's memory that torch may use; omitted for all of it."""


class ReadyDataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that is ready on disk."""

    name: str
    kind: Literal["twin", "classic", "real"]
    scale: float
    path: str
    checksum: str | None
    files: int
    bytes: int


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to run one launch."""

    workload: str
    arguments: dict[str, Scalar | None]
    seats: tuple[RankSlot, ...]
    """One per rank; a launch in one process has one."""
    processes: int = 1
    """Processes of all launches of the batch together."""
    rule: WindowRule
    data: ReadyDataset | None
    read_bytes_per_s: int | None = None
    """Budget of the dataset's readers in each rank, if the kernel cannot limit them."""
    environment: dict[str, str]
    """The whole environment: nothing is inherited."""
    requested_s: float
    """When the orchestrator requested it (monotonic)."""
    late_steps: tuple[int, ...] = ()
    """Steps beyond the usual ones of which it tells what it computed (`records.late_steps`)."""
    trial_steps: int = 0
    """For a trial of a batch size: steps after which the launch is full."""
    unfit: Failed | None = None
    """Why it cannot work, such as a batch size that was not found: to be reported instead of working."""


class Request(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="request"):
    """Base of all requests to the server. The answers repeat ``id``."""

    id: int


class Describe(Request, frozen=True, kw_only=True):
    """Ask which workloads and datasets exist; of other packages, only those that are ``asked`` for are imported."""

    asked: tuple[str, ...] | None
    """Names, also as ``package.module:function``; None for all that are installed."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A test's workload and its options, on as many devices as a launch runs over."""

    where: str
    """The test's place, for errors."""
    workload: str
    arguments: dict[str, Scalar | None]
    devices: int = 1


class CheckOptions(Request, frozen=True, kw_only=True):
    """Ask whether the options of each test go together, by its workload's own rule."""

    tests: tuple[Asked, ...]


class EstimateData(Request, frozen=True, kw_only=True):
    """Ask what it takes to have datasets, named with their scales, ready below ``dataroot``."""

    sets: tuple[tuple[str, float], ...]
    dataroot: str
    processes: int


class Prepare(Request, frozen=True, kw_only=True):
    """Have a dataset ready below ``dataroot``."""

    data_set: str
    dataroot: str
    scale: float
    processes: int


class InspectCode(Request, frozen=True, kw_only=True):
    """Ask which code the server runs. ``wheels``: distributions to compare with their RECORD; None for all.

    Files of more than ``largest`` bytes are compared by their size alone.
    """

    wheels: tuple[str, ...] | None
    largest: int | None


class ReadData(Request, frozen=True, kw_only=True):
    """Have every byte of a prepared dataset read."""

    data_set: str
    dataroot: str
    scale: float
    processes: int


class Spawn(Request, frozen=True, kw_only=True):
    """Fork a warm worker. Comes with three descriptors: commands (read), events (write), log (write)."""

    task: Task


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True, tag_field="answer"):
    """Base of all answers of the server."""

    id: int


class Serving(Answer, frozen=True, kw_only=True):
    """The server has imported everything."""

    threads: int
    """How many it has (must be 1)."""


class Described(Answer, frozen=True, kw_only=True):
    """The catalogue."""

    catalogue: Catalogue


class Checked(Answer, frozen=True, kw_only=True):
    """All options go together."""


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """What generating a dataset takes, estimated."""

    name: str
    scale: float
    files: int
    bytes: int
    """On disk."""
    seconds: float
    """Time on all processes, at the pace of this machine's cores."""


class DataEstimate(Answer, frozen=True, kw_only=True):
    """The datasets that have to be generated, and the room for them."""

    efforts: tuple[Effort, ...]
    free_bytes: int
    processes: int


class DataProgress(Answer, frozen=True, kw_only=True):
    """The progress of a preparation."""

    name: str
    done: int
    total: int


class Prepared(Answer, frozen=True, kw_only=True):
    """The dataset is there."""

    place: ReadyDataset
    generated: bool


class Inspected(Answer, frozen=True, kw_only=True):
    """The code that the server runs."""

    code: CodeProof


class DataRead(Answer, frozen=True, kw_only=True):
    """Every byte of the dataset was read."""

    data: DataProof


class Refused(Answer, frozen=True, kw_only=True):
    """The request cannot be met; ``message`` is for the user."""

    message: str


class Unable(Answer, frozen=True, kw_only=True):
    """The server cannot fork; ``message`` is for the user."""

    message: str


class Spawned(Answer, frozen=True, kw_only=True):
    """A worker was forked, and began at ``start`` (clock ticks after boot): its pid alone may be used again."""

    pid: int
    start: int


class Exited(Answer, frozen=True, kw_only=True):
    """A worker ended. ``status``: 0 to 255, or the negative number of the signal."""

    status: int


AnyRequest = Describe | CheckOptions | EstimateData | Prepare | InspectCode | ReadData | Spawn
AnyAnswer = (
    Serving
    | Described
    | Checked
    | DataEstimate
    | DataProgress
    | Prepared
    | Inspected
    | DataRead
    | Refused
    | Unable
    | Spawned
    | Exited
)

MESSAGE_BYTES = 1 << 20
"""Largest message; the socket's buffer is asked to hold at least this."""


def python_command(environ: Mapping[str, str], module: str, *arguments: str) -> list[str]:
    """The command of a Python that runs ``module`` with this process's import path, passed in plain sight.

    It reads no PYTHON* variable, save where ``environ`` says that compiled modules are kept, and runs no code of the
    environment's site: neither ``.pth`` files nor a ``sitecustomize``. Of the site it only gets ``sys.prefix``.
    """
    bootstrap = (
        "import json, sys, types; "
        "sys.modules.update((name, types.ModuleType(name)) for name in ('sitecustomize', 'usercustomize')); "
        "import site; site.addpackage = lambda *_: None; site.main(); "
        "sys.path[:] = json.loads(sys.argv[1]); del sys.argv[1]; "
        "import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
    )
    kept = environ.get("PYTHONPYCACHEPREFIX")
    compiled = ("-X", f"pycache_prefix={kept}") if kept else ()
    path = json.dumps(import_path())
    return [sys.executable, "-I", "-S", *compiled, "-c", bootstrap, path, module, *arguments]


def import_path() -> list[str]:
    """The folders that this process imports from, those of editable installs last.

    setuptools makes some of these importable by a finder that a ``.pth`` file installs: its ``MAPPING`` has the folder
    of each package.
    """
    finders = (module for name, module in list(sys.modules.items()) if name.startswith("__editable___"))
    packages = (Path(folder) for finder in finders for folder in getattr(finder, "MAPPING", {}).values())
    return [*sys.path, *dict.fromkeys(str(folder.parent) for folder in packages)]
