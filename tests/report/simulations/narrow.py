"""What it does to intervals and verdicts that a run ends as soon as its interval is narrow (``--target-ci``)."""

from __future__ import annotations

import math

import numpy as np

from milabench_ng.analysis.scoring.narrowness import half_width
from milabench_ng.analysis.statistics.effects import MARGIN, effect
from milabench_ng.analysis.statistics.intervals import LogStat, combine, stat_of_logs
from milabench_ng.records.borders import narrow
from milabench_ng.records.stopping import Headline, Stopping
from simulations.finding import Finding, share

TRIALS = 4000
FEW_TRIALS = 200
RULE = Stopping(width=0.02)
SPREADS = (0.005, 0.01, 0.02, 0.03, 0.05)
"""Coefficients of variation from repeat to repeat. With 2.5 % to 3 %, most runs end in between."""
MOST = (10, 20)


def findings(rng: np.random.Generator, trials: int) -> list[Finding]:
    """Of the headline: one figure decides."""
    found = []
    for most in MOST:
        for spread in SPREADS:
            what = f"spread {100 * spread:g}%, {RULE.least} to {most} repeats"
            stats = [ended(logs, RULE) for logs in rng.normal(math.log1p(MARGIN), spread, (trials, most))]
            found.append(share(f"{what}: the interval holds the true value", [_covers(one) for one in stats], low=0.93))
            slower = [effect([(1.0, one)]).verdict == "better" for one in stats]
            found.append(share(f"{what}: slower by more than the margin, where it is the margin", slower, high=0.05))
    return found


def ended(logs: np.ndarray, rule: Stopping) -> LogStat:
    """The statistic of a run that ended by ``rule``, or after all of its ``logs``."""
    for n in range(rule.least, len(logs)):
        stat = stat_of_logs(logs[:n].tolist())
        if narrow(rule, n, Headline("a rate", half_width(stat), n)):
            return stat
    return stat_of_logs(logs.tolist())


def _covers(stat: LogStat) -> bool:
    known = combine([(1.0, stat)])
    return known is not None and abs(known.mean - math.log1p(MARGIN)) <= known.half_width()
