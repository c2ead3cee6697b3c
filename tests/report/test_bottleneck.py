"""What set the pace of a launch: hand-made cases, and the shipped runs on H200."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from milabench_ng.analysis.launch.bottleneck import contradicts, measured_bottleneck
from milabench_ng.analysis.summary.launches import reduce_record
from milabench_ng.present.render.look_at import look_at
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.opening import opened

BUNDLES = Path(__file__).parents[2] / "baselines" / "bundles"


@pytest.mark.parametrize(
    ("load", "wait", "cpu", "io", "expected"),
    [
        (0.99, 0.0, 0.06, 0.0, "gpu"),
        (0.99, 0.0, 1.0, 0.5, "gpu"),
        (0.01, 0.0, 0.02, 0.66, "io"),
        (0.0, 1.0, 0.5, 0.72, "io"),
        (0.66, 0.24, 0.52, 0.02, "mixed"),
        (0.48, 0.73, 0.27, 0.01, "cpu"),
        (0.37, 0.13, 0.99, 0.0, "cpu"),
        (0.37, 0.13, 0.5, 0.0, "mixed"),
        (0.42, 0.0, 0.06, 0.0, "host"),
        (0.42, 0.0, None, None, "host"),
    ],
)
def test_the_first_signal_that_is_strong_enough_decides(
    load: float, wait: float, cpu: float | None, io: float | None, expected: str
) -> None:
    assert measured_bottleneck(load, wait, cpu, io) == expected


def test_mixed_and_unknown_contradict_nothing() -> None:
    assert not any(contradicts(bound, "mixed") for bound in ("cpu", "io", "launch", "links", "gpu-memory"))
    assert not contradicts("gpu-compute", None)
    assert not contradicts(None, "host")
    assert contradicts("gpu-compute", "host")
    assert contradicts("launch", "gpu")
    assert not contradicts("cpu", "host"), "a simulation on the main process is code between kernels"


@pytest.mark.parametrize(
    ("bundle", "others"),
    [
        ("standard-2xH200-20261122", {}),
        ("standard-rest-2xH200-20261122", {}),
        ("unet3d-2xH200-20261122", {}),
        ("modern-2xH200-20261124", {"llm_decode1": "host"}),
        ("lambda-1xH200-20261126", {"ssd_amp_loader": "cpu", "tacotron2_fp32": "gpu"}),
        (
            "cv-1xH200-20261122",
            {
                "cv_train_efficientnet_v2_m_amp": "host",
                "cv_train_resnet50_amp_loader": "cpu",
                "cv_infer_mobilenet_v3_large_amp": "host",
                "cv_infer_ssd300_vgg16_fp32": "host",
                "cv_infer_ssd300_vgg16_amp": "host",
            },
        ),
    ],
)
def test_the_shipped_runs_have_the_declared_bottleneck_but_for_those_named(bundle: str, others: dict[str, str]) -> None:
    with opened(BUNDLES / f"{bundle}.tar.gz") as there:
        rows = there.summary.tests
    assert all(row.bottleneck is not None for row in rows.values())
    found = {name: row.bottleneck for name, row in rows.items() if contradicts(row.work.bound, row.bottleneck)}
    assert {name.partition(".")[2]: kind for name, kind in found.items()} == others


def test_where_an_option_sets_the_pace_nothing_is_said_of_the_bottleneck() -> None:
    with opened(BUNDLES / "lambda-1xH200-20261126.tar.gz") as there:
        read = next(one for one in there.folder.records if "ssd_amp_loader" in one.record.mnb.label)
    mnb = msgspec.structs.replace(read.record.mnb, paced_by="pulse_hz")
    paced = msgspec.structs.replace(read, record=msgspec.structs.replace(read.record, mnb=mnb))
    assert [reduce_record(one).bottleneck for one in (read, paced)] == ["cpu", None]


def test_an_odd_launch_of_a_test_that_is_as_declared_is_counted_with_the_others() -> None:
    """One of two launches of convnet_fp16; the screen names tests only."""
    report = make_report(BUNDLES / "standard-2xH100-20261126.tar.gz")
    (told,) = [fact.text for fact in look_at(report) if fact.name == "launches"]
    assert told.endswith("1 x another bottleneck")
    assert sum(map(int, re.findall(r"(\d+) x ", told))) == len(report.flags)
