"""R10 where the profile leaves an option to the device: by memory class, or automatic. The verifier chooses again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_records
import pytest
from make_records import PER_GPU
from tampering import Change, everywhere, manifest, record

from milabench_ng.model.units import MIB
from milabench_ng.verification.findings import Ruling
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

H100 = 81559 * MIB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose profile states ``batch_size`` by memory class, on two H100."""
    made = tmp_path / "results"
    make_records.write_run(made, make_records.plan("standard", {"vae": PER_GPU}, 2, 1), slices=24)
    manifest(table)(made)
    manifest(memory(H100, H100))(made)
    everywhere(lambda launch: launch.update(classes={"batch_size": "80GiB"}))(made)
    return made


def table(content: dict[str, Any]) -> None:
    tests = json.loads(content["profile"]["text"])
    tests["vae"]["arguments"] = {"batch_size": {"16GiB": 8, "80GiB": 64}}
    content["profile"]["text"] = json.dumps(tests)


def memory(*sizes: int) -> Change:
    def change(content: dict[str, Any]) -> None:
        for gpu, size in zip(content["inventory"]["gpus"], sizes, strict=True):
            gpu["memory_bytes"] = size

    return change


def ruling(id_: str, folder: Path) -> Ruling:
    return next(ruling for ruling in verify(folder, Rules()).rulings if ruling.id == id_)


def r10(folder: Path) -> Ruling:
    """On the plan."""
    return ruling("R10", folder)


def r38(folder: Path) -> Ruling:
    """On what ran."""
    return ruling("R38", folder)


def test_an_option_that_the_version_of_the_run_lacked_is_not_asked_for(folder: Path) -> None:
    """The default of one that it has is, and so is what the profile states."""
    everywhere(lambda launch: launch["arguments"].pop("seed"))(folder)
    assert r10(folder).result == "pass"
    everywhere(lambda launch: launch["arguments"].update(max_seconds=7.0))(folder)
    assert "max_seconds is 7.0" in r10(folder).reasons[0]
    everywhere(lambda launch: launch["arguments"].pop("batch_size"))(folder)
    assert any("batch_size is None, but the rules require 64" in reason for reason in r10(folder).reasons)


def test_the_entry_of_the_devices_class_is_what_is_demanded(folder: Path) -> None:
    assert r10(folder).result == "pass"


def test_a_smaller_entry_is_not_what_follows_from_the_devices(folder: Path) -> None:
    everywhere(lambda launch: launch.update(classes={"batch_size": "16GiB"}))(folder)
    everywhere(lambda launch: launch["arguments"].update(batch_size=8))(folder)
    assert r10(folder).reasons[:2] == (
        "standard.vae: batch_size is 8, but the rules require 64",
        "standard.vae: its memory classes are {'batch_size': '16GiB'}, {'batch_size': '80GiB'} follow from the devices",
    )


def test_the_smallest_device_of_the_manifest_decides(folder: Path) -> None:
    manifest(memory(H100, 16 << 30))(folder)
    assert r10(folder).reasons[0] == "standard.vae: batch_size is 64, but the rules require 8"
    manifest(memory(H100, 8 << 30))(folder)
    assert (
        r10(folder)
        .reasons[0]
        .startswith(
            "vae: batch_size is set by memory class. The smallest is 16GiB, but device 1 (Test GPU) has 8.0 GiB"
        )
    )


SEARCH: dict[str, Any] = {
    "size": 64,
    "fraction": 0.9,
    "limit_bytes": {"0": 1000, "1": 900},
    "steps": 3,
    "batch": 0,
    "seconds": 30.0,
    "trials": [
        {"size": 64, "seconds": 1.0, "peak_bytes": {"0": 800, "1": 800}, "unfit": {}},
        {"size": 128, "seconds": 1.0, "peak_bytes": {"0": 1600, "1": None}, "unfit": {"0": "over", "1": "oom"}},
        {"size": 96, "seconds": 1.0, "peak_bytes": {"0": 950, "1": 950}, "unfit": {"1": "over"}},
    ],
}


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    """A run whose profile says ``auto``; 64 was found."""
    made = tmp_path / "results"
    make_records.write_run(made, make_records.plan("standard", {"vae": PER_GPU}, 2, 1), slices=24)

    def auto(content: dict[str, Any]) -> None:
        tests = json.loads(content["profile"]["text"])
        tests["vae"]["arguments"]["batch_size"] = "auto"
        content["profile"]["text"] = json.dumps(tests)
        for batch in content["plan"]["batches"]:
            for launch in batch["launches"]:
                launch["arguments"]["batch_size"] = "auto"

    manifest(auto)(made)
    for name in ("0.0", "0.1"):
        record(search_of(SEARCH), f"standard.vae.J{name}.*")(made)
    return made


def search_of(search: dict[str, Any] | None) -> Change:
    def change(content: dict[str, Any]) -> None:
        content["mnb"].pop("batch_search", None)
        if search is not None:
            content["mnb"]["batch_search"] = search

    return change


def test_a_size_that_follows_from_its_trials_is_what_is_demanded(searched: Path) -> None:
    assert (r10(searched).reasons, r38(searched).reasons) == ((), ())


def test_a_closed_result_has_no_automatic_batch_size(searched: Path) -> None:
    found = verify(searched, Rules(closed=True)).rulings
    reasons = next(ruling.reasons for ruling in found if ruling.id == "R10")
    assert reasons == (
        "standard.vae: its batch size is automatic, and a closed result has the one that the profile states",
    )


FORGED: dict[str, tuple[dict[str, Any] | None, str]] = {
    "no search": (None, "its batch size is automatic, but the record does not say how it was found"),
    "a smaller size": (SEARCH | {"size": 32}, "batch size 32 does not follow from the trials that it names"),
    "a size that did not fit": (
        SEARCH | {"size": 96, "trials": [{**one, "unfit": {}} for one in SEARCH["trials"][::2]]},
        "batch size 96 does not follow from the trials that it names",
    ),
    "another fraction": (
        SEARCH | {"fraction": 0.5},
        "its batch size fills 0.5 of the memory, but the profile says 0.9",
    ),
    "a size that did not run": (
        SEARCH | {"size": 128, "trials": [{**SEARCH["trials"][0], "size": 128}]},
        "it ran with batch_size 64 instead of 128",
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_search_that_cannot_have_been_is_found(case: str, searched: Path) -> None:
    search, reason = FORGED[case]
    record(search_of(search), "standard.vae.J0.1.*")(searched)
    assert r38(searched).reasons[0].endswith(f": {reason}")
    assert r10(searched).result == "pass"


def test_a_nonce_gives_the_same_order_with_memory_classes(tmp_path: Path) -> None:
    made = tmp_path / "results"
    make_records.write_run(made, make_records.plan("standard", {"vae": PER_GPU}, 2, 3, nonce="n"), slices=24)
    manifest(table)(made)
    manifest(memory(H100, H100))(made)
    everywhere(lambda launch: launch.update(classes={"batch_size": "80GiB"}))(made)
    rulings = {ruling.id: ruling for ruling in verify(made, Rules(nonce="n")).rulings}
    assert rulings["R9"].result == "pass", rulings["R9"]
