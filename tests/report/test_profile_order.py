"""Tests stand in the order of the profile, whatever order they ran in."""

from __future__ import annotations

import random
from pathlib import Path

import make_records
import msgspec
from make_records import PER_GPU, PROGRESSION
from tampering import changing

from milabench_ng.analysis.summary.folder import load

SCHEMES = {"toy_reg": PER_GPU, "vae": PER_GPU, "scaling": PROGRESSION}


def test_a_random_order_of_launches_does_not_change_the_rows(tmp_path: Path) -> None:
    made = make_records.plan("quick", SCHEMES, 2, 1)
    batches = list(made.batches)
    random.Random(3).shuffle(batches)
    shuffled = msgspec.structs.replace(made, batches=tuple(batches))
    make_records.write_run(tmp_path / "run", shuffled, make_records.steady)
    manifest = tmp_path / "run" / "run.json"
    with changing(manifest) as content:
        content["profile"]["text"] = make_records.profile_text(made)
    assert list(load(tmp_path / "run").tests) == [
        "quick.toy_reg",
        "quick.vae",
        "quick.scaling.1",
        "quick.scaling.2",
    ]
