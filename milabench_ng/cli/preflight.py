"""Which of a buyer's rules a node and a run keep beforehand: those that `mnb verify` would find broken after it."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from milabench_ng import __version__
from milabench_ng.cli.foreseen import foreseen_marks
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.showing import shown
from milabench_ng.model.catalogue import normal_name
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.plain import plain
from milabench_ng.model.profile import Profile, Test, name_of
from milabench_ng.model.shipped import find, shipped_profile
from milabench_ng.model.units import counted, format_bytes
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.drivers.opening import BACKENDS
from milabench_ng.node.storage import read_storage
from milabench_ng.records.folder import UNBOUNDED
from milabench_ng.records.isolation import weakest_tier
from milabench_ng.records.ledger import Resumed, extend
from milabench_ng.records.origin import release
from milabench_ng.records.spool_folder import waiting
from milabench_ng.run.execution.interruption import interruptible
from milabench_ng.run.execution.preparing import require_space
from milabench_ng.run.execution.scratch import scratch_parent
from milabench_ng.run.planning.dry_run import DryRun, dry_run
from milabench_ng.run.planning.readiness import Checkup, examine
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.verification.checks.changed_settings import UNSAFE
from milabench_ng.verification.checks.check_arguments import unknown_tests
from milabench_ng.verification.checks.check_ledger import caps
from milabench_ng.verification.checks.check_work import refused_storage
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Finding, Ruling, judged, unknown
from milabench_ng.verification.opening import opened
from milabench_ng.verification.rules import DataRule, Rules
from milabench_ng.verification.rules_file import pinned_profile
from milabench_ng.verification.signing import why_unsigned
from milabench_ng.verification.verify import demanded, gather

AFTER = "all other rules concern a run: mnb verify checks them"
Broken = tuple[str, str]
"""The id of a rule, and why it is broken."""
_OF_GPUS = (
    ("R24", "ECC is on"),
    ("R25", "power limits are the default ones"),
    ("R26", "no other processes on the GPUs"),
)


def rulings_ahead(rules: Rules, checkup: Checkup, plan: DryRun | str | None) -> tuple[Ruling, ...]:
    """Every rule that can be checked beforehand. Pure but for the look for ssh-keygen.

    ``plan``: of the profile that the rules name, or why it cannot be run; None if they name none.
    """
    seen = checkup.conditions
    found: tuple[tuple[str, str, bool, Iterable[str] | Finding], ...] = (
        ("node", "ready", True, checkup.reasons),
        ("R2", "the results can be signed here", rules.signed or bool(rules.signed_by), _signing()),
        ("R6", "the profile can run unchanged", plan is not None, _not_planned(plan)),
        ("R15", "a score is possible", rules.margin is not None and plan is not None, _scores(rules, plan)),
        ("R16", f"isolation {rules.isolation}", rules.isolation is not None, _isolation(rules, checkup)),
        ("R19", "the datasets are complete", bool(rules.data), _data(rules, plan)),
        ("R20", "the data is on local storage", bool(rules.storage_refused), _storage(rules, checkup)),
        ("R21", "the libraries are unchanged since installation", _looks(rules, plan), _libraries(plan)),
        ("R23", _gpus_asked(rules), bool(_gpus_asked(rules)), _gpus(rules, checkup)),
        (*_OF_GPUS[0], rules.ecc, _ecc(checkup)),
        (*_OF_GPUS[1], rules.default_power, _power(seen)),
        ("R25", "the kernel's mitigations are on", rules.mitigations, _mitigations(seen)),
        (*_OF_GPUS[2], rules.foreign_refused, _foreign(seen)),
        ("R33", f"mnb {rules.least_version} or later", rules.least_version is not None, _version(rules)),
    )
    here = bool(checkup.inventory.gpus)
    doubts = tuple(
        _ruling(name, "this doubt is refused", unknown("depends on the run")) for name in rules.doubts_refused
    )
    return doubts + tuple(
        _ruling(name, what, unknown("the node has no GPU") if (name, what) in _OF_GPUS and not here else _finding(why))
        for name, what, asked, why in found
        if asked
    )


def _finding(why: Iterable[str] | Finding) -> Finding:
    return why if isinstance(why, Finding) else judged(why)


def _ruling(name: str, title: str, found: Finding) -> Ruling:
    return Ruling(id=name, title=title, basis="self-reported", result=found.result, reasons=found.reasons)


def planned(rules: Rules, node: NodeOptions) -> DryRun | str | None:
    """The run that the rules ask for, planned here, or why it cannot be; None if they name no profile."""
    if rules.profile is None or rules.profile.name is None:
        return None
    try:
        request = node.profile_request(shipped_profile(Path(rules.profile.name)))
        folder = scratch_parent()  # mnb doctor makes no results, so where they would go is not judged
    except MnbError as error:
        return str(error)
    return plan_of(msgspec.structs.replace(request, repeat=rules.repeat or 1, outdir=folder))


def plan_of(request: RunRequest) -> DryRun | str:
    """The run that is asked for, planned here, or why it cannot be."""
    try:
        with shown() as bus:
            made = asyncio.run(interruptible(dry_run(request, bus)))
        require_space(made.to_generate, request.dataroot)
    except MnbError as error:
        return str(error)
    return made


def refuse_broken(rules: Rules, request: RunRequest) -> DryRun:
    """Plan a run. Raises InputError, with the reasons, if it would break rules whatever it measures.

    What the command or the node breaks is refused before torch is imported, and the plan is then not looked at. Whether
    the node is ready, the run finds out itself.
    """
    checkup = examine(request)
    ahead = rulings_ahead(rules, checkup, None)
    broken = (*broken_by_request(rules, request), *_broken_by_node(ahead))
    _refuse(rules, broken, ". When these are met, mnb checks the others")
    plan = plan_of(request)
    if isinstance(plan, str):
        raise InputError(plan)
    ahead = rulings_ahead(rules, msgspec.structs.replace(checkup, tier=plan.tier), plan)
    _refuse(rules, (*broken_by_plan(rules, request, plan), *_broken_by_node(ahead)))
    with shown() as bus:
        for why in (why for one in ahead if one.id == "R2" for why in one.reasons):
            bus.note(f"R2: {why}")
    return plan


def _refuse(rules: Rules, broken: Collection[Broken], also: str = "") -> None:
    if broken:
        reasons = dict.fromkeys(f"  {rule} {why}" for rule, why in broken)
        raise InputError("\n".join((f"this run would break {_named(rules)}:", *reasons, f"nothing was run{also}")))


def _named(rules: Rules) -> str:
    return f"rules of {rules.name!r}" if rules.name else "rules"


def _broken_by_node(ahead: Iterable[Ruling]) -> Iterator[Broken]:
    return ((one.id, why) for one in ahead if one.result == "fail" and one.id != "node" for why in one.reasons)


def refuse_to_resume(rules: Rules, folder: Path) -> None:
    """Raise InputError, with every reason, if a run breaks rules whatever the rest of it measures: its records are not
    those of its ledger, or it was begun, resumed or retried too often."""
    unsigned = msgspec.structs.replace(rules, failure_rate=None, signed=False, signed_by=())
    with opened(folder, UNBOUNDED) as there:
        evidence = gather(there, unsigned, None, None, None)
        spooled = waiting(folder, there.folder.ledger)
    left = evidence.failures.left - (len(spooled.launches) if spooled else 0)
    broken = [f"  R13 {why}" for why in there.folder.contradicted]
    broken += [f"  R14 {why}" for why in caps(_resumed(evidence) if left > 0 else evidence).reasons]
    if broken:
        told = f"{plain(folder)}: resumed, this run would break {_named(rules)}, whatever it measures:"
        raise InputError("\n".join((told, *broken, "nothing was run. Start a new run, or leave out --rules")))


def _resumed(evidence: Evidence) -> Evidence:
    """The same after one more session that tries a launch, as far as sessions are counted."""
    summary = msgspec.structs.replace(evidence.summary, starts=evidence.summary.starts + 1)
    chain = evidence.ledger
    if evidence.has_ledger and not summary.between_sessions:
        chain, _ = extend(chain, "", [Resumed(missing=evidence.failures.left)])
    return msgspec.structs.replace(evidence, summary=summary, ledger=chain)


def broken_by_request(rules: Rules, request: RunRequest) -> Iterator[Broken]:
    """The rules that the command itself breaks, and why: profile, options, repeats, sessions, nonce, result folder.

    Pure but for a look at that folder.
    """
    profile, repeats = demanded(rules.profile, None, "profiles"), request.repeat * request.sessions
    asked = hashlib.sha256(request.profile.text.encode()).hexdigest()
    apart = request.sessions == 1 or request.session_gap_s >= 3600 * rules.session_gap_h
    if request.rule.length_s < rules.window_s:
        yield (
            "R35",
            f"the window is {request.rule.length_s:g} s, but the rules need {rules.window_s:g} s. Leave out --window",
        )
    if profile not in (None, asked):
        yield "R6", f"the profile is of SHA-256 {asked[:12]}, but the rules require {profile[:12]}. {_right(rules)}"
    elif isinstance(request.profile, Profile):
        yield from (("R10", why) for why in unknown_tests(rules, request.profile))
    if profile is not None and request.names:
        yield "R8", "the rules require all tests of the profile. Leave out --name"
    if rules.nonce is not None and request.nonce != rules.nonce:
        found = "no nonce was given" if request.nonce is None else "the nonce differs from the rules"
        yield "R9", f"{found}. Pass --nonce {shlex.quote(rules.nonce)}"
    if rules.repeat is not None and repeats < rules.repeat:
        found = f"the rules require {rules.repeat} repeats of each test, but this run makes {repeats}"
        yield "R11", f"{found}. Raise --repeat or --sessions"
    if rules.least_sessions is not None and not (request.sessions >= rules.least_sessions and apart):
        wanted = f"--sessions {rules.least_sessions} --session-gap {rules.session_gap_h:g}h"
        yield "R11", f"the rules need {rules.least_sessions} sessions, {rules.session_gap_h:g} h apart. Pass {wanted}"
    if not rules.stopping and request.stopping is not None:
        yield "R11", "the rules refuse runs that stop by a result. Leave out --target-ci and --budget"
    if rules.sessions is not None and request.sessions > rules.sessions:
        yield (
            "R14",
            f"the run has {request.sessions} sessions, but the rules accept at most {rules.sessions}. Lower --sessions",
        )
    results = (read_storage(request.outdir),) if rules.storage_refused else ()
    for what in refused_storage(results, rules.storage_refused):
        yield "R20", f"{what}. Name another folder for the results with -o"
    if rules.closed and request.pass_environment:
        yield "R31", f"the rules accept only listed settings. Leave out --pass-env {' '.join(request.pass_environment)}"


def _right(rules: Rules) -> str:
    """How to run the profile that the rules require."""
    shipped = pinned_profile(rules.profile)
    if shipped:
        return f"Run mnb jobs {shipped.suite}"
    named = rules.profile.name if rules.profile else None
    other = f", which is not the {plain(named)} of this mnb" if named else ""
    return f"Ask the buyer for that file{other}, and name it"


def broken_by_plan(rules: Rules, request: RunRequest, plan: DryRun) -> Iterator[Broken]:
    """The rules that only the plan shows to be broken, and why. Pure but for the marks."""
    yield from (("R10", why) for why in _arguments(rules, request, plan))
    for mark in foreseen_marks(plan.planned) if rules.marks_refused else ():
        if mark.kind not in rules.marks_accepted:
            yield "R22", f"the run would get a comparability warning that the rules refuse: {mark.sentence}"


def _arguments(rules: Rules, request: RunRequest, plan: DryRun) -> Iterator[str]:
    """Those for all tests hold where the profile states nothing else."""
    for launch in {launch.test: launch for launch in plan.planned.plan.measured}.values():
        name = name_of(launch.test)
        test = request.profile.tests.get(name)
        stated = set(map(normal_name, test.arguments)) if isinstance(test, Test) else set()
        usual = {option: value for option, value in rules.arguments.get("*", {}).items() if option not in stated}
        for option, value in (usual | rules.arguments.get(name, {})).items():
            if launch.arguments.get(option, value) != value:
                yield f"{name}: {option} is {launch.arguments[option]}, but the rules require {value}"


def _signing() -> Finding:
    """Breaks nothing: a folder can be packed and signed on another machine."""
    why = why_unsigned()
    return unknown(f"{why}. Or sign a copy of the result folder elsewhere: mnb bundle --sign") if why else judged(())


def _not_planned(plan: DryRun | str | None) -> Iterator[str]:
    """Why the profile cannot be planned at all; a test that does not fit this node breaks no rule."""
    if isinstance(plan, str):
        yield plan


def _scores(rules: Rules, plan: DryRun | str | None) -> Iterator[str]:
    measured = plan.planned.plan.measured if isinstance(plan, DryRun) else ()
    suites = sorted({launch.suite for launch in measured})
    if any(rules.suite_weights.get(suite, rules.weights) or find("weights", suite) for suite in suites):
        return  # R15 asks for no score of the others
    for suite in suites:
        yield (
            f"suite {suite} has no official weights, so there is no score. Ask the buyer to pin weights in "
            "the rules (suite_weights)"
        )


def _isolation(rules: Rules, checkup: Checkup) -> Iterator[str]:
    asked = rules.isolation or "none"
    if weakest_tier([asked, checkup.tier]) != asked:
        yield f"isolation here is {checkup.tier}. The lines 'not ready' of mnb doctor say why and what to do"


def _data(rules: Rules, plan: DryRun | str | None) -> Finding:
    """What is missing breaks nothing: a run generates it first."""
    if not isinstance(plan, DryRun):
        return unknown("without a plan, nobody knows which datasets a run needs")
    missing = plan.to_generate.efforts
    if (small := judged(_small_data(rules, plan))).reasons or not missing:
        return small
    size, named = format_bytes(sum(one.bytes for one in missing)), ", ".join(one.name for one in missing)
    return unknown(f"{size} to generate: {named}. A run does this first, or mnb prepare")


def _small_data(rules: Rules, plan: DryRun) -> Iterator[str]:
    for name, scale in plan.data:
        asked = rules.data.get(name, rules.data.get("*", DataRule()))
        if asked.scale is not None and scale < asked.scale:
            yield f"{name} has scale {scale:g}, but the rules need {asked.scale:g}. Pass --data-scale {asked.scale:g}"


def _storage(rules: Rules, checkup: Checkup) -> Iterator[str]:
    for what in refused_storage((checkup.dataroot,), rules.storage_refused):
        yield f"{what}. Name another folder with --dataroot"


def _looks(rules: Rules, plan: DryRun | str | None) -> bool:
    """Whether libraries count, and a plan has looked at them."""
    return rules.closed and isinstance(plan, DryRun)


def _libraries(plan: DryRun | str | None) -> Iterator[str]:
    yield from plan.changed if isinstance(plan, DryRun) else ()


def _gpus_asked(rules: Rules) -> str:
    parts = ("every GPU is used",) if rules.every_gpu else ()
    count = (f"the node has {counted(rules.gpus, 'GPU')}",) if rules.gpus is not None else ()
    whole = ("no GPU is split into MIG instances",) if rules.whole_gpus else ()
    return " and ".join((*parts, *count, *whole))


def _gpus(rules: Rules, checkup: Checkup) -> Iterator[str]:
    used = {device.uuid for device in checkup.devices}
    idle = [gpu for gpu in checkup.inventory.gpus if gpu.uuid not in used]
    if rules.every_gpu and not checkup.inventory.gpus:
        yield "no GPU found. Check the driver with nvidia-smi or amd-smi"
    if rules.every_gpu and idle:
        names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in idle)
        yield f"GPU {names} would not be used. Leave out --gpus and --tenants, and unset CUDA_VISIBLE_DEVICES"
    whole = " or ".join(dict.fromkeys(BACKENDS[device.maker].whole for device in checkup.devices))
    cut = [device.name for device in checkup.devices if device.kind == "mig"]
    if rules.whole_gpus and cut:
        yield f"{', '.join(cut)} are parts of GPUs. {whole}"
    boards = len({gpu.board for gpu in checkup.inventory.gpus})
    if rules.gpus is not None and boards != rules.gpus:
        found = f"found {counted(boards, 'GPU')}"
        yield f"{found}. Offer a node with {rules.gpus}, or look for missing ones on the PCI bus (mnb doctor)"


def _ecc(checkup: Checkup) -> Iterator[str]:
    known = checkup.conditions.settings
    told = known.gpus if known else {}
    for uuid in dict.fromkeys(gpu.board for gpu in checkup.inventory.gpus):
        settings = told.get(uuid)
        if settings is None or settings.ecc is None:
            yield f"{uuid} does not report ECC. Ask the buyer for rules that do not require it"
        elif settings.ecc is False or settings.ecc_pending is False:
            yield f"off on {uuid}. Run nvidia-smi -i {uuid} -e 1, then reset the GPU"


def _power(seen: Conditions) -> Iterator[str]:
    for uuid, settings in seen.settings.gpus.items() if seen.settings else ():
        limit, default = settings.power_limit_w, settings.default_power_limit_w
        if limit is None or default is None:
            yield f"{uuid} does not report its power limit and the default"
        elif limit != default:
            yield (
                f"{uuid} has {limit:g} W instead of its default {default:g} W. Run nvidia-smi -i {uuid} -pl {default:g}"
            )


def _mitigations(seen: Conditions) -> Iterator[str]:
    told = seen.settings.host.command_line if seen.settings else None
    found = sorted(UNSAFE & set((told or "").split()))
    if told is None:
        yield "unknown, because /proc/cmdline cannot be read. Make it readable"
    elif found:
        yield f"the kernel was booted with {' '.join(found)}. Boot without it"


def _foreign(seen: Conditions) -> Iterator[str]:
    for uuid, state in seen.gpus.items():
        if state.foreign_pids is None:
            yield f"{uuid} does not report its processes. Let mnb see the processes of the host"
        elif state.foreign_pids:
            yield f"processes {', '.join(map(str, state.foreign_pids))} use {uuid}. Stop them"


def _version(rules: Rules) -> Iterator[str]:
    if rules.least_version is not None and release(__version__) < release(rules.least_version):
        yield f"this is {__version__}. Install a later version"
