"""Which of a buyer's rules this node keeps before a run: those that `mnb verify` would find broken after it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from milabench_ng import __version__
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.showing import shown
from milabench_ng.model.errors import MnbError
from milabench_ng.model.shipped import find
from milabench_ng.model.units import counted
from milabench_ng.node.conditions import Conditions
from milabench_ng.records.isolation import weakest_tier
from milabench_ng.records.origin import release
from milabench_ng.run.execution.interruption import interruptible
from milabench_ng.run.execution.preparing import require_space
from milabench_ng.run.planning.dry_run import DryRun, dry_run
from milabench_ng.run.planning.readiness import Checkup
from milabench_ng.verification.checks.changed_settings import UNSAFE
from milabench_ng.verification.findings import Finding, Ruling, judged, unknown
from milabench_ng.verification.rules import DataRule, Rules

AFTER = "all other rules are about what a run does: mnb verify checks them"
_OF_GPUS = (
    ("R24", "ECC is on"),
    ("R25", "power limits are the default ones"),
    ("R26", "nobody else is on the GPUs"),
)


def rulings_ahead(rules: Rules, checkup: Checkup, seen: Conditions, plan: DryRun | str | None) -> tuple[Ruling, ...]:
    """Every rule that can be checked beforehand. Pure.

    ``seen``: the conditions now. ``plan``: of the profile that the rules name, or why it cannot be run; None if they
    name none.
    """
    found: tuple[tuple[str, str, bool, Iterable[str]], ...] = (
        ("node", "ready", True, checkup.reasons),
        ("R6", "the profile can be run as it is", plan is not None, _not_planned(plan)),
        ("R15", "there can be a score", rules.margin is not None and plan is not None, _scores(rules, plan)),
        ("R16", f"isolation {rules.isolation}", rules.isolation is not None, _isolation(rules, checkup)),
        ("R19", "the data are whole", bool(rules.data), _data(rules, plan)),
        ("R20", "the data lie on storage of the node", bool(rules.storage_refused), _storage(rules, checkup)),
        ("R21", "the libraries are as they were installed", _looks(rules, plan), _libraries(plan)),
        ("R23", _gpus_asked(rules), bool(_gpus_asked(rules)), _gpus(rules, checkup)),
        (*_OF_GPUS[0], rules.ecc, _ecc(checkup, seen)),
        (*_OF_GPUS[1], rules.default_power, _power(seen)),
        ("R25", "the kernel's mitigations are on", rules.mitigations, _mitigations(seen)),
        (*_OF_GPUS[2], rules.foreign_refused, _foreign(seen)),
        ("R33", f"mnb {rules.least_version} or later", rules.least_version is not None, _version(rules)),
    )
    here = bool(checkup.inventory.gpus)
    doubts = tuple(
        _ruling(name, "this doubt is refused", unknown("what ran raises it or does not"))
        for name in rules.doubts_refused
    )
    return doubts + tuple(
        _ruling(name, what, unknown("the node shows no GPU") if (name, what) in _OF_GPUS and not here else judged(why))
        for name, what, asked, why in found
        if asked
    )


def _ruling(name: str, title: str, found: Finding) -> Ruling:
    return Ruling(id=name, title=title, basis="self-reported", result=found.result, reasons=found.reasons)


def planned(rules: Rules, node: NodeOptions) -> DryRun | str | None:
    """The run that the rules ask for, planned here, or why it cannot be; None if they name no profile."""
    if rules.profile is None or rules.profile.name is None:
        return None
    try:
        request = node.profile_request(Path(rules.profile.name))
        request = msgspec.structs.replace(request, repeat=rules.repeat or 1)
        with shown() as bus:
            made = asyncio.run(interruptible(dry_run(request, bus)))
        require_space(made.to_generate, request.dataroot)
    except MnbError as error:
        return str(error)
    return made


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
        yield f"{suite} has no weights, so no score: ask the buyer to pin some in the rules (suite_weights)"


def _isolation(rules: Rules, checkup: Checkup) -> Iterator[str]:
    asked = rules.isolation or "none"
    if weakest_tier([asked, checkup.tier]) != asked:
        yield f"here it is {checkup.tier}: the lines 'not ready' say why and what to do"


def _data(rules: Rules, plan: DryRun | str | None) -> Iterator[str]:
    for name, scale in plan.data if isinstance(plan, DryRun) else ():
        asked = rules.data.get(name, rules.data.get("*", DataRule()))
        if asked.scale is not None and scale < asked.scale:
            yield f"{name} has the scale {scale:g}, and {asked.scale:g} is asked: leave --data-scale out"


def _storage(rules: Rules, checkup: Checkup) -> Iterator[str]:
    root = checkup.dataroot
    if root.kind in rules.storage_refused:
        yield f"{root.path} is on {root.kind} ({root.filesystem}): name another folder with --dataroot"


def _looks(rules: Rules, plan: DryRun | str | None) -> bool:
    """Whether libraries count, and a plan has looked at them."""
    return rules.closed and isinstance(plan, DryRun)


def _libraries(plan: DryRun | str | None) -> Iterator[str]:
    yield from plan.changed if isinstance(plan, DryRun) else ()


def _gpus_asked(rules: Rules) -> str:
    parts = ("every GPU works",) if rules.every_gpu else ()
    count = (f"the node has {counted(rules.gpus, 'GPU')}",) if rules.gpus is not None else ()
    whole = ("none is cut into instances",) if rules.whole_gpus else ()
    return " and ".join((*parts, *count, *whole))


def _gpus(rules: Rules, checkup: Checkup) -> Iterator[str]:
    used = {device.uuid for device in checkup.devices}
    idle = [gpu for gpu in checkup.inventory.gpus if gpu.uuid not in used]
    if rules.every_gpu and not checkup.inventory.gpus:
        yield "there is none: mnb doctor says what the node shows"
    if rules.every_gpu and idle:
        names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in idle)
        yield f"GPU {names} would not work: leave out --gpus and --tenants, and unset CUDA_VISIBLE_DEVICES"
    cut = [device.name for device in checkup.devices if device.kind == "mig"]
    if rules.whole_gpus and cut:
        yield f"{', '.join(cut)} are instances of MIG: nvidia-smi -mig 0, then reset the GPUs"
    boards = len({gpu.board for gpu in checkup.inventory.gpus})
    if rules.gpus is not None and boards != rules.gpus:
        yield f"there are {boards}: offer a node with {rules.gpus}, or look for lost ones on the PCI bus (mnb doctor)"


def _ecc(checkup: Checkup, seen: Conditions) -> Iterator[str]:
    told = seen.settings.gpus if seen.settings else {}
    for uuid in dict.fromkeys(gpu.board for gpu in checkup.inventory.gpus):
        settings = told.get(uuid)
        if settings is None or settings.ecc is None:
            yield f"{uuid} does not say whether it is on: ask the buyer for rules without it"
        elif settings.ecc is False or settings.ecc_pending is False:
            yield f"it is off on {uuid}: nvidia-smi -i {uuid} -e 1, then reset the GPU"


def _power(seen: Conditions) -> Iterator[str]:
    for uuid, settings in seen.settings.gpus.items() if seen.settings else ():
        limit, default = settings.power_limit_w, settings.default_power_limit_w
        if limit is None or default is None:
            yield f"{uuid} does not say its power limit and the default"
        elif limit != default:
            yield f"that of {uuid} is {limit:g} W, its default {default:g} W: nvidia-smi -i {uuid} -pl {default:g}"


def _mitigations(seen: Conditions) -> Iterator[str]:
    told = seen.settings.host.command_line if seen.settings else None
    found = sorted(UNSAFE & set((told or "").split()))
    if told is None:
        yield "/proc/cmdline cannot be read, so nobody knows: make it readable"
    elif found:
        yield f"the kernel was started with {' '.join(found)}: start it without"


def _foreign(seen: Conditions) -> Iterator[str]:
    for uuid, state in seen.gpus.items():
        if state.foreign_pids is None:
            yield f"{uuid} does not say which processes it runs: let mnb see those of the host"
        elif state.foreign_pids:
            yield f"processes {', '.join(map(str, state.foreign_pids))} are on {uuid}: end them"


def _version(rules: Rules) -> Iterator[str]:
    if rules.least_version is not None and release(__version__) < release(rules.least_version):
        yield f"this is {__version__}: install a later one"
