"""Attacks on the numbers: slices, windows, counts, and what else must agree with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_records
import tampering
from tampering import Change, Tamper, manifest, ours, record, records


def moved(folder: Path, **more: float) -> None:
    """The stop of a batch 10 s earlier, with a window to fit."""
    for path in folder.glob("*.vae.J0.*"):

        def change(content: dict[str, Any]) -> None:
            mnb = content["mnb"]
            stop = mnb["stop_s"] - 10
            mnb.update(stop_s=stop, window={"start_s": stop - 10, "end_s": stop - 1})
            mnb["ranks"][0] |= {name: mnb["ranks"][0][name] + by for name, by in more.items()}

        tampering.rewrite(path, change)
    tampering.rehash(folder)


def earlier_stop(folder: Path) -> None:
    moved(folder)


def earlier_full(folder: Path) -> None:
    moved(folder, full_s=-10)


def later_stop(content: dict[str, Any]) -> None:
    """A second more of the same pace, and the stop after it: the window moves on."""
    mnb = content["mnb"]
    for rank in mnb["ranks"]:
        for odd in (1e-5, -1e-5):
            last = rank["slices"][-1]
            rank["slices"].append([last[0] + last[1], 0.5 + odd, *last[2:]])
    mnb["stop_s"] += 1
    mnb["window"] |= {edge: mnb["window"][edge] + 1 for edge in ("start_s", "end_s")}
    tampering.recount(content)


def full_later(content: dict[str, Any]) -> None:
    """A second later: the slices before it would leave the window."""
    content["mnb"]["ranks"][0]["full_s"] += 1


def everywhere_full_too_soon(folder: Path) -> None:
    for path in folder.glob("*.vae.*"):
        tampering.rewrite(path, lambda content: content["mnb"]["launch"]["arguments"].update(max_count=10**9))
    tampering.rehash(folder)


def cut_short(content: dict[str, Any]) -> None:
    del content["mnb"]["ranks"][0]["slices"][-2:]


def source(content: dict[str, Any]) -> None:
    content["mnb"]["source"]["sha256"] = "1" * 64


def too_many_latencies(content: dict[str, Any]) -> None:
    """One batch more than steps."""
    row = content["mnb"]["ranks"][0]["slices"][20]
    row[5:] = [row[5] if len(row) > 5 else None, [[348, row[3]], [465, 1]]]


def backlog_alone(folder: Path) -> None:
    """Items made ahead in one launch of a test that makes none: the others of that test tell."""
    for path in sorted(folder.glob("*.J*.json"), reverse=True):
        rows = json.loads(path.read_bytes())["mnb"]["ranks"][0]["slices"]
        of_test = list(folder.glob(f"{path.name.partition('.J')[0]}.J*.json"))
        if len(of_test) > 1 and rows and not any(len(row) > 5 and row[5] is not None for row in rows):
            tampering.rewrite(path, backlog(64, 64, of=even))
            tampering.rehash(folder)
            return
    raise LookupError("several launches of a test without a backlog")


def skipping(content: dict[str, Any]) -> None:
    steps = {"steps": 200, "skipped": 100, "settled_steps": 100, "settled_skipped": 90}
    content["mnb"]["ranks"][0]["skipped"] = steps


def backlog(*edges: float, of: Callable[[int], int | None]) -> Change:
    """The backlog that a record states, and that of its slices, 24 of them; the window holds those from 4 to 21."""

    def change(content: dict[str, Any]) -> None:
        rank = content["mnb"]["ranks"][0]
        rank["backlog"] = list(edges) or None
        for place, row in enumerate(rank["slices"]):
            row[5:] = [of(place)]
        rank["full_s"] = make_records.full(rank["slices"], content["mnb"]["start_s"], content["mnb"]["stop_s"])

    return change


def even(_place: int) -> int:
    return 64


def falling(place: int, since: int = 15) -> int:
    """By three items a slice in the last part of the window."""
    return 160 - 3 * max(0, place - since)


def worked_off(content: dict[str, Any]) -> None:
    """In the last part of the window, by six items a slice of 53, or as much of larger ones."""
    counts = [row[2] for row in content["mnb"]["ranks"][0]["slices"]]
    if len(counts) < 24:
        raise LookupError("a launch of 24 slices")
    times = max(1, round(sum(counts) / len(counts) / 53))
    backlog(320 * times, 287 * times, of=lambda place: 2 * times * falling(place))(content)


def settled_sooner(folder: Path) -> None:
    """Windows that begin at once, and end with the stop."""
    for name in ("settle_s", "margin_s"):
        manifest(lambda content, name=name: content["window_rule"].update({name: 0.0}))(folder)
        records(lambda content, name=name: content["mnb"]["window_rule"].update({name: 0.0}))(folder)


def idle_between_slices(content: dict[str, Any]) -> None:
    """Half a millisecond of each slice is in none."""
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[0], row[1] = row[0] + 0.0005, row[1] - 0.0005


def whole_slices(folder: Path) -> None:
    """A stall across the edge of a window is in no rate."""
    manifest(lambda content: content["window_rule"].pop("edges"))(folder)
    records(lambda content: content["mnb"]["window_rule"].pop("edges"))(folder)


def copied(folder: Path) -> None:
    """The slow device has the numbers of the fast one."""
    source = json.loads(next(folder.glob("*.vae.J0.0.*")).read_bytes())
    own = source["mnb"]["ranks"][0]

    def change(content: dict[str, Any]) -> None:
        content["timings"] = source["timings"]
        content["mnb"]["ranks"][0] |= {key: own[key] for key in ("count", "full_s", "slices", "backlog") if key in own}
        content["mnb"] |= {key: source["mnb"][key] for key in ("start_s", "stop_s", "window")}

    record(change, "*.vae.J0.1.*")(folder)


def cpu_time(seconds: float) -> Change:
    """The CPU time that the kernel is said to have counted."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            share["usage"] = (share.get("usage") or {}) | {"cpu_usec": int(1e6 * seconds)}

    return change


