"""The plan: profile x node x repeat -> ordered batches of launches. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from milabench_ng.catalogue import Scalar
from milabench_ng.errors import InputError
from milabench_ng.profile import Profile, Test

MOST_RUNS = 10_000
"""Of every test: a year of them, where a test takes an hour."""

Order = Literal["file", "interleaved", "random"]
"""Of the repeats. ``file``: all runs of a test, then all of the next. ``interleaved``: all tests once, in file order,
then all again, so that what drifts slowly hits all tests alike. ``random``: as ``interleaved``, each time in an order
that follows from the nonce."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant works on: a GPU, a MIG instance or, on a node without any, a CPU partition."""

    index: int
    kind: Literal["gpu", "mig", "cpu"]
    uuid: str | None = None
    """What ``CUDA_VISIBLE_DEVICES`` is set to; None for a CPU partition."""
    name: str = "CPU"
    numa_node: int | None = None


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one test for one tenant, or over several devices."""

    test: str
    """``suite.test``; a progression's devices are in ``label``."""
    scheme: Literal["per-gpu", "gpu-progression", "normal"]
    workload: str
    arguments: dict[str, Scalar | None]
    """Every option with its value."""
    overrides: tuple[str, ...] = ()
    """The options that the command line changed."""
    data_scale: float = 1.0
    run: int
    devices: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]

    @property
    def job_id(self) -> str:
        """``<run>.<device>``, as in 2020: over K devices the last one's index."""
        return f"{self.run}.{self.devices[-1]}"

    @property
    def label(self) -> str:
        """The row of the summary that this launch belongs to: ``suite.test`` or ``suite.scaling.K``."""
        return f"{self.test}.{len(self.devices)}" if self.scheme == "gpu-progression" else self.test


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The launches that run at the same time."""

    number: int
    launches: tuple[Launch, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All batches in order, and what was left out on purpose."""

    suite: str
    devices: Annotated[tuple[Device, ...], msgspec.Meta(min_length=1)]
    repeat: int
    batches: tuple[Batch, ...]
    omitted: tuple[str, ...] = ()
    """The labels of tests that the profile has and the user did not select."""
    order: Order = "interleaved"
    nonce: str | None = None
    """Any text; seeds the random order, and shows a buyer who chose it that the run is younger than the choice."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All of them, in order."""
        return tuple(launch for batch in self.batches for launch in batch.launches)

    @property
    def labels(self) -> tuple[str, ...]:
        """The rows that the summary of a complete run has, in order."""
        return tuple(dict.fromkeys(launch.label for launch in self.launches))

    @property
    def sha256(self) -> str:
        """Of what will run, in order: the batches, not the devices that they run on."""
        return hashlib.sha256(msgspec.json.encode([self.suite, self.batches, self.omitted])).hexdigest()


Resolved = Mapping[str, tuple[dict[str, Scalar | None], tuple[str, ...]]]
"""For each test: every option with its value, and the names of those that the command line changed."""


def make_plan(
    profile: Profile,
    names: Sequence[str],
    arguments: Resolved,
    devices: Sequence[Device],
    repeat: int,
    order: Order = "interleaved",
    nonce: str | None = None,
) -> Plan:
    """The batches of ``repeat`` runs of the tests called ``names`` (all where there are none) over ``devices``."""
    if not 1 <= repeat <= MOST_RUNS:
        raise InputError(f"--repeat {repeat}: at least 1, at most {MOST_RUNS:,}")
    if not devices:
        raise InputError("no device to run on")
    selected = profile.select(names)
    groups = [
        launches
        for run in range(repeat)
        for name, test in selected.tests.items()
        for launches in _launches(f"{profile.suite}.{name}", test, arguments[name], devices, run)
    ]
    omitted = [
        label
        for name, test in profile.tests.items()
        if name not in selected.tests
        for label in _labels(f"{profile.suite}.{name}", test, len(devices))
    ]
    return Plan(
        suite=profile.suite,
        devices=tuple(devices),
        repeat=repeat,
        batches=tuple(
            Batch(number=i, launches=tuple(launches)) for i, launches in enumerate(_ordered(groups, order, nonce))
        ),
        omitted=tuple(omitted),
        order=order,
        nonce=nonce,
    )


def _ordered(batches: Sequence[list[Launch]], order: Order, nonce: str | None) -> list[list[Launch]]:
    """``batches`` come interleaved. Random: sorted by SHA-256, so that anybody can work out the order of a nonce."""

    def place(batch: list[Launch]) -> tuple[int, str]:
        first = batch[0]
        return first.run, hashlib.sha256(f"{nonce or ''}:{first.run}:{first.label}".encode()).hexdigest()

    match order:
        case "interleaved":
            return list(batches)
        case "file":
            tests = list(dict.fromkeys(batch[0].test for batch in batches))
            return sorted(batches, key=lambda batch: tests.index(batch[0].test))
        case "random":
            return sorted(batches, key=place)


def _partitions(test: Test, count: int) -> list[list[tuple[int, ...]]]:
    """For each batch of one run of a test: the devices of each of its launches, as positions."""
    everything = tuple(range(count))
    match test.partition_scheme.type:
        case "per-gpu":
            return [[(position,) for position in everything]]
        case "gpu-progression":
            return [[everything[:k]] for k in range(1, count + 1)]
        case "normal":
            return [[everything]]


def _launches(
    name: str,
    test: Test,
    resolved: tuple[dict[str, Scalar | None], tuple[str, ...]],
    devices: Sequence[Device],
    run: int,
) -> list[list[Launch]]:
    arguments, overrides = resolved
    return [
        [
            Launch(
                test=name,
                scheme=test.partition_scheme.type,
                workload=test.workload,
                arguments=arguments,
                overrides=overrides,
                data_scale=test.data_scale,
                run=run,
                devices=tuple(devices[position].index for position in positions),
            )
            for positions in batch
        ]
        for batch in _partitions(test, len(devices))
    ]


def _labels(name: str, test: Test, count: int) -> list[str]:
    if test.partition_scheme.type == "gpu-progression":
        return [f"{name}.{k}" for k in range(1, count + 1)]
    return [name]
