"""``mnb baseline``: baselines as data, with their provenance."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, get_args

import cyclopts
from cyclopts import Parameter

from milabench_ng.analysis.baselines.baseline import as_baseline, measured_again, rebound, shortfalls
from milabench_ng.analysis.baselines.plausible import doubts
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.scoring.weights import Weights, find_weights
from milabench_ng.analysis.summary.folder import encode_summary, load_baseline
from milabench_ng.analysis.summary.suites import by_suite
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli.options import Force, FormOption, Output, Several
from milabench_ng.model.catalogue import Bound
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain
from milabench_ng.model.shipped import names
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import figure, number, one_decimal, whole
from milabench_ng.present.render.sections import Document, Heading, Section, facts, table
from milabench_ng.present.render.terminal import write_parts
from milabench_ng.present.writers import open_output, write
from milabench_ng.verification.opening import load_result, load_source
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

baseline = cyclopts.App(name="baseline", help="List, show, build and check baselines.")


@baseline.command(name="list")
def list_shipped(*, form: FormOption = "table") -> int:
    """List the shipped baselines: suite, devices, and whether they were measured, published or estimated.

    Example: mnb baseline list
    """
    found = {name: load_baseline(name) for name in names("baselines")}
    rows = ((name, one.suite, one.provenance.hardware, one.provenance.kind) for name, one in found.items())
    listed = table("", rows, "name", "suite", "hardware", "kind")
    write(Document(title="mnb baseline list", parts=(listed,), table=listed, whole=found), form, sys.stdout)
    return 0


@baseline.command
def show(name: str, *, form: FormOption = "table") -> int:
    """Print a baseline: its origin and its value for each test.

    Example: mnb baseline show v100

    Parameters
    ----------
    name
        A shipped baseline, a summary file, a result folder or a bundle.
    """
    made = load_source(name)
    at = made.provenance
    pairs = [("kind", at.kind), ("source", at.source), ("devices", f"{made.devices}: {at.hardware}")]
    pairs += [*at.node.items(), ("software", ", ".join(f"{key} {value}" for key, value in at.software.items()))]
    pairs += [("note", note) for note in (*at.notes, *made.notes)]
    tests = _tests(made)
    parts = (facts(f"{made.suite} ({name})", pairs), tests)
    write(Document(title="mnb baseline show", parts=parts, table=tests, whole=made), form, sys.stdout)
    return 0


def _tests(made: Summary) -> Section:
    rows = (
        (
            label,
            row.work.unit if made.units == "true" else "classic items",
            row.train.mean if row.train else row.estimate and row.estimate.value,
            row.estimate and f"[{figure(row.estimate.low)}, {figure(row.estimate.high)}]",
            100 * row.train.std / row.train.mean if row.train and row.train.mean and row.train.n > 1 else None,
            *((None, None) if row.estimate else (row.n, row.failures)),
            row.work.bound,
            made.origin(label),
            "; ".join(each.what for each in row.departures) or None,
        )
        for label, row in made.tests.items()
    )
    rate, std = Heading("rate", "items/s", number, True), Heading("CV", "%", one_decimal, True, key="std (%)")
    band, origin = Heading("95% band", "items/s", number=True, key="95 % band (items/s)"), Heading("origin", spare=1)
    n, fail = Heading("attempts", "", whole, True, key="n"), Heading("fail", "", whole, True)
    return table(
        "",
        rows,
        "test",
        "items",
        rate,
        band,
        std,
        n,
        fail,
        Heading("bottleneck", key="bound by"),
        origin,
        Heading("differences from the current test", key="differences from the current test"),
    )


@baseline.command
def build(
    folder: Path,
    *,
    again: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
    note: Several = (),
    bound: Several = (),
    accept_shortfalls: bool = False,
    output: Output = None,
    force: Force = False,
) -> int:
    """Make a baseline from a result folder. It must be complete, isolated and valid.

    Doubts become notes of the baseline.

    Exit code: 0, 2 if the folder is not suitable.

    Example: mnb baseline build results -o baselines/mine.json

    Parameters
    ----------
    folder
        A result folder or a bundle.
    again
        A result folder or bundle of single tests (mnb jobs --name) from the same kind of node and software. They
        replace or add tests in FOLDER, and the baseline notes it. May be repeated.
    note
        A note to keep with the baseline, such as where the node is. May be repeated.
    bound
        TEST=CLASS: the measured bottleneck of a test, if its records say otherwise. May be repeated.
    accept_shortfalls
        Build from an unsuitable folder anyway, and note its shortfalls in the baseline.
    """
    whole = functools.reduce(measured_again, map(load_result, again), load_result(folder))
    made = rebound(whole, _bounds(bound))
    scores = {part.suite: score(part, _weights_of(part)) for part in by_suite(made)}
    broken, doubted = zip(*map(_verified, (folder, *again)), strict=True)
    lacking = (*shortfalls(made, scores), *chain.from_iterable(broken))
    if lacking and not accept_shortfalls:
        found = "\n".join(f"  {each}" for each in lacking)
        raise InputError(f"{folder} is not suitable as a baseline:\n{found}\nRun again, or pass --accept-shortfalls")
    _write(as_baseline(made, lacking, (*note, *chain.from_iterable(doubted))), output, force=force)
    return 0


_OF_PARTS = ("R8", "R12")
"""What the run of some tests breaks: whether all are there, the score says."""


def _verified(result: Path) -> tuple[list[str], list[str]]:
    """The rules that a result folder or bundle breaks although nothing is demanded of it, and the doubts it raises."""
    try:
        found = verify(result, Rules())
    except InputError as error:  # such as a folder of 2020
        return [str(error)], []
    broken = [ruling for ruling in found.having("fail") if ruling.id not in _OF_PARTS]
    return (
        [f"{plain(str(result))} violates {ruling.id}: {ruling.reasons[0]}" for ruling in broken],
        [f"doubt {doubt.name}: {doubt.reasons[0]}" for doubt in found.doubts],
    )


def _weights_of(made: Summary) -> Weights:
    """The shipped ones. A suite may have none before it has a baseline; then every test must be complete."""
    file = find_weights(made.suite)
    return file.weights if file else dict.fromkeys([*made.tests, *made.omitted], 1.0)


def _bounds(given: Sequence[str]) -> dict[str, Bound]:
    """Class by test, from texts such as ``standard.recom=launch``."""
    known: dict[str, Bound] = {each: each for each in get_args(Bound)}
    pairs = [text.rpartition("=") for text in given]
    for (label, _, name), text in zip(pairs, given, strict=True):
        if not label or name not in known:
            raise InputError(f"--bound {text!r}: expected TEST=CLASS, with a class of {', '.join(known)}")
    return {label: known[name] for label, _, name in pairs}


@baseline.command
def check(name: str) -> int:
    """Look for implausible values: wrong units, impossible variance, lower rates with more devices.

    Exit code: 0 if nothing was found, 1 otherwise.

    Example: mnb baseline check rtx8000

    Parameters
    ----------
    name
        A shipped baseline, a summary file, a result folder or a bundle.
    """
    made = load_source(name)
    shipped = {other: load_baseline(other) for other in names("baselines") if other != Path(name).stem}
    others = {other: one for other, one in shipped.items() if one.suite == made.suite}
    found = doubts(made, others)
    if not found:
        tests = counted(len(made.tests), "test")
        print(f"{name}: {tests}, nothing implausible (compared with {', '.join(others) or 'no other baseline'})")
        return 0
    write_parts([table("", [(each.test, each.what) for each in found], "test", "implausible values")], sys.stdout)
    return 1


def _write(made: Summary, output: Path | None, *, force: bool) -> None:
    with open_output(output, sys.stdout, force=force) as stream:
        stream.write(encode_summary(made))
