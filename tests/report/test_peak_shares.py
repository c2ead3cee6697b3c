"""Rates that are a greater share of a device's peak than there is, on a made-up folder of an H200."""

from __future__ import annotations

from pathlib import Path

import make_records
import pytest
import tampering

from milabench_ng.plan import Device
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify


@pytest.mark.parametrize(
    ("test", "rate", "found"),
    [
        ("llm_decode", 5_683.0, ""),  # measured on an H200, with 224 texts
        ("llm_decode", 40_000.0, " of the peak memory bandwidth of NVIDIA H200; no work gets 200 %"),
        ("llm_prefill", 38_000.0, ""),
        ("llm_prefill", 144_384.0, "212 % of the peak arithmetic of NVIDIA H200; no work gets 105 %"),
    ],
)
def test_no_work_is_faster_than_its_device(
    test: str, rate: float, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        make_records,
        "device",
        lambda index: Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="NVIDIA H200", numa_node=0),
    )
    plan = make_records.plan("modern", {test: make_records.PER_GPU}, 2, 2)
    make_records.write_run(tmp_path, plan, lambda _launch, _rank: rate)
    told = tampering.told_by(verify(tmp_path, Rules()), "beyond-peak").splitlines()
    assert bool(told) == bool(found)
    assert all(found in reason for reason in told)
