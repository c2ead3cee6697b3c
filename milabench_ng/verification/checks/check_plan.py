"""Rules on what was to run: the profile, the weights, and the plan that follows from them."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered
from milabench_ng.model.plain import names_of
from milabench_ng.model.plan import Launch, Plan, ResolvedOptions, tenant_memory
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import Profile, name_of
from milabench_ng.node.gpus import smallest_memory
from milabench_ng.records.ledger import Attempt, Recorded
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.separate_sessions import session_at, session_starts
from milabench_ng.verification.checks.clocks import moment
from milabench_ng.verification.evidence import Evidence, Pinned
from milabench_ng.verification.findings import OFF, Finding, judged, unknown

_FEW_PLACES = 100_000
"""Planned anyway, so that what lacks can be named: two seconds, 50 MB."""
_NAMED = 5
"""How many tests a reason names."""
_OF_2020 = "the profile has the format of milabench 2020. Convert it before the tender"


def profile(evidence: Evidence) -> Finding:
    """The profile is the one that is demanded, under its name: rules, weights and baselines know tests by suite."""
    found, suite = _pinned({"the profile is": evidence.profile}), evidence.manifest.plan.suite
    if found.result == "pass" and evidence.shipped_profile not in (None, suite):
        known = evidence.shipped_profile
        return judged([f"the profile {known} ran under the name {suite}, so its tests have other names"])
    return found


def weights(evidence: Evidence) -> Finding:
    """The weights of the score are those that are demanded."""
    several = len(evidence.weights) > 1
    return _pinned(
        {f"the weights{f' of {suite}' if several else ''} are": pinned for suite, pinned in evidence.weights.items()}
    )


def _pinned(files: Mapping[str, Pinned]) -> Finding:
    """``files``: in words, what is of a SHA-256."""
    demanded = {what: pinned for what, pinned in files.items() if pinned.demanded is not None}
    return judged(_not_as_demanded(demanded)) if demanded else OFF


def _not_as_demanded(files: Mapping[str, Pinned]) -> Iterator[str]:
    for what, pinned in files.items():
        if pinned.demanded is not None and pinned.used != pinned.demanded:
            used = "not there" if pinned.used is None else f"of SHA-256 {pinned.used[:12]}"
            yield f"{what} {used}, but the rules require {pinned.demanded[:12]}"


def plan(evidence: Evidence) -> Finding:
    """The plan is what the profile makes on the node's devices, and of all of its tests if it is demanded."""
    stated = read_stated(evidence.manifest)
    if stated is None:
        return unknown(_OF_2020)
    all_of_it = evidence.profile.demanded is not None
    found = _plan_differences(stated, evidence.manifest, all_of_it=all_of_it)
    return judged([*found, *_not_requested(evidence.manifest)])


def read_stated(manifest: Manifest) -> Profile | None:
    """The profile in a manifest; None for one of 2020. Raises InputError if it is not a profile."""
    stated = manifest.stated_profile()
    return stated if isinstance(stated, Profile) else None


def _plan_differences(stated: Profile, manifest: Manifest, *, all_of_it: bool) -> Iterator[str]:
    """Differences between the plan and a newly made one, as sets: another rule checks the order.

    ``all_of_it``: tests that were not chosen are one, too.
    """
    planned = manifest.plan
    try:
        expected = _expected(stated, planned, manifest)
    except InputError as error:
        yield str(error)
        return
    if all_of_it and expected.omitted:
        left = [name_of_row(label) for label in expected.omitted]
        yield f"{len(left)} of {len(_rows(expected))} tests are not in the plan: {names_of(left, _NAMED)}"
    yield from _other_scales(expected, planned)
    wanted = _batches(batch.launches for batch in expected.batches)
    there = _batches(batch.launches for batch in planned.batches)
    for batch, launches in (wanted - there).items():
        yield f"the profile runs {_shown(batch)} at the same time, but the plan does not ({launches} times)"
    for batch, launches in (there - wanted).items():
        yield f"the plan runs {_shown(batch)} at the same time, but the profile does not ({launches} times)"
    if planned.not_planned.keys() != expected.not_planned.keys():
        ours, theirs = _named(planned.not_planned), _named(expected.not_planned)
        yield f"run.json lists {ours} as not planned, but the profile gives {theirs}"
    if planned.omitted != expected.omitted:
        ours, theirs = _named(planned.omitted), _named(expected.omitted)
        yield f"run.json lists {ours} as left out, but its plan leaves out {theirs}"


