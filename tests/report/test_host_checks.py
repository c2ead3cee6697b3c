"""What `checkpoint` and `h2d` find out about themselves: in the report at a terminal, and on its page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU, steady

from milabench_ng.cli import call

WRONG = "DataError: 1 of 1,048,576 bytes reached the device by the last copy other than sent"


@pytest.fixture
def shown(tmp_path: Path) -> list[str]:
    """Words of the report at a terminal, and of its page, of a quarter read from the cache and of a wrong byte."""
    whole = make_records.plan("modern", {"checkpoint": PER_GPU, "h2d": PER_GPU}, 2, 1)
    folder = tmp_path / "run"
    folder.mkdir()
    make_records.write_manifest(folder, whole)
    for moment, launch in enumerate(whole.launches):
        wrong = launch.workload == "h2d" and launch.devices == (0,)
        made = make_records.failed(launch, "data_error", WRONG) if wrong else make_records.record(launch, steady, 40)
        if launch.workload == "checkpoint":
            a_quarter_cached(made)
        make_records.write(folder, made, moment)
    page, text = tmp_path / "page.html", tmp_path / "text.txt"
    call(["report", str(folder), "--full", "--html", str(page), "-o", str(text)])
    plain = re.sub(r"<[^>]*>", " ", page.read_text())
    return [" ".join(each.split()) for each in (text.read_text(), plain)]


def a_quarter_cached(content: dict[str, Any]) -> None:
    """Slices of two steps, a quarter of which came from the cache, in the units that the workload declares."""
    content["mnb"]["derived"] = msgspec.to_builtins(make_records.declares("checkpoint").derived)
    for rank in content["mnb"]["ranks"]:
        rank["slices"] = [
            [*row[:3], 2, *row[4:], *(None, [])[len(row) - 5 :], {"save_s": 0.5, "restore_s": 0.25, "cached": 0.5}]
            for row in rank["slices"]
        ]


def test_how_much_of_the_rate_of_the_disk_is_cache(shown: list[str]) -> None:
    for text in shown:
        assert "checkpoint % read from the page cache 25.00 100 * cached" in text


def test_a_last_copy_that_went_wrong(shown: list[str]) -> None:
    for text in shown:
        assert WRONG in text
