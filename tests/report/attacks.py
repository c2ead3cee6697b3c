"""Every attack on results that was ever tried, as one list: the tests and ``scripts/red-team`` make each of them.

Each is done as well as its author could: the ledger's chain holds no secret, so that it is always written anew.
"""

from __future__ import annotations

import book_attacks
import contradiction_attacks
import evidence_attacks
import fact_attacks
import node_attacks
import share_attacks
import slice_attacks
from slice_attacks import more_steps
from tampering import Tamper, records

ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    **slice_attacks.ATTACKS,
    **book_attacks.ATTACKS,
    **node_attacks.ATTACKS,
    **evidence_attacks.ATTACKS,
    **contradiction_attacks.ATTACKS,
    **fact_attacks.ATTACKS,
    **share_attacks.ATTACKS,
}
"""By name: the rule or the doubt that finds it, what is done, and part of the reason."""

NEEDS_GPU = {"R23", "R24", "R25", "R26"}
"""Rules that a node without GPUs cannot break."""
ON_GPUS = (
    "GPUs called CPUs",
    "throttling left out",
    "throttling excused by another read",
    "another driver in one repeat",
    "another power limit in one repeat",
    "power without energy",
    "more power than its limit",
    "an idle GPU with all items",
    "power halved",
    "power lowered in the window",
    "GPUs not sampled",
    "throttling told by no launch",
    "throttling that no GPU can tell",
    "throttling in the telemetry alone",
)
"""Other attacks that need one."""
OF_THIS_VERSION = {
    "option that no workload has",
    "option that nobody states",
    "items of all records",
    "data of no launch said",
    "dataset renamed",
    "no environment",
}
"""What is not asked of an older version, which did not tell enough, or whose workloads are not known: R33 says so."""

DOCUMENTED: dict[str, tuple[Tamper, str]] = {
    "slices of another device with noise": (contradiction_attacks.jittered, "a forgery of the raw slices"),
    "all counts and steps x 1.4": (
        records(lambda content: more_steps(content, 1.4)),
        "consistent forgery before signing",
    ),
    "gradients of nothing": (records(contradiction_attacks.without_gradients), "no reference trace here"),
    "power lowered in the window": (
        fact_attacks.after_measuring(fact_attacks.thrifty),
        "autotuning may take any power before a window",
    ),
    "ledger out of order": (book_attacks.earlier_lines, "dates prove nothing without stamps (R32)"),
}
"""What no file shows, and where docs/threats.md says so."""