def left_out(stated: Profile, planned: Plan) -> tuple[str, ...]:
    """The tests of a profile that the plan neither has nor says to be too much for the node (`--name`)."""
    chosen = _chosen(planned)
    return tuple(name for name, test in stated.tests.items() if test.role == "measured" and name not in chosen)


def tests_fact(plan: Plan) -> str:
    """How many of the profile's tests were chosen; empty if all were."""
    tests = _rows(plan)
    return f"{len(tests) - len(plan.omitted)} of {len(tests)} tests of the profile" if plan.omitted else ""


def _rows(plan: Plan) -> set[str]:
    """The tests of a plan's profile, counted by rows as in a report: of a progression, each step is one."""
    return {*(launch.label for launch in plan.measured), *plan.not_planned, *plan.omitted}


def _chosen(planned: Plan) -> set[str]:
    return {name_of(test) for test in (*(one.test for one in planned.measured), *planned.not_planned)}


def _named(labels: Iterable[str]) -> str:
    return ", ".join(labels) or "none"


def _not_requested(manifest: Manifest) -> Iterator[str]:
    """What the request asked for and the manifest has otherwise; one of an older version may lack keys."""
    asked, planned = manifest.request, manifest.plan
    made: dict[str, object] = {
        "suite": planned.suite,
        "order": planned.order,
        "nonce": planned.nonce,
        "dataroot": manifest.dataroot,
        "stopping": msgspec.to_builtins(manifest.stopping),
        "rule": msgspec.to_builtins(manifest.window_rule),
        "slots_per_device": planned.tenants_per_device,
        "repeat": planned.repeat // manifest.sessions,
    }
    for name, value in made.items():
        if name in asked and asked[name] != value:
            yield f"the request in run.json asks for {name} {asked[name]}, and run.json has {value}"


def _expected(stated: Profile, planned: Plan, manifest: Manifest) -> Plan:
    """Make the plan again, for this node. Raises InputError if it cannot be made, or is much larger than stated."""
    places = sum(len(launch.devices) for launch in planned.launches)
    known = {
        name_of(launch.test): ResolvedOptions(launch.arguments, launch.overrides, launch.memory_classes)
        for launch in planned.launches
    }
    resolved = {name: known.get(name, ResolvedOptions({})) for name in stated.tests}
    of_device = smallest_memory(planned.devices, manifest.inventory.gpus, planned.tenants_per_device)
    return make_plan(
        stated,
        resolved,
        planned.devices,
        planned.repeat,
        planned.order,
        planned.nonce,
        _chosen(planned) if left_out(stated, planned) else (),
        memory=tenant_memory(of_device, [share.memory_bytes for share in manifest.shares.values()]),
        slots_per_device=planned.tenants_per_device,
        most_places=max(places, _FEW_PLACES),
    )


def _other_scales(expected: Plan, planned: Plan) -> Iterator[str]:
    """Data scales that are not the profile's, each told once for all of its tests."""
    demanded = {launch.test: launch.data_scale for launch in expected.launches}
    pairs = ((launch.test, launch.data_scale, demanded.get(launch.test)) for launch in planned.launches)
    other: dict[tuple[float, float], dict[str, None]] = defaultdict(dict)
    for test, scale, wanted in pairs:
        if wanted is not None and scale != wanted:
            other[scale, wanted][test] = None
    for (scale, wanted), tests in other.items():
        which = next(iter(tests)) if len(tests) == 1 else f"{len(tests)} tests"
        yield f"data scale {scale:g} instead of {wanted:g} in {which}; `mnb jobs --data-scale` changes it"


_Key = tuple[str, str, str, int, tuple[int, ...], tuple[str, ...], str]


def _batches(batches: Iterable[Sequence[Launch]]) -> Counter[frozenset[_Key]]:
    return Counter(frozenset(map(_key, launches)) for launches in batches)


