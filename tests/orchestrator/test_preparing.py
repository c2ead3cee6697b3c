"""What is said before data sets are generated: totals, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.errors import InputError
from milabench_ng.orchestrator.display.wording import estimate_text
from milabench_ng.orchestrator.execution.preparing import require_space
from milabench_ng.requests import DataEstimate, Effort
from milabench_ng.units import GIB


def estimated(free_gib: float) -> DataEstimate:
    efforts = (
        Effort(name="imagenet", scale=1.0, files=110_000, bytes=12 * GIB, seconds=540.0),
        Effort(name="coco", scale=0.5, files=60_000, bytes=10 * GIB, seconds=60.0),
    )
    return DataEstimate(id=1, efforts=efforts, free_bytes=int(free_gib * GIB), processes=16)


def test_all_sets_together_must_fit() -> None:
    require_space(estimated(22.0), Path("/data"))
    with pytest.raises(InputError) as caught:
        require_space(estimated(21.9), Path("/data"))  # each of the two would fit
    message = str(caught.value)
    for part in ("22.0 GiB below /data", "21.9 GiB are free", "imagenet (scale 1) 12.0 GiB", "--data-scale"):
        assert part in message


def test_the_totals_come_first_and_are_called_an_estimate() -> None:
    total, *each = estimate_text(estimated(100.0)).splitlines()
    assert total.startswith("to generate: 2 data set(s), 22.0 GiB (100.0 GiB are free), about 10 min")
    assert "on 16 cores (an estimate" in total
    assert [line.split()[0] for line in each] == ["imagenet", "coco"]
