"""What a stress run has to say on the first screen: what was verified. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.model.plain import plain
from milabench_ng.model.units import counted
from milabench_ng.present.render.answer import Answer
from milabench_ng.records.verified import sentence
from milabench_ng.report.report import Report


def stress_answers(report: Report) -> Iterator[Answer]:
    """Nothing for tests that do not verify their work."""
    done = sentence(report.verified)
    if done:
        yield _verified(report, done)


def _verified(report: Report, done: str) -> Answer:
    """The work whose results were compared with what they must be, and what is known of them from elsewhere."""
    known = (f"{counted(len(one.alike), 'test')} as in {plain(one.name)}" for one in report.known_answers if one.alike)
    return Answer(name="Verified", parts=(done, *known), tone="bad" if report.mismatches else "good")
