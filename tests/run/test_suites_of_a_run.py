"""A small profile with two tests of each of two suites, from a real run on CPUs to the ranks of bids."""

from __future__ import annotations

import json
from pathlib import Path

from milabench_ng.cli import call
from milabench_ng.report.reporting import make_report
from milabench_ng.tender.offers import compare_bids
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify
from tests.run.conftest import Runner

SMALL = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "inner": 128, "vocabulary": 512}
PROFILE = {
    "toy_reg": {"suite": "standard", "workload": "toy_reg"},
    "cart": {"suite": "standard", "workload": "cart"},
    "llm_prefill": {"suite": "modern", "workload": "llm_prefill", "arguments": {"length": 64, **SMALL}},
    "checkpoint": {"suite": "modern", "workload": "checkpoint", "arguments": {"shards": 2, "shard_mib": 1}},
}
WEIGHTS = {f"{test['suite']}.{name}": {"weight": 1} for name, test in PROFILE.items()}


def test_a_run_of_two_suites_becomes_two_scores_and_two_rankings(run_profile: Runner, tmp_path: Path) -> None:
    done = run_profile(PROFILE, tenants=1, isolation="none")
    assert (done.outcome.planned, done.outcome.failed) == (4, 0)
    assert {record.name for record in done.records} == WEIGHTS.keys()
    weights = tmp_path / "weights.json"
    weights.write_text(json.dumps(WEIGHTS))
    report = make_report(done.folder, weights=weights)
    assert [(part.summary.suite, part.score and part.score.status) for part in report.suites] == [
        ("modern", "complete"),
        ("standard", "complete"),
    ]
    bundle = pack(done.folder, tmp_path / "bid.tar.gz", weights=weights).path
    rulings = verify(bundle, Rules()).rulings
    broken = {one.id: one.reasons for one in rulings if one.result == "fail"}
    assert broken.keys() == {"R35"}, broken  # short windows are not those that R35 demands
    assert "but 9 s are required (by default" in broken["R35"][0]  # no rules were given that could
    assert call(["summary", str(bundle), "-o", str(tmp_path / "bid.json")]) == 0
    bids = {"reference": "bid.json", "weights": "weights.json", "bids": {"acme": {"results": "bid.json", "price": 1.0}}}
    (tmp_path / "bids.json").write_text(json.dumps(bids))
    made = compare_bids(tmp_path / "bids.json")
    assert [(one.suite, one.tests, one.rows[0].ratio) for one in made.each] == [
        ("modern", ("modern.llm_prefill", "modern.checkpoint"), 1.0),
        ("standard", ("standard.toy_reg", "standard.cart"), 1.0),
    ]
