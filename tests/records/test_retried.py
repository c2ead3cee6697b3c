"""Which attempts of interrupted batches count no longer, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from milabench_ng.records.retried import Tried, made_up_for

START = datetime(2026, 1, 6, tzinfo=UTC)
Attempts = Sequence[tuple[str, int, bool]]
"""Launch, hour, and whether it was interrupted; what begins in the same hour is one batch."""


@pytest.mark.parametrize(
    ("attempts", "made_up"),
    [
        ([("0.0", 1, True), ("0.1", 1, True), ("0.0", 2, False), ("0.1", 2, False)], ["0.0 1", "0.1 1"]),
        ([("0.0", 1, True), ("0.1", 1, True), ("0.0", 2, False)], []),  # one of them is lacking yet
        ([("0.0", 1, False), ("0.0", 2, True)], []),  # what came before makes up for nothing
        ([("0.0", 1, True), ("0.0", 2, True), ("0.0", 3, False)], ["0.0 1", "0.0 2"]),
        ([("0.0", 1, False), ("0.1", 1, True), ("0.1", 2, False)], ["0.1 1"]),  # one that ended before has its result
    ],
)
def test_an_interrupted_batch_counts_unless_it_was_measured_again_whole(attempts: Attempts, made_up: list[str]) -> None:
    tried = [
        Tried(f"{launch} {hour}", launch, "run", START + timedelta(hours=hour), interrupted)
        for launch, hour, interrupted in attempts
    ]
    assert made_up_for(tried) == made_up
