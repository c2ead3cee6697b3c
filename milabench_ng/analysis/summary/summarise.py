"""From launches to a summary: statistics per test, and what was planned but is missing. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from milabench_ng.analysis.conditions.condition import worst
from milabench_ng.analysis.launch.bottleneck import Bottleneck
from milabench_ng.analysis.launch.host_paces import paces
from milabench_ng.analysis.statistics.intervals import session_stat
from milabench_ng.analysis.summary.answers import answers
from milabench_ng.analysis.summary.company import company_of, pressing_of
from milabench_ng.analysis.summary.ending import between_sessions, interrupted, left_s
from milabench_ng.analysis.summary.energy import energies, idle_w, run_kwh
from milabench_ng.analysis.summary.flags import flags, slow_repeats
from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.one_node import check_one_node
from milabench_ng.analysis.summary.one_work import of_one_work
from milabench_ng.analysis.summary.profile_order import in_profile_order
from milabench_ng.analysis.summary.provenance import (
    ReducedFolder,
    device_count,
    distinct,
    models_of,
    named_suite,
    node_devices,
    notes_of,
    order_of,
    paces_seen,
    provenance_of,
    run_ids,
    side_by_side,
    starts_of,
    suites_of,
)
from milabench_ng.analysis.summary.repeats import (
    Runs,
    by_job,
    device_stats,
    rank_means,
    repeats,
    runs_of,
    sessions_by_repeat,
    stat_of,
)
from milabench_ng.analysis.summary.stress import power_fraction, worst_drift
from milabench_ng.analysis.summary.summary import (
    FailedLaunch,
    Latency,
    ReadLimit,
    StepTally,
    Summary,
    TestSummary,
    progression_steps,
)
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered, grouped
from milabench_ng.model.plan import Launch
from milabench_ng.model.profile import Scheme, name_of
from milabench_ng.model.stats import mean, median
from milabench_ng.model.units import counted
from milabench_ng.records import latency
from milabench_ng.records.isolation import Tier, weakest_tier
from milabench_ng.records.ledger import NOT_TRIED, LaunchKey, Session, attempts, recorded
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.marks import merged
from milabench_ng.records.names import LEDGER
from milabench_ng.records.reading import Problem
from milabench_ng.records.record import Mnb, Rank
from milabench_ng.records.retried import Good, Tried, made_up_for, superseded
from milabench_ng.records.separate_sessions import session_at, session_starts
from milabench_ng.records.verified import totals
from milabench_ng.records.work import Work


def summarise(folder: ReducedFolder) -> Summary:
    """Summarise every test of ``folder``, and what was planned but is missing."""
    ours = _is_ours(folder)
    _check_copies(folder)
    check_one_node(folder.source, folder.manifests, folder.results)
    company, pressing = company_of(folder.manifests, folder.results), pressing_of(folder.manifests)
    units = {name_of(result.test): result.work.unit for result in folder.results}
    folder = _in_sessions(_of_one_work(_measured(folder)))
    planned = {
        (manifest.run_id, launch.label, launch.job_id): launch
        for manifest in folder.manifests
        for launch in manifest.plan.launches
        if launch.measured
    }
    results, loose = _place(folder, list(planned.values()))
    if not results and not planned and not loose:
        raise InputError(
            f"{folder.source}: not a result folder: it has no record and no run.json. Give the folder that "
            "`mnb jobs` names in its last lines"
        )
    absent = _absent(planned, results)
    results += _lost(folder, results, absent)
    cut = interrupted_only(results)
    results = [result for result in results if result not in cut]
    devices, models = device_count(folder.manifests, results), models_of(folder)
    rows, runs = grouped(results, lambda result: result.label), runs_of(results)
    promised = Counter(launch.label for launch in planned.values())
    together = side_by_side(folder.manifests)
    noted = {(one.label, one.job_id): one.file for one in recorded(folder.events) if one.cause not in NOT_TRIED}
    return Summary(
        suite=named_suite(folder),
        suites=suites_of(folder),
        units="true" if ours else "classic",
        devices=devices,
        provenance=provenance_of(folder, models),
        models=models,
        node_devices=max((node_devices(one.plan, one.inventory) for one in folder.manifests), default=0) or None,
        has_plan=bool(folder.manifests),
        sessions=max((result.session for result in results), default=1),
        starts=starts_of(folder, results),
        runs=run_ids(folder),
        profile_sha256=distinct(manifest.profile.sha256 for manifest in folder.manifests),
        orders=distinct(order_of(manifest.plan) for manifest in folder.manifests),
        going_on=folder.going_on,
        interrupted=interrupted(folder),
        between_sessions=between_sessions(folder),
        left_s=left_s(folder) if folder.going_on else None,
        omitted=tuple(dict.fromkeys(label for manifest in folder.manifests for label in manifest.plan.omitted)),
        unplanned={label: why for manifest in folder.manifests for label, why in manifest.plan.not_planned.items()},
        notes=(*notes_of(folder, models), *_cut_off(cut)),
        host_pace=paces(paces_seen(folder)),
        energy_kwh=run_kwh(folder.results),
        idle_w=idle_w(folder.manifests),
        tests={
            label: msgspec.structs.replace(
                _test(
                    rows.get(label, ()),
                    runs,
                    absent.get(label, ()),
                    promised[label] if folder.manifests else None,
                    folder.going_on,
                    together[label] or devices,
                    noted,
                    folder.manifests,
                ),
                company=company.get(label),
                company_units={name: units[name] for name in company.get(label) or () if name in units},
                pressing={name: one for name in company.get(label) or () if (one := pressing.get(name))},
            )
            for label in in_profile_order([*promised, *rows], folder.manifests, planned.values())
        },
        problems=loose,
    )


def _check_copies(folder: ReducedFolder) -> None:
    """Raise InputError if a run is there twice, in folders below: its launches would count twice."""
    for run_id, times in Counter(manifest.run_id for manifest in folder.manifests).items():
        if times > 1:
            raise InputError(
                f"{folder.source}: the run {run_id} is there {times} times, in folders below it. Name one of "
                "them, or remove the copies"
            )


def _measured(folder: ReducedFolder) -> ReducedFolder:
    """Drop the records of company, which have no rows."""
    return msgspec.structs.replace(
        folder, results=tuple(one for one in folder.results if one.mnb is None or one.mnb.launch.measured)
    )


def _in_sessions(folder: ReducedFolder) -> ReducedFolder:
    """Number the launches by separate session."""
    dated = [(result, result.started_utc) for result in folder.results]
    starts = session_starts(begun for _, begun in dated if begun is not None)
    numbers = [1 if begun is None else session_at(begun, starts) for _, begun in dated]
    results = tuple(
        msgspec.structs.replace(one, session=number) for one, number in zip(folder.results, numbers, strict=True)
    )
    return msgspec.structs.replace(folder, results=results)


def _of_one_work(folder: ReducedFolder) -> ReducedFolder:
    """Turn records that disagree with their row into problems."""
    results, odd = of_one_work(folder.source, folder.results)
    return msgspec.structs.replace(folder, results=results, problems=folder.problems + odd)


def _is_ours(folder: ReducedFolder) -> bool:
    """Whether the records count true items, rather than those of 2020."""
    kinds = {result.run_id is not None for result in folder.results}
    if len(kinds) > 1:
        raise InputError(
            f"{folder.source}: records of milabench 2020 and of mnb in one folder count different items. Put "
            "them into two folders"
        )
    return True in kinds or bool(folder.manifests)


def _absent(planned: Mapping[tuple[str, str, str], Launch], results: Sequence[LaunchResult]) -> dict[str, list[Launch]]:
    """The launches without a record, by row."""
    present = {(result.run_id, result.label, result.job_id) for result in results}
    return gathered(
        (label, launch)
        for (run_id, label, job_id), launch in planned.items()
        if (run_id, label, job_id) not in present and (None, label, job_id) not in present
    )


def _lost(
    folder: ReducedFolder, results: Sequence[LaunchResult], absent: Mapping[str, Sequence[Launch]]
) -> list[LaunchResult]:
    """The ledger's attempts without a record, as failures: records that are gone, and attempts that never left one.

    A missing launch already counts as one.

    While the run is in progress, attempts of its last session may still leave records.
    """
    sessions = [place for place, event in enumerate(folder.events) if isinstance(event, Session)]
    over = folder.events[: sessions[-1]] if folder.going_on and sessions else folder.events
    present = Counter((result.label, result.job_id) for result in results)
    missing = {(label, launch.job_id) for label, launches in absent.items() for launch in launches}
    known = {(launch.label, launch.job_id): launch for made in folder.manifests for launch in made.plan.launches}
    files = {result.file for result in results}
    gone = gathered(((one.label, one.job_id), one.file) for one in recorded(over) if one.file not in files)
    found = []
    for key, tried in attempts(over).items():
        if key not in known:
            continue
        for number in range(tried - present[key] - (key in missing)):
            launch, named = known[key], gone.get(key, [])[number:]
            reason = (
                _GONE.format(named[0]) if named else "an attempt left no record: mnb was killed, or the node crashed"
            )
            problem = Problem(file=LEDGER, reason=reason)
            lost = _unreadable(problem, launch.test, launch.job_id, launch.label, launch.scheme)
            found.append(msgspec.structs.replace(lost, cause="missing" if named else "interrupted"))
    return found


def _place(folder: ReducedFolder, planned: Sequence[Launch]) -> tuple[list[LaunchResult], tuple[Problem, ...]]:
    """The results, with unreadable records as failures of their rows; and the problems that belong to no row."""
    known = {(launch.test, launch.job_id): launch for launch in planned}
    company = {
        (launch.test, launch.job_id)
        for manifest in folder.manifests
        for launch in manifest.plan.launches
        if not launch.measured
    }
    schemes = {result.test: result.work.scheme for result in folder.results}
    placed, loose = list(folder.results), []
    for problem in folder.problems:
        launch = known.get((problem.test or "", problem.job_id or ""))
        of_company = launch is None and (problem.test, problem.job_id) in company
        if problem.test is None or problem.job_id is None or of_company:
            loose.append(problem)
            continue
        label, scheme = problem.test, schemes.get(problem.test, Scheme.PER_GPU)
        if launch is not None:
            label, scheme = launch.label, launch.scheme
        else:
            label = scheme.label(label, _last_device(problem.job_id) + 1)
        placed.append(_unreadable(problem, problem.test, problem.job_id, label, scheme))
    return placed, tuple(loose)


def _last_device(job_id: str) -> int:
    """The index in ``run.slot``; 0 for anything else."""
    found = re.search(r"\.([0-9]{1,9})[a-z]?\Z", job_id)
    return int(found[1]) if found else 0


def _unreadable(problem: Problem, test: str, job_id: str, label: str, scheme: Scheme) -> LaunchResult:
    return LaunchResult(
        file=problem.file,
        test=test,
        label=label,
        job_id=job_id,
        work=Work(scheme=scheme),
        cause="unreadable",
        detail=problem.reason,
    )


def _test(
    results: Sequence[LaunchResult],
    runs: Runs,
    absent: Sequence[Launch],
    planned: int | None,
    going_on: bool,
    devices: int,
    noted: Mapping[LaunchKey, str],
    manifests: Sequence[Manifest],
) -> TestSummary:
    """Summarise one row of a folder of ``runs``.

    ``noted``: the files in which the ledger says that launches have their results. ``manifests``: those of the folder.
    """
    earlier = measured_again(results)
    kept = [result for result in results if result not in earlier]
    good = [result for result in kept if result.cause is None]
    readable = [result for result in kept if result.cause != "unreadable" and result.file != LEDGER]
    failed = [
        FailedLaunch(job_id=result.job_id, cause=result.cause, detail=result.detail, file=result.file)
        for result in results
        if result.cause is not None
    ]
    missing = () if going_on else absent
    failed += [_missing(launch, noted.get((launch.label, launch.job_id))) for launch in missing]
    scheme = absent[0].scheme if absent else results[0].work.scheme
    ours = [result.mnb for result in readable if result.mnb is not None]
    powers = [result.power for result in good if result.power is not None]
    of_steps = [result.items_per_step for result in good if result.items_per_step is not None]
    waits = [result.wait_share for result in good if result.wait_share is not None]
    named, repeated = by_job(good, runs), repeats(good, runs)
    sessions = {repeat: number for repeat, number in sessions_by_repeat(good, runs).items() if repeat in repeated}
    return TestSummary(
        n=len(results) + len(missing),
        failures=len(failed),
        total=stat_of([result.program_s for result in good if result.program_s is not None]),
        train=stat_of([sample for result in good for sample in result.samples]),
        pergpu=device_stats(good),
        peak_memory=max((result.peak_memory_mib for result in readable), default=0.0),
        work=_work(good, readable, scheme),
        devices=_width(results, absent) if scheme.spreads else devices,
        planned=planned,
        missing=len(missing),
        pending=len(absent) - len(missing),
        failed=tuple(failed),
        launches={job: result.perf for job, result in named.items()},
        repeats=repeated,
        sessions=sessions,
        log_perf=session_stat(repeated, sessions),
        ranks=rank_means(good),
        flags=(*flags(named), *slow_repeats(repeated)),
        power_w=mean([power.watts for power in powers]) if powers else None,
        power_basis=distinct(power.basis for power in powers),
        power_launches=len(powers),
        energy=energies(good, _width(results, absent) if scheme.spreads else devices),
        telemetry_dropped=max((mnb.sampled.dropped for mnb in ours if mnb.sampled), default=0),
        gpu_load=repeats([one for one in good if one.gpu_load is not None], runs, lambda one: one.gpu_load or 0.0),
        bottleneck=_bottleneck(good),
        read_limits=distinct(map(_read_limit, ours)),
        wait_share=mean(waits) if waits else None,
        latency=Latency.of(latency.merged(result.latencies for result in good)),
        item_latency=_item_latency(good),
        notes=_notes(good),
        verified=totals(rank.verified for mnb in ours for rank in mnb.ranks if rank.verified),
        power_fraction=power_fraction(one.mnb for one in good if one.mnb is not None),
        drift=worst_drift(one.mnb for one in good if one.mnb is not None),
        answers=answers(good, manifests),
        steps=_steps([result.steps for result in good if result.steps is not None]),
        items_per_step=mean(of_steps) if of_steps else None,
        started_utc=min((mnb.started_utc for mnb in ours), default=None),
        tiers=distinct(_tier(result) for result in readable),
        kernels=distinct(kernel for mnb in ours for rank in mnb.ranks for kernel in _kernels(rank)),
        marks=merged(mark for result in readable for mark in result.marks),
        conditions=worst(one for result in readable for one in result.conditions),
        reference=distinct(result.reference for result in good if result.reference),
    )


def _bottleneck(good: Sequence[LaunchResult]) -> Bottleneck | None:
    """That of most launches; ``mixed`` where no kind is that of more than half of them."""
    seen = Counter(one.bottleneck for one in good if one.bottleneck is not None)
    kind, count = next(iter(seen.most_common(1)), (None, 0))
    return kind if 2 * count > seen.total() else "mixed" if seen else None


def _kernels(rank: Rank) -> Iterator[str]:
    """What of torch's libraries worked, such as ``attention flash``."""
    yield from (" ".join(item) for item in (() if rank.kernels is msgspec.UNSET else rank.kernels.items()))


