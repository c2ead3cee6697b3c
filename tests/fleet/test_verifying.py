"""Verifying a fleet: each session's records, the fleet's own ledger, and nodes that are copies of others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from milabench_ng.analysis.summary.folder import encode_summary
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.ledger import FLEET_LEDGER, Collected, check_fleet_chain, next_line
from milabench_ng.fleet.stated_summary import unlike_its_records
from milabench_ng.fleet.summaries import encoded
from milabench_ng.records.names import file_digest
from milabench_ng.verification.opening import opened
from tests.fleet.conftest import Say
from tests.fleet.made_folders import session_folder, write_fleet
from tests.fleet.test_watching import at_work

NODES = ("gpu1", "gpu2", "gpu3")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return write_fleet(tmp_path / "fleet", NODES, retests={"retest-1": ["gpu2"]})


def test_a_whole_fleet_passes(fleet: Path, say: Say) -> None:
    code, printed, _ = say("verify", fleet)
    assert printed.splitlines()[0].split(maxsplit=1)[1] == "PASS: 4 of 4 sessions of nodes pass"
    assert code == 0


def test_what_to_do_with_a_whole_fleet_and_nothing_is_verified_before(fleet: Path, say: Say) -> None:
    assert f"mnb report {fleet}" in say("fleet", "status", fleet)[1]
    with at_work(fleet):
        code, _, told = say("verify", fleet)
        assert "next " not in say("fleet", "status", fleet)[1]
    assert (code, told) == (2, f"mnb: {fleet}: another mnb works on this fleet. Verify it when it has ended\n")


def test_a_changed_record_fails_its_session_alone(fleet: Path, say: Say) -> None:
    record = next(session_folder(fleet, "gpu2", "screen").glob("*.J*.json"))
    record.write_text(record.read_text().replace("slices", "slicez"))
    code, printed, _ = say("verify", fleet, "--format", "json")
    found = json.loads(printed)
    passed = {(one["node"], one["session"]): not one["problem"] and _passes(one) for one in found["sessions"]}
    assert (code, found["passed"]) == (1, False)
    assert [key for key, good in passed.items() if not good] == [("gpu2", "screen")]


def _passes(one: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return all(ruling["result"] != "fail" for ruling in one["verification"]["rulings"])


def test_a_node_that_is_a_copy_of_another_is_found(fleet: Path, say: Say) -> None:
    copy = session_folder(fleet, "gpu3", "screen")
    shutil.rmtree(copy)
    shutil.copytree(session_folder(fleet, "gpu1", "screen"), copy)
    code, printed, _ = say("verify", fleet)
    assert code == 1
    assert "gpu3 screen is a copy of gpu1 screen" in printed
    assert "4 sessions of nodes pass, and the fleet as a whole does not: " in printed
    assert "gpu3 screen: its ledger is not the one that was collected" in printed
    assert "gpu3 screen is a copy of gpu1 screen: both have one run id" in " ".join(say("report", fleet)[1].split())


def test_what_the_fleets_ledger_does_not_say_is_a_problem(fleet: Path, say: Say) -> None:
    ledger = fleet / FLEET_LEDGER
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]))
    assert "gpu2 retest-1: fleet.jsonl does not say that it was collected" in say("verify", fleet)[1]
    ledger.write_bytes(b"".join((*lines[:3], *lines[4:])))
    code, printed, _ = say("verify", fleet)
    assert code == 1
    assert "fleet.jsonl: line" in printed


def test_what_is_no_part_of_the_fleet_is_named(fleet: Path, say: Say) -> None:
    (fleet / "nodes" / "gpu1" / "screen.tar.gz").touch()
    (fleet / "nodes" / "gpu9" / "screen").mkdir(parents=True)
    code, printed, _ = say("verify", fleet)
    assert code == 1
    assert "nodes/gpu1/screen lies beside nodes/gpu1/screen.tar.gz, which is the fleet's" in printed
    assert "nodes/gpu9/screen belongs to no node of the fleet" in printed


def test_a_lost_node_is_named_and_breaks_no_rule(fleet: Path, say: Say) -> None:
    shutil.rmtree(fleet / "nodes" / "gpu3")
    code, printed, _ = say("verify", fleet)
    assert (code, "no results" in printed, "1 node: gpu3" in printed) == (0, True, True)


def test_rules_hold_for_every_node_and_files_of_one_suite_are_refused(fleet: Path, say: Say) -> None:
    code, printed, _ = say("verify", fleet, "--repeat", "5")
    assert (code, "FAIL: 0 of 4" in printed) == (1, True)
    assert say("verify", fleet, "--profile", "standard")[::2] == (
        2,
        "mnb: --profile and --weights: not for a fleet. Name both in the rules (--rules)\n",
    )


def test_a_summary_that_its_records_do_not_bear_out_is_told(fleet: Path, say: Say) -> None:
    """What verify finds without it, and with a rate that is 1 % higher."""
    (first, *_) = FleetFolder.read(fleet).sessions
    content, _ = encoded(first)
    assert content is not None
    file = session_folder(fleet, "gpu1", "screen").with_name("screen.summary.json")
    for factor, broken in ((1 + 1e-12, 0), (1.01, 1)):
        made = json.loads(content)
        row = made["tests"]["standard.vae"]
        row["train"]["mean"] *= factor
        file.write_text(json.dumps(made))
        tell_again(fleet, summary_sha256=file_digest(file.read_bytes()))
        code, printed, _ = say("verify", fleet)
        assert code == broken
        assert ("gpu1 screen: its summary says" in printed) == bool(broken)
    file.write_text("{}")
    assert "gpu1 screen: its summary is not the one that was collected" in say("verify", fleet)[1]


@pytest.mark.parametrize(
    "stated",
    [
        b"[" * 100_000,
        b'{"schema": 1, "tests": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"schema": 1, "devices": 1' + b"0" * 4000 + b"}",
    ],
    ids=["open", "deep", "large"],
)
def test_no_summary_stops_the_verifier(fleet: Path, stated: bytes) -> None:
    (first, *_) = FleetFolder.read(fleet).sessions
    with opened(first.path) as there:
        (told,) = unlike_its_records(stated, there.summary)
    assert told.startswith("its summary: ")


def test_a_rest_of_rounding_is_no_misstatement(fleet: Path) -> None:
    (first, *_) = FleetFolder.read(fleet).sessions
    with opened(first.path) as there:
        found = there.summary
    rows = {label: msgspec.structs.replace(row, peak_memory=0.0) for label, row in found.tests.items()}
    none, rest = (
        msgspec.structs.replace(
            found, tests={label: msgspec.structs.replace(row, peak_memory=size) for label, row in rows.items()}
        )
        for size in (0.0, 1e-17)
    )
    assert list(unlike_its_records(encode_summary(rest).encode(), none)) == []


def tell_again(fleet: Path, **changed: str) -> None:
    """Collect gpu1's screen again."""
    chain = check_fleet_chain((fleet / FLEET_LEDGER).read_bytes())
    before = next(one for one in chain.events if isinstance(one, Collected))
    event = msgspec.structs.replace(before, **changed)
    _, line = next_line(len(chain.entries), chain.head, chain.entries[-1].utc, event)
    with (fleet / FLEET_LEDGER).open("ab") as file:
        file.write(line)
