"""Where no trace applies, the first loss is held against that of theory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milabench_ng.analysis.launch.traces import Traced, compare_first_loss
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.catalogue import FirstLoss, Scalar
from milabench_ng.present.render.statements import details
from milabench_ng.report.reporting import make_report
from tests.report.make_records import PER_GPU, manifest, plan, record, steady, write

OPTIONS = {"vocabulary": 32_768, "width": 2048, "batch_size": 8}
"""Of theory, ln 32,768 + 2,048 x 0.02^2 / 2 = 10.8068."""


def seen(first: float | None, **changes: Any) -> Traced:
    made: dict[str, Any] = {"arguments": OPTIONS, "losses": (("0/0", "1", first), ("0/0", "2", 9.0)), **changes}
    return Traced(
        label="try.llm",
        data=None,
        kind="gpu",
        precision="bf16_master",
        gradient_norms=(),
        digests={},
        steps={"0/0": 20},
        **made,
    )


def told(launch: Traced, formula: str = "log(vocabulary)+width*0.0002", within: float = 0.01) -> list[str]:
    return [mark.text for mark in compare_first_loss(launch, FirstLoss(formula, within)).deviations]


@pytest.mark.parametrize(
    ("first", "within", "marked"),
    [
        (10.8068, 0.01, False),
        (10.914, 0.01, False),
        (10.916, 0.01, True),
        (10.700, 0.01, False),
        (10.698, 0.01, True),
        (11.1, 0.03, False),
        (None, 0.03, True),
    ],
)
def test_a_launch_may_be_one_percent_from_theory(first: float | None, within: float, marked: bool) -> None:
    assert bool(told(seen(first), within=within)) is marked


@pytest.mark.parametrize(
    ("name", "options", "margin"),
    [
        ("dit", {"batch_size": 64, "side": 64}, 0.01),
        ("dit", {"batch_size": 4, "side": 64}, 0.0276),
        ("dit_video", {"batch_size": 1, "frames": 30, "side": 64}, 0.0101),
        ("dit_video", {"batch_size": 1, "frames": 1, "side": 8}, 0.442),
    ],
)
def test_the_mean_square_of_little_noise_may_be_further_away(
    name: str, options: dict[str, Scalar | None], margin: float
) -> None:
    """That of N normal numbers has a variance of 2 / N; five standard deviations accuse nobody."""
    first_loss = read_builtin()[name].first_loss
    assert first_loss.margin(options) == pytest.approx(margin, rel=5e-3)


def test_a_mark_says_what_theory_expects() -> None:
    assert told(seen(8.0)) == ["outside the reference: loss 8 at step 1, expected 10.8068 +- 0.11"]
    assert told(seen(9.0, losses=(("0/0", "2", 9.0),))) == ["the record has no loss at step 1"]


def test_options_that_the_formula_lacks_are_no_reference() -> None:
    found = compare_first_loss(seen(8.0, arguments={"width": 2048}), FirstLoss("log(vocabulary)"))
    assert found.deviations == ()
    assert found.sentence.startswith("no reference trace for these options (formula 'log(vocabulary)': unknown name")


@pytest.mark.parametrize(("first", "marks"), [(10.82, 0), (10.3, 1)])
def test_a_report_compares_built_in_tests(first: float, marks: int, tmp_path: Path) -> None:
    place = tmp_path / "results"
    place.mkdir()
    whole = plan("try", {"llm": PER_GPU}, devices=1, repeat=1)
    for launch in whole.launches:
        made = record(launch, steady)
        made["mnb"]["ranks"][0] |= {"losses": {"1": first}, "gradient_norms": {}, "digests": {}}
        made["mnb"]["launch"] |= {"workload": "llm_pretrain", "arguments": made["mnb"]["launch"]["arguments"] | OPTIONS}
        write(place, made)
    (place / "run.json").write_text(json.dumps(manifest(whole)))
    assert [mark.kind for mark in load(place).tests["try.llm"].marks] == ["loss outside the reference"] * marks
    (fact,) = (fact for fact in details(make_report(place)) if fact.name == "reference traces")
    assert fact.text == "1 of 1 test compared: 1 first loss only (llm)"
