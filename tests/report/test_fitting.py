"""What of the report fits on a terminal: nothing is wider than it, and the deciding columns stay."""

from __future__ import annotations

from pathlib import Path

import make_records
import pytest
from make_records import PER_GPU, PROGRESSION
from printing import on_terminal, text_of

from milabench_ng.present.render.cells import half_width
from milabench_ng.present.render.columns import all_columns
from milabench_ng.present.render.fitting import UNLIMITED, blocks, fitting, wrapped
from milabench_ng.present.writers import write_report
from milabench_ng.report.reporting import make_report

BASELINES = Path(__file__).parents[2] / "baselines"


def test_columns_come_back_by_importance_while_there_is_room() -> None:
    spare = (0, 2, 0, 3, 4, 4, 5)
    widths = (10, 10, 10, 10, 10, 10, 10)
    assert fitting(spare, widths, 200) == [0, 1, 2, 3, 4, 5, 6]
    assert fitting(spare, widths, 82) == [0, 1, 2, 3, 4, 5, 6]  # 7 columns and 6 gaps
    assert fitting(spare, widths, 81) == [0, 1, 2, 3, 4, 5]
    assert fitting(spare, widths, 46) == [0, 1, 2, 3]  # not one baseline without the other
    assert fitting(spare, widths, 5) == [0, 2]
    assert fitting((0, 1, 2), (10, 40, 10), 30) == [0, 2]  # what has no room leaves it to those after it


def test_texts_wrap_between_words_and_below_themselves() -> None:
    assert wrapped("one two three four five six", 30, 8) == "one two three four\n        five six"
    assert wrapped("x " * 2000, UNLIMITED, 8) == "x " * 2000


def test_what_does_not_fit_side_by_side_stands_below_with_its_first_column() -> None:
    assert blocks([10, 10, 10, 10], 34) == [[0, 1, 2], [0, 3]]  # 3 columns and 2 gaps
    assert blocks([10, 10, 10, 10], 46) == [[0, 1, 2, 3]]
    assert blocks([10, 90], 34) == [[0, 1]]  # no block of the first column alone


def test_an_interval_that_tells_nothing_does_not_pretend_to() -> None:
    assert [half_width(cell) for cell in (2041.9, 100.0, 3.25, None)] == ["over 100", "100.0", "3.2", "-"]


def test_no_table_pretends_to_know_what_unlike_repeats_do_not_tell(tmp_path: Path) -> None:
    tests = dict.fromkeys(("toy_reg", "toy_lstm", "vae", "loader", "convnet"), PER_GPU) | {"scaling": PROGRESSION}
    plan = make_records.plan("quick", tests, 2, 5)
    make_records.write_run(tmp_path / "run", plan, lambda launch, _: 1e4 * 30 ** (launch.run % 2))
    text = text_of(write_report, make_report(tmp_path / "run"), "table", full=True)
    (whole,) = [line for line in text.splitlines() if line.startswith("without the variance penalty")]
    assert "over 100" in whole


@pytest.mark.parametrize(
    ("width", "stay"),
    [(60, ["perf_ratio", "unit/s"]), (80, ["perf_ratio", "verdict", " unit  "]), (120, ["CV all", "data", " unit  "])],
)
def test_a_report_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, width: int, stay: list[str]) -> None:
    report = make_report(BASELINES / "h200.json", compare_to=["v100"])
    lines, full = (on_terminal(monkeypatch, width, write_report, report, "table", full=full) for full in (False, True))
    head = next(line for line in lines if line.startswith("test  ") and "perf_ratio" in line)
    for line in (*lines, *full):
        assert len(line) <= width
        assert "…" not in line  # what rich cuts
    above = " ".join(lines[lines.index(head) - 1 :][:2])
    assert all(title in above for title in stay)
    assert "--full shows all columns" in " ".join(" ".join(lines).split())
    whole = "\n".join(full)
    assert "--full shows all columns" not in whole + text_of(write_report, report, "table")
    shown = whole.split()
    assert all(word in shown for column in all_columns(report) for word in column.title.split())
