"""What is refused before anything starts: options, packages and variables that a run cannot begin with."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Mapping
from importlib.util import find_spec

from milabench_ng.model.batch_sizes import BATCH_SIZE
from milabench_ng.model.builtin import installed, read_builtin
from milabench_ng.model.catalogue import AUTO, normal_name, unknown_workload
from milabench_ng.model.errors import InputError, IsolationError
from milabench_ng.model.files import allowed_size, nearest, why_unwritable
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plain import encodable, names_of, plain, short
from milabench_ng.model.plan import Plan
from milabench_ng.model.profile import Profile, Test, name_of
from milabench_ng.model.units import counted, format_bytes
from milabench_ng.records.isolation import Tier
from milabench_ng.records.names import RESERVED_BYTES
from milabench_ng.run.planning.request import (
    ResolvedRequest,
    RunRequest,
    as_asked,
    check_options,
    limits_of,
    refuse_early_stop,
    selected,
)
from milabench_ng.worker.requests import Asked


def tests_ahead(request: RunRequest) -> dict[str, Test]:
    """The selected tests before torch is imported; none of a profile of 2020, which needs a catalogue.

    Raises InputError for mistakes that show already: names of tests and workloads, options of built-in ones, and times
    that end these too early.
    """
    if not isinstance(request.profile, Profile):
        return {}
    builtin, others = read_builtin(), installed()
    tests = selected(as_asked(request, request.profile), request)
    for name, test in tests.items():
        if known := builtin.get(test.workload):
            given = check_options(request, name, test, known.options)
            stated = {normal_name(key): value for key, value in test.arguments.items() if not isinstance(value, dict)}
            arguments = known.defaults | stated | given
            refuse_early_stop(request, name, arguments)
            limits_of(request, request.profile.id_of(name), test, arguments, request.start)
        elif test.workload not in others:
            refuse_unknown(test.workload, {*builtin, *others}, f"{request.profile.source}: test {name!r}")
    return tests


def refuse_unknown(workload: str, known: Collection[str], where: str = "") -> None:
    """Raise InputError for a workload that is not ``known`` and whose package cannot be found.

    Only the package is looked for: to find a module in it would import it.
    """
    module, colon, _ = workload.partition(":")
    package = module.partition(".")[0]
    if not colon or not package.isidentifier():
        raise unknown_workload(workload, known, where)
    if find_spec(package) is None:  # workers have the import path of this process
        raise InputError(
            f"{where}{where and ': '}workload {workload!r}: there is no package {package!r} for {sys.executable}. "
            "Install it there, or add its folder to PYTHONPATH"
        )


def refuse_several_steps(plan: Plan) -> None:
    """Raise IsolationError for a launch over several devices: one process tree cannot be in several steps."""
    spread = tuple(dict.fromkeys(launch.test for launch in plan.launches if len(launch.devices) > 1))
    if spread:
        raise IsolationError(
            f"isolation: {', '.join(spread)} run over several devices, but in a Slurm allocation each tenant "
            "is a separate step. Select the other tests with --name, or accept --isolation affinity (results "
            "get the warning NOT ISOLATED)."
        )


def refuse_unsearchable(resolved: ResolvedRequest, memory: DeviceMemory | None, tier: Tier) -> None:
    """Raise InputError for an automatic batch size that cannot be found.

    ``memory``: of the smallest device, None for CPU partitions; ``tier``: of the fence.
    """
    for name, test in resolved.tests.items():
        if resolved.arguments[name].arguments.get(BATCH_SIZE) != AUTO:
            continue
        where = f"{resolved.where(name)}: batch_size auto"
        if test.partition_scheme.type.steps:
            raise InputError(
                f"{where}: a {test.partition_scheme.type.value} must do the same work per device on any number "
                "of devices. Find the size with partition scheme 'normal', and give it"
            )
        on_cpu = memory is None or resolved.catalogue.workloads[test.workload].cpu_only
        if on_cpu and tier == "none":
            raise InputError(
                f"{where}: on the CPU it is found by filling a tenant's RAM, which needs isolation. Give a "
                "number, or leave out --isolation none"
            )
        if not on_cpu and memory is not None and not memory.bytes:
            raise InputError(f"{where}: the driver does not report how much memory {memory.device} has. Give a number")


def refuse_missing_packages(resolved: ResolvedRequest) -> None:
    """Raise InputError before anything starts if a selected test needs a package that is not installed."""
    for name, test in resolved.tests.items():
        workload = resolved.catalogue.workloads[test.workload]
        if workload.missing:
            raise InputError(
                f"{resolved.where(name)}: workload {test.workload!r} needs "
                f"{', '.join(workload.missing)}, not installed here: {workload.remedy}, or choose tests with --name"
            )


def options_asked(resolved: ResolvedRequest, plan: Plan) -> tuple[Asked, ...]:
    """What the workloads are asked before anything starts: whether the options of their launches go together. Pure."""
    widths = dict.fromkeys((name_of(launch.test), len(launch.devices)) for launch in plan.launches)
    return tuple(
        Asked(
            where=resolved.where(name),
            workload=resolved.tests[name].workload,
            arguments=resolved.arguments[name].arguments,
            devices=devices,
        )
        for name, devices in widths
    )


def refuse_no_borders(request: RunRequest) -> None:
    """Raise InputError for a rule for stopping that the rest of the request leaves no border of a repeat to."""
    rule = request.stopping
    if rule is None:
        return
    option = "--budget" if rule.width is None else "--target-ci"
    if request.order == "file":
        raise InputError(f"{option} cannot be combined with --order file. Leave one of them out")
    if request.sessions > 1:
        raise InputError(f"{option} cannot be combined with --sessions {request.sessions}. Leave one of them out")
    if rule.width is not None and not 0 < rule.width < 1:
        raise InputError("--target-ci: expected a percentage above 0% and below 100%. Try --target-ci 2%")
    if rule.width is not None and request.repeat <= rule.least:
        raise InputError(
            f"--target-ci needs more than {rule.least} repeats, and --repeat {request.repeat} is the upper "
            f"limit. Try --repeat {2 * rule.least}"
        )
    if request.repeat == 1:
        raise InputError(f"{option} needs several repeats, and --repeat is the upper limit. Try --repeat 10")


def refuse_undecodable(request: RunRequest) -> None:
    """Raise InputError for folders and options with bytes that are not UTF-8, which no record can name as they are."""
    named = [
        ("-o", request.outdir),
        ("-d", request.dataroot),
        ("--spool", request.spool or ""),
        ("--nonce", request.nonce or ""),
        ("the current folder", os.getcwd()),
        ("TMPDIR", tempfile.gettempdir()),
        *(("the workloads' option", flag) for flag in request.flags),
    ]
    for what, text in named:
        if encodable(str(text)) != str(text):
            raise InputError(f"{what} {short(text)}: contains bytes that are not UTF-8. Use another name")


def refuse_full_disk(request: RunRequest, tenants: int) -> None:
    """Raise InputError for a result folder without room for what a launch group of ``tenants`` may leave.

    Not if a spool takes what it does not.
    """
    size = tenants * RESERVED_BYTES
    why = "" if request.spool else why_unwritable(nearest(request.outdir), allowed_size(size))
    if why:
        raise InputError(
            f"{short(request.outdir)}: {why}. Results of {counted(tenants, 'tenant')} need at least "
            f"{format_bytes(size)} there. Free some space"
        )


def refuse_no_data_root(request: RunRequest, tests: Mapping[str, Test]) -> None:
    """Raise InputError for a data root that is not there and cannot be made, where built-in ``tests`` read datasets."""
    builtin = read_builtin()
    reading = [name for name, test in tests.items() if (known := builtin.get(test.workload)) and known.data]
    there = nearest(request.dataroot)
    if reading and not os.path.isdir(request.dataroot) and (why := why_unwritable(there)):
        raise InputError(
            f"the datasets of {names_of(reading, 3)} must be made in {plain(request.dataroot)}, but {plain(there)} "
            f"is not writable ({why}). Choose another data root with -d"
        )


def refuse_unset(names: Collection[str]) -> None:
    """Raise InputError for a variable that the workers are to get and that there is not."""
    unset = sorted(set(names) - os.environ.keys())
    if unset and "=" in unset[0]:
        name = unset[0].partition("=")[0]
        raise InputError(f"--pass-env {unset[0]}: give only the name, {name}, and set it in the environment of mnb")
    if unset:
        raise InputError(f"--pass-env {unset[0]}: this variable is not set. Set it, or leave the option out")
