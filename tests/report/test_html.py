"""The HTML report: what is computed for it, and what a real browser makes of it."""

from __future__ import annotations

import html
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from xml.etree import ElementTree

import make_records
import msgspec
import pytest
from browser import PROGRAMS, Browser, find_browser
from make_records import PER_GPU, PROGRESSION
from tampering import changing

from milabench_ng.analysis.launch.timeline import change, courses, thinned
from milabench_ng.analysis.statistics.intervals import Interval
from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.cli import call
from milabench_ng.present.html.charts import summary_charts
from milabench_ng.present.html.details_tables import telemetry_section
from milabench_ng.present.html.figures import (
    Box,
    Curve,
    Label,
    Look,
    Mark,
    Panel,
    Part,
    View,
    log_ticks,
    names,
    numbers,
    whisker,
)
from milabench_ng.present.html.folder_details import details_of
from milabench_ng.present.html.forest_chart import contributions, forest_view
from milabench_ng.present.html.per_test_charts import charts_of_test
from milabench_ng.present.html.price_chart import Point, equal_costs, price_chart
from milabench_ng.present.html.svg import drawing
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.records.folder import read_folder
from milabench_ng.records.reading import ReadRecord, read_record
from milabench_ng.records.window import SliceRow
from milabench_ng.report.reporting import make_report

HOSTILE = (
    '<script>document.title="taken"</script>"><img src=x onerror="document.title=1"><a href="http://192.0.2.1">x</a>'
)
BUNDLE = Path(__file__).parents[2] / "baselines" / "bundles" / "standard-rest-2xH200-20261122.tar.gz"
PER_DEVICE = ("toy_reg", "toy_lstm", "vae", "loader", "convnet")
P = TypeVar("P", bound=Part)
TESTS = dict.fromkeys(PER_DEVICE, PER_GPU) | {"scaling": PROGRESSION}
needs_browser = pytest.mark.skipif(find_browser() is None, reason=f"none of {', '.join(PROGRAMS)} is on the PATH")


def make(folder: Path, level: float = 1.0, devices: int = 2, suite: str = "quick", **changes: Any) -> Path:
    """Two repeats; the second baseline is ``level`` times as fast."""
    whole = make_records.plan(suite, TESTS, devices, 2)
    folder.mkdir()
    make_records.write_manifest(folder, whole)
    for moment, launch in enumerate(whole.launches):
        made = make_records.record(launch, lambda *at: level * make_records.steady(*at), 60, **changes)
        make_records.write(folder, made, moment)
    return folder


def parts(view: View, kind: type[P]) -> list[P]:
    """What the first panel of a view holds of one kind."""
    return [part for part in view.panels[0].parts if isinstance(part, kind)]


