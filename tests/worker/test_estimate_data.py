"""What is refused before the speed of the cores is measured, which takes seconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.worker import answers
from milabench_ng.worker.requests import EstimateData


def test_a_data_root_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "pace", lambda _: pytest.fail("measured"))
    with pytest.raises(InputError) as caught:
        answers._estimate(EstimateData(id=1, sets=(("mnist", 1.0),), dataroot="/proc/data", processes=1))
    assert str(caught.value) == (
        "mnist must be generated in /proc/data, but /proc is not writable (it takes no files). "
        "Choose another data root with -d"
    )


def test_a_data_root_that_is_not_there_yet_is_not_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(answers, "pace", lambda _: 1.0)
    asked = EstimateData(id=1, sets=(("mnist", 1.0),), dataroot=str(tmp_path / "data"), processes=1)
    assert isinstance(answers._estimate(asked), answers.DataEstimate)
    assert os.listdir(tmp_path) == []
