"""Results in the columns of public suites."""

from __future__ import annotations

import csv
from pathlib import Path

import make_records
import msgspec
import pytest
from printing import text_of
from rows import changed as changed_row

from milabench_ng.analysis.summary.folder import load_baseline
from milabench_ng.analysis.summary.summary import Stat, Summary
from milabench_ng.model.errors import InputError
from milabench_ng.present.writers import Form, SuiteName, write_layout
from milabench_ng.records.reading import ReadRecord
from milabench_ng.records.window import SliceRow
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import build_report, make_report

UNET3D = ["Gpu-Type", "Cuda-Version", "Pytorch-Version", "Precision", "Training [s/iter]", "Inference [MVox/s]"]
PATCH, BLOCK = 48 * 384 * 384, 64 * 512 * 512


def report_on(summary: Summary) -> Report:
    return build_report(summary, "results")


def written(report: Report, form: Form) -> str:
    return text_of(write_layout, report, "unet3d", form)


def rows(report: Report) -> list[list[str]]:
    return list(csv.reader(written(report, "csv").splitlines()))


def changed(label: str, rates: list[float], **options: int) -> Summary:
    """The V100's baseline with one row of other rates and options."""
    summary = load_baseline("unet3d-v100")
    row = summary.tests[label]
    row = changed_row(row, n=len(rates), train=Stat.of(rates), pergpu=None, options=row.work.options | options)
    return msgspec.structs.replace(summary, tests={**summary.tests, label: row})


