"""Launches become a summary: statistics per test, and what was promised and is not there. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.plan import Launch, Plan
from milabench_ng.records.ledger import AnyEvent, Resumed, Session, attempts
from milabench_ng.records.marks import merged
from milabench_ng.records.names import LEDGER
from milabench_ng.records.reading import Problem
from milabench_ng.records.views import InventoryView, ManifestView
from milabench_ng.report.launch.host_paces import PaceSeen, paces, without_pace
from milabench_ng.report.statistics.intervals import log_stat
from milabench_ng.report.summary.flags import flags
from milabench_ng.report.summary.launches import LaunchResult
from milabench_ng.report.summary.one_node import check_one_node
from milabench_ng.report.summary.one_work import of_one_work
from milabench_ng.report.summary.repeats import by_job, device_stats, rank_means, repeats, stat_of
from milabench_ng.report.summary.summary import Failed, Provenance, Summary, TestSummary, progression_steps
from milabench_ng.stats import mean
from milabench_ng.units import format_bytes

T = TypeVar("T")


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a result folder."""

    source: str
    results: tuple[LaunchResult, ...]
    manifests: tuple[ManifestView, ...] = ()
    problems: tuple[Problem, ...] = ()
    events: tuple[AnyEvent, ...] = ()
    """Of the ledger."""
    going_on: bool = False


def summarise(folder: Folder) -> Summary:
    """The statistics of every test of ``folder``, and what was promised and is not there."""
    ours = _is_ours(folder)
    check_one_node(folder.source, folder.manifests, folder.results)
    folder = _of_one_work(folder)
    planned = {
        (manifest.run_id, launch.label, launch.job_id): launch
        for manifest in folder.manifests
        for launch in manifest.plan.launches
    }
    results, loose = _place(folder, list(planned.values()))
    if not results and not planned and not loose:
        raise InputError(f"{folder.source}: no record in it; give the folder that `mnb jobs` wrote")
    absent = _absent(planned, results)
    results += _lost(folder, results, absent)
    devices, models = _device_count(folder.manifests, results), _models(folder)
    rows: dict[str, list[LaunchResult]] = defaultdict(list)
    for result in results:
        rows[result.label].append(result)
    promised = Counter(launch.label for launch in planned.values())
    return Summary(
        suite=_suite(folder),
        units="true" if ours else "classic",
        devices=devices,
        provenance=_provenance(folder, models),
        models=models,
        node_devices=max((_node_devices(manifest) for manifest in folder.manifests), default=0) or None,
        has_plan=bool(folder.manifests),
        sessions=_sessions(folder, results),
        profile_sha256=_distinct(at.profile.sha256 if at.profile else None for at in folder.manifests),
        orders=_distinct(_order(manifest.plan) for manifest in folder.manifests),
        going_on=folder.going_on,
        omitted=tuple(dict.fromkeys(label for manifest in folder.manifests for label in manifest.plan.omitted)),
        notes=_notes(folder, ours, models),
        host_pace=paces(_paces(folder)),
        tests={
            label: _test(
                rows[label],
                absent[label],
                promised[label] if folder.manifests else None,
                folder.going_on,
                devices,
            )
            for label in dict.fromkeys([*promised, *rows])
        },
        problems=loose,
    )


def _of_one_work(folder: Folder) -> Folder:
    """Without the records that are not as the others of their row: they are problems."""
    results, odd = of_one_work(folder.source, folder.results)
    return msgspec.structs.replace(folder, results=results, problems=folder.problems + odd)


def _is_ours(folder: Folder) -> bool:
    """Whether the records count true items; those of 2020 count the items of 2020."""
    kinds = {result.run_id is not None for result in folder.results}
    if len(kinds) > 1:
        raise InputError(
            f"{folder.source}: records of 2020 and of mnb in one folder count different items; put them into two"
        )
    return True in kinds or bool(folder.manifests)


def _absent(planned: Mapping[tuple[str, str, str], Launch], results: Sequence[LaunchResult]) -> dict[str, list[Launch]]:
    """The launches without a record, by row."""
    present = {(result.run_id, result.label, result.job_id) for result in results}
    absent: dict[str, list[Launch]] = defaultdict(list)
    for (run_id, label, job_id), launch in planned.items():
        if (run_id, label, job_id) not in present and (None, label, job_id) not in present:
            absent[label].append(launch)
    return absent


