"""Rules on tests of certain kinds, both ways: an honest folder keeps them, and each attack is found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import make_records
import pytest
import tampering
from family_attacks import ATTACKS
from make_records import device

from milabench_ng.composing import make_plan
from milabench_ng.plan import Launch, ResolvedOptions
from milabench_ng.profile import build_profile
from milabench_ng.records.latency import MOST, bucket_of, histogram
from milabench_ng.report.verification.checks.step_times import INFERRING, least_s
from milabench_ng.report.verification.findings import Verification
from milabench_ng.report.verification.rules import Rules
from milabench_ng.report.verification.verify import verify

TESTS: dict[str, dict[str, Any]] = {
    "alone": {"workload": "toy_reg", "company": "none"},
    "packed": {"workload": "toy_reg"},
    "beside": {"workload": "toy_reg", "company": ["noise"]},
    "noise": {"workload": "memory_stream", "role": "company"},
    "h2d": {"workload": "h2d"},
    "checkpoint": {"workload": "checkpoint"},
    "infer": {"workload": "cv_infer"},
    "amp": {"workload": "scaling"},
}
NOTES = {"m.h2d": {"in_s": 0.45, "out_s": 0.4}, "m.checkpoint": {"save_s": 0.3, "restore_s": 0.15, "cached": 0.5}}


def rate(launch: Launch, _: int) -> float:
    return 120.0 if launch.test == "m.alone" else 100.0


def of_its_kind(content: dict[str, Any]) -> None:
    """What a run notes of such tests; a slice has 5 steps in 0.5 s, and waits for 0.125 s."""
    name, mnb = content["name"], content["mnb"]
    mnb["data"] = None
    for rank in mnb["ranks"]:
        for row in rank["slices"]:
            row[5:] = [None, [[bucket_of(0.07), row[3]]] if name == "m.infer" else [], NOTES.get(name, {})]
        if name == "m.infer":
            rank["gradient_norms"] = {}
        if name == "m.amp":
            steps = sum(row[3] for row in rank["slices"])
            rank["skipped"] = {"steps": steps, "skipped": 1, "settled_steps": 50, "settled_skipped": 0}
            mnb["precision"] |= {"requested": "amp", "ran_before": "amp", "ran_after": "amp", "layer_dtype": "float16"}
    if name == "m.checkpoint":
        mnb["environment"]["MNB_STORAGE"] = "/data/mnb-files"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four repeats of all tests on two devices."""
    place = tmp_path_factory.mktemp("families") / "results"
    profile = build_profile("m", TESTS, "{}", "m.json")
    options = {name: ResolvedOptions(make_records.arguments_of(test.workload)) for name, test in profile.tests.items()}
    options["amp"].arguments["precision"] = "amp"
    whole = make_plan(profile, options, [device(index) for index in range(2)], 4)
    make_records.write_run(place, whole, rate, slices=30)
    tampering.records(of_its_kind)(place)
    make_records.write_ledger(place, whole)
    return place


@pytest.fixture
def folder(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "results"))


def broken(folder: Path) -> dict[str, tuple[str, ...]]:
    """Without the rules on the profile, which is not the one that made these records."""
    found: Verification = verify(folder, Rules())
    return {one.id: one.reasons for one in found.having("fail") if one.id not in ("R8", "R10")}


def test_an_honest_folder_keeps_them(folder: Path) -> None:
    assert broken(folder) == {}


@pytest.mark.parametrize("case", ATTACKS)
def test_each_attack_is_found(case: str, folder: Path) -> None:
    rule, tamper, reason = ATTACKS[case]
    tamper(folder)
    assert reason in "\n".join(broken(folder)[rule])


def test_joined_latencies_count_from_their_lowest_bound_on() -> None:
    seconds = [1e-5 * 1.021**power for power in range(MOST + 100)]
    joined = histogram(seconds)
    assert len(joined) <= MOST
    assert 0.9 * sum(seconds) < least_s(joined) <= sum(seconds)
    assert least_s(histogram([0.5, 0.5])) == pytest.approx(1.0, rel=0.02)
    assert least_s(histogram([1e-9] * 10)) == 0.0


def test_all_workloads_that_time_batches_are_known() -> None:
    package = Path(__file__).parents[2] / "milabench_ng" / "workloads"
    found = {path.stem for path in package.rglob("*.py") if "bench.infer(" in path.read_text()}
    assert found == set(INFERRING)