def test_the_published_rows_come_out_as_they_went_in() -> None:
    """The table's own figures; their deviations were between iterations, so they are not those of launches."""
    head, *found = rows(report_on(load_baseline("unet3d-a100")))
    assert head == [*UNET3D, "Blocks_train", "Blocks_inf", "Inference net of the halo [MVox/s]"]
    gpu = ["A100-PCIE-40GB", "11.1", "1.7.1"]
    assert found == [
        [*gpu, "tf32", "0.22", "42.47", "32 x 384 x 384", "64 x 384 x 384", "9.44"],
        [*gpu, "half", "0.32", "32.07", "48 x 384 x 384", "64 x 512 x 512", "9.02"],
        [*gpu, "mixed", "0.37", "-", "48 x 384 x 384", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("gpu", "single", "half", "mixed"),
    [
        ("rtx3090", ("tf32", "1.38", "21.96"), ("0.39", "37.76"), "0.43"),
        ("v100", ("single", "0.88", "21.33"), ("0.36", "30.59"), "0.40"),
        ("rtx2080ti", ("single", "1.00", "16.40"), ("0.55", "16.17"), "0.60"),
        ("gtx1080ti", ("single", "2.51", "7.40"), ("2.68", "12.29"), "2.84"),
    ],
)
def test_all_published_gpus(gpu: str, single: tuple[str, str, str], half: tuple[str, str], mixed: str) -> None:
    _, *found = rows(report_on(load_baseline(f"unet3d-{gpu}")))
    assert [row[3:6] for row in found] == [[*single], ["half", *half], ["mixed", mixed, "-"]]


def test_several_launches_have_a_deviation() -> None:
    """Three and five iterations a second: 1/4 s an iteration, and a deviation of a quarter of it."""
    summary = changed("unet3d.unet3d_train_amp", [3.0 * PATCH, 5.0 * PATCH])
    assert rows(report_on(summary))[3][4] == "0.25 +- 0.06"
    fast = changed("unet3d.unet3d_train_amp", [16.0 * PATCH, 16.0 * PATCH])
    assert rows(report_on(fast))[3][4] == "0.0625 +- 0.0000"


def test_a_batch_is_part_of_an_iteration() -> None:
    summary = changed("unet3d.unet3d_train_amp", [4.0 * PATCH], batch_size=2)
    assert rows(report_on(summary))[3][4] == "0.50"


def test_markdown_has_a_table_for_each_precision_with_the_net_rate() -> None:
    text = written(report_on(changed("unet3d.unet3d_infer_half", [2.0 * BLOCK])), "markdown")
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## single", "## half", "## mixed"]
    half = text.partition("## half")[2].partition("## mixed")[0]
    assert "| 0.36 | 33.55 | 48 x 384 x 384 | 64 x 512 x 512 | 9.44 |" in half  # 2 x 4.718592 MVox net
    assert "isolation: NOT ISOLATED" in text


def test_a_precision_that_runs_twice_has_two_rows() -> None:
    summary = load_baseline("unet3d-v100")
    again = {"unet3d.again": summary.tests["unet3d.unet3d_train_amp"]}
    _, *found = rows(report_on(msgspec.structs.replace(summary, tests={**summary.tests, **again})))
    assert [row[3:6] for row in found[2:]] == [["mixed", "0.40", "-"]] * 2


def test_a_run_on_processors_has_no_version_of_cuda() -> None:
    made = msgspec.structs.replace(load_baseline("unet3d-a100"), models={"0": "CPU", "1": "CPU"})
    assert {row[1] for row in rows(report_on(made))[1:]} == {"-"}


@pytest.mark.parametrize("form", ["csv", "table"])
@pytest.mark.parametrize(
    ("suite", "baseline"), [("cv", "v100"), ("io", "lambda-v100"), ("lambda", "unet3d-v100"), ("unet3d", "v100")]
)
def test_a_report_without_the_suite(suite: SuiteName, baseline: str, form: Form) -> None:
    with pytest.raises(InputError, match=f"--layout {suite}: results has no measured test of that suite"):
        text_of(write_layout, report_on(load_baseline(baseline)), suite, form)


def test_other_forms() -> None:
    with pytest.raises(InputError, match="--layout unet3d: a suite's layout has no JSON form"):
        written(report_on(load_baseline("unet3d-v100")), "json")
    assert "Quadro" not in (shown := written(report_on(load_baseline("unet3d-v100")), "table"))
    assert "V100" in shown


@pytest.mark.parametrize(
    ("suite", "form", "bundle", "other", "told"),
    [
        ("unet3d", "csv", "unet3d-2xH200-20261122", "unet3d-a100", True),
        ("lambda", "csv", "lambda-1xH200-20261126", "lambda-h200", False),
        ("interference", "table", "fence-loader-2xH100-20261125", "unfenced-loader-2xH100-20261125.tar.gz", False),
        ("interference", "csv", "fence-loader-2xH100-20261125", "unfenced-loader-2xH100-20261125.tar.gz", True),
        ("interference", "table", "unfenced-loader-2xH100-20261125", "fence-loader-2xH100-20261125.tar.gz", True),
    ],
)
def test_options_that_the_columns_of_a_suite_leave_out_are_told(
    suite: SuiteName, form: Form, bundle: str, other: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[2] / "baselines" / "bundles"
    baseline = str(root / other) if other.endswith(".gz") else other
    report = make_report(root / f"{bundle}.tar.gz", compare_to=[baseline])
    text_of(write_layout, report, suite, form)
    said = f"mnb: --layout {suite}: its columns hold nothing of --compare; it is in the report without --layout\n"
    assert capsys.readouterr().err == (said if told else "")


def test_published_figures_stand_beside_a_run_and_decide_nothing() -> None:
    """A run of the same work: a ratio without a verdict, and no score. Other sizes: no ratio at all."""
    label = "unet3d.unet3d_train_amp"
    published = load_baseline("unet3d-v100")
    run = msgspec.structs.replace(
        changed(label, [40.0 * PATCH]), provenance=msgspec.structs.replace(published.provenance, kind="measured")
    )
    found = build_report(run, "run", baselines=[("unet3d-v100", published)])
    line = next(line for line in found.lines if line.scored.test == label)
    assert line.compared[0].perf_ratio == pytest.approx(40 * 0.40)
    assert line.compared[0].effect.verdict == "not judged"
    assert (found.score, found.exit_code) == (None, 0)
    larger = build_report(changed(label, [PATCH], depth=64), "run", baselines=[("unet3d-v100", published)])
    (other,) = [line for line in larger.lines if line.scored.test == label]
    assert other.compared[0].perf_ratio is None


def test_times_of_iterations_have_their_spread(tmp_path: Path) -> None:
    """By hand: slices of 0.5 s with one step each but for those of the last fifth, which have two."""
    whole = make_records.plan("unet3d", {"unet3d_train": make_records.PER_GPU}, 1, 1)
    make_records.write_run(tmp_path, whole)
    report = make_report(tmp_path)
    (read,) = report.folder.records
    assert isinstance(read, ReadRecord)
    (rank,) = read.record.mnb.ranks
    window = read.record.mnb.window
    inside = [at for at, row in enumerate(rank.slices) if window.holds(row)]
    for at, row in enumerate(rank.slices):
        steps = 2 if at in inside[-(len(inside) // 5) :] else 1
        rank.slices[at] = SliceRow(row.start_s, row.length_s, row.count, steps, row.wait_s)
    head, row = rows(report)
    found = dict(zip(head, row, strict=True))
    assert {title: found[f"Iteration {title} [s]"] for title in ("median", "5 %", "95 %")} == {
        "median": "0.5000",
        "5 %": "0.2500",
        "95 %": "0.5000",
    }
    assert found["Block median [s]"] == "-"
