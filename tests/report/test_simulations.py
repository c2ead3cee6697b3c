"""The simulations of the decisions with few trials, and that they compute what the report does. Seeded."""

from __future__ import annotations

import numpy as np
import pytest
from simulations import model
from simulations.__main__ import main
from simulations.decisions import DECISIONS, simulate

from milabench_ng.analysis.statistics.effects import holm, p_value
from milabench_ng.analysis.statistics.intervals import combine, log_stat


@pytest.mark.slow
@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_keep_their_limits(name: str) -> None:
    found = simulate(name, DECISIONS[name].FEW_TRIALS)
    assert [one for one in found if one.limit], "nothing is held to a limit"
    assert [one for one in found if not one.holds_by_chance] == []


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "luck"])
    assert "coverage" in capsys.readouterr().err


def test_the_model_computes_what_the_report_computes() -> None:
    rng = np.random.default_rng(1)
    run, base = model.rates(rng, 4, 5, trials=3), model.rates(rng, 4, 7, trials=3)
    weights = model.weights(4)
    found = model.sums(run, base, weights)
    for trial in range(3):
        parts = [
            (float(sign * weight), log_stat(side[trial, test].tolist()))
            for sign, side in ((1, run), (-1, base))
            for test, weight in enumerate(weights)
        ]
        expected = combine(parts)
        assert found.estimate[trial] == pytest.approx(expected.mean, rel=1e-9)
        assert found.error[trial] ** 2 == pytest.approx(expected.variance, rel=1e-9)
        assert found.df[trial] == pytest.approx(expected.df, rel=1e-9)
        assert found.p[trial] == pytest.approx(p_value(expected, 0.02), rel=1e-9)
    p = np.array([[0.02, 0.9], [0.5, 0.8], [0.01, 0.7]])
    assert model.holm(p)[:, 0].tolist() == pytest.approx(holm([0.02, 0.5, 0.01]))
