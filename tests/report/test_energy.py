"""Joules and kilowatt-hours within each boundary, computed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU
from rows import row_of
from tampering import changing
from test_money import WEIGHTS, node

from milabench_ng.analysis.scoring.energy_cost import energy_costs
from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.analysis.summary.folder import load
from milabench_ng.analysis.summary.summary import Energy, Stat
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.statements import details
from milabench_ng.records.manifest import IdlePower
from milabench_ng.report.reporting import ReportOptions, build_report, make_report

BUSY_W = 500.0


def run(folder: Path, *, devices: int = 2, repeat: int = 2, host: Mapping[str, float] = {}) -> Path:
    """``devices`` GPUs of 500 W each at 100 items/s, in windows of 9 s; ``host``: watts by the host's counters.

    Before the first launch group, the counters of the GPUs are at 1 kJ, after the last one at 1 kJ + 1.8 MJ.
    """
    plan = make_records.plan("quick", {"vae": PER_GPU}, devices, repeat)
    make_records.write_run(folder, plan, lambda *_: 100.0)
    paths = sorted(folder.glob("quick.vae.J*"))
    last = max(json.loads(path.read_text())["mnb"]["batch"] for path in paths)
    for path in paths:
        with changing(path) as made:
            mnb = made["mnb"]
            for index in mnb["launch"]["devices"]:
                mnb["telemetry"][f"gpu:GPU-{index}"] |= {
                    "energy_j": spread(1000.0, BUSY_W),
                    "power_w": {"n": 18, "span_s": 8.5} | dict.fromkeys(("min", "mean", "max"), BUSY_W),
                }
            mnb["telemetry"]["host:node"] |= {name: spread(0.0, watts) for name, watts in host.items()}
            for edge, conditions in mnb["conditions"].items():
                over = edge == "after" and mnb["batch"] == last
                begun = edge == "before" and mnb["batch"] == min(0, last)
                for state in conditions["gpus"].values():
                    state["energy_mj"] = 1_000_000 + (1_800_000_000 if over else 0 if begun else 5_000)
                for name, watts in host.items():
                    conditions["host"][name] = 36_000.0 * watts if over else 0.0 if begun else 1.0
            mnb["neighbours"] |= {"planned": devices - 1, "alive_at_stop": devices - 1}
    return folder


def spread(begin_j: float, watts: float) -> dict[str, float]:
    """A counter over a window of 9 s."""
    return {"n": 18, "span_s": 9.0, "min": begin_j, "mean": begin_j, "max": begin_j + 9.0 * watts}


def energies(folder: Path) -> dict[str, Energy]:
    return {one.boundary: one for one in load(folder).tests["quick.vae"].energy}


def test_each_boundary_by_hand(tmp_path: Path) -> None:
    """Two GPUs of 500 W at 100 items/s: 5 J an item. With 200 W of processors 1,200 W for 200 items/s: 6 J."""
    found = energies(run(tmp_path, host={"cpu_energy_j": 200.0, "wall_energy_j": 1600.0}))
    assert {name: (one.watts, one.joules_per_item, one.items_per_joule) for name, one in found.items()} == {
        "GPU": (pytest.approx(1000.0), pytest.approx(5.0), pytest.approx(0.2)),
        "GPU + CPU": (pytest.approx(1200.0), pytest.approx(6.0), pytest.approx(1 / 6)),
        "wall": (pytest.approx(1600.0), pytest.approx(8.0), pytest.approx(0.125)),
    }
    assert {name: one.seconds for name, one in found.items()} == {
        "GPU": pytest.approx(36.0),  # four windows
        "GPU + CPU": pytest.approx(18.0),  # of two launch groups
        "wall": pytest.approx(18.0),
    }
    assert found["GPU"].basis == ("energy counter",)
    assert found["wall"].basis == ("integrated from a meter of power",)


def test_a_single_window_of_nine_seconds_has_no_energy_of_an_item(tmp_path: Path) -> None:
    folder = run(tmp_path, devices=1, repeat=1)
    found = energies(folder)["GPU"]
    assert (found.watts, found.joules_per_item, found.items_per_joule) == (pytest.approx(500.0), None, None)
    assert "n/a for vae: windows of less than 10 s in all" in [fact.text for fact in details(make_report(folder))]


def test_the_host_is_not_divided_among_tenants_of_several_tests(tmp_path: Path) -> None:
    folder = run(tmp_path, host={"cpu_energy_j": 200.0})
    for path in folder.glob("quick.vae.J*"):
        with changing(path) as made:
            made["mnb"]["neighbours"] |= {"planned": 2, "alive_at_stop": 2}  # one that is not of this test
    assert list(energies(folder)) == ["GPU"]


def test_devices_that_are_shared_have_no_energy(tmp_path: Path) -> None:
    folder = run(tmp_path)
    for path in folder.glob("quick.vae.J*"):
        with changing(path) as made:
            for device in made["mnb"]["devices"]:
                device["kind"] = "mig"
    assert energies(folder) == {}


def test_a_device_without_a_counter_is_labelled(tmp_path: Path) -> None:
    folder = run(tmp_path)
    for path in folder.glob("quick.vae.J*"):
        with changing(path) as made:
            for name, seen in made["mnb"]["telemetry"].items():
                if name.startswith("gpu:"):
                    del seen["energy_j"]
    assert energies(folder)["GPU"].basis == ("samples",)


def test_the_kilowatt_hours_of_a_run_are_between_its_first_edge_and_its_last(tmp_path: Path) -> None:
    summary = load(run(tmp_path, host={"cpu_energy_j": 200.0, "wall_energy_j": 1000.0}))
    assert summary.energy_kwh == {
        "GPU": pytest.approx(2 * 1.8e6 / 3.6e6),
        "CPU": pytest.approx(2.0),
        "wall": pytest.approx(10.0),
    }


def test_counters_that_begin_again_give_no_kilowatt_hours(tmp_path: Path) -> None:
    folder = run(tmp_path)
    for path in folder.glob("quick.vae.J*"):
        with changing(path) as made:
            for state in made["mnb"]["conditions"]["after"]["gpus"].values():
                state["energy_mj"] = 1
    assert load(folder).energy_kwh == {}


def test_idle_power_is_that_of_the_manifest(tmp_path: Path) -> None:
    folder = run(tmp_path)
    with changing(folder / "run.json") as made:
        idle = IdlePower(seconds=4.0, gpus_w={"GPU-0": 70.0, "GPU-1": 75.0}, cpu_w=90.0)
        made["idle"] = msgspec.to_builtins(idle)
    assert load(folder).idle_w == {"GPU": 145.0, "CPU": 90.0}
    facts = {fact.name: fact.text for fact in details(make_report(folder))}
    assert facts["idle power"] == "145 W (GPU), 90 W (CPU)"
    assert facts["energy"] == "the run used 1 kWh (GPU)"


def rows(*watts: float | None) -> list[tuple[Any, float]]:
    """Tests on all of two devices, with weights 1, 2, 3 and so on."""
    made = []
    for weight, value in enumerate(watts, start=1):
        energy = () if value is None else (drawn(value),)
        made.append((row_of(n=1, failures=0, train=Stat.of([10.0]), devices=2, energy=energy), float(weight)))
    return made


def drawn(watts: float) -> Energy:
    return Energy(boundary="GPU", watts=watts, joules_per_item=1.0, seconds=20.0, basis=("energy counter",))


def test_the_power_of_the_score_is_the_mean_by_weight() -> None:
    (cost,) = energy_costs(rows(900.0, 1500.0), 2, None, 0.2)
    assert (cost.boundary, cost.kilowatts, cost.points_per_kwh) == ("GPU", pytest.approx(1.3), None)
    assert cost.per_hour == pytest.approx(0.26)


def test_a_test_whose_power_is_unknown_leaves_that_of_the_score_unknown() -> None:
    assert energy_costs(rows(900.0, None), 2, None, 0.2) == ()


@pytest.mark.parametrize("tariff", [0.0, -1.0, float("nan")])
def test_a_tariff_is_above_zero(tariff: float) -> None:
    with pytest.raises(InputError, match="--tariff"):
        energy_costs((), 2, None, tariff)


def test_points_and_electricity_stand_beside_the_price() -> None:
    """500 W for each of 8 GPUs are 4 kW; a score of 336.4 a device is 2,691 a node, and 672.7 for a kWh."""
    options = ReportOptions(price=40_000.0, tariff=0.2)
    made = build_report(node(200.0, 400.0), "run", scale=Scale(weights=WEIGHTS), options=options)
    (cost,) = made.energy_costs
    assert made.score.per_node is not None
    assert (cost.kilowatts, cost.tariff) == (pytest.approx(4.0), 0.2)
    assert cost.points_per_kwh == pytest.approx(made.score.per_node / 4)
    assert cost.interval.low == pytest.approx(made.score.interval.low * 8 / 4)
    assert (cost.per_hour, cost.per_point_year) == (
        pytest.approx(0.8),
        pytest.approx(0.8 * 8766 / made.score.per_node),
    )
    told = {answer.name: answer.parts for answer in first_screen(made).answers}
    power, points, hour, year = told["Energy"]
    assert (power, hour) == ("4 kW (GPU)", "$0.8 per hour")
    assert " per kWh [" in points
    assert year.endswith(" and year")
    assert f"{points} (GPU)" in [fact.text for fact in details(made)]


def test_without_a_tariff_the_first_screen_tells_no_energy() -> None:
    made = build_report(node(200.0, 400.0), "run", scale=Scale(weights=WEIGHTS))
    assert "Energy" not in {answer.name for answer in first_screen(made).answers}


def test_a_tariff_without_a_known_power_says_so() -> None:
    summary, options = node(200.0, 400.0, power_w=None), ReportOptions(tariff=0.2)
    made = build_report(summary, "run", scale=Scale(weights=WEIGHTS), options=options)
    told = {answer.name: answer.parts for answer in first_screen(made).answers}
    assert told["Energy"] == ("the power of the weighted tests is not known",)
