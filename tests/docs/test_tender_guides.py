"""The two guides for a tender, followed to their ends: every command of them, in order, with a run of seconds.

The buyer opens what the vendor sent. The tender is a small one: `TINY` and `SMALL` say how it differs from the guides'.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pages import ROOT, blocks

from milabench_ng.cli import call
from milabench_ng.records.ledger import Chain, Recorded, Session, check_chain, extend
from milabench_ng.tender.bids import decode_bids
from milabench_ng.verification.rules import Rules
from tests.one_server import Done, OneServer

VENDOR, BUYER = (ROOT / "docs" / "how-to" / name for name in ("submit-a-bid.md", "evaluate-a-tender.md"))
TINY = {
    "mnb jobs standard --repeat 5": "mnb jobs trial.json --window 1.2 --tenants 1 --repeat 2",
    "mnb prepare standard": "mnb prepare trial.json",
    "--isolation full": "--isolation auto",
    "--session-gap 6h": "--session-gap 1s",
    "/scratch/mnb": "data",
    "--compare h200": "--compare acme.bundle.tar.gz --weights weights.json",
}
SMALL = {"window_s": 1.2, "repeat": 6, "session_gap_h": 1 / 3600, "isolation": "none"}
SLICES = {"sample_duration": 0.3}
"""Of a quarter of the window: on a loaded machine, a launch with shorter ones may not fill it."""
LARGE = (
    *("profile", "weights", "arguments", "ceiling", "data", "storage_refused"),  # of the profile `standard`
    *("every_gpu", "whole_gpus", "ecc", "default_power", "mitigations", "throttled"),  # of a node that is offered
    *("closed", "marks_refused", "margin"),  # short windows are marked
)
"""The demands of the shipped rules that no run of seconds on a CPU can meet."""

Follow = Callable[[Path, Path], dict[str, str]]


@pytest.fixture(scope="module")
def follow(one_server: OneServer) -> Follow:
    """Run every command of a guide in a folder; what each printed.

    ``mnb doctor`` may say that a node is not ready, or that one without GPUs does not keep the shipped rules.
    """

    def run(guide: Path, place: Path) -> dict[str, str]:
        said = {}
        for line in (line for language, text in blocks(guide) if language == "sh" for line in text.splitlines()):
            command = line
            for stated, small in TINY.items():
                command = command.replace(stated, small)
            if line.startswith("mnb "):
                done: Done | subprocess.CompletedProcess[str] = one_server.mnb(*shlex.split(command)[1:], cwd=place)
            else:
                done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True, check=False)
            assert done.returncode == 0 or line.startswith("mnb doctor"), f"{command}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr
            said[line] = done.stdout
        return said

    return run


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory, follow: Follow) -> tuple[Path, dict[str, str]]:
    """The vendor's folder after the guide, and what the commands printed."""
    place = tmp_path_factory.mktemp("vendor")
    (place / "trial.json").write_text(json.dumps({"toy_reg": {"workload": "toy_reg", "arguments": SLICES}}))
    (place / "tender.json").write_text(json.dumps(small_rules()))
    return place, follow(VENDOR, place)


def small_rules() -> dict[str, object]:
    """The shipped rules, without what the small tender cannot meet."""
    shipped = json.loads((ROOT / "rules" / "standard.json").read_text())
    return {key: value for key, value in shipped.items() if key not in LARGE} | SMALL


def test_the_vendor_has_a_bundle_that_keeps_the_rules(vendor: tuple[Path, dict[str, str]]) -> None:
    _, said = vendor
    verdict = next(text for line, text in said.items() if line.startswith("mnb verify"))
    assert verdict.split()[:2] == ["verdict", "RULES"]
    assert "results/run.json" in next(text for line, text in said.items() if line.startswith("tar -tzf"))


def test_the_buyer_has_a_ranked_table(vendor: tuple[Path, dict[str, str]], follow: Follow, tmp_path: Path) -> None:
    """Both vendors have the same node, which one measured in other processes, and other prices."""
    sent, _ = vendor
    shutil.copytree(sent / "results", tmp_path / "again")
    measure_again(tmp_path / "again")
    for name, results in (("acme", sent / "results"), ("umbra", tmp_path / "again")):
        key, bundle = tmp_path / name, tmp_path / f"{name}.bundle.tar.gz"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        assert call(["bundle", str(results), "--sign", str(key), "-o", str(bundle)]) == 0
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "standard.json").write_text(json.dumps(small_rules(), indent=4))
    (tmp_path / "weights.json").write_text('{"trial.toy_reg": {"weight": 1}}')
    [bids] = [text for language, text in blocks(BUYER) if language == "json"]
    small = json.loads(bids) | {"reference": "acme.bundle.tar.gz", "weights": "weights.json"}
    (tmp_path / "bids.json").write_text(json.dumps(small))
    said = follow(BUYER, tmp_path)
    verdicts = [text for line, text in said.items() if line.startswith("mnb verify")]
    assert [text.split()[:2] for text in verdicts] == [["verdict", "RULES"]] * 2
    table = next(text for line, text in said.items() if line.startswith("mnb bids"))
    assert [row.split()[0] for row in table.splitlines() if row.startswith(("acme", "umbra"))][:2] == ["umbra", "acme"]
    assert (tmp_path / "bids.html").is_file()


def measure_again(folder: Path) -> None:
    """Make the folder that of another run, which went the same way: other id, processes and slices."""
    path = folder / "ledger.jsonl"
    own = msgspec.json.decode((folder / "run.json").read_bytes())["run_id"].encode()
    for file in (path, *folder.glob("*.json")):
        file.write_bytes(file.read_bytes().replace(own, own[::-1]))
    chain, lines = Chain(), b""
    for entry in check_chain(path.read_bytes()).entries:
        event = entry.what
        if isinstance(event, Session):
            event = msgspec.structs.replace(event, pid=event.pid + 1)
        if isinstance(event, Recorded):
            content = longer((folder / event.file).read_bytes())
            (folder / event.file).write_bytes(content)
            event = msgspec.structs.replace(event, sha256=hashlib.sha256(content).hexdigest())
        chain, line = extend(chain, entry.utc, [event])
        lines += line
    path.write_bytes(lines)


def longer(content: bytes) -> bytes:
    """The record with every other slice 0.1 ns longer, and the one after it as much shorter."""
    record = msgspec.json.decode(content)
    for rank in record["mnb"]["ranks"]:
        for one, after in zip(rank["slices"][::2], rank["slices"][1::2], strict=False):
            one[1] += 1e-10
            after[0] += 1e-10
            after[1] -= 1e-10
    return msgspec.json.encode(record)


def test_what_the_guide_writes_is_right_for_the_shipped_files(tmp_path: Path) -> None:
    """The edits of the rules find their places in the shipped ones, and the bids are read as they stand."""
    (tmp_path / "rules").symlink_to(ROOT / "rules")
    edits = [line for _, text in blocks(BUYER) for line in text.splitlines() if line.startswith("sed ")]
    for line in edits:
        subprocess.run(line, shell=True, cwd=tmp_path, check=True)
    shipped = msgspec.json.decode((ROOT / "rules" / "standard.json").read_bytes(), type=Rules)
    made = msgspec.json.decode((tmp_path / "tender.json").read_bytes(), type=Rules)
    assert made == msgspec.structs.replace(shipped, name="tender-2026-17", nonce="tender-2026-17")
    [bids] = [text for language, text in blocks(BUYER) if language == "json"]
    assert set(decode_bids(bids.encode(), "bids.json").bids) == {"acme", "umbra"}