def _read_limit(mnb: Mnb) -> ReadLimit | None:
    """The limit of its shares, which are alike."""
    limited = (share.io for share in mnb.isolation.values() if share.io and share.io.read_bytes_per_s)
    return next((ReadLimit(each.read_bytes_per_s or 1, each.method) for each in limited), None)


def _tier(result: LaunchResult) -> Tier | None:
    """The weakest tier of its shares; None if unknown, as for a launch that died before they were read back."""
    if result.mnb is None:
        return None
    if result.mnb.isolation:
        return weakest_tier([share.tier for share in result.mnb.isolation.values()])
    return "none" if result.cause is None else None


def _work(good: Sequence[LaunchResult], readable: Sequence[LaunchResult], scheme: Scheme) -> Work:
    """The work of a row; its launches agree in all that was planned."""
    first = next((result.work for result in (*good, *readable)), Work(unit="items"))
    precision = distinct(mode for result in readable for mode in result.work.precision)
    data = distinct(read for result in readable for read in result.work.data)
    return msgspec.structs.replace(first, scheme=scheme, precision=precision, data=data)


def measured_again(results: Sequence[LaunchResult]) -> list[LaunchResult]:
    """The good results that count no longer, since a retry measured them again beside the neighbours that they lost."""
    return superseded(
        [
            Good(one, (one.run_id, one.job_id), one.started_utc, one.marks)
            for one in results
            if one.cause is None and one.started_utc is not None
        ]
    )


