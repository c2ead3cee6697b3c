"""The CPU load of other programs: it takes from the tenants what their shares promise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from milabench_ng.model.bounds import Spread
from milabench_ng.node.conditions import cpu_seconds

LEAST_CPUS = 0.02
"""Of the node's CPUs: below this, other programs are daemons that harm nobody, however idle the tenants are."""
LEAST_S = 2.0
"""Shortest span of samples: the kernel counts ticks of 10 ms, and the sampler reads twice a second."""
NOTED = 0.05
"""Of the node's CPUs, before the start: tenants that are not busy themselves bear little."""
_LOOK_S = 0.25

Spreads = Mapping[str, Spread]
"""Telemetry of one key, by quantity."""


def foreign_share(host: Spreads, tenants: Iterable[Spreads], cpus: int) -> float | None:
    """The share of the busy CPU time that no tenant used, 0 to 1; None if unknown. Pure.

    ``host``: what was sampled of the node, which has ``cpus`` CPUs. Loads below `LEAST_CPUS` count as none.
    """
    known = [one["cpu_s"] for one in tenants if "cpu_s" in one]
    busy = host["cpu_busy_pct"].mean / 100 * cpus if "cpu_busy_pct" in host else 0.0
    if not busy or not known or min(one.span_s for one in known) < LEAST_S:
        return None
    foreign = busy - sum((one.max - one.min) / one.span_s for one in known)
    return foreign / busy if foreign > LEAST_CPUS * cpus else 0.0


def busy_note(window_s: float) -> tuple[str, ...]:
    """What to know about other programs before anything of ours works; looks for a quarter of a second.

    ``window_s``: of the run; a short one has too few samples to say what they took.
    """
    began = cpu_seconds()
    time.sleep(_LOOK_S)
    busy, _, total = (late - early for early, late in zip(began, cpu_seconds(), strict=True))
    share = busy / total if total > 0 else 0.0
    cpus = os.cpu_count() or 1
    if share <= NOTED:
        return ()
    told = f"other programs keep {share * cpus:.1f} of {cpus} CPUs busy"
    if window_s < LEAST_S + 1:  # the samples at its ends lie up to half a second inside
        return (
            f"{told}. Stop them: they slow tenants, and a window of {window_s:.4g} s is too short to show how much",
        )
    return (f"{told}. Stop them, or results may get a comparability warning",)
