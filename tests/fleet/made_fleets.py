"""Made-up fleets whose truth is known. Rates are 1 where nothing is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from milabench_ng.fleet.verdicts.measured import Kind, Measured, NodeSample, measured

KINDS: Mapping[str, Kind] = {"a": "gpu", "b": "gpu", "c": "gpu", "d": "host", "e": "host"}
Rate = Callable[[str, str, str, str], float]
"""By node, session, test and device."""


def fleet(
    rate: Rate,
    nodes: int = 30,
    *,
    sessions: Mapping[str, Sequence[str]] | None = None,
    failed: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None,
    lost: Mapping[str, str] | None = None,
) -> Measured:
    """A fleet of nodes ``n0``, ``n1`` ... with two devices each; ``sessions``: which nodes did which retests."""
    names = [f"n{number}" for number in range(nodes)]
    here = {"screen": [name for name in names if name not in (lost or {})], **(sessions or {})}
    return measured(_samples(rate, here), KINDS, failed, lost)


def _samples(rate: Rate, here: Mapping[str, Sequence[str]]) -> Iterator[NodeSample]:
    for session, nodes in here.items():
        for node in nodes:
            for test in KINDS:
                for device in "01":
                    noise = 0.002 * math.sin(hash_of(node, session, test, device))
                    log = math.log(rate(node, session, test, device)) + noise
                    for off in (0.001, -0.001):
                        yield NodeSample(node=node, session=session, test=test, device=device, log_rate=log + off)


def hash_of(*words: str) -> float:
    """A number that looks random, the same every time."""
    return float(sum((place + 1) * ord(letter) ** 2 for place, letter in enumerate("/".join(words))))


def as_fast(*_: str) -> float:
    """A healthy node."""
    return 1.0
