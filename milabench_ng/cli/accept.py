"""``mnb accept``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from milabench_ng.analysis.scoring.choices import unshipped_profiles
from milabench_ng.analysis.scoring.other_machine import GPU_DAY_STD, HOST_DAY_STD
from milabench_ng.analysis.scoring.scale import load_scales
from milabench_ng.analysis.statistics.intervals import SESSIONS_FROM
from milabench_ng.analysis.summary.summary import name_of_row
from milabench_ng.cli.fleet_accept import accept_nodes
from milabench_ng.cli.named_files import CertificatesFile, Results, RulesFile, SignersFile
from milabench_ng.cli.options import FormOption, Fraction, Switch, WeightsOption
from milabench_ng.fleet.accepting import Promise
from milabench_ng.fleet.bundling import is_fleet_source, opened_fleet
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import names_of, plain
from milabench_ng.present.render.cells import Cell, Fact, in_form, one_decimal, text, toned
from milabench_ng.present.render.sections import Document, Facts, Heading, Section, table
from milabench_ng.present.render.tables import differing
from milabench_ng.present.writers import write
from milabench_ng.records.separate_sessions import SESSION_GAP_H
from milabench_ng.tender.acceptance import Acceptance
from milabench_ng.tender.acceptance import accept as decide
from milabench_ng.tender.deciding import Deciding, Side
from milabench_ng.tender.own_bounds import both_sides
from milabench_ng.verification.absurd import computing_from
from milabench_ng.verification.rules_file import load_rules, profile_to_run
from milabench_ng.verification.verified_results import (
    CheckedResults,
    Demands,
    check_results,
    require_different,
    require_sound,
)

EXIT_CODES = {"keeps": 0, "breaks": 1, "inconclusive": 4}


def accept(
    bid: Results,
    delivered: Results,
    /,
    *,
    guarantee: Fraction = 0.97,
    weights: WeightsOption = None,
    rules: RulesFile = None,
    allowed_signers: SignersFile = None,
    tsa_certs: CertificatesFile = None,
    explain: Switch = False,
    form: FormOption = "table",
) -> int:
    """Decide whether a delivered node reaches the throughput of the bid, per test and in the score.

    Both sides can be bundles, result folders or summaries. mnb verifies both first, as `mnb verify` does, and gives no
    verdict if one breaks a rule. A summary cannot be verified, and is refused if there are rules. Each side needs at
    least 5 repeats, 3 sessions that are 6 h apart, and no comparability warnings. With fewer sessions, mnb adds a
    declared variance between days.

    Of a delivered fleet folder, every node is judged by its first session.

    Exit code: 0 if the node meets the guarantee, 1 if it violates it, 4 if inconclusive, 2 for bad input or if a side
    breaks a rule. Of a fleet: 0 if all nodes meet it, 1 if one violates it or is lost, 4 if one is not decided.

    Example: mnb accept bid.bundle.tar.gz results --guarantee 0.97

    Parameters
    ----------
    bid
        What the bidder measured.
    delivered
        What was measured on the delivered node, or a fleet folder.
    guarantee
        Share of the bid's throughput that the node must reach, such as 0.97 or 97%.
    rules
        A JSON file of rules, or the name of a shipped rule set: standard, procurement.
        Both sides must meet them. Only the bid needs the signature and the nonce.
    allowed_signers
        Who may sign the bid: a file as in ssh-keygen(1), ALLOWED SIGNERS.
    tsa_certs
        Certificates of the trusted time-stamping authorities (PEM).
    explain
        Also print the probability of each verdict for nodes with a known true ratio.
    """
    if os.path.realpath(bid) == os.path.realpath(delivered):
        raise InputError(f"{plain(bid)}: given as the bid and as the delivery. Each needs its own measurement")
    asked = Demands(rules=load_rules(rules), allowed_signers=allowed_signers, authorities=tsa_certs)
    if is_fleet_source(Path(delivered)):
        if explain:
            raise InputError("--explain: not for a fleet. Give the folder of one node")
        promised_by = require_sound(check_results(bid, asked))
        weighed = {suite: scale.weights for suite, scale in load_scales(weights, promised_by.summary).items()}
        buyer = asked.of_the_buyer()
        promise = Promise(bid=promised_by, demands=buyer, weights=weighed, guarantee=guarantee)
        with opened_fleet(Path(delivered)) as there:
            return accept_nodes(there, promise, form)
    sides = {
        "bid": check_results(bid, asked),
        "delivered": check_results(delivered, asked.of_the_buyer()),
    }
    promised, found = both_sides(*(require_sound(side).summary for side in sides.values()))
    require_different(sides)
    scales = load_scales(weights, promised)
    with computing_from(f"{bid} and {delivered}"):
        made = decide(promised, found, {suite: scale.weights for suite, scale in scales.items()}, guarantee)
    changed = not asked.rules.profile and unshipped_profiles(promised)
    again = "PROFILE-OF-THE-BID" if changed else profile_to_run(asked.rules, promised.suite)
    write(_document(made, sides, again, explain=explain), form, sys.stdout)
    return EXIT_CODES[made.verdict]


def _document(made: Acceptance, sides: Mapping[str, CheckedResults], profile: str, *, explain: bool) -> Document:
    verified = {name: side.sentence for name, side in sides.items()}
    rows = [
        (name_of_row(one.name), one.ratio, one.low, one.high, one.verdict, one.why)
        for one in (*made.scores, *made.tests)
    ]
    numbers = (Heading(title, "", _four, True) for title in ("delivered / bid", "at least", "at most"))
    verdict = Heading("verdict", show=_judgment, tone=_tone)
    notes = ("at least, at most: one-sided 95% bounds",) if _bounded(made) else ()
    ratios = table("", rows, "test", *numbers, verdict, "because", notes=notes)
    told = tuple(_facts(made, sides, profile))
    labels = [one.name for one in made.tests]
    shared, _ = _shared(made)
    shown = msgspec.structs.replace(
        ratios, rows=tuple((*row, None if why == shared else why) for *row, why in ratios.rows)
    )
    return Document(
        title="mnb accept",
        parts=(
            Facts(facts=told),
            shown,
            *((differing("the bid", made.differences, labels, ("delivered", "bid")),) if made.differences else ()),
            *((_characteristic(made),) if explain else ()),
        ),
        table=ratios,
        aside=told,
        whole={"schema": 1, "verdict": made.verdict, "verified": verified, **msgspec.structs.asdict(made)},
    )


def _facts(made: Acceptance, sides: Mapping[str, CheckedResults], profile: str) -> Iterator[Fact]:
    other = f"ANOTHER GPU MODEL ({made.other_model}); " if made.other_model else ""
    told = f"{_VERDICTS[made.verdict]} {100 * made.guarantee:g}% of the bid"
    if made.reasons:
        slower = any(part.verdict == "breaks" for part in (*made.scores, *made.tests))
        why = "; ".join(made.reasons)
        told = f"{told}; {why}" if slower else f"the delivered node does not meet the bid: {why}"
    yield Fact("verdict", f"{other}{told}", _tone(made.verdict))
    if made.verdict != "keeps":
        yield Fact("next", _to_decide(made, profile) if made.verdict == "inconclusive" else _mend(profile), "strong")
    yield from (Fact(name, f"{side.source}: {side.sentence}") for name, side in sides.items())
    shared, times = _shared(made)
    if shared:
        yield Fact("no verdict", f"{times} of {len(made.scores) + len(made.tests)} ratios: {shared}", "fair")
    if made.declared and _bounded(made):
        yield Fact("sessions", f"fewer than {SESSIONS_FROM} of {' and of '.join(made.declared)}: {_DECLARED}")
    for one in made.marks:
        if one.mark.text not in sides[one.side].sentence:
            yield Fact("mark", f"{one.side}: {one.mark.counted(len(made.tests))}")


def _to_decide(made: Acceptance, profile: str) -> str:
    """The command that would decide, who runs it, and why."""
    plan, unlike = made.deciding, [name_of_row(one.name) for one in made.tests if one.why and one.ratio is None]
    if made.marks:
        marked = tuple(dict.fromkeys(one.side for one in made.marks))
        warnings = [f"{one.mark.kind} ({one.mark.what})" if one.mark.what else one.mark.kind for one in made.marks]
        why = f"no number of repeats gives a verdict with the warning {names_of(tuple(dict.fromkeys(warnings)), 2)}"
        return _run(profile, Deciding(sides=marked, sessions=SESSIONS_FROM), why)
    if unlike and made.other_model:
        return (
            "settle with the vendor which GPU model is to be delivered: "
            f"on another one, {names_of(unlike, 3)} cannot be compared, however often they run"
        )
    if unlike:
        why = f"the same work on both sides: {names_of(unlike, 3)} cannot be compared"
        return _run(profile, Deciding(sides=("bid", "delivered"), sessions=SESSIONS_FROM), why)
    if plan is None:
        return _NO_RUN
    sure = "the least for a verdict" if plan.at_least else "four of five such runs decide, if the ratio is as measured"
    return _run(profile, plan, sure)


def _run(profile: str, plan: Deciding, why: str) -> str:
    return f"measure {' and '.join(_SIDES[side] for side in plan.sides)} again ({why}): {_command(profile, plan)}"


def _command(profile: str, plan: Deciding) -> str:
    apart = f"--sessions {plan.sessions} --session-gap {SESSION_GAP_H:g}h"
    return f"mnb jobs {profile} --repeat {plan.repeats} {apart}"


def _mend(profile: str) -> str:
    again = _command(profile, Deciding(sides=("delivered",), sessions=SESSIONS_FROM))
    return f"have the vendor mend or replace the node and measure it again ({again}), then run this again"


def _shared(made: Acceptance) -> tuple[str, int]:
    """Why most ratios have no verdict, which is said once, and of how many; empty if each has its own reason."""
    whys = [part.why for part in (*made.scores, *made.tests)]
    why, times = Counter(whys).most_common(1)[0]
    return (why, times) if 2 * times > len(whys) else ("", 0)


def _bounded(made: Acceptance) -> bool:
    """Whether any ratio has bounds."""
    return any(part.low is not None for part in (*made.scores, *made.tests))


_four = in_form(".4f")
_tone = toned({"keeps": "good", "breaks": "bad", "inconclusive": "fair"})


def _characteristic(made: Acceptance) -> Section | Facts:
    if not made.characteristic:
        why = next((score.why for score in made.scores if score.why), "the ratio of scores does not vary")
        return Facts(facts=(Fact("probability", f"of each verdict: unknown. {why[:1].upper()}{why[1:]}"),))
    title = "probability of each verdict, at the variance of these runs, if tests vary independently"
    rows = (
        (at.ratio, *(100 * share for share in (at.keeps, at.breaks, 1 - at.keeps - at.breaks)))
        for at in made.characteristic
    )
    ratio = Heading("true ratio of all tests", "", _four, True)
    shares = (Heading(title, "%", one_decimal, True, key=f"{key} (%)") for title, key in _DECISIONS.items())
    return table(title, rows, ratio, *shares)


_DECLARED = (
    f"a day-to-day variation of {100 * GPU_DAY_STD:g}% is added for GPU-bound tests, "
    f"{100 * HOST_DAY_STD:g}% for others. To measure it: mnb jobs PROFILE --sessions {SESSIONS_FROM} "
    f"--session-gap {SESSION_GAP_H:g}h"
)
_NO_RUN = (
    "mnb accept with --explain, for the probability of each verdict: more sessions would hardly decide, as the ratio "
    "is too near the guarantee, or there is no score"
)
_SIDES: dict[Side, str] = {"bid": "the bid's node", "delivered": "the delivered node"}
_VERDICTS = {
    "keeps": "the delivered node reaches",
    "breaks": "the delivered node does not reach",
    "inconclusive": "INCONCLUSIVE: cannot tell whether the node reaches",
}
_DECISIONS = {"meets": "keeps", "violates": "breaks", "inconclusive": "neither"}
"""Column heads, and their names in CSV."""
_SHOWN = {"keeps": "meets", "breaks": "violates"}


def _judgment(cell: Cell) -> str:
    """A verdict as people read it."""
    return _SHOWN.get(str(cell), text(cell))
