"""What the devices took in the averaging window, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import make_records
import msgspec
import pytest
from make_records import PER_GPU
from tampering import changing

from milabench_ng.analysis.summary.folder import load
from milabench_ng.present.render.statements import details
from milabench_ng.report.reporting import make_report
from milabench_ng.telemetry.messages import Sample
from milabench_ng.telemetry.recorder import Recorder


def ramp(with_counter: bool = True, seconds: tuple[float, ...] = tuple(n / 2 for n in range(41))) -> Recorder:
    """A GPU that takes 100 W for 10 s, then 700 W for 10 s, as its counter has it; its gauge shows 10 W more.

    ``seconds``: when it was sampled.
    """
    recorder = Recorder()
    for time_s in seconds:
        energy = 100.0 * min(time_s, 10.0) + 700.0 * max(0.0, time_s - 10.0)
        values = {"power_w": 110.0 if time_s <= 10 else 710.0} | ({"energy_j": energy} if with_counter else {})
        recorder.feed(Sample(time_s=time_s, source="gpu", key="GPU-0", values=values))
    return recorder


def run(folder: Path, recorder: Recorder, dropped: int = 0) -> Path:
    """One launch from 0 to 20 s, whose window is [10.25 s, 19.25 s]."""
    make_records.write_run(folder, make_records.plan("quick", {"vae": PER_GPU}, 1, 1))
    (path,) = folder.glob("quick.vae.J0.0.*")
    with changing(path) as made:
        window = (10.25, 19.25)
        made["mnb"]["telemetry"] = msgspec.to_builtins(recorder.telemetry([("gpu", "GPU-0")], *window))
        made["mnb"]["sampled"] = {"start_s": window[0], "end_s": window[1], "interval_s": 0.5, "dropped": dropped}
    return folder


@pytest.mark.parametrize(
    ("recorder", "watts", "basis"),
    [
        pytest.param(ramp(), 700.0, "energy counter", id="counter at the edges of the window"),
        pytest.param(ramp(with_counter=False), 710.0, "samples", id="no counter"),
        pytest.param(ramp(seconds=(10.5, 19.0)), 700.0, "energy counter", id="two samples of a counter"),
        pytest.param(ramp(seconds=(12.0, 13.0)), 710.0, "few samples", id="a counter over a ninth of it"),
        pytest.param(ramp(False, (10.5, 19.0)), 710.0, "few samples", id="two samples of the gauge"),
    ],
)
def test_power_is_that_of_the_window(tmp_path: Path, recorder: Recorder, watts: float, basis: str) -> None:
    row = load(run(tmp_path, recorder)).tests["quick.vae"]
    assert (row.power_w, row.power_basis) == (pytest.approx(watts), (basis,))


def test_without_a_sample_there_is_no_power(tmp_path: Path) -> None:
    row = load(run(tmp_path, ramp(seconds=(1.0, 2.0)))).tests["quick.vae"]
    assert (row.power_w, row.power_basis) == (None, ())


def said(folder: Path) -> dict[str, str]:
    return {fact.name: fact.text for fact in details(make_report(folder)) if fact.name in ("power", "telemetry")}


def test_lost_telemetry_is_told(tmp_path: Path) -> None:
    assert said(run(tmp_path / "sound", ramp())) == {}
    assert said(run(tmp_path / "lossy", ramp(), dropped=7)) == {
        "telemetry": "samples were lost in 1 of 1 test, up to 7 in a launch"
    }
    assert said(run(tmp_path / "few", ramp(False, (10.5, 19.0)), dropped=30)) == {
        "telemetry": "samples were lost in 1 of 1 test, up to 30 in a launch",
        "power": "rests on few samples: all tests",
    }


def edited(folder: Path, **changes: dict[str, float] | None) -> Path:
    """The launch of `run`, with other telemetry of its GPU and another `sampled`."""
    (path,) = run(folder, ramp()).glob("quick.vae.J0.0.*")
    with changing(path) as made:
        (seen,) = made["mnb"]["telemetry"].values()
        for name, change in changes.items():
            target = made["mnb"]["sampled"] if name == "sampled" else seen[name]
            if change is None:
                del seen[name]
            else:
                target |= change
    return folder


def counter(watts: float, span_s: float = 8.5) -> dict[str, float]:
    return {"min": 1000.0, "max": 1000.0 + watts * span_s, "span_s": span_s}


@pytest.mark.parametrize(
    ("changes", "watts", "basis"),
    [
        pytest.param({"energy_j": counter(600.0)}, 600.0, "energy counter", id="15% below the samples"),
        pytest.param({"energy_j": counter(70.0)}, 710.0, "counter and samples disagree", id="a tenth of the samples"),
        pytest.param({"energy_j": counter(900.0)}, 710.0, "counter and samples disagree", id="above the samples"),
        pytest.param({"energy_j": {"min": 2.0, "max": 1.0, "span_s": 8.5}}, 710.0, "samples", id="backwards"),
        pytest.param({"energy_j": {"min": 1.0, "max": 1.0, "span_s": 8.5}}, 710.0, "samples", id="standing still"),
        pytest.param({"energy_j": counter(700.0, 9.5)}, 700.0, "energy counter", id="an interval longer"),
        pytest.param({"energy_j": counter(700.0, 600.0)}, 710.0, "samples", id="over ten minutes"),
        pytest.param({"sampled": {"end_s": 10.25}}, 710.0, "few samples", id="no time"),
        pytest.param({"sampled": {"start_s": 30.0}}, 710.0, "few samples", id="edges turned round"),
        pytest.param({"sampled": {"interval_s": 1e6}}, 710.0, "few samples", id="an interval of days"),
        pytest.param({"sampled": {"interval_s": 0.0}}, 710.0, "few samples", id="no interval"),
        pytest.param({"energy_j": counter(70.0), "power_w": None}, 70.0, "energy counter", id="no samples"),
    ],
)
def test_a_counter_counts_where_it_can_be_right(
    tmp_path: Path, changes: dict[str, dict[str, float] | None], watts: float, basis: str
) -> None:
    row = load(edited(tmp_path, **changes)).tests["quick.vae"]
    assert (row.power_w, row.power_basis) == (pytest.approx(watts), (basis,))


def test_a_counter_that_samples_deny_is_told(tmp_path: Path) -> None:
    folder = edited(tmp_path, energy_j=counter(70.0))
    assert said(folder) == {"power": "rests on the samples, as counter and samples disagree: all tests"}


def test_of_how_many_launches_the_power_is_known(tmp_path: Path) -> None:
    """One of four."""
    made = json.loads(next(run(tmp_path / "one", ramp()).glob("quick.vae.J0.0.*")).read_text())["mnb"]
    folder = tmp_path / "four"
    make_records.write_run(folder, make_records.plan("quick", {"vae": PER_GPU, "toy_reg": PER_GPU}, 2, 1))
    (path,) = folder.glob("quick.vae.J0.0.*")
    with changing(path) as content:
        content["mnb"] |= {"telemetry": made["telemetry"], "sampled": made["sampled"]}
    assert said(folder) == {"power": "is known for 1 of 4 launches; missing for quick.vae, quick.toy_reg"}


def test_the_power_of_a_gpu_that_tenants_share_is_nobodys(tmp_path: Path) -> None:
    (path,) = run(tmp_path, ramp()).glob("quick.vae.J0.0.*")
    with changing(path) as made:
        made["mnb"]["launch"]["slots"] = ["0a"]
    assert load(tmp_path).tests["quick.vae"].power_w is None
