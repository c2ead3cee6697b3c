"""The report as one self-contained HTML file: charts, script and style are inline, with no network requests."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TextIO

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from milabench_ng import __version__
from milabench_ng.fleet.report import FleetReport
from milabench_ng.model.plain import plain_lines, printed_json
from milabench_ng.model.units import counted
from milabench_ng.present.html.charts import summary_charts
from milabench_ng.present.html.conditions_chart import conditions_charts
from milabench_ng.present.html.details_tables import fence_section, plan_section, telemetry_section
from milabench_ng.present.html.figures import Chart
from milabench_ng.present.html.fleet_chart import fleet_charts
from milabench_ng.present.html.folder_details import FolderDetails, details_of
from milabench_ng.present.html.html_tables import cells_of, of_tests
from milabench_ng.present.html.loading_charts import loading_charts
from milabench_ng.present.html.network_chart import network_charts
from milabench_ng.present.html.per_test_charts import charts_of_test
from milabench_ng.present.html.pressure_chart import pressure_charts
from milabench_ng.present.html.price_chart import tender_chart
from milabench_ng.present.html.rate_curve_chart import rate_curve_charts
from milabench_ng.present.html.slowdown_chart import slowdown_charts
from milabench_ng.present.html.svg import drawing, swatch
from milabench_ng.present.html.sweep_chart import sweep_charts
from milabench_ng.present.layouts import interference
from milabench_ng.present.render.cells import Answer, Fact, figure
from milabench_ng.present.render.first_screen import FirstScreen, first_screen
from milabench_ng.present.render.fleet_report_tables import all_nodes, fleet_facts, fleet_sections
from milabench_ng.present.render.sections import Section
from milabench_ng.present.render.statements import details
from milabench_ng.present.render.tables import other_tables
from milabench_ng.present.render.tender_facts import tender_facts, winner
from milabench_ng.present.render.tender_tables import tender_sections
from milabench_ng.records.manifest import Manifest
from milabench_ng.report.report import Line, Report
from milabench_ng.tender.tender import Tender


class TestPart(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows about one test when it is opened."""

    __test__ = False  # not a pytest class

    name: str
    summary: str
    charts: tuple[Chart, ...]
    tables: tuple[Section, ...]


class RunPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one ``run.json`` holds."""

    name: str
    profile: str
    plan: Section
    rest: str
    """All but profile and plan, as JSON."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on a page, in order."""

    title: str
    subtitle: str = ""
    screen: FirstScreen | None = None
    """None on a page on bids, which begins with its winner."""
    winners: tuple[Answer, ...] = ()
    """Of each suite, on a page on bids."""
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...]
    tables: tuple[Section, ...]
    folded: tuple[Section, ...] = ()
    """Tables that explain the others."""
    details: tuple[Fact, ...] = ()
    """What the numbers rest on."""
    tests: tuple[TestPart, ...] = ()
    evidence: tuple[Section, ...] = ()
    runs: tuple[RunPart, ...] = ()
    notes: tuple[str, ...] = ()
    version: str = __version__


