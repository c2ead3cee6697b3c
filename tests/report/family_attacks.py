"""Attacks on tests of certain kinds: alone or beside company, with latencies, with parts that they time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slice_attacks import more_steps
from tampering import Change, Tamper, ledger_events, records, recount, rehash, rewrite, write_events


def limited(content: dict[str, Any]) -> None:
    if not any(share.get("io") for share in content["mnb"]["isolation"].values()):
        raise LookupError("a launch with an I/O share")


def io_share(factor: float | None = None, **changes: Any) -> Change:
    """The I/O share and its evidence ``factor`` times as large, or taken out; or parts of it changed."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            own, edges = share["io"], [share[edge] for edge in ("requested", "effective", "effective_end")]
            if changes:
                own.update(changes)
            elif factor is None:
                share["io"] = None
            else:
                own.update({name: own[name] * factor for name in ("read_bytes_per_s", "probed_read_bytes_per_s")})
            for edge in () if changes else edges:
                edge["io"] = share["io"] and [{"device": own["device"], "read_bytes_per_s": own["read_bytes_per_s"]}]
                edge["io"] = edge["io"] or []

    return change


def no_limit_in_the_kernel(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        for edge in ("requested", "effective", "effective_end"):
            share[edge]["io"] = []


def divided(content: dict[str, Any]) -> None:
    if not any(share["requested"].get("cache") for share in content["mnb"]["isolation"].values()):
        raise LookupError("a launch with parts of caches")


def divided_beside(content: dict[str, Any]) -> None:
    divided(content)
    if not content["mnb"]["neighbours"]["planned"]:
        raise LookupError("a launch beside others")


def cache_part(*edges: str, **changes: Any) -> Change:
    """The first part of a cache, changed at these edges."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            for edge in edges:
                share[edge]["cache"][0] |= changes

    return change


def no_cache_part(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        for edge in ("requested", "effective", "effective_end"):
            share[edge].pop("cache")


def left_cache_group(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        share["effective_end"]["in_cache_group"] = False


def more_read(content: dict[str, Any]) -> None:
    edges = content["mnb"]["conditions"]
    for share in content["mnb"]["isolation"].values():
        spent_s = edges["after"]["time_s"] - edges["before"]["time_s"]
        share["usage"]["io_read_bytes"] = int(2 * (spent_s + 10) * share["io"]["read_bytes_per_s"])


def chosen(folder: Path, wanted: Change) -> Iterator[Path]:
    """The records of launches that did not fail and for which ``wanted`` raises nothing."""
    for path in sorted(folder.glob("*.J*.json")):
        content = json.loads(path.read_bytes())
        try:
            wanted(content)
        except LookupError:
            continue
        if content["success"]:
            yield path


def where(wanted: Change, change: Change, *, first: bool = False) -> Tamper:
    """Change the records that are ``wanted``, or the first of them, and the ledger with them."""

    def tamper(folder: Path) -> None:
        paths = list(chosen(folder, wanted))
        if not paths:
            raise LookupError("no such launch")
        for path in paths[:1] if first else paths:
            rewrite(path, change)
        rehash(folder)

    return tamper


def of_company(content: dict[str, Any]) -> None:
    if content["mnb"]["launch"].get("role") != "company":
        raise LookupError("company")


def alone(content: dict[str, Any]) -> None:
    if ".alone" not in content["name"] or content["mnb"]["marks"]:
        raise LookupError("a test that ran alone")


def timed(content: dict[str, Any]) -> None:
    if not any(row[6:7] and row[6] for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        raise LookupError("a launch with latencies")


def in_parts(content: dict[str, Any]) -> None:
    if not any(row[7:8] and row[7] for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        raise LookupError("a launch that times its parts")


def shared(content: dict[str, Any]) -> None:
    if not any("cached" in row[7] for rank in content["mnb"]["ranks"] for row in rank["slices"] if row[7:8]):
        raise LookupError("a launch that notes a share")


def scaled(content: dict[str, Any]) -> None:
    if content["mnb"]["ranks"][0].get("skipped") is None or not content["mnb"]["ranks"][0]["gradient_norms"]:
        raise LookupError("a launch that trains with a loss scale")


def lost_early(content: dict[str, Any]) -> None:
    """It failed two seconds before the stop of its batch."""
    mnb = content["mnb"]
    content["success"] = False
    mnb |= {"failure": {"cause": "oom", "detail": "why"}, "window": None}
    for rank in mnb["ranks"]:
        rank["slices"] = [row for row in rank["slices"] if row[0] + row[1] < mnb["stop_s"] - 2]
    content["timings"] = {name: one for name, one in content["timings"].items() if name == "program"}


def nothing_done(content: dict[str, Any]) -> None:
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[2] = 0
    recount(content)


def company_events(folder: Path) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """The lines of the ledger without the first record of company, and that record."""
    events = ledger_events(folder)
    own = [line for line in events if line[1]["event"] == "Recorded" and line[1]["number"] == 0][:1]
    if not own:
        raise LookupError("company")
    return [line for line in events if line not in own], own


def begun_without(folder: Path) -> None:
    """No line says that the batch had company."""
    events = ledger_events(folder)
    places = [line[1] for line in events if line[1]["event"] == "Recorded" and line[1]["number"] == 0]
    if not places:
        raise LookupError("company")
    names = {(one["label"], one["job_id"]) for one in places}
    kept = [line for line in events if not (line[1]["event"] == "Company" and _place(line[1]) in names)]
    write_events(folder, kept)


def _place(event: dict[str, Any]) -> tuple[str, str]:
    return event["label"], event["job_id"]


def recorded_later(folder: Path) -> None:
    """The record of company was made when its batch was long over."""
    kept, own = company_events(folder)
    write_events(folder, [*kept[:-1], *((kept[-1][0], event) for _, event in own), kept[-1]])


def parts(factor: float) -> Change:
    """All noted seconds, multiplied."""

    def change(content: dict[str, Any]) -> None:
        for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"] if row[7:8]):
            row[7] = {name: value * (factor if name.endswith("_s") else 1.0) for name, value in row[7].items()}

    return change


def back_in_no_time(content: dict[str, Any]) -> None:
    """The way back to the host takes a fiftieth, beside the way to the device."""
    noted = [row[7] for rank in content["mnb"]["ranks"] for row in rank["slices"] if row[7:8] and "out_s" in row[7]]
    if not noted:
        raise LookupError("a launch that copies both ways")
    for notes in noted:
        notes["out_s"] *= 0.02


def all_cached(content: dict[str, Any]) -> None:
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"] if row[7:8]):
        row[7]["cached"] = 2.0 * row[3]


def untimed(content: dict[str, Any]) -> None:
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        row[6:7] = [[]]


def without_parts(content: dict[str, Any]) -> None:
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        row[7:8] = [{}]


def skips_untold(content: dict[str, Any]) -> None:
    for rank in content["mnb"]["ranks"]:
        rank["skipped"] = None


def thrice(content: dict[str, Any]) -> None:
    more_steps(content, 3)


def moves_files(content: dict[str, Any]) -> None:
    """A disk that the kernel counts whatever others do there, as cgroup v2 does."""
    usage = [share["usage"] for share in content["mnb"]["isolation"].values() if share["mode"] == "v2"]
    if content["mnb"]["launch"]["workload"] != "checkpoint" or not any(one["io_read_bytes"] for one in usage):
        raise LookupError("a launch whose files the kernel counts")


def nothing_moved(*names: str) -> Change:
    """The kernel counted none of it."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            share["usage"] |= dict.fromkeys(names, 0)

    return change


def none_cached(content: dict[str, Any]) -> None:
    if content["mnb"]["launch"]["workload"] != "checkpoint":
        raise LookupError("a launch that tells what the page cache held")
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        row[7]["cached"] = 0.0


def memory_called_storage(folder: Path) -> None:
    """Files on tmpfs, of which none is said to have been in memory."""
    if not any(folder.glob("*checkpoint*.J*.json")):
        raise LookupError("a launch that tells what the page cache held")
    rewrite(folder / "run.json", lambda content: content["storage"]["dataroot"].update(filesystem="tmpfs"))
    records(none_cached, "*checkpoint*")(folder)


def uncounted(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        share["usage"]["io_read_bytes"] = None


def ten_times(content: dict[str, Any]) -> None:
    more_steps(content, 10)


def slower(content: dict[str, Any]) -> None:
    more_steps(content, 0.4)


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "company that failed early": ("R17", where(of_company, lost_early), "failed (oom) before the stop, and it says"),
    "company that did nothing": ("R17", where(of_company, nothing_done), "did nothing in its window"),
    "batch begun without its company": ("R13", begun_without, "and the ledger began the batch without it"),
    "company recorded after its batch": ("R13", recorded_later, "has no record of it beside those of the batch"),
    "slower when alone": ("R5", where(alone, slower), "the same work beside neighbours, was"),
    "slower when alone, once": ("R5", where(alone, slower, first=True), "in other repeats of its device"),
    "latencies left out everywhere": ("R4", where(timed, untimed), "rank 0 has no latencies"),
    "parts longer than their slices": ("R4", where(in_parts, parts(4.0), first=True), "rank 0 notes parts of"),
    "parts made short": ("R4", where(in_parts, parts(0.1)), "s in its window, and worked for"),
    "one of two parts made short": ("R4", records(back_in_no_time, "*h2d*"), "rank 0 notes out_s of"),
    "parts left out": ("R4", where(in_parts, without_parts), "_s in slice 0"),
    "more than all cached": ("R4", where(shared, all_cached), "rank 0 notes cached of"),
    "no I/O limit": ("R16", where(limited, io_share()), "its share may read without limit, by the profile 1000 MiB/s"),
    "a larger I/O limit": ("R16", where(limited, io_share(4)), "its share may read 3.9 GiB/s, by the profile 1000"),
    "I/O limit not in the kernel": ("R16", where(limited, no_limit_in_the_kernel), "its group may read without limit"),
    "I/O share not probed": (
        "R16",
        where(limited, io_share(probed_read_bytes_per_s=None)),
        "no probe shows that its share of 1000 MiB/s",
    ),
    "a probe above its I/O share": (
        "R16",
        where(limited, io_share(probed_read_bytes_per_s=4e9)),
        "a probe read 3.7 GiB/s, its share is 1000 MiB/s",
    ),
    "reads that nobody counted": ("R16", where(limited, uncounted), "and nothing counted what it read"),
    "ten times the items of its reads": ("R16", where(limited, ten_times), "MB without the limit"),
    "more read than its I/O share": ("R16", where(limited, more_read), "s, its share is 1000 MiB/s"),
    "thrice the items of its files": ("R5", where(moves_files, thrice), "MiB, and the kernel counted"),
    "reads of nothing": ("R5", where(moves_files, nothing_moved("io_read_bytes")), "MiB, and the kernel counted 0 MiB"),
    "writes of nothing": ("R5", where(moves_files, nothing_moved("io_write_bytes")), "its items wrote"),
    "memory called storage": ("R5", memory_called_storage, "lay on tmpfs, and 0% of what it read was in memory"),
    "overlapping parts of a cache": (
        "R16",
        where(divided_beside, cache_part("requested", "effective", "effective_end", mask=0x3F), first=True),
        "had the same parts (20) of cache 0",
    ),
    "a larger part of a cache": (
        "R16",
        where(divided_beside, cache_part("requested", "effective", "effective_end", mask=0x3FF), first=True),
        "its tenants had unequal parts of cache 0",
    ),
    "more bandwidth in the kernel": (
        "R16",
        where(divided, cache_part("effective", "effective_end", bandwidth_pct=100)),
        "100 % of the bandwidth; cache 1: 11 parts (7ff), 100 % of the bandwidth, it asked for cache 0:",
    ),
    "a part that grew": (
        "R16",
        where(divided, cache_part("effective_end", mask=0x7FF)),
        "at its end it held cache 0: 11 parts (7ff), 50 % of the bandwidth",
    ),
    "a part that hardware fills": (
        "R16",
        where(divided, cache_part("requested", "effective", "effective_end", mask=0x7C0)),
        "and hardware fills 400",
    ),
    "the cache of another socket": (
        "R16",
        where(divided, cache_part("requested", "effective", "effective_end", cache=1)),
        "it has CPUs behind caches [0], and asked for cache 1:",
    ),
    "no part of a cache": ("R16", where(divided, no_cache_part), "it asked for no part of a cache, the run gives"),
    "tasks outside the group of its cache": ("R16", where(divided, left_cache_group), "tasks of it were outside"),
    "skipped steps left out": ("R33", where(scaled, skips_untold), "count of the steps that the loss scale of"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