def page(folder: Path, file: Path, *options: str) -> Path:
    assert call(["report", str(folder), "--html", str(file), "-o", str(file.with_suffix(".txt")), *options]) == 0
    return file


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose records hold hostile names, made against a baseline and with a price."""
    base = tmp_path_factory.mktemp("html")
    run = make(
        base / "run",
        1.25,
        unit=HOSTILE,
        telemetry={HOSTILE: {"power_w": {"n": 3, "span_s": 1.0, "min": 1.0, "mean": 2.0, "max": 3.0}}},
    )
    for path in run.glob("quick.*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"hostname": HOSTILE}))
    with changing(run / "run.json") as manifest:
        manifest |= {"command_line": ["mnb", HOSTILE], "profile": {"file": "x", "sha256": "0", "text": HOSTILE}}
    other = make(base / "base", unit=HOSTILE)
    return page(run, base / "report.html", "--compare", str(other), "--price", "15000")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        opened.look(1280, 900)
        yield opened


def test_slices_put_together_keep_items_and_seconds() -> None:
    rows = [SliceRow(0.5 * i, 0.5, i, 1, 0.1) for i in range(1000)]
    found = thinned(rows, 120)
    assert len(found) == math.ceil(1000 / 9)
    assert sum(row.count for row in found) == 499500
    assert math.isclose(sum(row.length_s for row in found), 500)
    assert (found[1].start_s, found[1].count) == (4.5, sum(range(9, 18)))
    assert thinned(rows[:120], 120) == rows[:120]


def test_change_is_from_the_first_to_the_last_quarter() -> None:
    rows = [SliceRow(float(i), 1.0, count, 1, 0.0) for i, count in enumerate([100, 100, 7, 9, 3, 5, 90, 80])]
    found = change(rows)
    assert found is not None
    assert math.isclose(found, 170 / 200 - 1)
    assert change(rows[:3]) is None


def test_the_course_of_a_record(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    path = next(run.glob("quick.vae.J1.1.*"))
    read = read_record(path.read_bytes(), path.name)
    assert isinstance(read, ReadRecord)
    (course,) = courses(read)
    assert (course.label, course.run, course.device, len(course.edges)) == ("quick.vae", 1, "1", 61)
    assert (course.edges[:2], course.rates[0], course.window) == ((0.0, 0.5), 106.0, (20.0, 29.0))
    assert course.change == 0


def test_tenants_of_different_batches_are_not_shown_as_of_one_moment(tmp_path: Path) -> None:
    """A test that works alone visits each slot in a batch of its own."""
    folder = tmp_path / "run"
    folder.mkdir()
    whole = make_records.plan("quick", {"vae": PER_GPU}, 2, 2)
    make_records.write_manifest(folder, whole)
    alone = [make_records.record(launch, make_records.steady, 60, batch=at) for at, launch in enumerate(whole.launches)]
    for moment, made in enumerate(alone):
        make_records.write(folder, made, moment)
    reads = [read_record(path.read_bytes(), path.name) for path in sorted(folder.glob("quick.vae.*"))]
    found = [course for read in reads if isinstance(read, ReadRecord) for course in courses(read)]
    line = next(line for line in make_report(folder).lines if line.scored.test == "quick.vae")
    views = next(charts_of_test(line, found, ())).views
    assert [view.name for view in views] == ["0, device 0", "0, device 1", "1, device 0", "1, device 1"]
    assert [len(parts(view, Curve)) for view in views] == [1, 1, 1, 1]
    together = [msgspec.structs.replace(course, batch=course.run) for course in found]
    views = next(charts_of_test(line, together, ())).views
    assert [(view.name, len(parts(view, Curve))) for view in views] == [("0", 2), ("1", 2)]


def test_shares_of_the_log_score(tmp_path: Path) -> None:
    run, base = make(tmp_path / "run", 1.5), make(tmp_path / "base")
    weights = tmp_path / "w.json"
    weights.write_text(json.dumps({"quick.toy_reg": {"weight": 1}, "quick.vae": {"weight": 3}}))
    made = make_report(run, weights=weights, compare_to=[str(base)])
    added = contributions(made, made.comparisons[0], 0)
    rows = made.comparisons[0].rows
    expected = 3 * math.log(rows["quick.vae"].perf_ratio or 0) / 4
    assert math.isclose(added["quick.vae"], expected)
    assert math.isclose(math.exp(sum(added.values())), made.comparisons[0].ratio or 0)


@pytest.mark.parametrize(("devices", "drawn"), [(2, False), (3, True)])
def test_two_points_are_no_chart(tmp_path: Path, devices: int, drawn: bool) -> None:
    made = make_report(make(tmp_path / "run", devices=devices))
    assert [len(curve.steps) for curve in made.scaling] == [devices]
    assert ("scaling" in {chart.key for chart in summary_charts(made, ())}) is drawn


def test_lines_of_equal_cost_enclose_the_costs() -> None:
    assert equal_costs([13634.0]) == [7000, 10000, 15000, 20000]
    assert equal_costs([9000, 25000]) == [5000, 7000, 10000, 15000, 20000, 30000, 50000]


def test_the_run_is_on_the_page_as_its_file_has_it(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    text = html.unescape(page(run, tmp_path / "page.html").read_text())
    written = json.loads((run / "run.json").read_text())
    shown = text.partition("without profile and plan</span></summary>")[2].partition(">")[2].partition("</pre>")[0]
    assert json.loads(shown) == {key: value for key, value in written.items() if key not in ("profile", "plan")}


def test_the_page_says_what_to_do_next(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    (step,) = first_screen(make_report(run)).step
    assert f"<strong>next</strong> {step.text}" in html.unescape(page(run, tmp_path / "page.html").read_text())


def test_counters_are_what_a_launch_added(tmp_path: Path) -> None:
    """Two launches that used 30 J and 10 J of a counter that began at 1,000 J; power is a level."""
    run = make(tmp_path / "run")
    for path, begin, end in zip(sorted(run.glob("quick.vae.J?.0.*")), (1000.0, 2000.0), (1030.0, 2010.0), strict=True):
        with changing(path) as made:
            over = {"n": 3, "span_s": 1.0}
            energy = {**over, "min": begin, "mean": (begin + end) / 2, "max": end}
            power, idle = {**over, "min": 1.0, "mean": 2.0, "max": begin}, {**over, "min": 0.0, "mean": 0.0, "max": 0.0}
            made["mnb"]["telemetry"] = {"gpu:GPU-0": {"power_w": power, "energy_j": energy, "hw_thermal_s": idle}}
    section = telemetry_section(details_of(read_folder(run)), "quick.vae")
    assert tuple(row for row in section.rows if row[2] == "device 0" and row[1] != "MiB") == (
        ("energy", "J a launch", "device 0", 2, 10.0, 20.0, 30.0),
        ("power", "W", "device 0", 2, 1.0, 2.0, 2000.0),
    )
    (note,) = section.notes
    assert note.startswith("0 in every sample: time throttled by")
    assert "time throttled by temperature (hardware)" in note


def test_the_forest_names_tests_without_a_ratio(tmp_path: Path) -> None:
    run, base = make(tmp_path / "run", 1.5), make(tmp_path / "base")
    for path in base.glob("quick.vae.*"):
        with changing(path) as made:
            made["mnb"]["unit"] = "sheep"
    made_report = make_report(run, compare_to=[str(base)])
    view = forest_view(made_report, made_report.comparisons[0], 0)
    rows = {tick.text: tick.at for tick in view.panels[0].y.ticks}
    beside = {label.at[1]: (label.text, label.title) for label in parts(view, Label)}
    assert beside[rows["vae"]] == ("n/a", "unit images vs. sheep")
    assert beside[rows["convnet"]] == ("1.50", "")
    assert rows["vae"] not in [mark.at[1] for mark in parts(view, Mark)]
    assert rows["convnet"] in [mark.at[1] for mark in parts(view, Mark)]
    assert "-0" not in [part.text for panel in view.panels for part in panel.parts if isinstance(part, Label)]


def test_ticks_are_round_however_wide_the_intervals_are() -> None:
    def shown(low: float, high: float) -> list[str]:
        return [tick.text for tick in log_ticks(low, high)]

    assert shown(0.8, 1.3) == ["0.8", "1", "1.2"]
    assert shown(0.985, 1.022) == ["0.99", "1", "1.01", "1.02"]
    assert shown(0.8, 4.0) == ["1", "2"]
    assert shown(0.03, 20.0) == ["0.1", "1", "10"]
    assert shown(0.003, 2000.0) == ["0.01", "1", "100"]
    assert shown(1e-30, 1e30) == ["1e-26", "1e-13", "1", "1e+13", "1e+26"]


def test_a_mark_has_a_whisker_only_where_there_is_an_interval() -> None:
    known = Interval(value=2.0, low=1.5, high=2.75, n=5, df=4)
    assert whisker((3.0, 2.0), None, "red", upright=True) == ()
    (up,), (across,) = (whisker((3.0, 2.0), known, "red", upright=upright) for upright in (True, False))
    assert (up.begin, up.end) == ((3.0, 1.5), (3.0, 2.75))
    assert (across.begin, across.end) == ((1.5, 2.0), (2.75, 2.0))


def test_an_axis_holds_its_values_with_round_ticks() -> None:
    found = numbers([0.0, 100.0, math.inf], "x", from_zero=True)
    assert (found.low, found.high) == (0.0, 106.0)
    assert [tick.text for tick in found.ticks] == ["0", "20", "40", "60", "80", "100"]
    assert [tick.text for tick in numbers([1.0, 1.25], "x").ticks] == ["1", "1.05", "1.1", "1.15", "1.2", "1.25"]
    assert [tick.text for tick in numbers([2e9, 4e9], "x").ticks] == ["2e+09", "2.5e+09", "3e+09", "3.5e+09", "4e+09"]
    assert len(numbers([5.0], "x").ticks) >= 2
    assert numbers([], "x").ticks
    rows = names(["above", "below"], down=True)
    assert [rows.share(tick.at) for tick in rows.ticks] == [0.75, 0.25]


def test_a_drawing_is_in_percent_across_and_free_of_foreign_markup() -> None:
    x, y = numbers([0.0, 100.0], "x", from_zero=True), names([HOSTILE, "b"], down=True)
    drawn_parts = (
        Curve(points=((0.0, 0.0), (106.0, 0.0), (106.0, 2.0)), look=Look("red", dash="dash"), title=HOSTILE),
        Mark(at=(53.0, 1.0), look=Look("red"), title=HOSTILE),
        Box(begin=(0.0, 1.0), end=(26.5, 2.0), text="1.5\nslow"),
        Label(at=(106.0, 0.5), text=HOSTILE, anchor="start", shift=(8, 4)),
    )
    made = drawing(View(panels=(Panel(x=x, y=y, parts=drawn_parts),), height=100), HOSTILE)
    assert "M0 0h1000v1000" in made
    assert '<circle cx="50%" cy="50%"' in made
    assert '<rect x="0%" y="50%" width="25%" height="50%"' in made
    assert 'dy="-0.15em">1.5<' in made
    assert "<script" not in made
    assert "<img" not in made
    ElementTree.fromstring(made)


def luminance(colour: str) -> float:
    """Relative luminance after WCAG 2.2."""
    digits = colour.lstrip("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_words_can_be_read_on_every_ground() -> None:
    """Contrast of 4.5 to 1 (WCAG 2.2, 1.4.3) for light, dark and paper."""
    style = (files("milabench_ng.present.html") / "page.css").read_text()
    sets = [dict(re.findall(r"--(\w+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
    assert len(sets) == 3
    for colours in sets:
        for ground in ("ground", "raised"):
            for ink in ("ink", "soft", "good", "fair", "poor", "bad", "light"):
                high, low = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
                assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground, colours[ink])


class Elements(HTMLParser):
    """What a page has that could fetch or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.outward: list[tuple[str, str]] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.outward += [(tag, value or "") for name, value in attributes if name in ("src", "href", "action")]


