"""What a user asks of a run, and how it becomes a plan: profile and options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from milabench_ng.catalogue import Catalogue, Scalar, parse_flags, resolve
from milabench_ng.errors import InputError, IsolationError
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import Wish
from milabench_ng.fence.io import ask
from milabench_ng.orchestrator.execution.caching import Cache
from milabench_ng.orchestrator.execution.watchdog import Limits, limits_for
from milabench_ng.plan import Device, Order, Plan, Resolved, make_plan
from milabench_ng.profile import IoShare, Profile, Test, TimeLimits, build_profile, parse_profile
from milabench_ng.profile_2020 import convert_2020
from milabench_ng.records.isolation import IoEvidence
from milabench_ng.records.window import WindowRule


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call of ``mnb jobs``, ``mnb run`` or ``mnb rerun``."""

    suite: str
    profile_text: str
    profile_source: str
    names: tuple[str, ...] = ()
    repeat: int = 1
    tenants: int | None = None
    gpus: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """What followed ``--``."""
    isolation: Wish = "auto"
    io: IoShare = IoShare()
    """Instead of what the profile says, where it is not None."""
    ram_total_bytes: int | None = None
    cgroup_parent: str | None = None
    start: Literal["warm", "cold"] = "warm"
    cache: Cache = "cold"
    data_scale: float | None = None
    classic_data: bool = False
    """Read what 2020 generated where a data set has such a form."""
    dataroot: Path
    outdir: Path
    rule: WindowRule = WindowRule()
    allow_concurrent: bool = False
    order: Order = "interleaved"
    nonce: str | None = None
    limits: TimeLimits = TimeLimits()
    """Instead of what the profile says, where it is not None."""
    retry: int = 0
    """How often a launch that fails is tried again."""
    spool: Path | None = None
    """Where results go as long as ``outdir`` cannot be written."""
    resume: bool = False
    """Go on with the run in ``outdir``."""
    accept: tuple[Literal["node", "software", "isolation"], ...] = ()
    """What may differ from the first session."""


def encode_request(request: RunRequest) -> dict[str, Any]:
    """The request as the manifest carries it, without the profile's text, which stands there already."""
    fields: dict[str, Any] = msgspec.to_builtins(request, enc_hook=str)
    for name in ("profile_text", "resume", "accept", "retry", "spool"):
        fields.pop(name)
    return fields


def read_profile(request: RunRequest) -> tuple[dict[str, dict[str, object]], bool]:
    """The raw tests of the request's profile, and whether it is one of 2020."""
    return parse_profile(request.profile_text, request.profile_source)


