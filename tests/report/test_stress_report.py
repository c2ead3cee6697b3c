"""What a report says of a stress run: verified work, mismatches, known answers, power, and its last minutes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU

from milabench_ng.analysis.summary.folder import decode_summary, load
from milabench_ng.model.plain import printed_json
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import make_report

Change = Callable[[dict[str, Any]], None]
DIGESTS = {"1": "a" * 64, "2": "a" * 64}


def folder(place: Path, change: Change = lambda _: None) -> Path:
    """Two tests on two GPUs; each launch verified 203 PFLOP, and 4 PB of the second. ``change``: of a `mnb` part."""
    place.mkdir()
    whole = make_records.plan("stress", {"burn": PER_GPU, "burn_memory": PER_GPU}, 2, 1)
    make_records.write_manifest(place, whole)
    for batch in whole.batches:
        for launch in batch.launches:
            made = make_records.record(launch, make_records.steady, 120, batch.number, 1)
            (rank,) = made["mnb"]["ranks"]
            memory = launch.workload == "burn_memory"
            rank["verified"] = {
                "unit": "GB" if memory else "TFLOP",
                "values": "normal",
                "checks": 100,
                "work": 4e6 if memory else 203e3,
                "wrong": 0,
            }
            rank["digests"] = {} if memory else DIGESTS
            change(made["mnb"])
            made["success"] = made["mnb"]["failure"] is None
            make_records.write(place, made, 2 * batch.number + launch.devices[0])
    make_records.write_ledger(place, whole)
    return place


def answers(report: Report) -> dict[str, tuple[str, ...]]:
    return {answer.name: answer.parts for answer in first_screen(report).answers}


def alarms(report: Report) -> list[str]:
    return [fact.text for fact in first_screen(report).alarms if fact.name == "MISMATCH"]


def test_verified_work_is_summed_with_its_bound(tmp_path: Path) -> None:
    report = make_report(folder(tmp_path / "run"))
    told = "406 PFLOP and 8 PB, 0 mismatches (95% bound: 7.4 per EFLOP and 370 per EB)"
    assert answers(report)["Verified"] == (told,)
    assert (alarms(report), report.mismatches, report.exit_code) == ([], 0, 0)


def test_a_mismatch_is_the_first_thing_that_is_told(tmp_path: Path) -> None:
    detail = "GPU 1 (Test GPU, GPU-1): 2 of 100 results are wrong, the first (product, check 7) 3.5 s after the start"

    def faulty(mnb: dict[str, Any]) -> None:
        if mnb["label"] == "stress.burn" and mnb["launch"]["devices"][0] == 1:
            mnb["ranks"][0]["verified"] |= {"wrong": 2, "first": [{"what": "product", "check": 7, "time_s": 1003.5}]}
            mnb["failure"] = {"cause": "mismatch", "detail": detail}

    report = make_report(folder(tmp_path / "run", faulty))
    assert alarms(report) == [f"burn: {detail}"]
    assert answers(report)["Verified"][0].startswith("406 PFLOP and 8 PB, 2 mismatches (95% bound: 15 per EF")
    assert (report.mismatches, report.exit_code) == (2, 1)


def test_a_record_that_hides_its_mismatches_fails_all_the_same(tmp_path: Path) -> None:
    def hidden(mnb: dict[str, Any]) -> None:
        mnb["ranks"][0]["verified"]["wrong"] = 1

    report = make_report(folder(tmp_path / "run", hidden))
    assert [failed.cause for _, failed in report.failed] == ["mismatch"] * 4
    assert report.exit_code == 1


def stored(place: Path, source: Path) -> Path:
    """The summary of a folder, as `mnb summary -o` writes it."""
    place.write_text(printed_json(load(source)))
    assert decode_summary(place.read_bytes(), "known").tests["stress.burn"].answers
    return place


def test_answers_are_compared_with_those_of_an_earlier_run(tmp_path: Path) -> None:
    known = stored(tmp_path / "known.json", folder(tmp_path / "earlier"))
    same = make_report(folder(tmp_path / "same"), compare_to=[str(known)])
    assert answers(same)["Verified"][1:] == (f"1 test as in {known}",)
    assert same.exit_code == 0

    def other(mnb: dict[str, Any]) -> None:
        if mnb["ranks"][0]["digests"]:
            mnb["ranks"][0]["digests"] = {"1": "b" * 64, "2": "b" * 64}

    report = make_report(folder(tmp_path / "other", other), compare_to=[str(known)])
    assert alarms(report) == [f"burn: another result than in {known}, from the same work, software and kind of device"]
    assert (report.mismatches, report.exit_code) == (1, 1)


@pytest.mark.parametrize("what", ["software", "device", "seed", "processor"])
def test_answers_of_other_software_devices_or_seeds_are_not_compared(tmp_path: Path, what: str) -> None:
    known = stored(tmp_path / "known.json", folder(tmp_path / "earlier"))

    def other(mnb: dict[str, Any]) -> None:
        if mnb["ranks"][0]["digests"]:
            mnb["ranks"][0]["digests"] = {"1": "b" * 64, "2": "b" * 64}
        if what == "device":
            mnb["devices"][0]["name"] = "Test GPU MIG 1g.10gb"
        if what == "processor":
            mnb["bound"] = "cpu"
        if what == "seed":
            mnb["launch"]["arguments"]["seed"] = 4

    place = folder(tmp_path / "other", other)
    if what == "software":
        manifest = msgspec.json.decode((place / "run.json").read_bytes())
        (place / "run.json").write_bytes(msgspec.json.encode(manifest | {"software_key": "1" * 16}))
    report = make_report(place, compare_to=[str(known)])
    assert (report.known_answers, report.lines[0].row.answers != {}) == ((), True)
    assert report.mismatches == 0


def test_the_power_that_was_reached_and_the_last_minutes_are_told(tmp_path: Path) -> None:
    def spread(mean: float) -> dict[str, Any]:
        return {"n": 1200, "min": mean, "mean": mean, "max": mean, "span_s": 600.0}

    def lasted(mnb: dict[str, Any]) -> None:
        device = mnb["launch"]["devices"][0]
        mnb["power_fraction"] = {str(device): 0.99 - 0.02 * device if mnb["label"] == "stress.burn" else 0.6}
        ends = {"first": (100.0, 1455.0, 61.0), "last": (98.0 if device else 99.9, 1440.0, 66.0)}
        mnb["endurance"] = {
            name: {
                "start_s": at,
                "end_s": at + 600,
                "rate": rate,
                "telemetry": {f"gpu:GPU-{device}": {"sm_clock_mhz": spread(clock), "temperature_c": spread(heat)}},
            }
            for at, (name, (rate, clock, heat)) in zip((1002.0, 2200.0), ends.items(), strict=True)
        }

    found = answers(make_report(folder(tmp_path / "run", lasted)))
    assert found["Burned"] == ("97% of the power limit in burn, on the GPU that took least",)
    told = "burn -2.0% (GPU 1), SM clock 1455 to 1440 MHz, 61 to 66 °C; 10.0 min each"
    assert found["Last vs first"] == (told, "most of 2 tests")


def test_a_run_that_verifies_nothing_says_nothing_of_it(tmp_path: Path) -> None:
    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"vae": PER_GPU}, 2, 1))
    found = answers(make_report(tmp_path / "run"))
    assert {"Verified", "Burned", "Last vs first"} & found.keys() == set()
