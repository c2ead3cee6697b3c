"""Conversion of 2020 profiles (``milarun``): their experiments, option names and item units become ours.

Each workload of the catalogue says how 2020 named it; this module only applies that.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from milabench_ng.model.catalogue import Catalogue, Legacy2020, Workload, normal_name
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Profile, Profile2020, RawTests, build_profile

_MAX_COUNT = 1000
"""Items of 2020 after which a test of 2020 stopped by default."""
_COMMON_IGNORED = ("cuda", "no_cuda", "dataset")
_REPLACED = {
    "prepare": "mnb evicts or warms the dataset's files before each launch group, without sysctl",
    "exec_prefix": "mnb evicts the dataset's files from the page cache itself",
    "cgroup": "mnb isolates every tenant itself",
}


def convert_2020(profile: Profile2020, catalogue: Catalogue, names: Collection[str] = ()) -> Profile:
    """The tests called ``names`` in today's terms, with a warning for every line that is not executed.

    Others need not be known: a profile may hold tests that no workload here matches. All, if none has such a name.
    """
    source = profile.source
    warnings: dict[str, None] = {}
    converted: RawTests = {}
    chosen = {name: profile.tests[name] for name in profile.tests if name in names} or profile.tests
    for name, definition in chosen.items():
        converted[name] = _convert_test(definition, catalogue, f"{source}: test {name!r}")
        for key in _replaced_keys(definition):
            warnings[f"{source}: the 2020 key {key!r} is not executed: {_REPLACED[key]}"] = None
    return build_profile(profile.suite, converted, profile.text, source, tuple(warnings))


def _replaced_keys(definition: dict[str, Any]) -> list[str]:
    scheme = definition.get("partition_scheme", {})
    keys = [key for key in ("prepare", "exec_prefix") if key in definition]
    return keys + (["cgroup"] if isinstance(scheme, dict) and "cgroup" in scheme else [])


def _convert_test(definition: dict[str, Any], catalogue: Catalogue, where: str) -> dict[str, Any]:
    rest = {key: value for key, value in definition.items() if key not in ("prepare", "exec_prefix")}
    workload, legacy = _find(catalogue, rest.pop("experiment", None), where)
    scheme = rest.get("partition_scheme")
    if isinstance(scheme, dict):
        rest["partition_scheme"] = {key: value for key, value in scheme.items() if key != "cgroup"}
    arguments = rest.get("arguments", {})
    if not isinstance(arguments, dict):
        raise InputError(f"{where}: arguments must be an object, not {type(arguments).__name__}")
    return {**rest, "workload": workload.name, "arguments": _convert_arguments(arguments, workload, legacy, where)}


def _find(catalogue: Catalogue, experiment: object, where: str) -> tuple[Workload, Legacy2020]:
    known = {
        legacy.experiment: (workload, legacy)
        for workload in catalogue.workloads.values()
        for legacy in workload.legacy_2020
    }
    if not isinstance(experiment, str) or experiment not in known:
        raise InputError(f"{where}: no workload matches experiment {experiment!r}. Known: {', '.join(known)}")
    return known[experiment]


def _convert_arguments(arguments: dict[str, Any], workload: Workload, legacy: Legacy2020, where: str) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    for key, value in arguments.items():
        for name, ours in _convert_argument(normal_name(key), value, workload, legacy).items():
            if name in converted:
                raise InputError(f"{where}: {key!r} sets {name!r}, which another argument has set already")
            converted[name] = ours
    stop = _convert_argument("max_count", _MAX_COUNT, workload, legacy)
    return {**legacy.implied.get("", {}), **stop, **converted}


def _convert_argument(option: str, value: Any, workload: Workload, legacy: Legacy2020) -> dict[str, Any]:
    """What one 2020 option sets here."""
    if option in _COMMON_IGNORED or option in legacy.ignored:
        return {}
    if isinstance(value, str) and f"{option}={value}" in legacy.implied:
        return dict(legacy.implied[f"{option}={value}"])
    if option in legacy.implied:
        return dict(legacy.implied[option]) if value else {}
    if option == "max_count" and type(value) is int and abs(value) < 1 << 63:  # a larger one is refused unchanged
        # 8000 / (100 / 97) is 7760.000000000001: round off the error of the division before rounding up.
        return {"max_count": math.ceil(round(value / workload.classic_factor, 6))}
    return {legacy.options.get(option, option): value}