def interrupted_only(results: Sequence[LaunchResult]) -> list[LaunchResult]:
    """The attempts of interrupted batches that were measured again whole: they say nothing about the node."""
    return made_up_for(
        [
            Tried(one, (one.run_id, one.label, one.job_id), one.run_id, one.started_utc, one.cause == "interrupted")
            for one in results
            if one.started_utc is not None
        ]
    )


def _cut_off(cut: Sequence[LaunchResult]) -> tuple[str, ...]:
    """The note on interrupted launches that count no longer."""
    if not cut:
        return ()
    were = "was" if len(cut) == 1 else "were"
    return (f"{counted(len(cut), 'launch')} {were} interrupted and measured again: no failure",)


_GONE = "the ledger names {}, but it is missing"


def _missing(launch: Launch, file: str | None) -> FailedLaunch:
    gone = _GONE.format(file) if file else "there is no record"
    return FailedLaunch(job_id=launch.job_id, cause="missing", detail=gone, file=file)


def _steps(launches: Sequence[tuple[int, int]]) -> StepTally | None:
    """The steps of a usual launch."""
    if not launches:
        return None
    before, measured = (round(median(counts)) for counts in zip(*launches, strict=True))
    return StepTally(before=before, measured=measured)


def _notes(launches: Sequence[LaunchResult]) -> dict[str, float]:
    """What all launches noted, averaged."""
    names = dict.fromkeys(name for launch in launches for name in launch.notes)
    noted = {name: [launch.notes[name] for launch in launches if name in launch.notes] for name in names}
    return {name: mean(values) for name, values in noted.items()}


def _item_latency(launches: Sequence[LaunchResult]) -> dict[str, Latency]:
    """What of its items took how long, over all launches."""
    names = sorted({name for launch in launches for name in launch.item_latencies})
    timed = {name: latency.merged(launch.item_latencies.get(name, ()) for launch in launches) for name in names}
    return {name: found for name, each in timed.items() if (found := Latency.of(each))}


def _width(results: Sequence[LaunchResult], absent: Sequence[Launch]) -> int:
    """How many devices each launch of a row uses."""
    widths = [len(launch.devices) for launch in absent] + [len(result.devices) for result in results]
    label = results[0].label if results else absent[0].label
    return max(widths) or progression_steps([label]).get(label, 1)
