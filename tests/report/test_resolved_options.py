"""R10 where the profile leaves an option to the device: by memory class. The verifier chooses again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import make_records
import pytest
from make_records import PER_GPU
from tampering import Change, everywhere, manifest

from milabench_ng.report.verification.findings import Ruling
from milabench_ng.report.verification.rules import Rules
from milabench_ng.report.verification.verify import verify
from milabench_ng.units import MIB

H100 = 81559 * MIB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run whose profile states ``batch_size`` by memory class, on two H100."""
    made = tmp_path / "results"
    make_records.write_run(made, make_records.plan("standard", {"vae": PER_GPU}, 2, 1), slices=30)
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


def r10(folder: Path) -> Ruling:
    return next(ruling for ruling in verify(folder, Rules()).rulings if ruling.id == "R10")


def test_the_entry_of_the_devices_class_is_what_is_demanded(folder: Path) -> None:
    assert r10(folder).result == "pass"


def test_a_smaller_entry_is_not_what_follows_from_the_devices(folder: Path) -> None:
    everywhere(lambda launch: launch.update(classes={"batch_size": "16GiB"}))(folder)
    everywhere(lambda launch: launch["arguments"].update(batch_size=8))(folder)
    assert r10(folder).reasons[:2] == (
        "standard.vae: batch_size is 8, 64 is demanded",
        "standard.vae: its memory classes are {'batch_size': '16GiB'}, {'batch_size': '80GiB'} follow from the devices",
    )


def test_the_smallest_device_of_the_manifest_decides(folder: Path) -> None:
    manifest(memory(H100, 16 << 30))(folder)
    assert r10(folder).reasons[0] == "standard.vae: batch_size is 64, 8 is demanded"
    manifest(memory(H100, 8 << 30))(folder)
    assert (
        r10(folder)
        .reasons[0]
        .startswith(
            "vae: batch_size is stated by memory class, the smallest is 16GiB, and device 1 (Test GPU) has 8.0 GiB"
        )
    )