def write(made: Report | Tender | FleetReport, stream: TextIO) -> None:
    """Write the page on ``made`` to ``stream``; of a stored summary, it says what is missing."""
    here = files("milabench_ng.present.html")
    script = (here / "page.js").read_text("utf-8")
    environment = Environment(
        loader=PackageLoader("milabench_ng.present.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_legible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cells": cells_of, "drawing": drawing, "swatch": swatch}
    template = environment.get_template("page.html.j2")
    stream.writelines(
        template.generate(
            page=_page(made),
            style=Markup((here / "page.css").read_text("utf-8")),
            script=Markup(script),
            policy=policy(script),
        )
    )


def _page(made: Report | Tender | FleetReport) -> Page:
    match made:
        case Report():
            return report_page(made)
        case Tender():
            return _tender_page(made)
        case FleetReport():
            return _fleet_page(made)


def _tender_page(tender: Tender) -> Page:
    charts = (tender_chart(one, several=len(tender.each) > 1) for one in tender.each)
    sections = tender_sections(tender)
    return Page(
        title=f"{len(tender.rows)} bids, in nodes of {tender.reference}",
        winners=tuple(winner(one, several=len(tender.each) > 1) for one in tender.each),
        facts=tender_facts(tender),
        charts=tuple(chart for chart in charts if chart),
        tables=tuple(section for section in sections if not section.key.startswith(_EXPLAIN)),
        folded=tuple(section for section in sections if section.key.startswith(_EXPLAIN)),
    )


def _fleet_page(report: FleetReport) -> Page:
    return Page(
        title=f"{counted(len(report.manifest.nodes), 'node')}, {report.manifest.suite}",
        subtitle=report.source,
        facts=tuple(fleet_facts(report)),
        charts=(*fleet_charts(report), *(network_charts(report.network) if report.network else ())),
        tables=fleet_sections(report),
        folded=(msgspec.structs.replace(all_nodes(report), title="all nodes"),),
    )


def report_page(report: Report) -> Page:
    """The contents of the page. Pure."""
    evidence = details_of(report.folder) if report.folder else FolderDetails()
    screen = first_screen(report)
    tests, *further = of_tests(report)
    return Page(
        title=f"{report.summary.provenance.hardware}, {report.summary.suite}, {screen.when}",
        subtitle=", ".join((report.source, *evidence.hosts)),
        screen=screen,
        charts=(
            *slowdown_charts(report),
            *pressure_charts(report),
            *rate_curve_charts(report),
            *sweep_charts(report),
            *loading_charts(report, evidence.loads),
            *summary_charts(report, evidence.courses),
            *conditions_charts(report.series, evidence.manifests),
        ),
        tables=(*(interference.tables(report) if report.neighbours else ()), tests),
        folded=(*further, *other_tables(report)),
        details=(
            *details(report),
            *((Fact("host", ", ".join(evidence.hosts)),) if evidence.hosts else ()),
            *map(_begun, evidence.manifests),
        ),
        tests=tuple(_test(report, at, evidence) for at in report.lines),
        evidence=(fence_section(evidence),) if evidence.fences else (),
        runs=tuple(map(_run, evidence.manifests)),
        notes=() if evidence.courses else (_FROM_SUMMARY if report.folder is None else _WITHOUT_SLICES,),
    )


def _begun(manifest: Manifest) -> Fact:
    return Fact("run", f"{manifest.run_id}, begun {manifest.started_utc} (UTC), with mnb {manifest.version}")


def _test(report: Report, at: Line, evidence: FolderDetails) -> TestPart:
    rate = f"{figure(at.scored.perf)} {at.row.work.unit}/s" if at.scored.perf is not None else "no rate"
    telemetry = telemetry_section(evidence, at.scored.test)
    return TestPart(
        name=at.scored.test,
        summary=f"{rate}, {at.scored.fail} of {at.scored.n} launches failed",
        charts=tuple(charts_of_test(at, evidence.courses, report.scaling)),
        tables=(telemetry,) if telemetry else (),
    )


_EXPLAIN = ("not-the-same-work", "stability")
"""Tables on bids that explain the others."""
_FROM_SUMMARY = (
    "Made from a summary, which holds no slices: there are no charts over time, no isolation evidence, no telemetry "
    "and no configuration here. Make the page from the result folder to have them."
)
_WITHOUT_SLICES = "The records hold no slices with times (those of 2020 do not): there are no charts over time."


def _run(manifest: Manifest) -> RunPart:
    rest = msgspec.to_builtins(manifest)
    del rest["profile"], rest["plan"]
    return RunPart(
        name=manifest.run_id,
        profile=manifest.profile.text,
        plan=plan_section(manifest.plan),
        rest=printed_json(rest),
    )


def _legible(value: object) -> object:
    """Remove characters that hide or reorder text from untrusted strings."""
    return plain_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def policy(script: str) -> str:
    """The Content-Security-Policy: only this script runs, and nothing is loaded from anywhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
