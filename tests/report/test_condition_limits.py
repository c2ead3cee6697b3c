"""Conditions beyond their limits: each from a trace that a fake NVML plays, or from what a record holds, by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import make_records
import msgspec
import pytest
from make_records import PER_GPU
from played_nvml import PlayedNvml, Step, busy_gpu
from tampering import changing

from milabench_ng.analysis.conditions.condition import Condition, held, worst
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.errors import InputError
from milabench_ng.model.limits import LIMITS, ConditionKind, most
from milabench_ng.node.conditions import read_conditions
from milabench_ng.node.drivers.nvml.driver import open_nvml
from milabench_ng.node.drivers.opening import Drivers, read_gpus
from milabench_ng.present.render.look_at import look_at
from milabench_ng.present.render.statements import details
from milabench_ng.report.reporting import make_report
from milabench_ng.telemetry.gpu import GpuSource
from milabench_ng.telemetry.messages import Sample
from milabench_ng.telemetry.recorder import Recorder
from milabench_ng.verification.rules_file import decode_rules
from milabench_ng.verification.verify import verify

ROOT = Path(__file__).parents[2]
STEPS = 24
"""Of half a second, from the start of the work; the window of 9 s begins at the fourth."""
WINDOW = (2.0, 11.0)


def run(folder: Path, trace: Mapping[int, Step] = {}, xids: Mapping[str, Sequence[int]] = {}, **changes: Any) -> Path:
    """Two GPUs that work side by side, as NVML shows them while it plays ``trace``: steps by number.

    Step -1 comes before the conditions are read the first time. ``changes``: to the records.
    """
    module = PlayedNvml(busy_gpu(0), busy_gpu(1))
    nvml = Drivers(open_nvml(module))
    devices = read_gpus(nvml).devices
    recorder = Recorder()
    steps = module.play([trace.get(step, {}) for step in range(-1, STEPS + 1)])
    next(steps)
    before = read_conditions(nvml, devices)
    source = GpuSource(nvml, devices)
    for step in range(STEPS):
        next(steps)
        for uuid, values in source.read():
            recorder.feed(Sample(time_s=step / 2, source="gpu", key=uuid, values=values))
    next(steps)
    after = read_conditions(nvml, devices)
    plan = make_records.plan("quick", {"vae": PER_GPU}, 2, 1)
    make_records.write_run(folder, plan)
    for path in folder.glob("quick.vae.J*"):
        with changing(path) as made:
            mnb = made["mnb"]
            for edge, seen in (("before", before), ("after", after)):
                raw = msgspec.to_builtins(seen)
                mnb["conditions"][edge] |= {"gpus": raw["gpus"]} | (
                    {"settings": raw["settings"]} if edge == "before" else {}
                )
            keys = [("gpu", f"GPU-{index}") for index in mnb["launch"]["devices"]]
            mnb["telemetry"] |= msgspec.to_builtins(recorder.telemetry(keys, *WINDOW))  # type: ignore[arg-type]
            mnb["xids"] = {key: list(numbers) for key, numbers in xids.items() if key == keys[0][1]}
            made["mnb"] = make_records.changed(mnb, {key: _own(mnb[key], value) for key, value in changes.items()})
    return folder


def _own(part: Any, change: Any) -> Any:
    """A change without the slots that a record has not got."""
    slots = isinstance(part, dict) and set(part) <= {"0", "1"}
    return {slot: each for slot, each in change.items() if slot in part} if slots else change


def beyond(folder: Path) -> dict[str, list[tuple[str | None, str]]]:
    """By kind, slots and subjects of what is beyond its limit."""
    found: dict[str, list[tuple[str | None, str]]] = {}
    for one in load(folder).tests["quick.vae"].conditions:
        if one.beyond:
            found.setdefault(one.kind, []).append((one.slot, one.what))
    return found


def known(folder: Path, kind: ConditionKind) -> Condition:
    return next(one for one in load(folder).tests["quick.vae"].conditions if one.kind == kind)


def test_a_quiet_trace_is_within_all_limits_and_all_are_known(tmp_path: Path) -> None:
    folder = run(tmp_path)
    assert beyond(folder) == {}
    seen = {one.kind for one in load(folder).tests["quick.vae"].conditions}
    assert seen == set(get_args(ConditionKind)) - {
        *("GPU used by others", "foreign CPU load", "held back by a CPU quota", "prefetched items", "stall"),
        *("CPU steal", "swap", "memory pressure"),  # the made-up host tells none of them
    }
    facts = [fact.text for fact in details(make_report(folder)) if fact.name == "conditions"]
    assert facts == ["13 of 13 kinds within their limits; not known: CPU steal, swap, memory pressure"]
    assert "conditions" not in {fact.name for fact in look_at(make_report(folder))}


def ramp(field: int, nanoseconds_a_step: int) -> dict[int, Step]:
    """A cumulative time of GPU-1 that grows with each step."""
    return {step: {"GPU-1": {field: step * nanoseconds_a_step}} for step in range(STEPS)}


FROM_TRACES: dict[str, tuple[ConditionKind, dict[int, Step], str]] = {
    "heat, by the driver": ("throttled", ramp(269, 3_000_000), "sw_thermal"),
    "heat, by the hardware": ("throttled", ramp(270, 3_000_000), "hw_thermal"),
    "power brake": ("throttled", ramp(271, 3_000_000), "hw_power_brake"),
    "a slow clock": ("slow clock", {0: {"GPU-1": {("ClockInfo", 1): 1_500}}}, ""),
    "corrected errors": ("corrected ECC errors", {9: {"GPU-1": {("TotalEccErrors", 0): 11}}}, ""),
    "uncorrected errors": ("uncorrected ECC errors", {9: {"GPU-1": {("TotalEccErrors", 1): 1}}}, ""),
    "a row to be remapped": ("rows to be remapped", {9: {"GPU-1": {"RemappedRows": (0, 1, 1, 0)}}}, ""),
    "a remapping that failed": ("rows to be remapped", {9: {"GPU-1": {"RemappedRows": (0, 1, 0, 1)}}}, ""),
    "an older PCIe": ("PCIe link", {-1: {"GPU-1": {"CurrPcieLinkGeneration": 4}}}, "generation"),
    "half the lanes": ("PCIe link", {-1: {"GPU-1": {"CurrPcieLinkWidth": 8}}}, "width"),
    "replays": ("PCIe replays", {9: {"GPU-1": {94: 3 + 15}}}, ""),  # in 62 s
    "a fatal error": ("PCIe fatal errors", {9: {"GPU-1": {180: 1}}}, ""),
    "a link that goes down": ("NVLink down", {9: {"GPU-1": {("NvLinkState", 5): 0}}}, ""),
    "fewer links than the other": ("NVLink down", {-1: {"GPU-1": {("NvLinkState", 5): 0}}}, ""),
    "an NVLink replay": ("NVLink errors", {9: {"GPU-1": {52: 1}}}, ""),
    "an NVLink recovery": ("NVLink errors", {9: {"GPU-1": {59: 1}}}, ""),
    "NVLink checksums": ("NVLink CRC errors", {9: {"GPU-1": {38: 12 + 7_000}}}, ""),
}


@pytest.mark.parametrize(("kind", "trace", "what"), FROM_TRACES.values(), ids=FROM_TRACES)
def test_what_nvml_shows_beyond_a_limit(tmp_path: Path, kind: ConditionKind, trace: dict[int, Step], what: str) -> None:
    folder = run(tmp_path, trace)
    assert beyond(folder) == {kind: [("1", what)]}
    (told,) = [one.text for one in details(make_report(folder)) if one.text.startswith("12 of 13 kinds")]
    assert told.startswith(f"12 of 13 kinds within their limits; beyond them: {kind}; not known: ")


WITHIN: dict[str, dict[int, Step]] = {
    "0.4% of heat": ramp(269, 2_000_000),
    "always at the power limit": ramp(74, 500_000_000),
    "a clock 9% lower": {0: {"GPU-1": {("ClockInfo", 1): 1_600}}},
    "an idle link at the first edge": {
        -1: {"GPU-1": {"CurrPcieLinkGeneration": 1}},
        0: {"GPU-1": {"CurrPcieLinkGeneration": 5}},
    },
    "ten corrected errors": {9: {"GPU-1": {("TotalEccErrors", 0): 10}}},
    "errors of before": {-1: {"GPU-1": {("TotalEccErrors", 1): 7, 94: 900, 180: 2, 52: 5}}},
    "eight replays": {9: {"GPU-1": {94: 3 + 8}}},
    "no NVLink at all": {-1: {gpu: {("NvLinkState", link): 0 for link in range(18)} for gpu in ("GPU-0", "GPU-1")}},
    "one GPU that is not connected": {-1: {"GPU-1": {("NvLinkState", link): 0 for link in range(18)}}},
    "counters that began again": {-1: {"GPU-1": {94: 900}}, 9: {"GPU-1": {94: 0}}},
}


@pytest.mark.parametrize("trace", WITHIN.values(), ids=WITHIN)
def test_what_is_within_its_limit(tmp_path: Path, trace: dict[int, Step]) -> None:
    assert beyond(run(tmp_path, trace)) == {}


def test_a_clock_is_compared_where_the_gpu_sets_the_pace_only(tmp_path: Path) -> None:
    from types import SimpleNamespace

    idle = {"UtilizationRates": SimpleNamespace(gpu=60, memory=1), ("ClockInfo", 1): 300}
    assert beyond(run(tmp_path, {0: {"GPU-1": idle}})) == {}


def test_the_power_limit_is_information(tmp_path: Path) -> None:
    folder = run(tmp_path, ramp(74, 450_000_000))
    found = known(folder, "power cap")
    assert (found.value, found.limit, found.beyond) == (pytest.approx(0.9), None, False)
    told = [fact.text for fact in details(make_report(folder)) if fact.name == "conditions"]
    assert told[1] == "at the power limit for up to 90% of a window, which is normal under load"


def test_any_xid_is_told_with_its_number(tmp_path: Path) -> None:
    folder = run(tmp_path, xids={"GPU-1": (31, 43)})
    assert beyond(folder) == {"XID": [("1", "31, 43")]}
    (fact,) = [fact for fact in look_at(make_report(folder)) if fact.name == "conditions"]
    assert fact.text == "beyond their limits: device 1: XID 31, 43, limit 0 (vae)"


HOST: dict[str, tuple[ConditionKind, dict[str, Any]]] = {
    "steal": (
        "CPU steal",
        {"telemetry": {"host:node": {"cpu_steal_pct": {"n": 18, "span_s": 8.5, "min": 0.0, "mean": 6.0, "max": 9.0}}}},
    ),
    "pressure": (
        "memory pressure",
        {"isolation": {slot: {"usage": {"pressure": {"memory": {"some_s": 9.0, "full_s": 4.0}}}} for slot in "01"}},
    ),
    "host pace": ("host pace", {"host_pace": {slot: make_records.host_pace(80.0, 70.0) for slot in "01"}}),
    "swap": (
        "swap",
        {
            "conditions": {
                "before": {"host": {"pages_swapped_in": 100}},
                "after": {"host": {"pages_swapped_in": 20_000}},
            }
        },
    ),
}


@pytest.mark.parametrize(("kind", "changes"), HOST.values(), ids=HOST)
def test_what_the_host_shows_beyond_a_limit(tmp_path: Path, kind: ConditionKind, changes: dict[str, Any]) -> None:
    assert list(beyond(run(tmp_path, **changes))) == [kind]


def test_marks_keep_their_names_and_are_beyond(tmp_path: Path) -> None:
    marks = [
        {"kind": "throttled", "device": "0", "what": "hw_thermal", "value": 0.02, "limit": 0.005},
        {"kind": "GPU used by others", "device": "1", "what": "4711, 4712"},
        {"kind": "window shortened", "value": 1.0, "limit": 9.0},
    ]
    folder = run(tmp_path, marks=marks)
    found = {
        one.kind: (one.slot, one.value, one.limit) for one in load(folder).tests["quick.vae"].conditions if one.beyond
    }
    assert found == {"throttled": ("0", 0.02, 0.005), "GPU used by others": ("1", 2, 0.0)}
    assert "conditions" not in {fact.name for fact in look_at(make_report(folder))}  # the warnings say it


def test_records_of_earlier_versions_tell_what_they_have(tmp_path: Path) -> None:
    plan = make_records.plan("quick", {"vae": PER_GPU}, 2, 1)
    make_records.write_run(tmp_path, plan)
    for path in tmp_path.glob("quick.vae.J*"):
        with changing(path) as made:
            for edge in made["mnb"]["conditions"].values():
                for gpu in edge["gpus"].values():
                    del gpu["links"]
    kinds = {one.kind for one in load(tmp_path).tests["quick.vae"].conditions}
    assert kinds == {"throttled", "uncorrected ECC errors", "rows to be remapped", "host pace"}


def test_the_worst_of_each_kind_is_kept_and_of_each_subject_beyond() -> None:
    found = worst(
        [
            *(held("PCIe replays", value, slot) for value, slot in ((1.0, "0"), (5.0, "1"), (2.0, "2"))),
            *(held("throttled", value, "0", what) for value, what in ((0.1, "hw_thermal"), (0.2, "sw_thermal"))),
            held("throttled", 0.001, "1", "hw_thermal"),
            *(
                Condition(kind="NVLink down", slot=slot, value=value, limit=18, beyond=value < 18)
                for slot, value in (("0", 18), ("1", 12), ("2", 6))
            ),
        ]
    )
    assert [(one.kind, one.slot, one.value) for one in found] == [
        ("PCIe replays", "1", 5.0),
        ("throttled", "0", 0.1),
        ("throttled", "0", 0.2),
        ("NVLink down", "2", 6),
    ]


def test_rules_refuse_the_kinds_that_they_name(tmp_path: Path) -> None:
    folder = run(tmp_path, {9: {"GPU-1": {52: 1}}})

    def ruling(*kinds: str) -> tuple[str, tuple[str, ...]]:
        rules = tmp_path.parent / "rules.json"
        rules.write_text(json.dumps({"conditions_refused": kinds}))
        (found,) = [
            one for one in verify(folder, rules=decode_rules(rules.read_bytes(), "rules")).rulings if one.id == "R39"
        ]
        return found.result, found.reasons

    assert ruling("NVLink errors") == (
        "fail",
        ("quick.vae: device 1: 1 NVLink replays and recoveries, limit 0",),
    )
    assert ruling("swap", "XID")[0] == "pass"
    assert ruling()[0] == "not required"
    with pytest.raises(InputError, match="conditions_refused"):
        ruling("bad luck")


def test_a_limit_that_is_each_devices_own_has_no_number() -> None:
    assert most("throttled") == 0.005
    with pytest.raises(ValueError, match="PCIe link"):
        most("PCIe link")


def test_the_page_has_every_limit() -> None:
    """The table of docs/methodology/limits.md, row by row."""
    page = (ROOT / "docs/methodology/limits.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    told = {kind: (limit, source) for kind, limit, source in rows}
    assert told == {kind: (_limit(kind), one.source) for kind, one in LIMITS.items()}


def _limit(kind: ConditionKind) -> str:
    at = LIMITS[kind]
    if at.most is None:
        return "none"
    return f"{100 * at.most:g}%" if at.unit == "%" else f"{at.most:g} {at.unit}".rstrip()
