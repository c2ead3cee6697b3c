"""Rates that are a greater share of a device's peak than there is, on a made-up folder of an H200."""

from __future__ import annotations

from pathlib import Path

import make_records
import pytest
import tampering

from milabench_ng.analysis.baselines.peaks import PEAKS, peak, peaks_in_formulas
from milabench_ng.model.memory_classes import DeviceMemory, choose_class
from milabench_ng.model.plan import Device
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import GIB
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify


@pytest.mark.parametrize(
    ("test", "lacking", "rate", "found"),
    [
        ("llm_decode", "", 5_683.0, ""),  # measured on an H200, with 224 texts
        ("llm_decode", "", 40_000.0, " of the peak memory bandwidth of NVIDIA H200; no work gets 200%"),
        ("llm_prefill", "", 38_000.0, ""),
        ("llm_prefill", "", 144_384.0, "212% of the peak arithmetic of NVIDIA H200; no work gets 105%"),
        ("llm_prefill", "numbers", 144_384.0, "212% of the peak arithmetic of NVIDIA H200; no work gets 105%"),
    ],
)
def test_no_work_is_faster_than_its_device(
    test: str, lacking: str, rate: float, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a version which lacked an option."""
    monkeypatch.setattr(
        make_records,
        "device",
        lambda index: Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="NVIDIA H200", numa_node=0),
    )
    plan = make_records.plan("modern", {test: make_records.PER_GPU}, 2, 2)
    for launch in plan.launches:
        launch.arguments.pop(lacking, None)
    make_records.write_run(tmp_path, plan, lambda _launch, _rank: rate)
    told = tampering.told_by(verify(tmp_path, Rules()), "beyond-peak").splitlines()
    assert bool(told) == bool(found)
    assert all(found in reason for reason in told)


@pytest.mark.parametrize(
    ("name", "half", "memory", "fp8", "fp4"),
    [
        ("NVIDIA B200", 2250, 7700, 4500, 9000),
        ("NVIDIA B300 SXM6 AC", 2250, 7700, 4500, 13_500),
        ("NVIDIA GB200", 2500, 8000, 5000, 10_000),
        ("NVIDIA GB300", 2500, 8000, 5000, 15_000),
        ("NVIDIA L40S", 362, 864, 733, None),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 500, 1597, 1000, 2000),
        ("NVIDIA A10", 125, 600, None, None),
        ("AMD Instinct MI300X", 1307, 5300, 2615, None),
        ("AMD Instinct MI325X OAM", 1307, 6000, 2615, None),
        ("AMD Instinct MI355X", 2517, 8000, 5033, 10_066),
    ],
)
def test_peaks_of_what_is_sold_today(name: str, half: int, memory: int, fp8: int | None, fp4: int | None) -> None:
    """Dense, as the data sheets of 2021 to 2025 have them."""
    found = peak(name)
    assert (found.half, found.memory) == (pytest.approx(half, abs=0.5), memory)
    assert found.fp8 == (None if fp8 is None else pytest.approx(fp8, abs=0.5))
    assert found.fp4 == (None if fp4 is None else pytest.approx(fp4, abs=0.5))
    assert "https://" in found.source
    shares = peaks_in_formulas([name])
    assert shares["peak_tflops"] == found.half
    assert ("peak_fp8_tflops" in shares) is (fp8 is not None)


def test_peaks_of_gpus_newer_than_the_h200_and_of_amd_have_the_address_of_their_source() -> None:
    """The others are in shipped baselines, with the names of their data sheets."""
    assert {each.name for each in PEAKS if "https://" not in each.source} == {
        "H200 SXM",
        "H100 SXM",
        "H100 PCIe",
        "A100-SXM4-80GB",
        "A100-SXM4-40GB",
        "A100-PCIE-80GB",
        "A100-PCIE-40GB",
        "V100-SXM2-32GB",
        "V100-SXM2-16GB",
        "Quadro RTX 8000",
    }
    assert all(each.source for each in PEAKS)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("NVIDIA B200", "192GiB"),
        ("NVIDIA GB200", "192GiB"),
        ("AMD Instinct MI300X", "192GiB"),
        ("AMD Instinct MI325X", "192GiB"),
        ("NVIDIA B300 SXM6 AC", "288GiB"),
        ("NVIDIA GB300", "288GiB"),
        ("AMD Instinct MI355X", "288GiB"),
    ],
)
def test_large_gpus_are_in_the_class_of_288_gib_if_they_have_its_memory(name: str, chosen: str) -> None:
    """A driver shows about 1% less than the data sheet: 178.35 GiB of a B200 (pytorch/ao, pull request 4002)."""
    found = peak(name)
    memory = DeviceMemory(device=name, bytes=round(0.99 * found.size * GIB))
    for test, option in (("llm_decode", "batch_size"), ("dlrm", "rows")):
        sizes = read_profile(profile_file(Path("modern"))).tests[test].arguments[option]
        assert isinstance(sizes, dict)
        assert choose_class(sizes, memory, test) == chosen


def test_each_rate_is_about_twice_that_of_the_wider_type() -> None:
    """A rate with sparsity in place of the dense one would stand out."""
    for each in PEAKS:
        if each.tf32 is not None:
            assert 1.95 < each.half / each.tf32 < 2.05
        if each.fp8 is not None:
            assert 1.95 < each.fp8 / each.half < 2.05
        if each.fp4 is not None and each.fp8 is not None:
            assert 1.95 < each.fp4 / each.fp8 <= 3