def test_the_file_needs_nothing_else(report: Path) -> None:
    found = Elements()
    found.feed(report.read_text())
    assert [there for there in found.outward if not there[1].startswith("#")] == [("link", "data:,")]
    assert found.handlers == []
    assert "img" not in found.tags
    assert "default-src &#39;none&#39;" in report.read_text()
    assert report.stat().st_size < 1.5e6


def test_a_summary_makes_a_page_that_says_what_it_lacks(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    assert call(["summary", str(run), "-o", str(tmp_path / "s.json")]) == 0
    text = page(tmp_path / "s.json", tmp_path / "page.html").read_text()
    assert "holds no slices" in text
    assert "throughput over time" not in text
    assert "throughput over time" in page(run, tmp_path / "run.html").read_text()


def test_what_cannot_be_read_is_named_and_no_bug(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    path = next(run.glob("quick.vae.J0.0.*"))
    with changing(path) as made:
        made["mnb"]["telemetry"] = {"GPU-0": {"power_w": {"mean": "a\u202eb"}}}
    file = tmp_path / "page.html"
    assert call(["report", str(run), "--html", str(file), "-o", str(tmp_path / "x.txt")]) == 1
    text = file.read_text()
    assert "not a readable record: mnb.telemetry[...][...].mean: expected a number, got text" in text
    assert "\u202e" not in text


def test_without_the_extra_the_message_names_it(tmp_path: Path) -> None:
    run = make(tmp_path / "run")
    code = "import sys; sys.modules['jinja2'] = None\nfrom milabench_ng.cli import call; sys.exit(call(sys.argv[1:]))"
    arguments = ["report", str(run), "--html", str(tmp_path / "x.html")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "milabench_ng[html]"' in done.stderr


def test_bids_have_a_page(tmp_path: Path) -> None:
    for name, level in (("base", 1.0), ("acme", 1.5), ("blue", 2.0)):
        summary = msgspec.structs.replace(load(make(tmp_path / name, level)), runs=(name,))
        (tmp_path / f"{name}.json").write_text(encode_summary(summary))
    bids = {name: {"results": f"{name}.json", "price": price} for name, price in (("acme", 1000), ("blue", 1200))}
    (tmp_path / "bids.json").write_text(json.dumps({"reference": "base.json", "bids": bids}))
    file = tmp_path / "bids.html"
    assert call(["bids", str(tmp_path / "bids.json"), "--html", str(file), "-o", str(tmp_path / "bids.txt")]) == 0
    text = file.read_text()
    assert "<title>acme: price 1,000.00 $" in text
    assert "<title>blue: price 1,200.00 $" in text


def test_the_texts_of_marks_that_are_close_go_to_other_sides() -> None:
    points = [Point("a", 100.0, 1.0, None), Point("b", 104.0, 1.01, None), Point("far", 100.0, 3.0, None)]
    told = parts(price_chart(points, "base", "$").views[0], Label)[-3:]
    assert [label.anchor for label in told] == ["end", "start", "end"]


@needs_browser
def test_a_comparison_without_weights_renders_without_complaint(tmp_path: Path, browser: Browser) -> None:
    base = make(tmp_path / "base", suite="own")
    browser.open(page(make(tmp_path / "run", 1.5, suite="own"), tmp_path / "page.html", "--compare", str(base)))
    assert browser.evaluate("document.querySelectorAll('figure.chart svg[role=img]').length") > 0
    assert browser.complaints() == []


@needs_browser
def test_it_renders_without_complaint_and_without_the_network(report: Path, browser: Browser) -> None:
    browser.open(report)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert browser.evaluate(EMPTY_CHARTS) == []
    assert browser.complaints() == []
    assert browser.requests() == []
    titles = browser.evaluate("[...document.querySelectorAll('figcaption strong')].map((one) => one.textContent)")
    for part in ("ratio of every test", "tests by device", "worst drift"):
        assert any(part in title for title in titles), part


@needs_browser
def test_hostile_names_stay_text(report: Path, browser: Browser) -> None:
    browser.open(report)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert browser.evaluate("document.title").startswith("2 x Test GPU, quick, 20")
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    assert HOSTILE in browser.evaluate("document.querySelector('header').textContent")
    assert HOSTILE in browser.evaluate("document.querySelector('pre').textContent")
    axis = browser.evaluate("document.querySelector('details figure .axis').textContent")
    assert browser.evaluate("document.querySelectorAll('img, a:not([href^=\"#\"]), iframe, object').length") == 0
    assert axis == f"{HOSTILE}/s"


EMPTY_CHARTS = (
    "[...document.querySelectorAll('figure.chart .view:not([hidden]) > svg')].filter((one) => "
    "!one.querySelector('path, circle, polygon, rect:not(.frame)') || one.getBoundingClientRect().width < 300)"
    ".map((one) => one.ariaLabel)"
)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_charts_have_the_ink_and_the_font_of_the_page(report: Path, browser: Browser, dark: bool) -> None:
    browser.look(1280, 900, dark=dark)
    browser.open(report)
    page_has = browser.evaluate("(({color, fontFamily}) => [color, fontFamily])(getComputedStyle(document.body))")
    drawn = browser.evaluate(
        "[...document.querySelectorAll('figure svg text')]"
        ".map((one) => getComputedStyle(one)).map(({fill, fontFamily}) => `${fill} ${fontFamily}`)"
    )
    browser.look(1280, 900)
    ink, soft = ("rgb(232, 232, 232)", "rgb(168, 168, 168)") if dark else ("rgb(26, 26, 26)", "rgb(89, 89, 89)")
    assert page_has[0] == ink
    assert set(drawn) <= {f"{ink} {page_has[1]}", f"{soft} {page_has[1]}"}


@needs_browser
def test_the_reader_chooses_the_view_of_a_chart(report: Path, browser: Browser) -> None:
    browser.open(report)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    shown = "[...document.querySelectorAll('figure:has(select) .view')].slice(0, 2).map((one) => one.checkVisibility())"
    assert browser.evaluate(shown) == [True, False]
    browser.evaluate(
        "(({select}) => { select.selectedIndex = 1; select.dispatchEvent(new Event('change')); })"
        "({select: document.querySelector('figure select')})"
    )
    assert browser.evaluate(shown) == [False, True]


def test_the_figures_of_the_page_are_those_of_the_json_report(tmp_path: Path) -> None:
    file, told = tmp_path / "page.html", tmp_path / "told.json"
    assert (
        call(["report", str(BUNDLE), "--compare", "rtx8000", "--format", "json", "--html", str(file), "-o", str(told)])
        == 0
    )
    made, text = json.loads(told.read_text()), html.unescape(file.read_text())
    assert f"{made['ratio']:.3f} per GPU" in text
    for test in made["tests"]:
        rows = "".join(re.findall(rf'data-key="{test["test"]}">.*?</tr>', text, re.DOTALL))
        assert f'data-key="{test["perf"]}"' in rows, "of the tables"
        assert f'data-key="{test["perf_ratio"] or ""}"' in rows
        if test["perf_ratio"] is not None:
            assert f"<title>{test['test']}: {test['perf_ratio']:.3f}\n" in text, "of the forest"
    for row in made["gpus"]["mean"]:
        for device, share in zip(made["gpus"]["devices"], row["relative"], strict=True):
            name = row["test"].removeprefix("standard.")
            assert share is None or f"<title>{name}, device {device}: {100 * share:.1f}% of the best" in text


ORDER = (
    "[...[...document.querySelectorAll('section.table')].find((one) => one.querySelector('h3').textContent === 'tests')"
    ".querySelectorAll('tbody td:first-child')].map((one) => one.textContent)"
)
HEAD = (
    "[...[...document.querySelectorAll('section.table')].find((one) => one.querySelector('h3').textContent === 'tests')"
    ".querySelectorAll('th')].find((one) => one.textContent.startsWith('perf ') || one.innerText.startsWith('perf'))"
)


@needs_browser
def test_tables_are_sorted_by_key_and_by_click(report: Path, browser: Browser) -> None:
    browser.open(report)
    shown = browser.evaluate(ORDER)
    made = make_report(report.parent / "run")
    by_perf = sorted(made.lines, key=lambda line: line.scored.perf or 0.0)
    names = [line.scored.test.removeprefix("quick.") for line in by_perf]
    assert shown != names
    browser.evaluate(f"{HEAD}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert (browser.evaluate(ORDER), browser.evaluate(f"{HEAD}.ariaSort")) == (names, "ascending")
    browser.evaluate(f"{HEAD}.querySelector('button').click()")
    perfs = [line.scored.perf for line in by_perf]
    found = [perfs[names.index(name)] for name in browser.evaluate(ORDER)]
    assert (found, browser.evaluate(f"{HEAD}.ariaSort")) == (sorted(perfs, reverse=True), "descending")


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_scrolls_only_inside_tables(report: Path, browser: Browser, dark: bool) -> None:
    browser.look(390, 844, dark=dark)
    browser.open(report)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    browser.look(1280, 900)
    assert ground == ("rgb(22, 22, 24)" if dark else "rgb(255, 255, 255)")


A4_PX = 717
"""Between Chromium's own margins."""
TOO_WIDE = (
    f"[...document.querySelectorAll('td, th, svg, svg text, pre')].filter((one) => one.checkVisibility()"
    f" && one.getBoundingClientRect().right > {A4_PX}).map((one) => one.outerHTML.slice(0, 80))"
)


@needs_browser
def test_on_paper_nothing_is_cut_off_and_the_ground_is_white(tmp_path: Path, browser: Browser) -> None:
    run, bases = make(tmp_path / "run", 1.25), [make(tmp_path / name) for name in ("base", "other")]
    file = page(run, tmp_path / "page.html", *(word for base in bases for word in ("--compare", str(base))))
    browser.look(A4_PX, 1000, dark=True)
    browser.open(file)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(TOO_WIDE) == []
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("document.querySelector('select').checkVisibility()")
    browser.send("Emulation.setEmulatedMedia", media="")
    assert min(browser.on_paper(tmp_path / "page.pdf")) > 5, "no sheet is empty"
    browser.look(1280, 900)
    assert browser.complaints() == []


@needs_browser
@pytest.mark.parametrize(
    ("bundle", "options", "most"),
    [
        ("standard-rest-2xH200-20261122", ("--compare", "rtx8000", "--price", "300000"), 3),
        ("modern-2xH200-20261124", (), 2),
    ],
)
def test_shipped_runs_are_a_few_full_sheets_that_begin_with_a_summary(
    tmp_path: Path, browser: Browser, bundle: str, options: tuple[str, ...], most: int
) -> None:
    file = page(BUNDLE.parent / f"{bundle}.tar.gz", tmp_path / "page.html", *options)
    assert file.stat().st_size < 1.5e6
    browser.look(A4_PX, 1000)
    browser.open(file)
    sheets = browser.on_paper(tmp_path / "page.pdf")
    assert len(sheets) <= most
    assert min(sheets) > 50, "no sheet is empty but for a note"
    browser.send("Emulation.setEmulatedMedia", media="print")
    shown = browser.evaluate("document.querySelector('main').innerText")
    browser.look(1280, 900)
    assert shown.startswith("2 x NVIDIA H200, ")
    assert "Test by test" not in shown  # nothing is open


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_first_screen_is_banner_and_tiles(report: Path, browser: Browser, width: int) -> None:
    """A reader sees what may be wrong, and the score, without scrolling."""
    browser.look(width, 900)
    browser.open(report)
    tiles = browser.evaluate("[...document.querySelectorAll('.tile h2')].map((one) => one.textContent)")
    assert tiles[:5] == ["Node", "vs base", "Score", "Price", "Valid"]
    bottom = "document.querySelectorAll('{}').item({}).getBoundingClientRect().bottom"
    assert browser.evaluate(bottom.format(".banner", 0)) < 900
    assert browser.evaluate(bottom.format(".tile", 1)) < 900
    there = browser.evaluate("[...document.querySelectorAll('nav a')].every((one) => document.querySelector(one.hash))")
    browser.look(1280, 900)
    assert there


@pytest.mark.slow
def test_the_page_of_many_launches_stays_small(tmp_path: Path) -> None:
    """288 launches with the most points each: 1,000 must stay under 6 MB."""
    whole = make_records.plan("quick", TESTS, 8, 6)
    make_records.write_run(tmp_path / "run", whole, slices=240)
    size = page(tmp_path / "run", tmp_path / "page.html").stat().st_size
    launches = len(whole.launches)
    assert launches == 288
    assert size * 1000 / launches < 6e6
