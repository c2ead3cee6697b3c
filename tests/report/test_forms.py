"""What is printed: in every form, with units, and with what must be known before a number is believed."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU, PROGRESSION
from printing import Terminal, text_of
from tampering import changing

from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.cli import call
from milabench_ng.cli.report import report
from milabench_ng.cli.summary import summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain_lines
from milabench_ng.present.render.cells import one_decimal
from milabench_ng.present.render.tables import other_tables
from milabench_ng.present.writers import Form, write_report
from milabench_ng.report.reporting import ReportOptions, make_report

TESTS = {"toy_reg": PER_GPU, "toy_lstm": PER_GPU, "vae": PER_GPU, "loader": PER_GPU, "convnet": PER_GPU}

PRICED = ReportOptions(price=15000.0)


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    whole = make_records.plan("quick", TESTS | {"scaling": PROGRESSION}, 2, 1)
    make_records.write_run(tmp_path / "run", whole)
    return tmp_path / "run"


def printed(folder: Path, form: Form, *, full: bool = False, **options: Any) -> str:
    return text_of(write_report, make_report(folder, **options), form, full=full)


def squeezed(text: str) -> str:
    """Without the padding between a fact's name and its text."""
    return re.sub(" {2,}", " ", text)


def test_table(quick: Path) -> None:
    lines = printed(quick, "table", options=PRICED).splitlines()
    text = "\n".join(lines)
    assert "\x1b" not in text
    facts = squeezed(text)
    assert "\nNode 2 x Test GPU " in facts
    assert "\nValid 12 of 12 launches 0 failed isolation full\n" in facts
    assert "! NO VERDICT one repeat; a verdict needs at least 5\n" in facts
    assert "not measured" not in facts
    assert "(unit/s)" in text
    vae = next(line for line in lines if line.startswith("vae")).split()
    assert vae == [
        "vae",
        "images",
        "8",
        "2",
        "0",
        "101.00",
        "-",
        "1.0",
        "1.4",
        "-",
        "100.00",
        "202.00",
        "25.0",
        "1,001",
    ]
    # perf_adj: 101 - 1 of the five tests, 100 of scaling.1, 101 of scaling.2; weights 4 4 8 8 8, 8 8: 100 * 1.01^(8/48)
    # times 1.0309^(4/48): toy_lstm counts 1/0.97 items of 2020
    assert "\nScore 100.4 points per GPU 200.8 per node\n" in facts
    assert "\nPrice $15,000 per node $74.69 per point\n" in facts
    assert "NOT ISOLATED" not in text


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colours_only_on_a_terminal_that_wants_them(
    quick: Path, monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal()
    write_report(make_report(quick), "table", stream, full=True)
    assert ("\x1b[32m" in stream.getvalue()) is coloured
    assert "1,001" in stream.getvalue()


def test_one_record_is_a_report_too(quick: Path) -> None:
    text = printed(next(quick.glob("quick.vae.J0.1.*")), "table")
    assert "1 launch (no plan recorded)" in squeezed(text)


def test_the_last_line_says_not_isolated(quick: Path) -> None:
    launch = make_records.plan("quick", TESTS, 2, 1).launches[0]
    changes = {"isolation": {"0": {"tier": "affinity"}}, "marks": [{"kind": "scheduling", "what": "nice 5"}]}
    weak = make_records.record(launch, make_records.steady, **changes)
    make_records.write(quick, weak, moment=0)
    text = printed(quick, "table")
    assert squeezed(text.splitlines()[-1]) == "isolation NOT ISOLATED (affinity)"
    assert "NOT COMPARABLE ran with nice 5 (1 of 7 tests)" in squeezed(text)
    assert printed(quick, "markdown").splitlines()[-1] == "**isolation: NOT ISOLATED (affinity)**"


STEERING = "full\x1b]0;mine\x07<img src=x>\n=1+1"


def test_a_tier_that_there_is_not_is_no_tier(quick: Path) -> None:
    path = next(quick.glob("quick.vae.J0.1.*"))
    with changing(path) as content:
        content["mnb"]["isolation"]["1"]["tier"] = STEERING
    (failed,) = make_report(quick).summary.tests["quick.vae"].failed
    assert (failed.job_id, failed.cause) == ("0.1", "unreadable")
    assert "mine" not in failed.detail or "\x1b" not in failed.detail
    baseline = json.loads(encode_summary(load(quick)))
    baseline["tests"]["quick.vae"]["tiers"] = [STEERING]
    with pytest.raises(InputError, match="tiers"):
        decode_summary(json.dumps(baseline).encode(), "s.json")


@pytest.mark.parametrize("form", ["csv", "markdown"])
def test_the_isolation_is_escaped_like_every_cell(quick: Path, form: Form) -> None:
    text = text_of(write_report, msgspec.structs.replace(make_report(quick), isolation=f"=2+2{STEERING}"), form)
    assert plain_lines(text) == text
    assert "\n=1+1" not in text
    assert (",'=2+2full" if form == "csv" else "(=2+2full\\\\x1b\\]0;mine\\\\x07&lt;img") in text


LURE = "![x](http://example.org/x.png) `a` \\![y](z) b|c"


def test_markdown_loads_nothing(quick: Path) -> None:
    text = text_of(write_report, msgspec.structs.replace(make_report(quick), isolation=LURE), "markdown")
    assert r"!\[x\](http://example.org/x.png) \`a\` \\!\[y\](z) b\|c" in text


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("a; +1", "a; '+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("\t=1", "\\t=1"),
        ("\t" * 30_000 + "x", "\\t" * 30_000 + "x"),  # took a minute
        (" ;" * 30_000 + "-1", " ;" * 30_000 + "'-1"),
        ("1-2", "1-2"),
    ],
)
def test_no_cell_of_a_csv_file_is_a_formula(cell: str, shown: str, quick: Path) -> None:
    text = text_of(write_report, msgspec.structs.replace(make_report(quick), isolation=cell), "csv")
    assert next(csv.DictReader(io.StringIO(text)))["isolation"] == shown


