"""``mnb accept``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from milabench_ng.cli.options import Fraction, Switch, TableOrJson, WeightsOption
from milabench_ng.cli.tables import facts, standard_output, table
from milabench_ng.plain import printed_json
from milabench_ng.records.separate_sessions import SESSION_GAP_H
from milabench_ng.report.procurement.acceptance import Acceptance, GuaranteeRatio
from milabench_ng.report.procurement.acceptance import accept as decide
from milabench_ng.report.procurement.own_bounds import own_bounds
from milabench_ng.report.scoring.other_machine import GPU_DAY_STD, HOST_DAY_STD
from milabench_ng.report.scoring.scale import load_scales
from milabench_ng.report.statistics.intervals import SESSIONS_FROM
from milabench_ng.report.summary.comparable import WorkDifference
from milabench_ng.report.summary.summary import name_of_row
from milabench_ng.report.verification.absurd import computing_from
from milabench_ng.report.verification.checked import (
    CheckedResults,
    Demands,
    check_results,
    require_different,
    require_sound,
)
from milabench_ng.report.verification.rules import load_rules

EXIT_CODES = {"keeps": 0, "breaks": 1, "inconclusive": 4}


def accept(
    bid: str,
    delivered: str,
    /,
    *,
    guarantee: Fraction = 0.97,
    weights: WeightsOption = None,
    rules: str | None = None,
    allowed_signers: Path | None = None,
    authorities: Path | None = None,
    explain: Switch = False,
    form: TableOrJson = "table",
) -> int:
    """Decide whether a delivered node keeps what the bid promised, per test and in the score, allowing for error.

    Both may be bundles, result folders or summaries. Both are verified first, as `mnb verify` does; if one breaks a
    rule, nothing is decided. A summary cannot be verified, and is refused if there are rules. Each side needs at least
    5 repeats, in 3 sessions or more that are 6 h apart, and no marks. To fewer sessions a declared variance between
    days is added.

    Exit code: 0 if the guarantee is kept, 1 if it is broken, 4 if inconclusive, 2 for bad input and for a side
    that breaks a rule.

    Example: mnb accept bid.bundle.tar.gz results --guarantee 0.97

    Parameters
    ----------
    bid
        What the bidder measured.
    delivered
        What was measured on the delivered node.
    guarantee
        Share of the bid's throughput that the node must reach, such as 0.97 or 97%.
    rules
        A JSON file of rules that both sides must keep, or the name of a shipped one: procurement, procurement-both.
        Signature and nonce are demanded of the bid alone.
    allowed_signers
        Who may sign the bid: a file as in ssh-keygen(1), ALLOWED SIGNERS.
    authorities
        Certificates of the time-stamping authorities whose stamps count (PEM).
    explain
        Also print how likely each verdict is for nodes whose true ratio is known.
    """
    asked = Demands(rules=load_rules(rules), allowed_signers=allowed_signers, authorities=authorities)
    sides = {
        "bid": check_results(bid, asked),
        "delivered": check_results(delivered, asked.of_the_buyer(delivered)),
    }
    promised, found = (own_bounds(require_sound(side).summary) for side in sides.values())
    require_different(sides)
    scales = load_scales(weights, promised)
    with computing_from(f"{bid} and {delivered}"):
        made = decide(promised, found, {suite: scale.weights for suite, scale in scales.items()}, guarantee)
    if form == "json":
        _print_json(made, sides)
    else:
        _print(made, sides)
        if explain:
            _print_characteristic(made)
    return EXIT_CODES[made.verdict]


def _print_json(made: Acceptance, sides: Mapping[str, CheckedResults]) -> None:
    verified = {name: side.sentence for name, side in sides.items()}
    whole = {"schema": 1, "verdict": made.verdict, "verified": verified, **msgspec.structs.asdict(made)}
    print(printed_json(whole), end="")


def _print(made: Acceptance, sides: Mapping[str, CheckedResults]) -> None:
    few = " and of ".join(made.declared)
    pairs = [
        ("verdict", f"the delivered node {_VERDICTS[made.verdict]} the guarantee of {made.guarantee:g} of the bid"),
        *((name, f"{side.source}: {side.sentence}") for name, side in sides.items()),
        *(("broken by", reason) for reason in made.reasons),
        *([("sessions", f"fewer than {SESSIONS_FROM} of {few}: {_DECLARED}")] if few else []),
        *(("mark", f"{one.side}: {one.mark.counted(len(made.tests))}") for one in made.marks),
        *(("differs", f"{one.what}{_of(one)}: delivered {one.run}; bid {one.baseline}") for one in made.differences),
    ]
    headers = ("test", "delivered / bid", "at least", "at most", "verdict", "because")
    rows = [_row(one) for one in (*made.scores, *made.tests)]
    made_table = table(headers, rows, right=headers[1:4])
    standard_output().print(facts(pairs), "", made_table, "", "at least, at most: one-sided 95 % bounds", sep="\n")


def _of(one: WorkDifference) -> str:
    """The tests that a difference is of; empty for the whole run."""
    return f" of {', '.join(map(name_of_row, one.tests))}" if one.tests else ""


def _print_characteristic(made: Acceptance) -> None:
    headers = ("true ratio of all tests", "keeps", "breaks", "neither")
    rows = [
        (f"{at.ratio:.4f}", *(f"{100 * share:.1f} %" for share in (at.keeps, at.breaks, 1 - at.keeps - at.breaks)))
        for at in made.characteristic
    ]
    title = "how likely each decision is, at the spread of these runs, if the tests vary independently"
    if not rows:
        title += ": not known without a ratio of scores that varies"
    standard_output().print("", title, "", table(headers, rows, right=headers), sep="\n")


_DECLARED = (
    f"{100 * GPU_DAY_STD:g} % between days is added in tests that the GPU bounds, {100 * HOST_DAY_STD:g} % in the "
    "others; "
    f"mnb jobs PROFILE --sessions {SESSIONS_FROM} --session-gap {SESSION_GAP_H:g}h measures it"
)
_VERDICTS = {"keeps": "keeps", "breaks": "breaks", "inconclusive": "may or may not keep"}


def _row(one: GuaranteeRatio) -> tuple[str, ...]:
    numbers = ("-" if value is None else f"{value:.4f}" for value in (one.ratio, one.low, one.high))
    return (name_of_row(one.name), *numbers, one.verdict, one.why)
