"""Records that would fill the memory, or keep the verifier busy for hours: refused before rules look at them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
from make_records import PER_GPU

from milabench_ng.records.folder import Bounds, read_folder
from milabench_ng.records.reading import decoded_size
from milabench_ng.records.record import Rank, Record
from milabench_ng.records.window import SliceRow
from milabench_ng.report.reporting import make_report
from milabench_ng.verification import opening
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.checks import stops
from milabench_ng.verification.findings import Ruling
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import impossible, longest, verify

PLAN = make_records.plan("standard", {"vae": PER_GPU}, 2, 1)
MANY = 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "results"
    make_records.write_run(made, PLAN, slices=24)
    return made


def ruling(folder: Path, rule: str) -> Ruling:
    return {one.id: one for one in verify(folder, Rules()).rulings}[rule]


def listed(element: str) -> str:
    return f"[{','.join([element] * MANY)}]"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (list[SliceRow], listed("[0,1,0,1,0]")),
        (list[SliceRow], listed("[1000.5,0.5,999,999,0.5,0,[[1,1],[2,999]]]")),
        (list[SliceRow], listed('[0,1,0,1,0,0,[],{"a":0.5}]')),
        (list[float], listed("1")),
        (dict[str, float | None], json.dumps({str(place): place + 0.5 for place in range(MANY)})),
        (Any, listed("[]")),
        (Any, listed("{}")),
    ],
)
def test_the_memory_of_a_decoded_text_is_not_underestimated(kind: Any, text: str) -> None:
    decoder = msgspec.json.Decoder(kind)
    tracemalloc.start()
    try:
        decoder.decode(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 1.05 * decoded_size(text.encode())


def test_a_record_that_would_fill_the_memory_is_one_failed_launch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milabench_ng.records.reading.MOST_DECODED", 1 << 20)
    large = sorted(folder.glob("*.J*.json"))[0]
    large.write_text(large.read_text().replace('"gpu_monitor":', f'"odd": [{"[]," * 10_000}[]], "gpu_monitor":'))
    row = make_report(folder).summary.tests["standard.vae"]
    assert (row.n, row.failures) == (2, 1)
    (reason,) = [why for why in ruling(folder, "R12").reasons if large.name in why]
    assert "it would take more than 1 MiB of memory" in reason


def test_the_records_of_a_bundle_may_take_so_much_together(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(path.name for path in folder.glob("*.J*.json"))
    first = decoded_size((folder / names[0]).read_bytes())
    made = read_folder(folder, within=Bounds(decoded=first + 1))
    assert [one.file for one in made.records] == names[:1]
    assert [one.reason for one in made.problems] == [
        "not a readable record: the records of the folder would take more than 0 MiB of memory"
    ]
    monkeypatch.setattr(opening, "FOREIGN", Bounds(files=1))
    pack(folder, tmp_path / "run.tar.gz")
    for failed in make_report(tmp_path / "run.tar.gz").summary.tests["standard.vae"].failed:
        assert "the records of the folder hold more than 0 MiB" in failed.detail
    assert make_report(folder).summary.tests["standard.vae"].failures == 0, "whose records are ours"


def test_a_launch_has_as_many_slices_as_fit_into_its_time(folder: Path) -> None:
    record = msgspec.json.decode(next(folder.glob("*.J*.json")).read_bytes(), type=Record)
    rank = record.mnb.ranks[0]

    def with_slices(count: int) -> Any:
        ranks: list[Rank] = [msgspec.structs.replace(rank, slices=rank.slices[:1] * count)]
        return msgspec.structs.replace(record, mnb=msgspec.structs.replace(record.mnb, ranks=ranks))

    assert longest(PLAN) == 600.0
    assert not impossible(with_slices(3_400), 600.0), "twice as many as of 0.5 s each, and a thousand"
    assert not impossible(with_slices(3_401), None), "of a version that knew no max_seconds"
    assert impossible(with_slices(3_401), 600.0) == (
        "rank 0 has 3,401 slices; 600 s, its max_seconds, have at most 1200 of 0.5 s"
    )


def test_when_a_rank_was_full_is_not_looked_for_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each slice, all of a window before it are looked at."""
    assert ruling(folder, "R36").result == "pass"
    monkeypatch.setattr(stops, "_MOST_LOOKED_AT", 100)
    monkeypatch.setattr(stops, "first_full", None)
    assert "rank 0 has 24 slices, too many to find out when it was full" in ruling(folder, "R36").reasons[0]


def test_when_a_rank_was_full_is_not_looked_for_in_slices_with_gaps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in folder.glob("*.J*.json"):
        content = msgspec.json.decode(path.read_bytes())
        del content["mnb"]["ranks"][0]["slices"][5]
        path.write_bytes(msgspec.json.encode(content))
    monkeypatch.setattr(stops, "first_full", None)
    assert "slice 5 begins 0.5 s after the one before it" in ruling(folder, "R4").reasons[0]
