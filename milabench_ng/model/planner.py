"""Makes a plan: which launches run at the same time, and in which order. Pure.

By default all slots run the same test (`profile.Scheme`). A test with company runs on one slot, beside other tests or
alone, and visits one slot after the other. The tests of a mix run at the same time, and form a Latin square: in every
run, each of them visits each slot once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import grouped
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Batch, Device, Launch, Order, Plan, Resolved, Role, SlotId, slots_of, unplanned_told
from milabench_ng.model.profile import Profile, Test
from milabench_ng.model.units import parse_bytes

MOST_RUNS = 10_000
"""Most runs of each test: more than a year's worth if a test takes an hour."""


def make_plan(
    profile: Profile,
    arguments: Resolved,
    devices: Sequence[Device],
    repeat: int,
    order: Order = "interleaved",
    nonce: str | None = None,
    names: Collection[str] = (),
    memory: DeviceMemory | None = None,
    slots_per_device: int = 1,
    most_places: float = math.inf,
) -> Plan:
    """The batches of ``repeat`` runs over the slots of ``devices``.

    ``arguments``: the options of the tests to measure and of their company. ``names``: the tests to measure, all that
    have options if empty; the others are omitted. ``memory``: of the tenant that has least, see `tenant_memory`.
    Tests that need more devices or memory, or devices of their own, are not planned. Raises InputError if no test is
    left, or if launches would take slots more than ``most_places`` times in all.
    """
    if not 1 <= repeat <= MOST_RUNS:
        raise InputError(f"--repeat: expected 1 to {MOST_RUNS:,}, got {repeat}")
    if not devices:
        raise InputError("no device to run on. mnb doctor shows those of this node")
    slots = slots_of(devices, slots_per_device)
    measured = {name: test for name, test in profile.tests.items() if test.role == "measured"}
    chosen = {name: test for name, test in measured.items() if name in arguments and (not names or name in names)}
    _refuse_part_of_mix(profile, chosen)
    unplanned = {
        profile.id_of(name): why for name, why in _unplanned(profile, chosen, devices, slots_per_device, memory).items()
    }
    planned = {name: test for name, test in chosen.items() if profile.id_of(name) not in unplanned}
    if unplanned and not planned:
        raise InputError("; ".join(unplanned_told(unplanned)))
    places = repeat * sum(_places(test, len(slots)) for test in planned.values())
    if places > most_places:
        raise InputError(
            f"the profile needs launches on {places:,} slots in total. The limit is {most_places:,}. Use fewer repeats"
        )
    composer = _Composer(profile, arguments, tuple(slots.items()))
    groups = [launches for run in range(repeat) for launches in composer.batches(planned, run)]
    left_out = (name for name in measured if name not in chosen)
    omitted = [label for name in left_out for label in _labels(profile.id_of(name), measured[name], len(slots))]
    return Plan(
        suite=profile.suite,
        devices=tuple(devices),
        repeat=repeat,
        batches=tuple(
            Batch(number=i, launches=tuple(launches)) for i, launches in enumerate(_ordered(groups, order, nonce))
        ),
        omitted=tuple(omitted),
        unplanned=unplanned or msgspec.UNSET,
        order=order,
        nonce=nonce,
        slots_per_device=slots_per_device if slots_per_device > 1 else msgspec.UNSET,
    )


def companions(profile: Profile, names: Collection[str]) -> tuple[str, ...]:
    """The tests that run beside ``names`` (all tests if empty) as company, in file order."""
    beside = {
        other
        for name, test in profile.tests.items()
        if (not names or name in names) and isinstance(test.neighbors, tuple)
        for other in test.neighbors
    }
    return tuple(name for name in profile.tests if name in beside)


def _unplanned(
    profile: Profile,
    chosen: Mapping[str, Test],
    devices: Sequence[Device],
    per_device: int,
    memory: DeviceMemory | None,
) -> dict[str, str]:
    """The tests that this node cannot run, or runs a larger one instead of, and why."""
    found = {
        **dict(_too_wide(chosen, len(devices) * per_device, per_device)),
        **dict(_too_large(chosen, len(devices), memory)),
        **dict(_too_old(profile, chosen, devices)),
    }
    planned = {name for name in chosen if name not in found}
    instead = {
        name: f"it replaces {test.instead_of}, which is planned"
        for name, test in chosen.items()
        if name in planned and test.instead_of in planned
    }
    return {name: why for name in chosen if (why := found.get(name) or instead.get(name))}


def _too_large(chosen: Mapping[str, Test], devices: int, memory: DeviceMemory | None) -> Iterator[tuple[str, str]]:
    """The tests that need more memory than the tenant that has least."""
    for name, test in chosen.items():
        need = test.least_memory
        if need is None or memory is None or memory.bytes is None:
            continue
        wanted = parse_bytes(need.together, name) / devices + parse_bytes(need.each, name)
        has = test.memory_fraction * memory.bytes
        if wanted > has:
            part = f"{test.memory_fraction:.0%} of the memory of {memory.device} is {has / 1e9:.1f} GB"
            yield name, f"it needs {wanted / 1e9:.1f} GB on each of {devices} devices, but {part}"


def _too_old(profile: Profile, chosen: Mapping[str, Test], devices: Sequence[Device]) -> Iterator[tuple[str, str]]:
    """The tests that need a GPU, or a later one, or whose neighbor does; one whose capability is unknown is tried."""
    for name, test in chosen.items():
        for beside in (name, *(test.neighbors if isinstance(test.neighbors, tuple) else ())):
            for lack in _lacking(profile.tests[beside].least_capability, devices):
                yield name, lack if beside == name else f"its neighbor {beside}: {lack}"


