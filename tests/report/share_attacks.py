"""Attacks on what a launch held and on the types of its parameters, which its neighbours do not show."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tampering import Change, Tamper, manifest, record, records

EDGES = ("requested", "effective", "effective_end")
_Share = dict[str, Any]


def of_shares(change: Callable[[_Share, dict[str, Any]], None]) -> Change:
    """A change of each fence of a launch, which is given the launch too."""

    def changed(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            change(share, content["mnb"])

    return changed


def little_ram(share: _Share, mnb: dict[str, Any]) -> None:
    """An eighth of the RAM of its slot, as if it had always been so."""
    for edge in EDGES:
        share[edge]["memory_bytes"] //= 8
    share["requested"]["memory_nominal_bytes"] //= 8
    if share.get("usage"):
        share["usage"]["memory_peak_bytes"] = 1
    if "MNB_RAM_BYTES" in mnb["environment"]:
        mnb["environment"]["MNB_RAM_BYTES"] = str(share["requested"]["memory_bytes"])


def on_cpus(choose: Callable[[list[int]], list[int]]) -> Change:
    """Other CPUs than those of its slot, in all that tells of them."""

    def change(share: _Share, mnb: dict[str, Any]) -> None:
        own = choose(share["requested"]["cpus"])
        for edge in EDGES:
            share[edge]["cpus"] = own
        share["proc"]["cpus_allowed"] = own
        mnb["environment"]["MNB_CPUS"] = ",".join(map(str, own))

    return of_shares(change)


def fewer(cpus: list[int]) -> list[int]:
    if len(cpus) < 2:
        raise LookupError("a share of several CPUs")
    return cpus[:1]


def limits(**changes: Any) -> Change:
    """Limits of the tenant's group, at entry and end."""

    def change(share: _Share, _: dict[str, Any]) -> None:
        for edge in EDGES[1:]:
            share[edge] |= changes

    return of_shares(change)


def by_a_new_back_end(change: Change) -> Change:
    """The same from a back end that this version does not know, and that makes its groups itself."""

    def changed(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            share |= {"backend": "jail", "groups_by": "mnb"}
        change(content)

    return changed


def throttled(share: _Share, mnb: dict[str, Any]) -> None:
    if not mnb.get("surroundings"):
        raise LookupError("a record that tells of quotas above")
    share["usage"]["throttled_usec"] = 9_000_000


def as_one_of_two(share: _Share) -> None:
    """The part that a tenant has whose device has two; one that shares its device says that it has all of it."""
    if share.pop("device_part", None) is None:
        share["device_part"] = 0.5


def more_tenants(folder: Path) -> None:
    """Tenants whose parts are not those of so many as the plan has on a device."""
    manifest(lambda content: [as_one_of_two(share) for share in content["shares"].values()] and None)(folder)
    records(of_shares(lambda share, _: as_one_of_two(share["requested"])))(folder)


def typed(*names: str) -> Change:
    """A quarter of the parameters as they are, and the rest in equal parts of these types."""

    def change(content: dict[str, Any]) -> None:
        seen = content["mnb"]["precision"] or {}
        if not seen.get("dtypes"):
            raise LookupError("a launch with parameters")
        name, many = max(seen["dtypes"].items(), key=lambda one: one[1])
        seen["dtypes"] = {name: -(-many // 4)} | dict.fromkeys(names, many // len(names))

    return change


def no_cpus(content: dict[str, Any]) -> None:
    """Nobody can say then which share of them other programs took."""
    content["inventory"]["cpus"] |= dict.fromkeys(("sockets", "cores", "threads"), 0)


LIMIT = [{"device": "254:0", "write_bytes_per_s": 10_000_000}]

ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "an eighth of its RAM": ("R16", record(of_shares(little_ram)), "it requested memory_bytes 134217728, but run.json"),
    "the CPUs of nobody": ("R16", record(on_cpus(lambda cpus: [cpu + 64 for cpu in cpus])), "it requested CPUs 6"),
    "a node without CPUs": ("R16", manifest(no_cpus), "and run.json says that the node has 0"),
    "fewer CPUs than its slot": ("R16", record(on_cpus(fewer)), "but run.json says"),
    "more tenants than the plan": ("R16", more_tenants, "0.5 of its memory, and the plan has 1 tenants on each"),
    "few processes": ("R16", record(limits(pids=50)), "at its entry its limit was 50 processes, but it requested 4096"),
    "few processes, by a new back end": (
        "R16",
        record(by_a_new_back_end(limits(pids=50))),
        "its limit was 50 processes",
    ),
    "an I/O limit of nobody": ("R16", record(limits(io=LIMIT)), "an I/O limit on 254:0 that was not requested"),
    "an I/O limit asked for by nobody": (
        "R16",
        record(of_shares(lambda share, _: [share[edge].update(io=LIMIT) for edge in EDGES] and None)),
        "it requested an I/O limit on 254:0, but has none",
    ),
    "held back by a quota of its own": ("R16", record(of_shares(throttled)), "a quota held its CPUs back for 9 s"),
    "shares left out": ("R33", manifest(lambda content: content.pop("shares")), "run.json has no share of device 0"),
    "parameters in fp8": (
        "R18",
        record(typed("float8_e4m3fn")),
        "fp32 was requested, but parameters are float8_e4m3fn",
    ),
    "parameters in a wide type": ("R18", record(typed("float64")), "of its parameters are float32"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
