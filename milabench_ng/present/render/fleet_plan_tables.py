"""Tables of ``mnb fleet plan``."""

from __future__ import annotations

from milabench_ng.fleet.verdicts.measured import WORDS
from milabench_ng.fleet.verdicts.planning import FleetPlan, Sampled, Wanted
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import NOT_MEASURED, Cell, Fact, Tone, in_form, one_decimal, whole
from milabench_ng.present.render.sections import Document, Facts, Heading, Section, table


def plan_document(made: FleetPlan) -> Document:
    """The choices before a fleet is measured."""
    efforts = _efforts(made)
    told = tuple(_facts(made))
    parts = (Facts(facts=told), efforts, _samples(made))
    return Document(title="mnb fleet plan", parts=parts, table=efforts, aside=told, whole=made)


def _facts(made: FleetPlan) -> list[Fact]:
    wanted, strict = made.wanted, made.wanted.strict
    best = made.cheapest
    choice = (
        f"--repeat {best.repeats}, then {counted(best.retests, 'retest')}: {_hours(best.node_hours)} node-hours, the "
        "fewest within the risk"
        if best
        else f"none of these is within the risk. {found_in_words(wanted, made.smallest, made.more_nodes)}"
    )
    tests = ", ".join(f"{count} {WORDS[kind]}" for kind, count in wanted.kinds.items())
    return [
        Fact("fleet", f"{wanted.nodes:,} nodes of {counted(wanted.devices, 'GPU')}; tests: {tests}"),
        Fact(
            "sought",
            f"a node {_percent(wanted.slow)} slower than the fleet's median, missed with {_percent(wanted.risk)}",
        ),
        Fact(
            "false alarms",
            f"any in {_percent(strict.false_alarms)} of healthy fleets, at a margin of {_percent(strict.margin)}",
        ),
        Fact("choose", choice, "good" if best else "fair"),
    ]


def found_in_words(wanted: Wanted, smallest: float | None, more_nodes: int | None) -> str:
    """What is found with the risk, and if nothing is, what to try instead."""
    risk, nodes = f"a risk of {_percent(wanted.risk)}", counted(wanted.nodes, "node")
    if smallest is not None:
        return f"With {risk}, a slow node is found from --slow {_percent(smallest)}"
    if more_nodes is not None:
        return f"{nodes} are too few to find any slow one with {risk}. Try --nodes {more_nodes}"
    return f"Nothing is found with {risk}. Accept more (--risk)"


def _efforts(made: FleetPlan) -> Section:
    def tone(cell: Cell) -> Tone:
        return "good" if isinstance(cell, float) and cell <= made.wanted.risk else "plain"

    kind = WORDS[made.wanted.kind]
    rows = [
        (one.repeats, one.retests, one.missed, one.missed_in_one, one.false_alarms, one.node_hours)
        for one in made.efforts
    ]
    return table(
        f"risk of accepting a node that is {_percent(made.wanted.slow)} slow, if all nodes are tested",
        rows,
        Heading("repeats", "", whole, True),
        Heading("retests", "", whole, True),
        Heading(f"slow in all {kind} tests: missed", "", _risk, True, tone, key="missed, slow in all tests"),
        Heading(f"slow in one {kind} test: missed", "", _risk, True, tone, key="missed, slow in one test"),
        Heading("false alarms per fleet", "", in_form(".2g"), True),
        Heading("node-hours", "", _hours, True),
        notes=(_SPREAD, _WHY_ALL_ARE_MISSED),
    )


def _samples(made: FleetPlan) -> Section:
    slow = made.wanted.slow_nodes
    of_all = f"{slow:,} of {made.wanted.nodes:,} nodes {'is' if slow == 1 else 'are'}"
    repeats = list(made.samples[0].accepted)
    rows = [_sample(one, repeats) for one in made.samples]
    return table(
        f"risk of accepting a fleet in which {of_all} {_percent(made.wanted.slow)} slow in all these tests",
        rows,
        Heading("nodes tested", "", whole, True),
        *(Heading(counted(each, "repeat"), "", _risk, True) for each in repeats),
        Heading("node-hours of each", words=60),
    )


def _sample(one: Sampled, repeats: list[int]) -> tuple[Cell, ...]:
    hours = " / ".join(_hours(one.node_hours[each]) for each in repeats)
    return (one.tested, *(one.accepted[each] for each in repeats), hours)


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _risk(cell: Cell) -> str:
    """A probability in percent; very small ones as such."""
    if not isinstance(cell, float):
        return NOT_MEASURED
    return "<0.01%" if cell < 1e-4 else f"{100 * cell:.3g}%" if cell < 0.1 else f"{100 * cell:.0f}%"


def _hours(cell: Cell) -> str:
    return whole(cell) if isinstance(cell, float) and cell >= 10 else one_decimal(cell)


_SPREAD = (
    "Declared spread: launches 1% (host 3%), days 0.5% (5%), nodes 0.85% in all GPU-bound tests and 0.5% in each of "
    "them (3% and 1%)."
)
_WHY_ALL_ARE_MISSED = (
    "Slow in all tests shows only against other nodes, and no repeat averages out how these and days differ. Slow in "
    "one test shows against the node's own other tests, in which both cancel. The fewer nodes are tested, the larger "
    "is the gap that chance explains."
)