def foreign_workloads(tests: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """The workloads that a profile names as ``package.module:function``."""
    named = (definition.get("workload") for definition in tests.values())
    return tuple(dict.fromkeys(name for name in named if isinstance(name, str) and ":" in name))


class ResolvedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request read against the catalogue. Tests are selected and options resolved here, and nowhere again."""

    request: RunRequest
    catalogue: Catalogue
    """As the request wants it read: with ``--classic-data``, workloads read the classic data sets."""
    profile: Profile
    """All its tests, in today's words."""
    tests: Mapping[str, Test]
    """The selected ones by name, in file order."""
    arguments: Resolved

    def where(self, name: str) -> str:
        """A test's place, for errors."""
        return _where(self.request, name)


def resolve_request(request: RunRequest, catalogue: Catalogue) -> ResolvedRequest:
    """The tests and options of a request. Pure.

    Raises InputError for what is wrong with them, and for a workload of one process that is spread over devices.
    """
    if request.classic_data:
        catalogue = catalogue.classic()
    profile = typed_profile(request, catalogue)
    tests = profile.select(request.names).tests
    for name, test in tests.items():
        workload = catalogue.workload(test.workload, _where(request, name))
        if test.partition_scheme.type.spreads and not workload.distributed:
            raise InputError(
                f"{_where(request, name)}: partition scheme {test.partition_scheme.type.value!r} runs over "
                f"several devices, and workload {test.workload!r} runs in one process; use per-gpu"
            )
    return ResolvedRequest(
        request=request,
        catalogue=catalogue,
        profile=profile,
        tests=tests,
        arguments={name: _arguments(request, name, test, catalogue) for name, test in tests.items()},
    )


def typed_profile(request: RunRequest, catalogue: Catalogue) -> Profile:
    """The profile in today's words, with the request's data scale where it has one."""
    tests, of_2020 = read_profile(request)
    chosen = {name: tests[name] for name in tests if not request.names or name in request.names}
    warnings: tuple[str, ...] = ()
    if of_2020:
        # Only what is asked for must be known: a 2020 profile may hold tests that no workload here stands for.
        tests, warnings = convert_2020(chosen or tests, catalogue, request.profile_source)
    profile = build_profile(request.suite, tests, request.profile_text, request.profile_source, warnings)
    if request.data_scale is None:
        return profile
    if not 0 < request.data_scale <= 1:
        raise InputError(f"--data-scale {request.data_scale:g}: it must be above 0 and at most 1")
    scaled = {
        name: msgspec.structs.replace(test, data_scale=request.data_scale) for name, test in profile.tests.items()
    }
    return msgspec.structs.replace(profile, tests=scaled)


def _where(request: RunRequest, name: str) -> str:
    return f"{request.profile_source}: test {name!r}"


def _arguments(
    request: RunRequest, name: str, test: Test, catalogue: Catalogue
) -> tuple[dict[str, Scalar | None], tuple[str, ...]]:
    """Every option of a test: workload's default, profile, command line, in this order; and what the last changed."""
    where = _where(request, name)
    options = catalogue.workload(test.workload, where).options
    stated = resolve(options, test.arguments, where)
    given = parse_flags(options, request.flags, f"{where}: after --")
    changed = tuple(option for option, value in given.items() if stated[option] != value)
    return {**stated, **given}, changed


def plan_for(resolved: ResolvedRequest, devices: tuple[Device, ...]) -> Plan:
    """The plan of a request for these devices. Pure."""
    request = resolved.request
    return make_plan(
        resolved.profile, request.names, resolved.arguments, devices, request.repeat, request.order, request.nonce
    )


def io_shares(resolved: ResolvedRequest, capabilities: Capabilities, backend: str) -> dict[str, IoEvidence]:
    """The I/O share of every selected test that has one, by its id. Raises InputError where it cannot be enforced."""
    found: dict[str, IoEvidence] = {}
    request = resolved.request
    for name, test in resolved.tests.items():
        stated = test.io or IoShare()
        wanted = IoShare(read=request.io.read or stated.read, write=request.io.write or stated.write)
        if wanted != IoShare():
            asked = ask(wanted, resolved.where(name), request.dataroot, capabilities, backend)
            found[f"{resolved.profile.suite}.{name}"] = msgspec.structs.replace(asked, override=wanted != stated)
    return found


def time_limits(resolved: ResolvedRequest, plan: Plan, start: Literal["warm", "cold"]) -> dict[str, Limits]:
    """What the watchdog tolerates, by test (`suite.test`). Raises InputError for limits that no launch can meet."""
    found: dict[str, Limits] = {}
    request = resolved.request
    given = {name: value for name, value in msgspec.structs.asdict(request.limits).items() if value}
    for launch in plan.launches:
        if launch.test not in found:
            stated = resolved.tests[launch.test.rpartition(".")[2]].limits or TimeLimits()
            asked = msgspec.structs.replace(stated, **given)
            found[launch.test] = limits_for(launch, request.rule, start, asked)
    return found


def refuse_several_steps(plan: Plan) -> None:
    """A launch over several devices is one process tree, which cannot be in several steps. Raises IsolationError."""
    spread = tuple(dict.fromkeys(launch.test for launch in plan.launches if len(launch.devices) > 1))
    if spread:
        raise IsolationError(
            f"isolation: {', '.join(spread)} run over several devices, and in a Slurm allocation each tenant is a step "
            "of its own, which a launch cannot spread over. Name the other tests after the profile, or accept "
            "--isolation affinity (results are marked NOT ISOLATED)."
        )


def refuse_missing_packages(resolved: ResolvedRequest) -> None:
    """Raises InputError where a selected test needs a package that is not installed, before anything is started."""
    for name, test in resolved.tests.items():
        workload = resolved.catalogue.workloads[test.workload]
        if workload.missing:
            raise InputError(
                f"{resolved.where(name)}: workload {test.workload!r} needs "
                f"{', '.join(workload.missing)}, not installed here: {workload.remedy}, or choose tests with --name"
            )


def required_isolation(resolved: ResolvedRequest) -> Wish:
    """``full`` where a selected test requires it, else what was asked for."""
    request = resolved.request
    required = [name for name, test in resolved.tests.items() if test.require == "full"]
    if not required:
        return request.isolation
    if request.isolation not in ("auto", "full"):
        raise InputError(
            f"--isolation {request.isolation}: test {required[0]!r} of {request.profile_source} requires full isolation"
        )
    return "full"