def _key(launch: Launch) -> _Key:
    what = (launch.test, launch.scheme, launch.workload, launch.run)
    return (*what, launch.devices, launch.slot_ids, launch.known_role)


def _shown(batch: frozenset[_Key]) -> str:
    return ", ".join(
        f"{test} run {run} on {'+'.join(slots)}{'' if role == 'measured' else ' (neighbor)'}"
        for test, _, _, run, _, slots, role in sorted(batch)
    )


def order(evidence: Evidence) -> Finding:
    """The tests ran in the order that follows from the buyer's nonce."""
    planned, nonce = evidence.manifest.plan, evidence.rules.nonce
    if nonce is None:
        return OFF
    return judged([*_wrong_order(evidence, planned, nonce), *_out_of_order(evidence)])


def _wrong_order(evidence: Evidence, planned: Plan, nonce: str) -> Iterator[str]:
    if planned.nonce != nonce:
        made = "without a nonce" if planned.nonce is None else f"with the nonce {planned.nonce!r}"
        yield f"the run was made {made}, {nonce!r} was given"
    if planned.order != "random":
        yield f"the order of the plan is {planned.order!r}. A nonce needs --order random"
    stated = read_stated(evidence.manifest)
    if stated is None:
        return
    seeded = msgspec.structs.replace(planned, order="random", nonce=nonce)
    try:
        expected = _expected(stated, seeded, evidence.manifest)
    except InputError:  # the rule on the plan reports it
        return
    if [batch.launches for batch in expected.batches] != [batch.launches for batch in planned.batches]:
        yield "the launch groups are not in the order that follows from the nonce"


def _out_of_order(evidence: Evidence) -> Iterator[str]:
    """Batches whose first attempts did not start in order."""
    first: dict[int, datetime] = {}
    for kept in evidence.records:
        mnb = kept.record.mnb
        first[mnb.batch] = min(first.get(mnb.batch, mnb.started_utc), mnb.started_utc)
    numbers = sorted(first)
    for one, next_ in itertools.pairwise(numbers):
        if first[one] > first[next_]:
            yield f"launch group {one} began after launch group {next_}"


def _sessions(evidence: Evidence) -> Mapping[str, set[int]]:
    """The separate sessions in which each test has good records, by the ledger's clock."""
    entries = evidence.ledger.entries
    events = [entry.what for entry in entries]
    good = {(one.label, one.job_id, one.number) for one in events if isinstance(one, Recorded) and one.cause is None}
    begun = [
        (entry.what, at)
        for entry in entries
        if isinstance(entry.what, Attempt) and (at := moment(entry.utc)) is not None
    ]
    starts = session_starts((at for _, at in begun), evidence.rules.session_gap_h)
    found: dict[str, set[int]] = defaultdict(set)
    for one, at in begun:
        if (one.label, one.job_id, one.number) in good:
            found[one.label].add(session_at(at, starts))
    return found


def repeats(evidence: Evidence) -> Finding:
    """Every test ran as often as demanded, in as many sessions, and all repeats were planned to be made if demanded."""
    rules = evidence.rules
    if rules.repeat is None and rules.least_sessions is None and rules.stopping:
        return OFF
    made = gathered((kept.record.mnb.label, kept.record) for kept in evidence.measured)
    labels = dict.fromkeys([*evidence.manifest.plan.labels, *made])
    reasons, sessions = [], _sessions(evidence)
    for label in labels:
        runs = {record.mnb.launch.run for record in made.get(label, ())}
        if len(runs) < (rules.repeat or 0):
            reasons.append(f"{label}: {len(runs)} of {rules.repeat} runs have records")
        apart = max(1, len(sessions.get(label, ())))
        if apart < (rules.least_sessions or 0):
            of = f"{apart} of {rules.least_sessions} sessions"
            reasons.append(f"{label}: it ran in {of} that are {rules.session_gap_h:g} h apart")
    rule = evidence.manifest.stopping
    if rule is not None and not rules.stopping:
        reasons.append(f"it was free to end early: it was to repeat {rule.text}. The rules accept no such run")
    return judged(reasons)
