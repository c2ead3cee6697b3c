"""Attacks on tests of certain kinds: alone or beside company, with latencies, with parts that they time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slice_attacks import more_steps
from tampering import Change, Tamper, ledger_events, recount, rehash, rewrite, write_events


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
    "parts made short": ("R4", where(in_parts, parts(0.1)), "s in all, and worked for"),
    "parts left out": ("R4", where(in_parts, without_parts), "_s in slice 0"),
    "more than all cached": ("R4", where(shared, all_cached), "rank 0 notes cached of"),
    "skipped steps left out": ("R33", where(scaled, skips_untold), "count of the steps that the loss scale of"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
