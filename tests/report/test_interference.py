"""The matrix of slowdowns, from folders of made-up runs with rates that are known."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any, Literal

import make_records
import pytest
import tampering
from make_records import device
from printing import text_of
from rows import row_of

from milabench_ng.analysis.scoring.neighbours import slowdowns
from milabench_ng.analysis.scoring.pressure import busy, pressure_curves
from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Launch, Plan, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import Profile, build_profile
from milabench_ng.present.html.as_html import report_page
from milabench_ng.present.html.figures import Box, Curve
from milabench_ng.present.layouts.interference import tables
from milabench_ng.present.render.as_json import as_object
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.next_step import next_step
from milabench_ng.present.writers import write_layout, write_report, write_tables
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import make_report, make_study

PROFILE = {
    "vae_alone": {"workload": "vae", "company": "none"},
    "together": {"workload": "vae"},
    "beside_noise": {"workload": "vae", "company": ["noise"]},
    "noise": {"workload": "loader", "role": "company"},
}
TWO = PROFILE | {
    "reg_alone": {"workload": "toy_reg", "company": "none"},
    "reg_beside_noise": {"workload": "toy_reg", "company": ["noise"]},
}
FACTOR = {
    "i.vae_alone": 1.0,
    "i.together": 0.8,
    "i.beside_noise": 0.5,
    "i.noise": 0.25,
    "i.reg_alone": 1.0,
    "i.reg_beside_noise": 0.5,
}


def profile(**tests: dict[str, Any]) -> Profile:
    return build_profile("i", tests, "{}", "i.json")


def plan(made: Profile, devices: int, repeat: int) -> Plan:
    options = {name: ResolvedOptions(make_records.arguments_of(test.workload)) for name, test in made.tests.items()}
    return make_plan(made, options, [device(index) for index in range(devices)], repeat)


def drifting(launch: Launch, _: int) -> float:
    """Each device has a rate of its own, and each repeat is slower than the one before: what pairs cancel."""
    return FACTOR[launch.test] * 1000 * (1 + launch.devices[0]) * 0.9**launch.run


def test_one_disturbed_launch_widens_a_slowdown_alone_or_in_company() -> None:
    def row(rates: tuple[float, ...], company: dict[str, float]) -> TestSummary:
        launches = {f"{run}.0": rate for run, rate in enumerate(rates)}
        return row_of(n=5, failures=0, launches=launches, workload="vae", options={"n": 1}, company=company)

    usual, disturbed = (1.0, 1.01, 1.0, 1.005, 1.0), (1.0, 1.01, 1.0, 1.005, 0.6)
    for alone, beside in ((disturbed, usual), (usual, disturbed)):
        (cell,) = slowdowns({"s.a": row(alone, {}), "s.b": row(beside, {"noise": 1.0})})
        assert cell.stat.moved == pytest.approx(-math.log(0.6) / 5, rel=0.02)


@pytest.mark.parametrize(("option", "cells"), [({"max_seconds": 9.0}, 1), ({"seed": 2}, 1), ({"workers": 1}, 0)])
def test_how_long_launches_work_and_from_which_seed_makes_no_other_victim(option: dict[str, Any], cells: int) -> None:
    given = {"batch_size": 8, "max_seconds": 6.0, "seed": 1, "workers": 8}
    launches = {f"{run}.0": 100.0 + run for run in range(5)}
    rows = [
        row_of(n=5, failures=0, launches=launches, workload="vae", options=options, company=company)
        for options, company in ((given, {}), (given | option, {"noise": 1.0}))
    ]
    assert len(slowdowns(dict(zip(("s.a", "s.b"), rows, strict=True)))) == cells


def test_slowdowns_are_those_of_the_same_device_and_repeat(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 3), drifting)
    report = make_report(tmp_path)
    assert {label: line.row.company for label, line in zip(report.summary.tests, report.lines, strict=True)} == {
        "i.vae_alone": {},
        "i.together": None,
        "i.beside_noise": {"noise": pytest.approx(250 * 1.5 * (1 + 0.9 + 0.81) / 3, rel=0.01)},
    }
    found = report.neighbours
    assert [(cell.victim, cell.beside, cell.test) for cell in found] == [
        ("vae", "packed", "together"),
        ("vae", "noise", "beside_noise"),
    ]
    assert [cell.value for cell in found] == pytest.approx([1.25, 2.0], rel=1e-3)
    assert [(cell.pairs, cell.stat.n) for cell in found] == [(3, 3), (6, 6)], "packed launches share their moment"
    assert [cell.effect.verdict for cell in found] == ["not judged", "worse"], "more is worse"
    assert next_step(report).endswith(f": mnb report {tmp_path} --layout interference")
    matrix, blame, pressed = tables(report)
    assert matrix.notes[0].startswith("cost of neighbors: 1.25, the geometric mean of 1 test")
    assert [heading.title for heading in matrix.headings] == ["victim", "all tenants at once", "noise"]
    assert matrix.rows == (("vae", "1.25", "2.00 (2.00 to 2.00) *"),)
    assert [row[3] for row in pressed.rows] == ["-", "noise 338.33 images/s"]
    assert blame.rows == (("noise", "1", "2.00 (2.00 to 2.00)"),)
    assert [row[4] for row in pressed.rows] == ["1.000", "-"]
    rows = list(csv.DictReader(io.StringIO(text_of(write_layout, report, "interference", "csv"))))
    assert [float(row["slowdown"]) for row in rows] == pytest.approx([1.25, 2.0], rel=1e-3)
    assert [row["verdict"] for row in rows] == ["not judged", "worse"]
    means = as_object(report)["neighbours"]
    assert {mean.effect.verdict for mean in (means["cost"], *means["by_antagonist"].values())} == {
        "not judged",
        "worse",
    }
    assert [(row["significantly slower"], row["unit"]) for row in rows] == [
        ("not judged: fewer than 5 pairs", "images/s"),
        ("yes", "images/s"),
    ]
    assert [row["pairs"] for row in rows] == ["3", "6"]
    assert [row["test"] for row in rows] == ["i.together", "i.beside_noise"], "as the test table names them"
    assert [(row["neighbor"], row["neighbor's rate"], row["neighbor's unit"]) for row in rows] == [
        ("", "", ""),
        ("noise", str(found[1].company["noise"]), "images/s"),
    ]
    assert (rows[1]["worst tenant / mean"], float(rows[0]["slowdown"])) == ("", found[0].value)
    assert "not judged: fewer than 5 pairs (vae with all tenants at once)" in matrix.notes
    assert [cell["company_units"] for cell in as_object(report)["neighbours"]["cells"]] == [{}, {"noise": "images"}]


def test_too_few_pairs_are_no_verdict_anywhere(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 2), drifting)
    report = make_report(tmp_path)
    assert {cell["effect"].why for cell in as_object(report)["neighbours"]["cells"]} == {"fewer than 5 pairs"}
    assert "not judged: fewer than 5 pairs" in tables(report)[0].notes
    (answer,) = [answer for answer in first_screen(report).answers if answer.name == "Neighbors"]
    assert answer.parts[-1] == "not judged: fewer than 5 pairs, most: vae next to noise, 2.00x slower"
    assert answer.parts[0].endswith(", no interval: fewer than 5 pairs")


def test_the_tables_of_neighbours_are_among_all_tables(tmp_path: Path) -> None:
    make_records.write_run(tmp_path / "run", plan(profile(**PROFILE), 2, 3), drifting)
    report = make_report(tmp_path / "run")
    write_tables(report, tmp_path / "tables")
    for name in ("slowdowns", "by-antagonist", "antagonists"):
        assert (tmp_path / "tables" / f"{name}.csv").read_text().count("vae" if name == "slowdowns" else "noise")
    blame = (tmp_path / "tables" / "by-antagonist.csv").read_text().splitlines()
    assert blame[0] == "antagonist,victims,mean slowdown,low 95 %,high 95 %"
    assert float(blame[1].split(",")[2]) == report.neighbours[1].value
    brief, whole = (text_of(write_report, report, "table", full=full) for full in (False, True))
    for title in ("Slowdown", "By antagonist", "Antagonists"):
        assert (title in brief, title in whole) == (False, True)


@pytest.mark.parametrize(("form", "begins"), [("table", "! NOT COMPARABLE"), ("markdown", "- NOT COMPARABLE: ")])
def test_what_makes_the_launches_not_comparable_stands_above_the_matrix(
    tmp_path: Path, form: Literal["table", "markdown"], begins: str
) -> None:
    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 3), drifting)
    tampering.records(tampering.ours(marks=[{"kind": "caches divided"}]))(tmp_path)
    text = text_of(write_layout, make_report(tmp_path), "interference", form)
    first = text.lstrip().splitlines()[0]
    assert (first[: len(begins)], "cache" in first) == (begins, True)
    assert "NO SCORE" not in text, "nobody asks a matrix for one"


def test_the_worst_tenant_is_held_against_the_mean_by_what_each_kept(tmp_path: Path) -> None:
    """Packed, device 0 keeps 0.9 of its rate alone and device 1 a half, whatever their rates are."""

    def unfair(launch: Launch, rank: int) -> float:
        kept = (0.9, 0.5)[launch.devices[0]] if launch.test == "i.together" else FACTOR[launch.test]
        return kept * drifting(launch, rank) / FACTOR[launch.test]

    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 3), unfair)
    packed, noise = make_report(tmp_path).neighbours
    assert packed.fairness == pytest.approx(0.5 / 0.7, rel=1e-2)
    assert noise.fairness is None


def test_what_varies_more_than_it_slows_down_is_not_beyond_doubt(tmp_path: Path) -> None:
    def wavering(launch: Launch, _: int) -> float:
        beside = launch.test == "i.beside_noise"
        return 1000.0 * (math.exp(0.1 * (-1) ** launch.run) if beside else 1.0)

    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 4), wavering)
    packed, noise = make_report(tmp_path).neighbours
    assert (packed.value, noise.value) == pytest.approx((1.0, 1.0), rel=1e-3)
    assert not packed.sure
    assert not noise.sure
    assert noise.effect.ratio.low < 1 < noise.effect.ratio.high


def test_other_options_are_another_victim(tmp_path: Path) -> None:
    """A test that ran beside noise with another batch says nothing about the victim."""
    made = plan(profile(**PROFILE), 2, 1)
    make_records.write_run(tmp_path, made, drifting)
    assert {cell.test for cell in make_report(tmp_path).neighbours} == {"together", "beside_noise"}
    other = {name: test | ({"workload": "toy_reg"} if name == "beside_noise" else {}) for name, test in PROFILE.items()}
    make_records.write_run(tmp_path / "other", plan(profile(**other), 2, 1), drifting)
    assert {cell.test for cell in make_report(tmp_path / "other").neighbours} == {"together"}


def test_two_victims_alone_are_no_company_for_each_other(tmp_path: Path) -> None:
    made = profile(**PROFILE, again={"workload": "vae", "company": "none"})
    make_records.write_run(tmp_path, plan(made, 2, 1), lambda launch, _: FACTOR.get(launch.test, 1.0) * 1000)
    found = make_report(tmp_path).neighbours
    assert {(cell.victim, cell.beside) for cell in found} == {
        (victim, beside) for victim in ("vae", "again") for beside in ("packed", "noise")
    }
    assert {cell.lost for cell in found} == {0}


def test_a_victim_that_failed_in_company_is_a_lost_pair(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 2), drifting)
    path = next(tmp_path.glob("i.beside_noise.J0.0.*"))
    tampering.rewrite(path, tampering.failed("oom"))
    tampering.rehash(tmp_path)
    packed, noise = make_report(tmp_path).neighbours
    assert (packed.lost, noise.lost) == (0, 1)
    assert tables(make_report(tmp_path))[0].rows[0][2].endswith(", 1 pair lost")


def test_the_state_of_the_cache_is_told_and_hides_no_cell(tmp_path: Path) -> None:
    """Whoever calls the data of one launch in company otherwise would else be rid of its cell."""
    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 3), drifting)
    honest = make_report(tmp_path)
    assert honest.lost_cells == ()
    assert "cache" not in "".join(tables(honest)[0].notes)
    tampering.record(lambda content: content["mnb"]["data"].update(cache="mixed"), "i.together.J2.1.*")(tmp_path)
    report = make_report(tmp_path)
    assert [(cell.beside, cell.value) for cell in report.neighbours] == [
        (cell.beside, cell.value) for cell in honest.neighbours
    ]
    assert (
        tables(report)[0].notes[-1]
        == "vae with all tenants at once: data cache cold alone, cold and mixed with neighbors"
    )
    assert as_object(report)["neighbours"]["cells"][0]["caches"] == ("cold", "cold and mixed")


@pytest.mark.parametrize(
    ("pattern", "change", "told"),
    [
        (
            "i.together.J2.1.*",
            {"data": {"name": "fake", "kind": "twin", "scale": 0.5, "cache": "warm"}},
            [("together", "not the work of vae_alone: other dataset and data scale")],
        ),
        (
            "i.vae_alone.J2.1.*",
            {"precision": {"requested": "fp16", "ran_before": "fp16", "ran_after": "fp16", "dtypes": {}}},
            [
                ("vae_alone", "ran alone, but no test with neighbors did the same work"),
                ("together", "not the work of vae_alone: other precision"),
                ("beside_noise", "not the work of vae_alone: other precision"),
            ],
        ),
        ("i.beside_noise.*", None, [("beside_noise", "no pair of launches has both rates")]),
        ("i.beside_noise.*", {"schema": "x"}, [("beside_noise", "none of its launches is readable")]),
    ],
)
def test_what_has_no_cell_is_named(
    tmp_path: Path, pattern: str, change: dict[str, Any] | None, told: list[tuple[str, str]]
) -> None:
    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 3), drifting)
    for path in tmp_path.glob(pattern):
        tampering.rewrite(path, tampering.failed("oom") if change is None else tampering.ours(**change))
    report = make_report(tmp_path)
    assert [(lost.test, lost.why) for lost in report.lost_cells] == told
    (line,) = [fact for fact in first_screen(report).look if fact.name == "neighbors"]
    assert line.text == f"no slowdown computed: {'; '.join(f'{test} ({why})' for test, why in told)}"
    found = as_object(report)["neighbours"]["without_figure"]
    assert [(lost.test, lost.why) for lost in found] == told
    if report.neighbours:
        assert f"no slowdown computed for {told[0][0]}: {told[0][1]}" in tables(report)[0].notes
    else:
        with pytest.raises(InputError, match="vae_alone: ran alone"):
            tables(report)


def test_without_a_test_alone_there_is_no_victim(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(profile(together=PROFILE["together"]), 2, 1), drifting)
    with pytest.raises(InputError, match="no test of that suite"):
        tables(make_report(tmp_path))


def test_the_page_is_quiet_where_nothing_is_found_and_loud_where_it_is(tmp_path: Path) -> None:
    def slow_beside_noise(launch: Launch, rank: int) -> float:
        packed = launch.test == "i.together"
        return drifting(launch, rank) * (1 / 0.8 if packed else 1) * (1 + 0.01 * ((launch.run + rank) % 2))

    make_records.write_run(tmp_path, plan(profile(**PROFILE), 2, 5), slow_beside_noise)
    report = make_report(tmp_path)
    page = report_page(report)
    (chart,) = [chart for chart in page.charts if chart.key == "slowdowns"]
    (panel,) = chart.views[0].panels
    assert [tick.text for axis in (panel.x, panel.y) for tick in axis.ticks] == ["packed", "noise", "vae"]
    cells = {part.begin[0]: part for part in panel.parts if isinstance(part, Box)}
    assert cells[0].opacity == 0, "what is not beyond doubt has no colour"
    assert cells[1].opacity == pytest.approx(0.75, rel=1e-2)
    assert [cells[0].text, cells[1].text] == ["1.00", "2.00 *"]
    assert cells[1].title.startswith("vae next to noise: 2.00 (2.00 to 2.00), 10 pairs; noise ")
    assert [table.key for table in page.tables][:2] == ["matrix", "blame"]
    (neighbours,) = [answer for answer in first_screen(report).answers if answer.name == "Neighbors"]
    assert neighbours.parts == (
        "the same test on all tenants costs 0.0% (95%: 0.0 to 0.0)",
        "worst: vae next to noise, 2.00x slower",
    )


def test_a_run_without_victims_says_nothing_of_neighbours(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, plan(profile(together=PROFILE["together"]), 2, 1), drifting)
    report = make_report(tmp_path)
    assert "Neighbors" not in [answer.name for answer in first_screen(report).answers]
    assert "slowdowns" not in [chart.key for chart in report_page(report).charts]


def test_slowdown_against_pressure_is_a_curve_by_rising_intensity(tmp_path: Path) -> None:
    """A neighbour that presses half of the time costs 1.25, one that always does costs 2."""
    steps = {"full": (1.0, 2.0), "half": (0.5, 1.25)}
    made = profile(
        vae_alone=PROFILE["vae_alone"],
        together=PROFILE["together"],
        **{f"beside_{name}": {"workload": "vae", "company": [name]} for name in steps},
        **{
            name: {"workload": "memory_stream", "arguments": {"busy": busy}, "role": "company"}
            for name, (busy, _) in steps.items()
        },
    )
    options = {
        name: ResolvedOptions(make_records.arguments_of(test.workload) | test.arguments)
        for name, test in made.tests.items()
    }
    cost = {f"i.beside_{name}": slowdown for name, (_, slowdown) in steps.items()}
    whole = make_plan(made, options, [device(0), device(1)], 3)
    make_records.write_run(tmp_path, whole, lambda launch, _: 1000 / cost.get(launch.test, 1.0))
    report = make_report(tmp_path)
    (curve,) = pressure_curves(report.neighbours)
    assert (curve.victim, curve.antagonist) == ("vae", "memory_stream")
    assert [(busy(cell), cell.beside) for cell in curve.cells] == [(0.5, "half"), (1.0, "full")]
    assert [cell.value for cell in curve.cells] == pytest.approx([1.25, 2.0], rel=1e-3)
    (table,) = [section for section in tables(report) if section.key == "pressure"]
    assert [row[:3] for row in table.rows] == [
        ("vae", "memory_stream", "50"),
        ("vae", "memory_stream", "100"),
    ]
    (chart,) = [chart for chart in report_page(report).charts if chart.key == "pressure"]
    (drawn,) = (part for part in chart.views[0].panels[0].parts if isinstance(part, Curve))
    assert [at for at, _ in drawn.points] == [0.0, 50.0, 100.0]
    assert [value for _, value in drawn.points] == pytest.approx([1.0, 1.25, 2.0], rel=1e-3)
    assert "pressure" not in [section.key for section in tables(interference_of(tmp_path / "one"))]


def victim_of_two(folder: Path, victim: str, devices: int = 2) -> Path:
    """A folder with one of the two victims of a study."""
    made = profile(**TWO)
    options = {name: ResolvedOptions(make_records.arguments_of(test.workload)) for name, test in made.tests.items()}
    names = {"vae": ("vae_alone", "together", "beside_noise"), "reg": ("reg_alone", "reg_beside_noise")}[victim]
    at = [device(index) for index in range(devices)]
    make_records.write_run(folder, make_plan(made, options, at, 3, names=names), drifting)
    tampering.manifest(lambda content: content["profile"].update(sha256="0" * 64))(folder)  # one profile made both
    return folder


def test_folders_of_one_victim_each_are_one_study(tmp_path: Path) -> None:
    """The cells are those of the folders; p values are adjusted over the whole matrix, and means are over all."""
    folders = [victim_of_two(tmp_path / victim, victim) for victim in ("vae", "reg")]
    apart = [cell for folder in folders for cell in make_report(folder).neighbours]
    study = make_study(folders)
    assert [(cell.name, cell.stat, cell.company) for cell in study.neighbours] == [
        (cell.name, cell.stat, cell.company) for cell in apart
    ]
    assert study.lost_cells == ()
    matrix, blame, _ = tables(study)
    assert [row[0] for row in matrix.rows] == ["vae", "reg"]
    assert [row[:2] for row in blame.rows] == [("noise", "2")]
    assert (study.failure_rate.n, study.source) == (
        sum(make_report(folder).failure_rate.n for folder in folders),
        f"{folders[0]} and {folders[1]}",
    )


@pytest.mark.parametrize(
    ("devices", "change", "told"),
    [
        (2, tampering.records(tampering.fence(tier="none")), "isolation full and none"),
        (2, tampering.manifest(lambda content: content["software"].update(torch="9.9")), "torch .* and 9.9"),
        (1, lambda _: None, "devices 2 x .* and 1 x .*"),
    ],
)
def test_folders_of_other_kinds_of_node_are_refused(
    tmp_path: Path, devices: int, change: tampering.Tamper, told: str
) -> None:
    vae, other = victim_of_two(tmp_path / "vae", "vae"), victim_of_two(tmp_path / "reg", "reg", devices)
    change(other)
    tampering.rehash(other)
    with pytest.raises(InputError, match=f"are not one study: {told}"):
        make_study([vae, other])


def test_folders_of_the_same_victim_are_refused(tmp_path: Path) -> None:
    vae = victim_of_two(tmp_path, "vae")
    with pytest.raises(InputError, match="another folder has beside_noise, together, vae_alone too"):
        make_study([vae, vae])


def interference_of(folder: Path) -> Report:
    """A study without intensities."""
    make_records.write_run(folder, plan(profile(**PROFILE), 2, 1), drifting)
    return make_report(folder)


def test_the_fence_is_worth_the_slowdown_without_it_over_that_with_it(tmp_path: Path) -> None:
    def unfenced(launch: Launch, rank: int) -> float:
        beside = 1 / 1.5 if launch.test == "i.beside_noise" else 1.0
        return beside * drifting(launch, rank) * (1 + 0.01 * (launch.run % 2 - launch.devices[0] % 2))

    for name, rate in (("with", drifting), ("without", unfenced)):
        make_records.write_run(tmp_path / name, plan(profile(**PROFILE), 2, 5), rate)
    tampering.records(tampering.fence(tier="none"))(tmp_path / "without")
    tampering.rehash(tmp_path / "without")
    report = make_report(tmp_path / "with", compare_to=[str(tmp_path / "without")])
    packed, noise = report.fence_gains
    assert (packed.unfenced / packed.fenced, noise.unfenced / noise.fenced) == pytest.approx((1.0, 1.5), rel=0.01)
    assert (packed.effect.verdict, noise.effect.verdict) == ("equivalent", "better")
    assert noise.effect.ratio.low < 1.5 < noise.effect.ratio.high
    (fence,) = [answer for answer in first_screen(report).answers if answer.name == "Isolation benefit"]
    assert fence.parts[0].startswith("1.22x (")
    assert tables(report)[-1].key == "fence-worth"
    assert [table.key for table in report_page(report).tables][:4] == [
        "matrix",
        "blame",
        "pressed",
        "fence-worth",
    ]
    told = as_object(report)
    assert [(cell["victim"], cell["beside"]) for cell in told["fence"]["cells"]] == [
        ("vae", "packed"),
        ("vae", "noise"),
    ]
    assert [cell["worth"] for cell in told["fence"]["cells"]] == pytest.approx([1.0, 1.5], rel=0.01)
    assert told["fence"]["worth"].value == pytest.approx(1.5**0.5, rel=0.01)
    assert [cell["slowdown"] for cell in told["neighbours"]["cells"]] == pytest.approx([1.25, 2.0], rel=1e-3)
    assert told["neighbours"]["cost"].value == pytest.approx(1.25, rel=1e-3)
    swapped = make_report(tmp_path / "without", compare_to=[str(tmp_path / "with")])
    assert swapped.fence_gains == (), "an unfenced run says nothing of its own fence"
    assert as_object(swapped)["fence"] is None


def test_each_baseline_without_isolation_is_that_of_its_victims() -> None:
    bundles = Path(__file__).parents[2] / "baselines" / "bundles"
    fenced, unfenced = (
        [bundles / f"{tier}-{victim}-2xH100-20261125.tar.gz" for victim in ("loader", "toy_lstm")]
        for tier in ("fence", "unfenced")
    )
    gains = make_study(fenced, [*map(str, unfenced)]).fence_gains
    assert [round(gain.value, 2) for gain in gains] == [0.96, 0.97, 1.44, 1.02, 0.98, 1.22]


def test_the_isolation_benefit_of_few_repeats_has_no_interval_though_its_cells_have() -> None:
    bundles = Path(__file__).parents[2] / "baselines" / "bundles"
    fenced, unfenced = (bundles / f"{tier}-loader-2xH100-20261125.tar.gz" for tier in ("fence", "unfenced"))
    report = make_report(fenced, compare_to=[str(unfenced)])
    assert {gain.effect.why for gain in report.fence_gains} == {""}
    (answer,) = [answer for answer in first_screen(report).answers if answer.name == "Isolation benefit"]
    assert answer.parts[0] == "1.10x, no interval: fewer than 5 repeats"
    assert "no interval over all cells: fewer than 5 repeats" in tables(report)[-1].notes
