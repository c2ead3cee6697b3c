"""Attacks by rest: time that nobody worked called waiting, and company that worked less, or more, than the same did."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from family_attacks import alone, in_parts, of_company, parts, timed, where
from make_records import BUILTIN
from slice_attacks import more_steps
from tampering import Change, Tamper, recount

from milabench_ng.plan import Launch
from milabench_ng.records.latency import WIDTH
from milabench_ng.report.verification.checks.step_times import fed


def unfed(content: dict[str, Any]) -> None:
    launch = content["mnb"]["launch"]
    if not content["success"] or fed(launch_of(content), BUILTIN[launch["workload"]]):
        raise LookupError("a launch that nothing feeds")


def launch_of(content: dict[str, Any]) -> Launch:
    return msgspec.convert(content["mnb"]["launch"], Launch)


def unfed_in_parts(content: dict[str, Any]) -> None:
    unfed(content)
    in_parts(content)


def unfed_and_timed(content: dict[str, Any]) -> None:
    unfed(content)
    timed(content)


def waited(part: float) -> Change:
    """This part of all time spent waiting."""

    def change(content: dict[str, Any]) -> None:
        for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
            row[4] = part * row[1]

    return change


def shorter(factor: float) -> Change:
    """All latencies, multiplied."""
    by = round(math.log(factor) / math.log(WIDTH))

    def change(content: dict[str, Any]) -> None:
        for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
            row[6] = [[max(0, bucket + by), number] for bucket, number in row[6]]

    return change


def shorter_in_the_window(content: dict[str, Any]) -> None:
    """Only where reports look; the launch was long before it."""
    window = content["mnb"]["window"]
    by = round(math.log(0.1) / math.log(WIDTH))
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        if window["start_s"] <= row[0] and row[0] + row[1] <= window["end_s"]:
            row[6] = [[max(0, bucket + by), number] for bucket, number in row[6]]


def every(*changes: Change) -> Change:
    """One after the other."""

    def change(content: dict[str, Any]) -> None:
        for one in changes:
            one(content)

    return change


def pressing(bound: str, busy: bool = True) -> Change:
    """A wish for company that is an antagonist bound so, without pauses; ``busy`` False: with pauses."""

    def wanted(content: dict[str, Any]) -> None:
        of_company(content)
        launch = content["mnb"]["launch"]
        own, share = BUILTIN[launch["workload"]], launch["arguments"].get("busy", 0)
        if own.bound != bound or not share or (share == 1) != busy or content["mnb"]["marks"]:
            raise LookupError(f"an antagonist bound by {bound}")

    return wanted


def cpu_time(factor: float) -> Change:
    """The CPU time of its group, multiplied; where nobody counted it, there is none to rest."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            share["usage"]["cpu_usec"] = int(share["usage"]["cpu_usec"] * factor)

    return change


def of_one_repeat(wanted: Change) -> Change:
    def last(content: dict[str, Any]) -> None:
        wanted(content)
        if content["mnb"]["launch"]["run"] != 1:
            raise LookupError("a second repeat")

    return last


def five_times(content: dict[str, Any]) -> None:
    more_steps(content, 5)


def hardly(content: dict[str, Any]) -> None:
    """A twentieth of the work, and of the CPU time."""
    for row in (row for rank in content["mnb"]["ranks"] for row in rank["slices"]):
        items = row[2] / row[3]
        row[3] = max(1, round(row[3] / 20))
        row[2] = round(items * row[3]) if row[3] > 1 else round(row[2] / 20)
    recount(content)
    cpu_time(0.05)(content)


def rested_gpu(content: dict[str, Any]) -> None:
    for device in content["mnb"]["devices"]:
        own = content["mnb"]["telemetry"][f"gpu:{device['uuid']}"]
        own["utilization_pct"] = dict.fromkeys(("min", "mean", "max"), 0.0) | {"n": 18, "span_s": 8.5}


def beyond_the_sheet(content: dict[str, Any]) -> None:
    """More products than any GPU makes, on one whose data sheet is known."""
    for device in content["mnb"]["devices"]:
        device["name"] = "NVIDIA H200"
    more_steps(content, 100)


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "latencies made short, the rest waited": (
        "R4",
        where(unfed_and_timed, every(waited(0.88), shorter(0.1))),
        "rank 0 waited for 88% of its window, and nothing feeds",
    ),
    "latencies made short in the window": (
        "R4",
        where(timed, shorter_in_the_window),
        "s in its window, and worked for",
    ),
    "parts made short, the rest waited": (
        "R4",
        where(unfed_in_parts, every(waited(0.88), parts(0.1))),
        "rank 0 waited for 88% of its window, and nothing feeds",
    ),
    "waited alone, and nothing feeds it": (
        "R4",
        where(every(alone, unfed), waited(0.9)),
        "rank 0 waited for 90% of its window, and nothing feeds",
    ),
    "company that waited": ("R4", where(pressing("cpu"), waited(0.99)), "waited for 99% of its window, and nothing"),
    "company that paused longer": (
        "R4",
        where(pressing("cpu", busy=False), waited(0.95)),
        "waited for 95% of its window, and nothing",
    ),
    "company without CPU time": ("R17", where(pressing("cpu"), cpu_time(0.001)), "s of CPU time a second (at least"),
    "company that rested once": (
        "R17",
        where(pressing("cpu"), hardly, first=True),
        "in other batches of its kind",
    ),
    "company that rested in one repeat": (
        "R17",
        where(of_one_repeat(pressing("cpu")), cpu_time(0.15)),
        "s of CPU time a second, others of its kind",
    ),
    "company of five times the rate once": (
        "R17",
        where(pressing("cpu"), five_times, first=True),
        "in other batches of its kind",
    ),
    "company of five times the rate in one repeat": (
        "R17",
        where(of_one_repeat(pressing("cpu")), five_times),
        "in other batches of its kind",
    ),
    "company on an idle GPU": (
        "R5",
        where(pressing("gpu-compute"), rested_gpu),
        "its GPU was busy for 0.0 % of the window",
    ),
    "company beyond its data sheet": (
        "R5",
        where(pressing("gpu-compute"), beyond_the_sheet),
        "TFLOP/s, the peak of NVIDIA H200 is 989.4",
    ),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
