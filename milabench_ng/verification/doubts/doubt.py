"""The shape of a doubt: something unusual that honest results may show, and forged ones may lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from milabench_ng.verification.evidence import Evidence

CORPUS = 34
"""Folders that are known to be honest: tests/data/honest and the shipped bundles."""


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, and what it is worth."""

    name: str
    """As a verdict and a buyer's rules have it."""
    title: str
    """What is unusual."""
    ask: str
    """What settles it."""
    look: Callable[[Evidence], Iterable[str]]
    """Each case, with its figure."""
    honest: int = 0
    """How many folders of the corpus show it; a test counts them."""
