"""The statement on reference traces, in one sentence. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from milabench_ng.analysis.launch.traces import COMPARED, STRENGTHS
from milabench_ng.model.units import counted

_GROUPS = 4
"""How many kinds of missing references are named; the rest are counted."""


def told(rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """How many tests were compared, how strongly, and what the others lack.

    ``rows``: tests by name, each with the sentences of its launches. A test is as strong as its weakest launch. Tests
    with strong traces are counted, others named; older summaries do not record the strength.
    """
    by_strength: dict[str, list[str]] = defaultdict(list)
    lacking: dict[str, list[str]] = defaultdict(list)
    for test, sentences in rows:
        compared = [sentence for sentence in sentences if sentence.startswith(COMPARED)]
        if compared:
            by_strength[_weakest(compared)].append(test)
        for sentence in sentences:
            if sentence not in compared:
                lacking[sentence].append(test)
    classes = ", ".join(
        f"{len(tests)} {name}" if name == "strong" else f"{len(tests)} {name} ({', '.join(tests)})"
        for name in STRENGTHS
        if (tests := by_strength.get(name))
    )
    number = sum(len(tests) for tests in by_strength.values())
    said = [f"{number} of {counted(len(rows), 'test')} compared{classes and f': {classes}'}"]
    said += [f"{sentence}: {', '.join(tests)}" for sentence, tests in list(lacking.items())[:_GROUPS]]
    others = dict.fromkeys(test for tests in list(lacking.values())[_GROUPS:] for test in tests)
    if others:
        said.append(f"{counted(len(others), 'other')} without a reference")
    return "; ".join(said)


def _weakest(sentences: Iterable[str]) -> str:
    names = [sentence.removeprefix(COMPARED).removeprefix(": ") for sentence in sentences]
    return max(names, key=lambda name: (*STRENGTHS, name).index(name))
