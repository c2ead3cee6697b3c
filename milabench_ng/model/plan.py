"""The plan: ordered batches of launches. `planner` makes it of a profile. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase
from typing import Annotated, Literal

import msgspec

from milabench_ng.model.batch_sizes import BATCH_SIZE
from milabench_ng.model.catalogue import AUTO, Scalar
from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.profile import Scheme, suite_of
from milabench_ng.model.units import counted

Order = Literal["file", "interleaved", "random"]
"""Order of the repeats.

``file``: all runs of a test, then all of the next. ``interleaved``: all tests once, in file order, then all again, so
that slow drift hits all tests alike. ``random``: as ``interleaved``, each time in an order that follows from the nonce.
"""


_SLOT = re.compile(r"([0-9]{1,9})([a-z]?)")
# Python's $ also matches before a final newline, and JSON Schema has no \Z.
SlotId = Annotated[str, msgspec.Meta(pattern=rf"^{_SLOT.pattern}$(?!\n)")]
"""Id of a place for one tenant: its device's index, with a letter if several tenants share it (``"0a"``)."""

MOST_DEVICES = 1_024
"""Of a node."""
MOST_SLOTS = 26
"""Most slots of a device: each has a letter."""

Vendor = Literal["NVIDIA", "AMD"]
"""Of the GPUs that tenants can have."""

Role = Literal["measured", "company"]
"""Role of a launch. ``company``, as files have it: it serves as a neighbor; it is recorded, but never scored."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant works on: a GPU, a MIG instance or, on a node without any, a CPU partition."""

    index: int
    kind: Literal["gpu", "mig", "cpu"]
    uuid: str | None = None
    """What the variable names that shows it to a program; None for a CPU partition."""
    name: str = "CPU"
    numa_node: int | None = None
    part: float | msgspec.UnsetType = msgspec.UNSET
    """The part of its GPU's compute slices that a MIG instance has; omitted if unknown, and for other devices."""
    capability: float | msgspec.UnsetType = msgspec.UNSET
    """The compute capability of an NVIDIA GPU, such as 9.0; omitted if unknown."""
    vendor: Vendor | msgspec.UnsetType = msgspec.UNSET
    """Whose GPU it is; omitted for NVIDIA, and for a CPU partition."""

    @property
    def maker(self) -> Vendor:
        """Whose driver shows it."""
        return "NVIDIA" if self.vendor is msgspec.UNSET else self.vendor

    @property
    def known_part(self) -> float:
        """The part of a GPU that it is, 1 if nothing else is known."""
        return 1.0 if self.part is msgspec.UNSET else self.part


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one test on one slot, or over several."""

    test: str
    """``suite.test``; ``label`` has a progression's number of devices."""
    scheme: Scheme
    workload: str
    arguments: dict[str, Scalar | None]
    """Every option with its value."""
    overrides: tuple[str, ...] = ()
    """The options that the command line changed."""
    classes: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """For each option that the profile states by memory class, the class that was chosen; omitted without any."""
    data_scale: float = 1.0
    run: int
    devices: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    """Indices of devices, one for each slot."""
    slots: tuple[SlotId, ...] | msgspec.UnsetType = msgspec.UNSET
    """Omitted if each device has one slot; `slot_ids` always names them."""
    role: Role | msgspec.UnsetType = msgspec.UNSET
    """Omitted for ``measured``."""

    def __post_init__(self) -> None:
        """Normalise what can be omitted, so that equal launches compare equal, and so do the hashes of their plans."""
        if self.slots is not msgspec.UNSET and len(self.slots) != len(self.devices):
            raise ValueError(f"{len(self.slots)} slots for {len(self.devices)} devices")
        if self.slots == tuple(map(str, self.devices)):
            msgspec.structs.force_setattr(self, "slots", msgspec.UNSET)
        if self.role == "measured":
            msgspec.structs.force_setattr(self, "role", msgspec.UNSET)
        if not self.classes:
            msgspec.structs.force_setattr(self, "classes", msgspec.UNSET)

    @property
    def slot_ids(self) -> tuple[str, ...]:
        """The slots that it runs on, in the order of its ranks."""
        return tuple(map(str, self.devices)) if self.slots is msgspec.UNSET else self.slots

    @property
    def auto_batch(self) -> bool:
        """Whether its batch size is to be found by trial."""
        return self.arguments.get(BATCH_SIZE) == AUTO

    def sized(self, size: int) -> Launch:
        """This launch with a batch size of ``size``."""
        return msgspec.structs.replace(self, arguments={**self.arguments, BATCH_SIZE: size})

    @property
    def memory_classes(self) -> dict[str, str]:
        """The chosen memory class by option, also if there is none."""
        return {} if self.classes is msgspec.UNSET else self.classes

    @property
    def known_role(self) -> Role:
        """Its role, also if it is omitted."""
        return "measured" if self.role is msgspec.UNSET else self.role

    @property
    def measured(self) -> bool:
        """Whether it runs for its own result, not as company."""
        return self.known_role == "measured"

    @property
    def job_id(self) -> str:
        """``<run>.<slot>`` (in 2020, the device); over K slots the last one's."""
        return f"{self.run}.{self.slot_ids[-1]}"

    @property
    def suite(self) -> str:
        """The suite that it is scored in."""
        return suite_of(self.test)

    @property
    def label(self) -> str:
        """The row of the summary that this launch belongs to: ``suite.test`` or ``suite.scaling.K``."""
        return self.scheme.label(self.test, len(self.devices))


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The launches that run at the same time, each on its own slots; they may be of different tests."""

    number: int
    launches: tuple[Launch, ...]

    def __post_init__(self) -> None:
        slots = [slot for launch in self.launches for slot in launch.slot_ids]
        if len(set(slots)) < len(slots):
            raise ValueError(f"launch group {self.number} has several launches on one slot")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All batches in order, and what was left out on purpose."""

    suite: str
    devices: Annotated[tuple[Device, ...], msgspec.Meta(min_length=1, max_length=MOST_DEVICES)]
    repeat: int
    batches: tuple[Batch, ...]
    omitted: tuple[str, ...] = ()
    """The labels of the profile's tests that the user did not select."""
    unplanned: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The labels of the tests that this node cannot run, and why; omitted without any."""
    order: Order = "interleaved"
    nonce: str | None = None
    """Any text; seeds the random order, and shows a buyer who chose it that the run is younger than the choice."""
    slots_per_device: Annotated[int, msgspec.Meta(ge=2, le=MOST_SLOTS)] | msgspec.UnsetType = msgspec.UNSET
    """How many tenants share each device; omitted for one."""

    @property
    def tenants_per_device(self) -> int:
        """How many tenants share each device, also if it is omitted."""
        return 1 if self.slots_per_device is msgspec.UNSET else self.slots_per_device

    @property
    def slots(self) -> tuple[SlotId, ...]:
        """All slots of its devices, in order."""
        return tuple(slots_of(self.devices, self.tenants_per_device))

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches, in order."""
        return tuple(launch for batch in self.batches for launch in batch.launches)

    @property
    def not_planned(self) -> dict[str, str]:
        """What is not planned, and why, also if there is nothing."""
        return {} if self.unplanned is msgspec.UNSET else self.unplanned

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows of a complete run's summary, in order."""
        return tuple(dict.fromkeys(launch.label for launch in self.measured))

    @property
    def measured(self) -> tuple[Launch, ...]:
        """The launches that are there for their own result, in order."""
        return tuple(launch for launch in self.launches if launch.measured)

    @property
    def measured_slots(self) -> tuple[str, ...]:
        """The slots that it has measured launches for, in order."""
        return tuple(dict.fromkeys(slot for launch in self.measured for slot in launch.slot_ids))

    @property
    def sha256(self) -> str:
        """Hash of what will run, in order: the batches, not the devices that they run on."""
        return hashlib.sha256(msgspec.json.encode([self.suite, self.batches, self.omitted])).hexdigest()