def _lacking(least: float | None, devices: Sequence[Device]) -> Iterator[str]:
    for device in devices if least is not None else ():
        if device.kind == "cpu":
            yield "it needs GPUs, but the tenants are CPU partitions"
        elif device.capability is not msgspec.UNSET and device.capability < (least or 0):
            needed = f"it needs compute capability {least:.1f}"
            yield f"{needed}, but device {device.index} ({device.name}) has {device.capability:.1f}"


def _too_wide(chosen: Mapping[str, Test], slots: int, per_device: int) -> Iterator[tuple[str, str]]:
    """The tests that need more slots than there are, or devices of their own, and why."""
    for name, test in chosen.items():
        if per_device > 1 and test.partition_scheme.type.spreads:
            yield name, f"it needs whole devices, but each of these has {per_device} tenants"
        elif test.least_devices > slots // per_device:
            yield name, f"it needs {test.least_devices} devices, but the node has {slots // per_device}"
        elif test.device_counts and slots not in test.device_counts:
            *others, last = map(str, test.device_counts)
            fit = f"{', '.join(others)} or {last}" if others else last
            yield name, f"a launch needs {fit} devices, but the node has {slots}"
        elif slots == 1 and test.mix is not None:
            yield name, f"it is in the mix {test.mix!r}, which needs two devices or more, but there is one"
        elif slots == 1 and test.neighbors and isinstance(test.neighbors, tuple):
            yield (
                name,
                f"it runs next to {', '.join(test.neighbors)}, which needs two devices or more, but there is one",
            )


def _refuse_part_of_mix(profile: Profile, chosen: Mapping[str, Test]) -> None:
    mixes = grouped(profile.tests, lambda name: profile.tests[name].mix)
    for name, test in chosen.items():
        lacking = [other for other in mixes[test.mix] if other not in chosen] if test.mix is not None else []
        if lacking:
            raise InputError(f"test {name!r} is in the mix {test.mix!r}. Also choose {', '.join(lacking)}, or neither")


def _places(test: Test, slots: int) -> int:
    """How often launches of one run of a test and of its company take a slot."""
    beside = isinstance(test.neighbors, tuple) and test.neighbors
    return slots * slots if beside else test.partition_scheme.type.places(slots)


class _Composer(msgspec.Struct, frozen=True):
    """Makes the batches of a run."""

    profile: Profile
    arguments: Resolved
    slots: Sequence[tuple[SlotId, Device]]

    def batches(self, chosen: Mapping[str, Test], run: int) -> Iterator[list[Launch]]:
        """Those of one run of the ``chosen`` tests; a mix stands where its first test does."""
        mixes = grouped(chosen, lambda name: chosen[name].mix)
        for name, test in chosen.items():
            if test.mix is not None:
                if name == mixes[test.mix][0]:
                    yield from self._mix(mixes[test.mix], run)
            elif test.neighbors == "same":
                for batch in test.partition_scheme.type.partitions(len(self.slots)):
                    yield [self._launch(name, run, positions) for positions in batch]
            else:
                yield from self._in_turn(name, () if test.neighbors == "none" else test.neighbors, run)

    def _in_turn(self, name: str, company: Sequence[str], run: int) -> Iterator[list[Launch]]:
        """The test on each slot, while the others run ``company``, in turn; nothing without any."""
        for position in range(len(self.slots)):
            others = [other for other in range(len(self.slots)) if other != position]
            beside = [
                self._launch(company[i % len(company)], run, (other,), "company")
                for i, other in enumerate(others if company else ())
            ]
            yield [self._launch(name, run, (position,)), *beside]

    def _mix(self, names: Sequence[str], run: int) -> Iterator[list[Launch]]:
        """A Latin square: the tests move on by one slot from batch to batch."""
        for turn in range(len(names)):
            yield [
                self._launch(names[(position + turn) % len(names)], run, (position,))
                for position in range(len(self.slots))
            ]

    def _launch(self, name: str, run: int, positions: Sequence[int], role: Role = "measured") -> Launch:
        test, options = self.profile.tests[name], self.arguments[name]
        return Launch(
            test=self.profile.id_of(name),
            scheme=test.partition_scheme.type,
            workload=test.workload,
            arguments=options.arguments,
            overrides=options.overrides,
            classes=options.classes or msgspec.UNSET,
            data_scale=test.data_scale,
            run=run,
            devices=tuple(self.slots[position][1].index for position in positions),
            slots=tuple(self.slots[position][0] for position in positions),
            role=role,
        )


def _ordered(batches: Sequence[list[Launch]], order: Order, nonce: str | None) -> list[list[Launch]]:
    """Sort the interleaved ``batches``. Random: by SHA-256, so that anyone can reproduce the order of a nonce."""

    def place(batch: list[Launch]) -> tuple[int, str]:
        first = batch[0]
        return first.run, hashlib.sha256(f"{nonce or ''}:{first.run}:{first.label}".encode()).hexdigest()

    match order:
        case "interleaved":
            return list(batches)
        case "file":
            tests = dict.fromkeys(batch[0].test for batch in batches)
            rank = {test: place for place, test in enumerate(tests)}
            return sorted(batches, key=lambda batch: rank[batch[0].test])
        case "random":
            return sorted(batches, key=place)


def _labels(name: str, test: Test, count: int) -> list[str]:
    scheme = test.partition_scheme.type
    batches = scheme.partitions(count)
    return list(dict.fromkeys(scheme.label(name, len(positions)) for batch in batches for positions in batch))