def free_energy(content: dict[str, Any]) -> None:
    """More power than energy."""
    mnb = content["mnb"]
    span = {edge: mnb["window"][edge] for edge in ("start_s", "end_s")}
    mnb["sampled"] = span | {"interval_s": 0.5, "dropped": 0}
    for edge, energy in (("before", 1000), ("after", 2000)):
        for uuid, state in mnb["conditions"][edge]["gpus"].items():
            state["energy_mj"] = energy
            mnb["telemetry"][f"gpu:{uuid}"] = {
                "power_w": {"n": 18, "span_s": 8.5, "min": 600.0, "mean": 650.0, "max": 700.0}
            }


def unknown_device(folder: Path) -> None:
    """A device without a data sheet, fifty times as fast."""
    name = json.loads((folder / "run.json").read_bytes())["plan"]["devices"][0]["name"]
    for path in (folder / "run.json", *folder.glob("*.J*.json")):
        path.write_bytes(path.read_bytes().replace(json.dumps(name).encode(), b'"Unobtainium 9"'))
    records(lambda content: multiplied(content, 50))(folder)


def multiplied(content: dict[str, Any], by: float) -> None:
    """Every count and all that follows from it."""
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[2] = round(row[2] * by)
    tampering.recount(content)


def more_a_step(content: dict[str, Any]) -> None:
    """Every count x 1.45, steps, latencies and losses untouched; of steps that were not full, more."""
    rows = [row for rank in content["mnb"]["ranks"] for row in rank["slices"]]
    batch = content["mnb"]["launch"]["arguments"].get("batch_size", 1)
    multiplied(content, 1.45 * max(1.0, batch / max(row[2] / row[3] for row in rows)))


def more_in_one(content: dict[str, Any]) -> None:
    """A launch with more items a step than the others of its test, and no more than its batch."""
    multiplied(content, 1.2)


def without_a_latency(content: dict[str, Any]) -> None:
    """As many latencies as there were steps before they were raised."""
    several = [row for rank in content["mnb"]["ranks"] for row in rank["slices"] if row[3] > 1]
    if not several:
        raise LookupError("a slice of several steps")
    for row in several:
        row[5:] = [row[5] if len(row) > 5 else None, [[348, row[3] - 1]]]


def more_first_tokens(content: dict[str, Any]) -> None:
    """More latencies of items than there are items."""
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        row[5:] = [row[5] if len(row) > 5 else None, [], {}, {"TTFT": [[348, row[2] + 1]]}]


