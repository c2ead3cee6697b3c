"""Where, with what and in how many sessions a folder was produced. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from milabench_ng.analysis.launch.host_paces import PaceSeen, without_pace
from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.summary import Provenance
from milabench_ng.model.plan import Plan
from milabench_ng.model.profile import suite_of
from milabench_ng.model.units import counted, format_bytes
from milabench_ng.node.inventory import Inventory
from milabench_ng.records.ledger import AnyLedgerEvent, Attempt, Damaged, Finished, Resumed, Session, StoppedEarly
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.reading import Problem

T = TypeVar("T")


class ReducedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A result folder whose records are reduced to what the summary needs."""

    source: str
    results: tuple[LaunchResult, ...]
    manifests: tuple[Manifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    events: tuple[AnyLedgerEvent, ...] = ()
    """The events of the ledger."""
    going_on: bool = False


def distinct(values: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))


def device_count(manifests: Sequence[Manifest], results: Sequence[LaunchResult]) -> int:
    """How many tenants a plan measures: one per device, or per slot; without a plan, the devices that launches name."""
    if manifests:
        return max(max(len(made.plan.devices), len(made.plan.measured_slots)) for made in manifests)
    return max(1, len({device for result in results for device in result.devices}))


def side_by_side(manifests: Sequence[Manifest]) -> Counter[str]:
    """How many launches of each row the plan runs at the same time: normally one per device."""
    found: Counter[str] = Counter()
    for manifest in manifests:
        for batch in manifest.plan.batches:
            found |= Counter(launch.label for launch in batch.launches if launch.measured)
    return found


def node_devices(plan: Plan, inventory: Inventory) -> int:
    """The number of GPUs and MIG instances in the node; 0 if unknown, or if processors do the work."""
    return len(inventory.gpus) if all(device.kind != "cpu" for device in plan.devices) else 0


def order_of(plan: Plan) -> str | None:
    """The order of the plan in words; None for the usual one."""
    if plan.order == "interleaved" and plan.nonce is None:
        return None
    return plan.order if plan.nonce is None else f"{plan.order}, nonce {plan.nonce}"


def named_suite(folder: ReducedFolder) -> str:
    suites = dict.fromkeys(
        [manifest.plan.suite for manifest in folder.manifests]
        or [suite_of(result.test) or result.test for result in folder.results]
    )
    return "+".join(suites) or "unknown"


def suites_of(folder: ReducedFolder) -> tuple[str, ...]:
    """The suites of the planned tests by name; empty if each plan has tests of its own suite alone."""
    planned = [(made.plan.suite, launch.suite) for made in folder.manifests for launch in made.plan.measured]
    return tuple(sorted({suite for _, suite in planned})) if any(own != suite for own, suite in planned) else ()


def models_of(folder: ReducedFolder) -> dict[str, str]:
    """The devices' models by index, from the plan or, without one, from the launches."""
    devices = (
        [device for manifest in folder.manifests for device in manifest.plan.devices]
        if folder.manifests
        else [device for result in folder.results for device in result.hardware]
    )
    return {str(device.index): device.name for device in devices}


def _counted(models: Iterable[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(models).items())


def provenance_of(folder: ReducedFolder, models: Mapping[str, str]) -> Provenance:
    first = folder.manifests[0] if folder.manifests else None
    return Provenance(
        kind="measured",
        source=folder.source,
        hardware=_counted(models.values()) or "not recorded",
        software=first.software if first else {},
        node=_node(first.inventory) if first else {},
    )


def _node(inventory: Inventory) -> dict[str, str]:
    return {
        "machine": inventory.virtualization or "bare metal",
        "processors": inventory.cpus.text,
        "memory": format_bytes(inventory.memory_bytes),
        "kernel": inventory.kernel,
        "driver": inventory.driver or "none",
    }


def starts_of(folder: ReducedFolder, results: Sequence[LaunchResult]) -> int:
    """How often `mnb` began or went on and tried a launch, by the ledger; a run without a ledger counts as one."""
    work = (event for event in folder.events if isinstance(event, Session | Attempt))
    begun = sum(isinstance(one, Session) and isinstance(next_, Attempt) for one, next_ in pairwise(work))
    return max(1, begun, len(folder.manifests) or len({result.run_id for result in results}))


def _ends(folder: ReducedFolder) -> Iterator[str]:
    """What a rule for stopping came to, and that its width was not reached where it was not."""
    rules = [manifest.stopping for manifest in folder.manifests if manifest.stopping is not None]
    wanted = next((f"±{100 * rule.width:.3g}%" for rule in rules if rule.width is not None), "")
    ends = [event for event in folder.events if isinstance(event, StoppedEarly)]
    for event in ends:
        unmet = f"; the requested interval of {wanted} was not reached" if wanted and event.why == "budget" else ""
        yield f"ended after {counted(event.repeats, 'repeat')}, as asked: {event.detail}{unmet}"
    if wanted and not ends and any(isinstance(event, Finished) and not event.missing for event in folder.events):
        yield f"all repeats ran: the requested interval of {wanted} was not reached before the last"


def _accepted(events: Iterable[AnyLedgerEvent]) -> list[str]:
    """The differences between sessions that the user accepted, each once."""
    return list(dict.fromkeys(text for event in events if isinstance(event, Resumed) for text in event.accepted))


def run_ids(folder: ReducedFolder) -> tuple[str, ...]:
    """The ids of the runs by their manifests, or by the records without one."""
    stated = [manifest.run_id for manifest in folder.manifests]
    return distinct(stated or [result.run_id for result in folder.results])


def paces_seen(folder: ReducedFolder) -> list[PaceSeen]:
    return [each for result in folder.results for each in result.paces]


def notes_of(folder: ReducedFolder, models: Mapping[str, str]) -> tuple[str, ...]:
    notes = list(without_pace(paces_seen(folder)))
    if len(set(models.values())) > 1:
        notes.append(
            f"devices of several models ({_counted(models.values())}): each rate is a mean over different devices"
        )
    if len(folder.manifests) > 1:
        notes.append(f"{len(folder.manifests)} runs in one folder")
    damaged = list(dict.fromkeys(event.file for event in folder.events if isinstance(event, Damaged)))
    if damaged:
        notes.append(f"changed or removed by another program during the run: {', '.join(damaged)}")
    notes += _ends(folder)
    notes += [f"resumed with another {text}" for text in _accepted(folder.events)]
    return tuple(notes)
