"""A record that says otherwise than its row what an item is, or what was done for it, does not make the row's rate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_records
import pytest
import tampering
from make_records import PER_GPU

from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.errors import InputError

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two repeats on two devices, at 100 items/s."""
    whole = make_records.plan("quick", {"vae": PER_GPU}, 2, 2)
    make_records.write_run(tmp_path / "run", whole, lambda *_: 100.0, slices=40)
    return tmp_path / "run"


def ours(**changes: Any) -> Change:
    return lambda content: content["mnb"].update(changes)


def options(**changes: Any) -> Change:
    return lambda content: content["mnb"]["launch"]["arguments"].update(changes)


def change(folder: Path, pattern: str, what: Change) -> None:
    for path in folder.glob(pattern):
        tampering.rewrite(path, what)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (ours(classic_factor=10.0), "classic_factor 10.0 instead of 1.0"),
        (ours(unit="tokens"), "unit tokens instead of images"),
        (ours(bound="io"), "bound io instead of cpu"),
        (ours(derived=[{"unit": "x", "formula": "rate"}]), "list of derived units x = rate instead of none"),
        (options(batch_size=512), "option batch_size 512 instead of 64"),
        (options(layers=3), "option layers 3 instead of not recorded"),
    ],
)
@pytest.mark.parametrize("which", ["0.0", "1.1"])
def test_one_of_several_is_a_failed_launch(folder: Path, what: Change, told: str, which: str) -> None:
    change(folder, f"*.J{which}.*", what)
    row = load(folder).tests["quick.vae"]
    assert (row.n, row.failures, row.work.unit, row.work.classic_factor, row.work.bound) == (4, 1, "images", 1.0, "cpu")
    assert row.work.options["batch_size"] == 64
    assert (row.failed[0].cause, row.failed[0].job_id) == ("unreadable", which)
    assert row.failed[0].detail == f"different work from the rest of its test: {told}"
    found = score(load(folder), {"quick.vae": 1.0}).per_device
    assert found == pytest.approx(75.0, rel=1e-12)  # 100 items/s, and 1 of 4 failed


def test_without_a_majority_the_folder_is_refused(folder: Path) -> None:
    change(folder, "*.J0.*", ours(classic_factor=10.0))
    with pytest.raises(InputError) as refused:
        load(folder)
    text = str(refused.value)
    assert "quick.vae.J0.0." in text
    assert "quick.vae.J1.0." in text
    assert "classic_factor is 10.0 and 1.0" in text


def test_two_runs_of_other_work_are_refused(folder: Path) -> None:
    more = make_records.plan("quick", {"vae": PER_GPU}, 2, 1)
    second = folder / "second"
    second.mkdir()
    (second / "run.json").write_bytes((folder / "run.json").read_bytes().replace(b"-abcdef", b"-second"))
    for moment, launch in enumerate(more.launches):
        made = make_records.record(launch, lambda *_: 100.0, 40, run_id="20260106-160000-second")
        options(batch_size=512)(made)
        make_records.write(second, made, 100 + moment)
    with pytest.raises(InputError, match="option batch_size is 64 and 512"):
        load(folder)


def test_how_long_it_worked_and_from_which_seed_is_free(folder: Path) -> None:
    change(folder, "*.J0.0.*", options(max_count=10, seed=7))
    assert load(folder).tests["quick.vae"].failures == 0