def more_steps(content: dict[str, Any], by: float) -> None:
    """Every count and every step, and all that counts them."""
    for rank in content["mnb"]["ranks"]:
        before = sum(row[3] for row in rank["slices"])
        for row in rank["slices"]:
            items, steps = row[2] / row[3], round(row[3] * by)
            row[2:4] = [round(items * steps), steps]
            if len(row) > 6 and row[6]:
                row[6][-1][1] += steps - sum(number for _, number in row[6])
        if rank.get("skipped"):
            rank["skipped"]["steps"] += sum(row[3] for row in rank["slices"]) - before
    tampering.recount(content)


def too_many_slices(content: dict[str, Any]) -> None:
    """A few bytes each, and hundreds in memory; more than the longest test of a shipped profile has."""
    arguments = content["mnb"]["launch"]["arguments"]
    many = int(4 * max(600, arguments["max_seconds"]) / arguments["sample_duration"]) + 2000
    content["mnb"]["ranks"][0]["slices"] = [[0, 1, 0, 1, 0]] * many


def empty_lists(content: dict[str, Any]) -> None:
    """They compress well, and take twenty times their length decoded."""
    content["gpu_monitor"] = {"0": [[]] * 1_800_000}


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "tampered slice": ("R3", record(tampering.one_slice), "rates that rank 0 states do not follow from its slices"),
    "no slices at all": ("R4", records(ours(ranks=[])), "it has slices of 0 ranks ([]), and ran on 1"),
    "slice taken out": ("R4", record(tampering.without_a_slice), "slice 14 begins 0.5 s after the one before it"),
    "stop at the best moment": ("R36", earlier_stop, "vae J0.0: it was stopped -10.0 s after the last launch"),
    "every stop a second later": (
        "late-stops",
        records(later_stop),
        "it was stopped 1.0 s after the last launch of its launch group",
    ),
    "full at the best moment": ("R36", earlier_full, "rank 0 has slices from long after its stop"),
    "full at a better moment": (
        "R36",
        record(full_later),
        "after the start, but by its slices it was after 12.0 s",
    ),
    "full before max_count": ("R36", everywhere_full_too_soon, "items, 1000000000 are its max_count"),
    "slices cut before the stop": ("R36", record(cut_short), "rank 0 has no slices up to its stop"),
    "impossible rate": ("R5", record(tampering.faster), "x the peak of Test GPU in fp32"),
    "more batches than steps": (
        "R4",
        record(too_many_latencies),
        "slice 20 is impossible: the latencies of 6 batches in 5 steps",
    ),
    "mixed backlogs": (
        "R4",
        record(backlog(of=lambda at: None if at else 1)),
        "some of its slices have prefetched items",
    ),
    "backlog taken out": ("R4", record(backlog(of=even)), "its prefetched items do not match its"),
    "backlog not of the slices": ("R4", record(backlog(0, 0, of=even)), "its prefetched items do not match"),
    "backlog in one launch alone": ("R4", backlog_alone, "J0.0: its slices have no prefetched items"),
    "backlog worked off": ("R22", record(worked_off), "of the window's items were prefetched before it"),
    "settled sooner": ("R35", settled_sooner, "0 s are left out after the start, but 2 s are required"),
    "time between slices": ("R4", records(idle_between_slices), "after the one before it"),
    "whole slices only": ("R35", whole_slices, "slices across a boundary of the window count nothing"),
    "slices of another device": ("copied-slices", copied, "slices of the same lengths as"),
    "counts x 1.45, steps as they were": ("R37", records(more_a_step), "images a step, but its options allow 64"),
    "counts of one launch": (
        "unlike-steps",
        record(more_in_one),
        "items per step, but others with the same batches have",
    ),
    "steps that the loss scale did not see": ("R37", record(skipping), "steps, its loss scale saw 200"),
    "steps without a latency": ("R37", record(without_a_latency), "steps and the latencies of 96 batches"),
    "more first tokens than tokens": ("R4", record(more_first_tokens), "latencies (TTFT) of"),
    "power without energy": ("gpu-counters", record(free_energy), "used 1 J in"),
    "more slices than fit into its time": (
        "R12",
        record(too_many_slices),
        "rank 0 has 6,800 slices; 600 s, its max_seconds, have at most 1200 of 0.5 s",
    ),
    "values that fill the memory": ("R12", record(empty_lists), "it would take more than 256 MiB of memory"),
    "fifty times as fast on an unknown device": ("R5", unknown_device, "the peak of Unobtainium 9 in fp32"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