def test_failures_are_named_and_an_invalid_score_shows_no_number(quick: Path) -> None:
    next(quick.glob("quick.vae.J0.1.*")).unlink()
    text = printed(quick, "table", full=True, options=PRICED)
    assert "Valid 11 of 12 launches 1 failed" in squeezed(text)
    assert "quick.vae J0.1 missing" in squeezed(text)
    assert "! NO SCORE 1 of 7 weighted tests incomplete: vae (1 of 2 launches missing)" in squeezed(text)
    assert "quick.vae: 1 of 2 launches missing" in text, "why the sub-scores have no value"
    assert "\nScore invalid\n" in squeezed(text)
    assert "no price per point: there is no score above 0" in text


def test_a_partial_score_is_never_called_the_score(tmp_path: Path) -> None:
    whole = make_records.plan("quick", TESTS | {"scaling": PROGRESSION}, 2, 1, names=["vae", "convnet"])
    make_records.write_run(tmp_path / "run", whole)
    text = squeezed(printed(tmp_path / "run", "table"))
    assert "\n! PARTIAL 5 of 7 weighted tests were not selected\n" in text
    assert "\nScore partial: 2 of 7 weighted tests no score: only some tests ran" in text
    assert "points per" not in text


@pytest.mark.parametrize(
    ("name", "given", "begins"),
    [
        ("it.csv", (), "test,unit,"),
        ("it.JSON", (), "{"),
        ("it.md", (), "# mnb report"),
        ("it.txt", (), "mnb"),
        ("it", (), "mnb"),
        ("it.csv", ("--format", "json"), "{"),
    ],
)
def test_the_ending_of_a_file_says_its_format(
    quick: Path, tmp_path: Path, name: str, given: tuple[str, ...], begins: str
) -> None:
    assert call(["report", str(quick), "-o", str(tmp_path / name), *given]) == 0
    assert (tmp_path / name).read_text().startswith(begins)


def test_json_has_the_promised_form(quick: Path) -> None:
    found = json.loads(printed(quick, "json", options=PRICED, compare_to=["v100"]))
    assert found["schema"] == 3
    assert (found["suite"], found["isolation"], found["failure_rate"]) == ("quick", "full", 0.0)
    wanted = {"status", "per_device", "per_node", "devices", "missing", "unit"}
    assert wanted <= found["score"].keys()
    assert (found["score"]["status"], found["score"]["devices"]) == ("complete", 2)
    price = {"amount": 15000.0, "per": "node", "per_node": 15000.0, "rpp": 15000.0 / found["score"]["per_node"]}
    assert found["price"] == price | {"interval": None, "per_reference": []}
    assert (found["ratio"], found["baseline"]["score"], found["baseline"]["status"]) == (None, None, "none")
    test = next(entry for entry in found["tests"] if entry["test"] == "quick.vae")
    columns = (
        "unit",
        "weight",
        "n",
        "fail",
        "perf",
        "std_pct",
        "perf_adj",
        "perf_base",
        "perf_ratio",
        "perf_ratio_adj",
    )
    assert [test[key] for key in columns] == ["images", 8.0, 2, 0, 101.0, 100 / 101, 100.0, None, None, None]


def test_json_of_a_comparison(quick: Path) -> None:
    found = json.loads(printed(quick, "json", compare_to=[str(quick)]))
    assert (found["ratio"], found["baseline"]["status"]) == (1.0, "complete")
    assert found["baseline"]["score"] == found["score"]["per_device"]
    assert {entry["perf_ratio_adj"] for entry in found["tests"]} == {1.0}