def _lost(
    folder: Folder, results: Sequence[LaunchResult], absent: Mapping[str, Sequence[Launch]]
) -> list[LaunchResult]:
    """The attempts of the ledger that left no record, as failures. A launch that is missing counts as one already.

    While the run goes on, those of its last session may still leave theirs.
    """
    sessions = [place for place, event in enumerate(folder.events) if isinstance(event, Session)]
    over = folder.events[: sessions[-1]] if folder.going_on and sessions else folder.events
    present = Counter((result.label, result.job_id) for result in results)
    missing = {(label, launch.job_id) for label, launches in absent.items() for launch in launches}
    known = {(launch.label, launch.job_id): launch for made in folder.manifests for launch in made.plan.launches}
    found = []
    for key, tried in attempts(over).items():
        if key not in known:
            continue
        for _ in range(tried - present[key] - (key in missing)):
            launch = known[key]
            problem = Problem(file=LEDGER, reason="an attempt left no record: mnb was killed, or the node went down")
            lost = _unreadable(problem, launch.test, launch.job_id, launch.label, launch.scheme)
            found.append(msgspec.structs.replace(lost, cause="interrupted"))
    return found


def _place(folder: Folder, planned: Sequence[Launch]) -> tuple[list[LaunchResult], tuple[Problem, ...]]:
    """The results and, as failures of their rows, the unreadable records; those that belong to no row are left."""
    known = {(launch.test, launch.job_id): launch for launch in planned}
    schemes = {result.test: result.scheme for result in folder.results}
    placed, loose = list(folder.results), []
    for problem in folder.problems:
        if problem.test is None or problem.job_id is None:
            loose.append(problem)
            continue
        launch = known.get((problem.test, problem.job_id))
        label, scheme = problem.test, schemes.get(problem.test, "per-gpu")
        if launch is not None:
            label, scheme = launch.label, launch.scheme
        elif scheme == "gpu-progression":
            label = f"{label}.{int(problem.job_id.partition('.')[2]) + 1}"
        placed.append(_unreadable(problem, problem.test, problem.job_id, label, scheme))
    return placed, tuple(loose)


def _unreadable(problem: Problem, test: str, job_id: str, label: str, scheme: str) -> LaunchResult:
    return LaunchResult(
        file=problem.file,
        test=test,
        label=label,
        job_id=job_id,
        run_id=None,
        scheme=scheme,
        devices=(),
        cause="unreadable",
        detail=problem.reason,
        perf=float("nan"),
        samples=(),
        peak_memory_mib=0.0,
    )


def _test(
    results: Sequence[LaunchResult], absent: Sequence[Launch], planned: int | None, going_on: bool, devices: int
) -> TestSummary:
    """One row."""
    good = [result for result in results if result.cause is None]
    readable = [result for result in results if result.cause != "unreadable" and result.file != LEDGER]
    failed = [
        Failed(job_id=result.job_id, cause=result.cause, detail=result.detail, file=result.file)
        for result in results
        if result.cause is not None
    ]
    missing = () if going_on else absent
    failed += [Failed(job_id=launch.job_id, cause="missing", detail="there is no record") for launch in missing]
    scheme = absent[0].scheme if absent else results[0].scheme
    powers = [result.power for result in good if result.power is not None]
    waits = [result.wait_share for result in good if result.wait_share is not None]
    first = readable[0] if readable else None
    named, repeated = by_job(good), repeats(good)
    return TestSummary(
        n=len(results) + len(missing),
        failures=len(failed),
        total=stat_of([result.program_s for result in good if result.program_s is not None]),
        train=stat_of([sample for result in good for sample in result.samples]),
        pergpu=device_stats(good),
        peak_memory=max((result.peak_memory_mib for result in readable), default=0.0),
        unit=first.unit if first else "items",
        classic_factor=first.classic_factor if first else None,
        bound=first.bound if first else None,
        scheme=scheme,
        devices=devices if scheme == "per-gpu" else _width(results, absent),
        planned=planned,
        missing=len(missing),
        pending=len(absent) - len(missing),
        failed=tuple(failed),
        launches={job: result.perf for job, result in named.items()},
        repeats=repeated,
        log_perf=log_stat(list(repeated.values())),
        ranks=rank_means(good),
        flags=flags(named),
        options=first.options if first else {},
        power_w=mean([power.watts for power in powers]) if powers else None,
        power_basis=_distinct(power.basis for power in powers),
        power_launches=len(powers),
        telemetry_dropped=max((result.dropped for result in readable), default=0),
        wait_share=mean(waits) if waits else None,
        tiers=_distinct(result.tier for result in readable),
        data=_distinct(result.data for result in readable),
        precision=_distinct(result.precision for result in readable),
        marks=merged(mark for result in readable for mark in result.marks),
        reference=_distinct(result.reference for result in good if result.reference),
    )


