"""Result folders beside each other: a node twice, a slow device, several baselines, what must not be compared."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU, PROGRESSION
from printing import text_of
from tampering import changing

from milabench_ng.analysis.scoring.cost import PricePer, cost
from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Launch
from milabench_ng.model.shipped import bundle_file
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.tables import other_tables
from milabench_ng.present.writers import Form, write_report
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, make_report

TESTS = dict.fromkeys(("toy_reg", "toy_lstm", "vae", "loader", "convnet"), PER_GPU) | {"scaling": PROGRESSION}
DEVICES = 4


IMAGES: dict[str, Any] = {"unit": "images", "bound": "cpu"}


def node(folder: Path, seed: int, repeat: int = 6, slow: Mapping[int, float] | None = None, **changes: Any) -> Path:
    """A run on a node whose devices differ by about 0.3 %, with launches that differ by 1 %."""
    devices = random.Random(1)
    quality = [1 + devices.gauss(0, 0.003) for _ in range(DEVICES)]
    noise = random.Random(seed)
    whole = make_records.plan("quick", TESTS, DEVICES, repeat)
    rates = {
        (launch.label, launch.job_id, rank): 100_000
        * (1 + noise.gauss(0, 0.01))
        * quality[at]
        * (slow or {}).get(at, 1)
        for launch in whole.launches
        for rank, at in enumerate(launch.devices)
    }

    def rate(launch: Launch, rank: int) -> float:
        return rates[launch.label, launch.job_id, rank]

    folder.mkdir()
    make_records.write_manifest(folder, whole)
    for moment, launch in enumerate(whole.launches):
        make_records.write(folder, make_records.record(launch, rate, 40, **IMAGES | changes), moment)
    return folder


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node(tmp_path_factory.mktemp("nodes") / "healthy", 2)


def compared(run: Path, *others: str | Path) -> Report:
    return make_report(run, compare_to=[str(other) for other in others])


def printed(report: Report, form: Form = "table") -> str:
    return text_of(write_report, report, form)


def test_the_same_node_twice_is_equivalent(healthy: Path, tmp_path: Path) -> None:
    report = compared(node(tmp_path / "again", 3), healthy)
    (other,) = report.comparisons
    assert other.effect.verdict == "equivalent in these sessions"
    assert {at.effect.verdict for at in other.rows.values()} <= {"equivalent in these sessions", "inconclusive"}
    assert {part.effect.verdict for part in other.subsets} == {"equivalent in these sessions"}
    assert report.gpus.overall == report.gpus.stragglers == ()
    assert report.score.interval.low < (report.score.per_device or 0) < report.score.interval.high
    priced: list[tuple[PricePer, int]] = [("node", DEVICES), ("gpu", 1)]
    for what, per in priced:
        price = cost(800.0, what, report.score, DEVICES)
        assert price.interval.value == pytest.approx(price.rpp, rel=1e-12)
        assert price.interval.low == pytest.approx(800.0 / (per * report.score.interval.high), rel=1e-12)
    assert other.differences == ()


def test_a_slow_device_is_named_from_folder_and_from_summary(tmp_path: Path) -> None:
    slow = node(tmp_path / "slow", 4, slow={2: 0.95})
    summary = tmp_path / "slow.json"
    summary.write_text(encode_summary(load(slow)))
    for source in (slow, summary):
        report = make_report(source, options=ReportOptions(per_gpu=True))
        (named,) = report.gpus.overall
        assert (named.device, named.test) == ("2", None)
        assert named.effect_pct == pytest.approx(-5, abs=0.7)
        assert {found.device for found in report.gpus.stragglers} == {"2"}
        text = printed(report)
        assert "slow over all tests: GPU 2 (-" in text
        assert "devices, mean over launches, relative to the best device" in text
        assert report.scaling[0].steps[-1].slowest == "2"


def test_matrices_by_device(tmp_path: Path) -> None:
    whole = make_records.plan("quick", {"vae": PER_GPU}, 2, 2)  # 100 and 102 in run 0, 104 and 106 in run 1
    make_records.write_run(tmp_path / "run", whole)
    found = make_report(tmp_path / "run").gpus
    assert found.devices == ("0", "1")
    rows = [found.mean[0].relative, found.min[0].relative, found.max[0].relative]
    expected = [(102 / 104, 1.0), (100 / 102, 1.0), (104 / 106, 1.0)]
    assert rows == [pytest.approx(row, rel=1e-12) for row in expected]


@pytest.mark.parametrize(("repeats", "measures"), [(1, ["mean"]), (2, ["mean", "min", "max"])])
def test_equal_matrices_are_printed_once(tmp_path: Path, repeats: int, measures: list[str]) -> None:
    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"vae": PER_GPU}, 2, repeats))
    tables = other_tables(make_report(tmp_path / "run", options=ReportOptions(per_gpu=True)))
    keys = [f"gpus-{measure}" for measure in measures]
    assert [table.key for table in tables if table.key.startswith("gpus-")] == keys


def test_a_test_on_one_device_says_nothing_of_how_devices_differ(tmp_path: Path) -> None:
    def rate(launch: Launch, _: int) -> float:
        return 90_000.0 if launch.devices == (0,) else 100_000.0

    whole = make_records.plan("quick", {"vae": PER_GPU, "scaling": PROGRESSION}, 2, 2)
    make_records.write_run(tmp_path / "run", whole, rate)
    found = make_report(tmp_path / "run").gpus
    assert [row.test for row in found.mean] == ["quick.vae"]
    (slow,) = found.overall
    assert (slow.device, slow.effect_pct) == ("0", pytest.approx(-10.0, abs=0.01))


def test_a_faster_node_is_better_and_a_slower_one_worse(healthy: Path, tmp_path: Path) -> None:
    faster = node(tmp_path / "faster", 5, slow=dict.fromkeys(range(DEVICES), 1.06))
    up, down = compared(faster, healthy).comparisons[0], compared(healthy, faster).comparisons[0]
    assert (up.effect.verdict, down.effect.verdict) == ("differs in these sessions",) * 2
    assert up.effect.ratio.low < 1.06 < up.effect.ratio.high


def test_a_stored_summary_has_the_interval_of_its_folder(healthy: Path, tmp_path: Path) -> None:
    again = node(tmp_path / "again", 6)
    stored = tmp_path / "base.json"
    stored.write_text(encode_summary(load(healthy)))
    assert compared(again, stored).comparisons[0].effect == compared(again, healthy).comparisons[0].effect


def test_an_old_summary_is_read_and_what_it_does_not_record_does_not_count(healthy: Path, tmp_path: Path) -> None:
    raw = json.loads(encode_summary(load(healthy)))
    for key in ("sessions", "profile_sha256"):
        del raw[key]
    for row in raw["tests"].values():
        for key in ("repeats", "log_perf", "ranks", "flags", "options"):
            del row[key]
    old = tmp_path / "old.json"
    old.write_text(json.dumps(raw))
    found = compared(healthy, old).comparisons[0]
    assert (found.ratio, found.status, found.counted) == (None, "none", ())
    assert set(found.reasons.values()) == {"options recorded vs. not recorded"}
    for at in found.rows.values():
        assert at.perf_ratio == pytest.approx(1.0, rel=1e-3)  # a mean over the geometric mean of the repeats
        assert (at.effect.ratio, at.effect.why) == (None, "no repeats are recorded")
    why = f"options recorded vs. not recorded in {len(found.reasons)} of {found.of} tests"
    assert f"no weighted test can be compared: {why}" in printed(compared(healthy, old))


def test_a_baseline_of_another_suite_is_called_that() -> None:
    root = Path(__file__).parents[2] / "baselines"
    report = make_report(root / "h200.json", compare_to=["modern-h200"])
    [versus] = [answer for answer in first_screen(report).answers if answer.name == "vs modern-h200"]
    assert versus.parts == ("it is of suite modern. Shipped baselines of standard: a100, h200, rtx8000, v100",)


@pytest.mark.parametrize(("against", "aside"), [("fence", ", not counted (isolation none vs. full)"), ("unfenced", "")])
def test_a_suite_without_weights_is_compared_test_by_test(against: str, aside: str) -> None:
    fence = "-toy_lstm-2xH100-20261125"
    report = make_report(bundle_file(f"unfenced{fence}"), compare_to=[str(bundle_file(f"{against}{fence}"))])
    [versus] = [answer for answer in first_screen(report).answers if answer.name.startswith("vs ")]
    ratios = [other.perf_ratio for other in report.comparisons[0].rows.values() if other.perf_ratio]
    [told] = versus.parts
    assert told.startswith(f"{min(ratios):.3f} (")
    assert f" to {max(ratios):.3f} (" in told
    assert told.endswith(f", {len(ratios)} tests{aside}; without weights there is no ratio over all")


def test_the_commands_of_the_screen_show_the_same_report() -> None:
    source = Path(__file__).parents[2] / "baselines" / "h200.json"
    options = ReportOptions(price=1234567.5, price_per="gpu", margin=0.035, penalize_variance=False)
    report = make_report(source, compare_to=["v100", "a100"], options=options)
    asked = "--compare v100 --compare a100 --price 1234567.5 --price-per gpu --margin 3.5% --no-penalize-variance"
    told = {fact.name: fact.text for fact in first_screen(report).commands}
    assert told["details"] == f"mnb report {source} {asked} --full"
    assert told["page"] == f"mnb report {source} {asked} --html report.html"
    assert "page" not in {one.name for one in first_screen(msgspec.structs.replace(report, paged=True)).commands}


def test_the_figures_of_2020_have_no_interval_and_say_so() -> None:
    root = Path(__file__).parent.parent.parent / "baselines"
    report = make_report(root / "v100.json", compare_to=[str(root / "rtx8000.json")])
    assert (report.score.interval, report.score.why) == (None, "no repeats are recorded")
    assert report.comparisons[0].effect.why == "no repeats are recorded"


def test_one_repeat_has_no_interval_and_says_so(healthy: Path, tmp_path: Path) -> None:
    report = compared(node(tmp_path / "one", 7, repeat=1), healthy)
    assert (report.score.interval, report.score.why) == (None, "one repeat")
    text = " ".join(printed(report).split())
    assert "no interval: one repeat" in text
    assert report.comparisons[0].effect.verdict == "not judged"


def test_under_five_repeats_there_is_a_range_and_neither_interval_nor_verdict(healthy: Path, tmp_path: Path) -> None:
    report = compared(node(tmp_path / "four", 8, repeat=4), healthy)
    (other,) = report.comparisons
    assert (other.effect.ratio, report.score and report.score.interval) == (None, None)
    assert other.ratio is not None
    assert other.repeats.low < other.ratio < other.repeats.high
    assert f"4 repeats: {other.repeats.low:.3f} to {other.repeats.high:.3f}" in " ".join(printed(report).split())
    assert (other.effect.verdict, other.effect.why) == ("not judged", "fewer than 5 repeats")


def test_a_repeat_that_lacks_a_device_is_in_no_interval(tmp_path: Path) -> None:
    run = node(tmp_path / "run", 9)
    next(run.glob("quick.vae.J2.1.*")).unlink()
    row = load(run).tests["quick.vae"]
    assert list(row.repeats) == ["0", "1", "3", "4", "5"]
    assert row.log_perf.n == 5
    assert (row.n, row.failures) == (24, 1)


def test_repeats_spread_and_their_logarithms(tmp_path: Path) -> None:
    whole = make_records.plan("quick", {"vae": PER_GPU}, 2, 2)  # 100 and 102 in run 0, 104 and 106 in run 1
    make_records.write_run(tmp_path / "run", whole)
    report = make_report(tmp_path / "run")
    row, scored = report.lines[0].row, report.lines[0].scored
    assert row.repeats == {"0": 101.0, "1": 105.0}
    logs = (math.log(101), math.log(105))
    assert row.log_perf.mean == pytest.approx(sum(logs) / 2, rel=1e-12)
    assert row.log_perf.std == pytest.approx((logs[1] - logs[0]) / math.sqrt(2), rel=1e-12)
    assert scored.run_to_run_pct == pytest.approx(100 * math.sqrt(8) / 103, rel=1e-12)
    assert scored.between_devices_pct == pytest.approx(100 * math.sqrt(2) / 103, rel=1e-12)
    assert scored.std_pct == pytest.approx(100 * math.sqrt(5) / 103, rel=1e-12)


def test_two_sessions_are_told_apart(tmp_path: Path) -> None:
    whole = make_records.plan("quick", {"vae": PER_GPU}, 2, 2)
    for session, (name, run_id) in enumerate((("first", "20260106-160000-aa"), ("second", "20260107-160000-bb")), 1):
        folder = tmp_path / "both" / name
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(make_records.manifest(whole, run_id)))
        for moment, launch in enumerate(whole.launches):
            made = make_records.record(launch, make_records.steady, run_id=run_id)
            make_records.move_to_session(made, session)
            make_records.write(folder, made, moment)
    report = make_report(tmp_path / "both")
    assert report.coverage == "this node, these 2 sessions"
    assert list(report.lines[0].row.repeats) == ["0", "1", "0#2", "1#2"]


def test_several_baselines_stand_side_by_side(healthy: Path, tmp_path: Path) -> None:
    again = node(tmp_path / "again", 10)
    report = compared(again, healthy, "v100", again)
    assert [other.label for other in report.comparisons] == ["healthy", "v100", "again"]
    rows = list(csv.DictReader(io.StringIO(printed(report, "csv"))))
    assert {row["perf_ratio again"] for row in rows} == {"1.0"}
    assert {row["perf_ratio v100"] for row in rows} == {""}
    found = json.loads(printed(report, "json"))
    assert [other["name"] for other in found["baselines"]] == [str(healthy), "v100", str(again)]
    assert found["tests"][0]["compared"][2]["perf_ratio"] == 1.0


@pytest.mark.parametrize(
    ("changes", "what", "ratio"),
    [
        ({"precision": {"ran_before": "tf32"}}, "precision", "suppressed"),
        ({"data": {"name": "imagenet", "kind": "twin", "scale": 0.1, "cache": "cold"}}, "data scale", "suppressed"),
        ({"data": {"name": "mnist", "kind": "twin", "scale": 1.0, "cache": "cold"}}, "dataset", "suppressed"),
        ({"data": {"name": "imagenet", "kind": "real", "scale": 1.0, "cache": "cold"}}, "data kind", "counted"),
        (
            {"data": {"name": "imagenet-classic", "kind": "classic", "scale": 1.0, "cache": "cold"}},
            "data kind",
            "not counted",
        ),
        ({"data": {"name": "imagenet", "kind": "twin", "scale": 1.0, "cache": "warm"}}, "data cache", "counted"),
        ({"unit": "tokens"}, "unit", "suppressed"),
        ({"isolation": {"0": {"tier": "affinity"}}}, "isolation", "counted"),
        ({"isolation": {"0": {"tier": "none"}}}, "isolation", "not counted"),
    ],
)
def test_what_differs_is_listed_and_a_meaningless_ratio_is_not_shown(
    healthy: Path, tmp_path: Path, changes: dict[str, Any], what: str, ratio: str
) -> None:
    other = compared(node(tmp_path / "other", 11, repeat=2, **changes), healthy)
    (found,) = [one for one in other.comparisons[0].differences if one.what == what]
    assert found.ratio == ratio
    meaningless = ratio == "suppressed"
    text = printed(other)
    assert text.index("perf_ratio") < text.index("differences from")
    rows = other.comparisons[0].rows.values()
    assert all((row.perf_ratio is None) is meaningless for row in rows)
    assert all(bool(row.suppressed) is meaningless for row in rows)
    assert all(bool(row.set_aside) is (ratio == "not counted") for row in rows)
    assert (other.comparisons[0].ratio is None) is (ratio != "counted")
    assert other.comparisons[0].status == ("complete" if ratio == "counted" else "none")


def test_other_options_suppress_the_tests_they_belong_to(healthy: Path, tmp_path: Path) -> None:
    again = node(tmp_path / "again", 12, repeat=2)
    for path in again.glob("quick.vae.*"):
        with changing(path) as record:
            record["mnb"]["launch"]["arguments"] |= {"batch_size": 128, "max_count": 7}
    other = compared(again, healthy).comparisons[0]
    (found,) = [one for one in other.differences if one.what != "anomalies"]  # a launch of the baseline stands out
    assert (found.what, found.run, found.baseline, found.tests) == ("option batch_size", "128", "64", ("quick.vae",))
    assert other.rows["quick.vae"].suppressed == "option batch_size 128 vs. 64"
    assert (other.status, other.left_out) == ("partial", ("quick.vae",))


def test_scaling_by_hand(tmp_path: Path) -> None:
    def rate(launch: Launch, rank: int) -> float:
        return {1: 100.0, 2: 98.0, 3: 60.0}[len(launch.devices)] - (6 if rank == 1 else 0)

    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"scaling": PROGRESSION}, 3, 1), rate)
    (curve,) = make_report(tmp_path / "run").scaling
    assert [step.aggregate for step in curve.steps] == pytest.approx([100.0, 190.0, 174.0], rel=1e-12)
    assert [step.efficiency for step in curve.steps] == pytest.approx([1.0, 0.95, 0.58], rel=1e-12)
    assert [step.added for step in curve.steps[1:]] == pytest.approx([0.90, -0.16], rel=1e-12)
    assert [step.slowest for step in curve.steps] == [None, "1", "1"]
    assert curve.steps[1].slowest_pct == pytest.approx(100 * (92 / 95 - 1), rel=1e-12)
    assert (curve.knee, curve.doubtful) == (None, 2)
    assert "scaling may flatten at 2 devices" in " ".join(printed(make_report(tmp_path / "run")).split())


@pytest.mark.parametrize(("noise", "knee"), [(0.01, 2), (0.4, None)])
def test_a_knee_is_called_only_beyond_doubt(tmp_path: Path, noise: float, knee: int | None) -> None:
    """The third device adds -16 of 100, give or take the noise."""

    def rate(launch: Launch, _: int) -> float:
        rates = {1: 100.0, 2: 95.0, 3: 58.0}
        return rates[len(launch.devices)] * (1 + noise * ((launch.run + len(launch.devices)) % 3 - 1))

    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"scaling": PROGRESSION}, 3, 3), rate)
    (curve,) = make_report(tmp_path / "run").scaling
    assert (curve.knee, curve.doubtful) == (knee, None if knee else 2)
    if knee:
        assert "scaling flattens at 2" in printed(make_report(tmp_path / "run"))


def test_of_ranks_with_one_rate_none_is_called_the_slowest(tmp_path: Path) -> None:
    def rate(launch: Launch, rank: int) -> float:
        return 100_000.0 * (1 - (0.0004 if rank == 1 else 0) * (len(launch.devices) - 1))

    make_records.write_run(tmp_path / "run", make_records.plan("quick", {"scaling": PROGRESSION}, 3, 1), rate)
    (curve,) = make_report(tmp_path / "run").scaling
    # two ranks: 100,000 and 99,960, so 0.02 % below the mean; three: 99,920 against 99,973.3, so 0.053 %
    assert [step.slowest for step in curve.steps] == [None, None, "1"]
    assert curve.steps[2].slowest_pct == pytest.approx(-0.05334756, rel=1e-4)


def test_what_decided_the_score(tmp_path: Path) -> None:
    whole = make_records.plan("quick", {"vae": PER_GPU, "convnet": PER_GPU, "scaling": PROGRESSION}, 1, 2)
    rates = {"quick.vae": 100.0, "quick.convnet": 400.0, "quick.scaling": 60.0}
    folder = tmp_path / "run"
    folder.mkdir()
    make_records.write_manifest(folder, whole)
    for launch in whole.launches:
        bound = {"quick.vae": "cpu", "quick.convnet": "gpu-compute", "quick.scaling": "gpu-compute"}[launch.test]

        def rate(at: Launch, _: int) -> float:
            return rates[at.test] * (1.1 if at.run else 0.9)

        make_records.write(folder, make_records.record(launch, rate, bound=bound))
    weights = tmp_path / "w.json"
    weights.write_text(json.dumps({f"quick.{name}": {"weight": 1} for name in ("vae", "convnet", "scaling.1")}))
    report = make_report(folder, weights=weights)
    found = {part.name: part.per_device for part in report.sub_scores}
    expected = {
        "without the variance penalty": (100 * 400 * 60) ** (1 / 3),
        "without scaling": 0.9 * (100 * 400) ** (1 / 2),
        "bound by cpu": 0.9 * 100,
        "bound by gpu-compute": 0.9 * (400 * 60) ** (1 / 2),
    }
    assert found == {name: pytest.approx(value, rel=1e-12) for name, value in expected.items()}


@pytest.mark.parametrize("margin", [0.0, 1.0, -0.1, math.nan])
def test_a_margin_must_be_one(healthy: Path, margin: float) -> None:
    with pytest.raises(InputError, match="--margin"):
        make_report(healthy, options=ReportOptions(margin=margin))