@pytest.mark.parametrize("ratio", [1.0, 0.9])
def test_a_ratio_that_the_rates_beside_it_do_not_have_is_explained(quick: Path, ratio: float) -> None:
    """Repeats that differ much have another geometric mean than an arithmetic one."""
    made = make_report(quick, compare_to=[str(quick)])
    first, *others = made.lines
    (compared,) = first.compared
    assert compared is not None
    compared = msgspec.structs.replace(compared, perf_ratio=ratio)
    lines = (msgspec.structs.replace(first, compared=(compared,)), *others)
    text = text_of(write_report, msgspec.structs.replace(made, lines=lines), "table")
    assert ("geometric means of the repeats" in text) == (ratio != 1.0)


def test_a_word_in_place_of_a_number_is_shown() -> None:
    assert [one_decimal(cell) for cell in (2.34, None, "none")] == ["2.3", "-", "none"]


def test_csv_has_units_in_its_header(quick: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(quick, "csv"))))
    assert len(rows) == 7
    vae = next(entry for entry in rows if entry["test"] == "quick.vae")
    assert (vae["unit"], vae["perf (unit/s)"], vae["peak (MiB)"], vae["std (%)"]) == (
        "images",
        "101.0",
        "1001.0",
        str(100 / 101),
    )


def test_markdown_tables_are_even(quick: Path) -> None:
    lines = printed(quick, "markdown").splitlines()
    tables = [list(group) for is_row, group in groupby(lines, lambda line: line.startswith("|")) if is_row]
    assert all(len({line.count(" | ") for line in table}) == 1 for table in tables)
    table = tables[0]
    assert len(table) == 9
    assert any(line.startswith("- Valid: ") and "isolation full" in line for line in lines)


def test_commands(quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(quick) == 0
    assert "points per GPU" in capsys.readouterr().out
    base = tmp_path / "base.json"
    assert summary(quick, output=base) == 0
    assert load(base) == load(quick)
    assert summary(quick) == 0
    assert capsys.readouterr().out == base.read_text()
    assert report(base, form="csv", output=tmp_path / "table.csv") == 0
    assert (tmp_path / "table.csv").read_text().startswith("test,unit,weight")
    next(quick.glob("quick.vae.J0.1.*")).unlink()
    assert (report(quick), summary(quick)) == (1, 1)


@pytest.mark.parametrize("help_only", [True, False])
def test_nothing_heavy_is_imported(quick: Path, help_only: bool) -> None:
    arguments = ["--help"] if help_only else [str(quick), "--compare", "v100", "--price", "1"]
    code = (
        "import sys; from milabench_ng.cli import call\n"
        f"assert not call(['report', *{arguments!r}])\n"
        "heavy = {'torch', 'torchvision', 'numpy', 'scipy', 'psutil', 'pynvml', 'jinja2'}\n"
        "heavy = (heavy | {'markdown_it', 'pygments'}) & sys.modules.keys()\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_every_table_as_csv(quick: Path, tmp_path: Path) -> None:
    assert call(["report", str(quick), "--tables", str(tmp_path / "csv"), "-o", str(tmp_path / "x.txt")]) == 0
    found = {file.name: list(csv.reader(file.open())) for file in (tmp_path / "csv").iterdir()}
    assert {"tests.csv", "sub-scores.csv", "scaling-quick.scaling.csv"} <= found.keys()
    assert found["scaling-quick.scaling.csv"][0][1] == "all devices (images/s)"
    headings = [heading for table in other_tables(make_report(quick)) for heading in table.headings]
    assert [heading.name for heading in headings] == [heading.header for heading in headings]
    assert all({len(row) for row in rows} == {len(rows[0])} for rows in found.values())
    assert call(["report", str(quick), "--tables", str(tmp_path / "x.txt")]) == 2


def test_a_summary_in_the_fields_of_2020(quick: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    assert call(["summary", str(quick), "--format", "2020", "-o", str(file)]) == 0
    found = json.loads(file.read_text())
    assert found["quick.vae"].keys() == {"n", "failures", "total", "train", "pergpu", "peak_memory"}
    again = load(file)  # read as a summary of 2020
    assert again.units == "classic"
    ours = load(quick).tests["quick.vae"].train
    assert found["quick.vae"]["train"]["mean"] == ours.mean


def test_a_summary_in_the_fields_of_2020_steers_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "hostile.json"
    stat = {"n": 1, "min": 1.0, "max": 1.0, "mean": 1.0, "std": 0.0}
    file.write_text(json.dumps({"s.\x9b31m": {"n": 1, "failures": 0, "train": stat}}))
    out = tmp_path / "out.json"
    assert call(["summary", str(file), "--format", "2020", "-o", str(out)]) == 0
    assert "\x9b" not in out.read_text()
    assert list(json.loads(out.read_text())) == ["s.\x9b31m"]
