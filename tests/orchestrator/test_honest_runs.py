"""Honest runs on this machine keep the shipped rules, as far as one repeat on CPUs can."""

from __future__ import annotations

import os

import msgspec
import pytest

from milabench_ng.records.late_steps import late_steps
from milabench_ng.records.window import MEASURED_BY
from milabench_ng.report.verification.rules import Rules, load_rules
from milabench_ng.report.verification.verify import verify
from tests.orchestrator.conftest import Runner

SHORTENED = msgspec.structs.replace(
    load_rules("procurement"),
    repeat=1,
    least_sessions=1,
    signed=False,
    margin=None,  # one repeat has no interval
    profile=None,  # of two tests
    weights=None,
    arguments={},
    ceiling=None,
    data={},
    every_gpu=False,
    whole_gpus=False,
    isolation=None,
    storage_refused=(),
    mitigations=False,  # for the kernel of this machine to decide
    listed=("MNB_PYCACHE", "MNB_WHEELS", "PYTHONPYCACHEPREFIX"),  # tests compile once, and read one wheel
)
BUSY = {"foreign CPU load": None, "orchestrator paused": None, "CPU quota": None, "held back by a CPU quota": None}
"""Marks of a machine that does other work."""
OF_A_FENCE = {"partly isolated": None, "not isolated": None, "scheduling": None, "siblings shared": None}
"""Marks of what can be fenced here."""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs for two tenants")
@pytest.mark.parametrize(
    "options", [{}, {"isolation": "none", "names": ("toy_reg",)}], ids=["fenced", "not isolated, some tests"]
)
def test_an_honest_run_keeps_the_shipped_rules(run_profile: Runner, options: dict[str, object]) -> None:
    done = run_profile({"toy_reg": {"workload": "toy_reg"}, "cart": {"workload": "cart"}}, rule=MEASURED_BY, **options)
    assert done.outcome.failed == 0
    assert {ruling.id: ruling.reasons for ruling in verify(done.folder, Rules()).having("fail")} == {}
    for mnb in (record.mnb for record in done.records if record.mnb.label.endswith("toy_reg")):
        told, steps = {int(step) for step in mnb.ranks[0].losses}, sum(row.steps for row in mnb.ranks[0].slices)
        assert told >= {step for step in late_steps(None, mnb.label) if step <= steps}
        assert max(told) > 100
    rules = msgspec.structs.replace(SHORTENED, marks_accepted=SHORTENED.marks_accepted | BUSY | OF_A_FENCE)
    found = verify(done.folder, rules)
    assert {ruling.id: ruling.reasons for ruling in found.having("fail")} == {}
    assert not any(doubt.refused for doubt in found.doubts)
