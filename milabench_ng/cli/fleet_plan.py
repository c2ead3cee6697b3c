"""``mnb fleet plan``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from milabench_ng.cli.options import FormOption, Fraction, Whole
from milabench_ng.fleet.verdicts.limits import Strictness
from milabench_ng.fleet.verdicts.measured import Kind, kind_of
from milabench_ng.fleet.verdicts.planning import Wanted, more_nodes, smallest_found
from milabench_ng.fleet.verdicts.planning import plan as make_plan
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import parse_seconds
from milabench_ng.present.render.fleet_plan_tables import found_in_words, plan_document
from milabench_ng.present.writers import write

_TEST_S = 30.0
"""How long a test takes once, at least: start, warm-up and window."""


def plan(
    profile: Path = Path("standard"),
    /,
    *,
    nodes: Whole,
    devices: Whole = 8,
    slow: Fraction = 0.05,
    bad: Fraction = 0.01,
    risk: Fraction = 0.01,
    margin: Fraction = 0.03,
    false_alarms: Fraction = 0.01,
    repeat_time: str | None = None,
    form: FormOption = "table",
) -> int:
    """Print what repeats, retests and tested nodes would find, and the node-hours that they take.

    Nothing is measured. The spread of launches, days and nodes is declared, not that of your fleet; the report on a
    fleet states what its own spread lets it find.

    Exit code: 0, or 2 for bad input.

    Example: mnb fleet plan --nodes 512 --slow 5% --risk 1%

    Parameters
    ----------
    profile
        A JSON file of tests, or the name of a shipped profile.
    nodes
        Number of nodes in the fleet.
    devices
        GPUs per node.
    slow
        By how much a node is slower than the fleet's median that must be found.
    bad
        Share of the nodes that are so slow, for the table of tested nodes.
    risk
        Probability with which a slow node, or a fleet with slow nodes, may be accepted.
    margin
        By how much a node may be slower than the fleet's median.
    false_alarms
        Probability of any false alarm in a healthy fleet.
    repeat_time
        How long one repeat of the profile takes, such as 15min (default: half a minute for each test).
    """
    _refuse_counts(nodes, devices)
    shares = {"slow": slow, "bad": bad, "risk": risk, "margin": margin, "false-alarms": false_alarms}
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(f"--{name}: expected a share above 0% and below 100%, got {100 * share:g}%")
    kinds = _kinds(profile_file(profile))
    seconds = parse_seconds(repeat_time, "--repeat-time") if repeat_time else _TEST_S * sum(kinds.values())
    wanted = Wanted(
        nodes=nodes,
        devices=devices,
        kinds=kinds,
        slow=slow,
        bad=bad,
        risk=risk,
        hours_per_repeat=seconds / 3600,
        strict=Strictness(margin=margin, false_alarms=false_alarms),
    )
    _refuse_allowed(wanted)
    write(plan_document(make_plan(wanted)), form, sys.stdout)
    return 0


def _refuse_counts(nodes: int, devices: int) -> None:
    if not 1 <= devices <= 1000 or not 4 <= nodes <= 100_000:
        raise InputError(
            f"--nodes {nodes} --devices {devices}: expected 4 to 100,000 nodes of 1 to 1,000 devices. Of fewer nodes, "
            "nothing says which are slow"
        )


def _refuse_allowed(wanted: Wanted) -> None:
    """Raise InputError if the margin allows a node that is so slow."""
    slow, margin = 100 * wanted.slow, 100 * wanted.strict.margin
    if slow <= margin:
        found = found_in_words(wanted, smallest_found(wanted), more_nodes(wanted))
        raise InputError(
            f"--slow {slow:g}%: a node may be {margin:g}% slower (--margin), so nothing is sought. {found}"
        )


def _kinds(profile: Path) -> Mapping[Kind, int]:
    """How many measured tests of the profile depend on what."""
    known = read_builtin()
    tests = [test for test in read_profile(profile).tests.values() if test.role == "measured"]
    bounds = (known[test.workload].bound if test.workload in known else None for test in tests)
    return Counter(map(kind_of, bounds))