def hardware(devices: Iterable[Device]) -> str:
    """``2 x NVIDIA H200``, or ``2 CPU partitions``."""
    models = Counter("" if device.kind == "cpu" else device.name for device in devices)
    return " and ".join(f"{n} x {name}" if name else counted(n, "CPU partition") for name, n in models.items())


def slots_of(devices: Sequence[Device], per_device: int) -> dict[SlotId, Device]:
    """The device of each slot: named after its index, with a letter where a device has several.

    Raises InputError unless there is a letter for each.
    """
    if not 1 <= per_device <= MOST_SLOTS:
        raise InputError(f"--slots-per-device: expected 1 to {MOST_SLOTS}, got {per_device}")
    if per_device == 1:
        return {str(device.index): device for device in devices}
    letters = ascii_lowercase[:per_device]
    return {f"{device.index}{letter}": device for device in devices for letter in letters}


def tenant_number(slot: str) -> int:
    """The number that, with the seed, decides the data order of a slot's tenant: the device's index if it has one slot.

    Several slots of one device have numbers a million apart; no node has that many devices.
    """
    found = _SLOT.fullmatch(slot)
    if found is None:
        raise ValueError(f"slot {slot!r}: the index of a device, with a letter where it has several slots")
    index, letter = found.groups()
    return int(index) + (1_000_000 * (ord(letter) - ord("a") + 1) if letter else 0)


class ResolvedOptions(msgspec.Struct, frozen=True):
    """The options of one test."""

    arguments: dict[str, Scalar | None]
    """Every option with its value."""
    overrides: tuple[str, ...] = ()
    """The options that the command line changed."""
    classes: dict[str, str] = {}
    """The chosen memory class by option, for those that the profile states by memory class."""


Resolved = Mapping[str, ResolvedOptions]
"""By test."""


def tenant_memory(memory: DeviceMemory | None, rams: Sequence[int]) -> DeviceMemory | None:
    """What the tenant that has least may fill: ``memory`` of its device, on the CPU the least of ``rams`` (bytes)."""
    return memory or (DeviceMemory("a CPU partition", min(rams)) if rams else None)


def session_of(run: int, repeat: int, sessions: int) -> int:
    """Which of ``sessions``, from 1, makes ``run`` of a plan with ``repeat`` runs, which they divide equally."""
    return run // (repeat // sessions) + 1


def unplanned_told(unplanned: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each reason of ``unplanned``, with the labels of all tests that it keeps from the plan."""
    for why in dict.fromkeys(unplanned.values()):
        labels = [label for label, reason in unplanned.items() if reason == why]
        if len(labels) == 1:
            yield f"{labels[0]} is not planned: {why}"
        else:
            yield f"{len(labels)} tests are not planned, each because {why}: {', '.join(labels)}"
