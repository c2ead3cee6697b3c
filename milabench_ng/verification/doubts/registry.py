"""All doubts: each module of this package that has a ``DOUBT``, in the order of their names."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from milabench_ng.model.plain import plain
from milabench_ng.verification import doubts
from milabench_ng.verification.absurd import ABSURD, incomputable
from milabench_ng.verification.doubts.doubt import CORPUS, Doubt
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Doubted

_OTHERS = ("doubt", "registry")
DOUBTS: tuple[Doubt, ...] = tuple(
    import_module(f"{doubts.__name__}.{module.name}").DOUBT
    for module in iter_modules(doubts.__path__)
    if module.name not in _OTHERS
)


def raised(evidence: Evidence) -> tuple[Doubted, ...]:
    found = ((doubt, _reasons(doubt, evidence)) for doubt in DOUBTS)
    return tuple(
        Doubted(
            name=doubt.name,
            title=doubt.title,
            reasons=reasons,
            honest=doubt.honest,
            corpus=CORPUS,
            ask=doubt.ask,
            refused=doubt.name in evidence.rules.doubts_refused,
        )
        for doubt, reasons in found
        if reasons
    )


def _reasons(doubt: Doubt, evidence: Evidence) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(map(plain, doubt.look(evidence))))
    except ABSURD as error:
        return (incomputable(error),)