def _width(results: Sequence[LaunchResult], absent: Sequence[Launch]) -> int:
    """Over how many devices the launches of a row go."""
    widths = [len(launch.devices) for launch in absent] + [len(result.devices) for result in results]
    label = results[0].label if results else absent[0].label
    return max(widths) or progression_steps([label]).get(label, 1)


def _distinct(values: Iterable[T | None]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))


def _device_count(manifests: Sequence[ManifestView], results: Sequence[LaunchResult]) -> int:
    """The plan's; without one, as many as the launches name."""
    if manifests:
        return max(len(manifest.plan.devices) for manifest in manifests)
    return max(1, len({device for result in results for device in result.devices}))


def _node_devices(manifest: ManifestView) -> int:
    """GPUs and MIG instances of the node; 0 where they are not known, or where processors did the work."""
    on_gpus = all(device.kind != "cpu" for device in manifest.plan.devices)
    return len(manifest.inventory.gpus) if manifest.inventory and on_gpus else 0


def _order(plan: Plan) -> str | None:
    """None for the usual one."""
    if plan.order == "interleaved" and plan.nonce is None:
        return None
    return plan.order if plan.nonce is None else f"{plan.order}, nonce {plan.nonce}"


def _suite(folder: Folder) -> str:
    suites = dict.fromkeys(
        [manifest.plan.suite for manifest in folder.manifests]
        or [result.test.rpartition(".")[0] or result.test for result in folder.results]
    )
    return "+".join(suites) or "unknown"


def _models(folder: Folder) -> dict[str, str]:
    """The devices' models by index: the plan's; without one, those that the launches name."""
    devices = (
        [device for manifest in folder.manifests for device in manifest.plan.devices]
        if folder.manifests
        else [device for result in folder.results for device in result.hardware]
    )
    return {str(device.index): device.name for device in devices}


def _counted(models: Iterable[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(models).items())


def _provenance(folder: Folder, models: Mapping[str, str]) -> Provenance:
    first = folder.manifests[0] if folder.manifests else None
    return Provenance(
        kind="measured",
        source=folder.source,
        hardware=_counted(models.values()) or "not recorded",
        software=first.software if first else {},
        node=_node(first.inventory) if first else {},
    )


def _node(inventory: InventoryView | None) -> dict[str, str]:
    """The node in words."""
    if inventory is None:
        return {}
    return {
        "machine": inventory.virtualization or "bare metal",
        "processors": inventory.cpus.text,
        "memory": format_bytes(inventory.memory_bytes),
        "kernel": inventory.kernel,
        "driver": inventory.nvidia_driver or "none",
    }


def _starts(folder: Folder) -> int:
    """How often an orchestrator began to work on the folder, as its ledger has it; 0 without one."""
    return sum(isinstance(event, Session) for event in folder.events)


def _sessions(folder: Folder, results: Sequence[LaunchResult]) -> int:
    """Sessions of the ledger; a run without one counts as one."""
    return max(1, _starts(folder), len(folder.manifests) or len({result.run_id for result in results}))


def _accepted(events: Iterable[AnyEvent]) -> list[str]:
    """The differences between sessions that the user accepted, each once."""
    return list(dict.fromkeys(text for event in events if isinstance(event, Resumed) for text in event.accepted))


def _paces(folder: Folder) -> list[PaceSeen]:
    return [each for result in folder.results for each in result.paces]


def _notes(folder: Folder, ours: bool, models: Mapping[str, str]) -> tuple[str, ...]:
    notes = list(without_pace(_paces(folder)))
    if len(set(models.values())) > 1:
        notes.append(f"devices of several models ({_counted(models.values())}): rates are means over unlike devices")
    if not folder.manifests and ours:
        notes.append("there is no run.json: what was planned is not known")
    if len(folder.manifests) > 1:
        notes.append(f"{len(folder.manifests)} runs in one folder")
    sessions = _starts(folder)
    if sessions > 1:
        notes.append(f"{sessions} sessions: the run was stopped and went on")
    notes += [f"resumed with another {text}" for text in _accepted(folder.events)]
    return tuple(notes)
