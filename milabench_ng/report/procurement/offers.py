"""From a bids file to the evaluated tender: reads the results of every bid."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.plain import short
from milabench_ng.report.procurement.bids import Bid, Bids, read_bids
from milabench_ng.report.procurement.own_bounds import own_bounds
from milabench_ng.report.procurement.ranking import common_tests, common_with_reference
from milabench_ng.report.procurement.same_work import other_work
from milabench_ng.report.procurement.tender import Tender, evaluate
from milabench_ng.report.report import Report, build_report
from milabench_ng.report.scoring.reference import Reference, load_reference
from milabench_ng.report.scoring.weights import Weights, load_groups, load_weights, weights_over
from milabench_ng.report.summary.summary import Summary
from milabench_ng.report.verification.checked import Demands, check_results, require_different
from milabench_ng.report.verification.opening import load_source


def compare_bids(path: Path, demands: Demands | None = None) -> Tender:
    """Evaluate the bids in the file ``path``, all held against the same ``demands``. Paths in it are relative to it.

    A bid that breaks a rule is refused: nothing of it counts, and the tender says why.
    """
    bids = read_bids(path)
    here = path.parent
    near = here / bids.reference
    reference = own_bounds(load_source(str(near) if os.path.exists(near) else bids.reference))
    for name, bid in bids.bids.items():
        if not os.path.exists(here / bid.results):  # a shipped baseline of that name is nobody's bid
            raise InputError(
                f"{path}: bid {short(repr(name))}: {here / bid.results}: no such bundle, folder or summary"
            )
    found = {name: check_results(str(here / bid.results), _of_bid(demands, bid)) for name, bid in bids.bids.items()}
    refused = {name: one for name, one in found.items() if one.broken}
    if len(refused) == len(found):
        reasons = "\n".join(f"  {short(name)}: {one.refusal}" for name, one in refused.items())
        raise InputError(f"{path}: every bid is refused:\n{reasons}")
    sound = {name: bid for name, bid in bids.bids.items() if name not in refused}
    require_different({name: found[name] for name in sound})
    made = _evaluated(
        path,
        msgspec.structs.replace(bids, bids=sound),
        reference,
        {name: own_bounds(found[name].summary) for name in sound},
    )
    return msgspec.structs.replace(
        made,
        verdicts={name: found[name].sentence for name in sound},
        refused={name: one.refusal for name, one in refused.items()},
    )


def _of_bid(demands: Demands | None, bid: Bid) -> Demands:
    """The demands on one bid: it may have to be signed by its own vendor."""
    asked = demands or Demands()
    if bid.signed_by is None:
        return asked
    rules = msgspec.structs.replace(asked.rules, signed=True, signed_by=(bid.signed_by,))
    return msgspec.structs.replace(asked, rules=rules)


def _evaluated(path: Path, bids: Bids, reference: Summary, summaries: dict[str, Summary]) -> Tender:
    here = path.parent
    file, suite = here / bids.weights if bids.weights else None, _suite(summaries, path)
    weights = load_weights(file, suite) or {}
    unit_of_scores = load_reference(file, suite)
    apart = other_work(summaries, weights)
    unlike = {one.test for one in apart}
    scored = weights_over(weights, [label for label in weights if label not in unlike]) or weights

    def reported(compared: Weights | None) -> dict[str, Report]:
        return {
            name: _report(name, one, reference, bids, scored, compared, unit_of_scores)
            for name, one in summaries.items()
        }

    each_its_own = reported(None)
    tests = common_tests(each_its_own, weights, apart)
    compared = weights_over(weights, common_with_reference(each_its_own, tests))
    return evaluate(bids, reported(compared), weights, apart, tests, load_groups(file, suite))


def _report(
    name: str,
    summary: Summary,
    reference: Summary,
    bids: Bids,
    weights: Weights,
    compared: Weights | None,
    scored_against: Reference | None,
) -> Report:
    """``reference``: the tender's, that bids are compared with over ``compared``; ``scored_against``: what scores are
    relative to."""
    return build_report(
        summary,
        name,
        weights=weights,
        reference=scored_against,
        baselines=[(bids.reference, reference)],
        margin=bids.margin,
        compared=compared,
    )


def _suite(summaries: dict[str, Summary], path: Path) -> str:
    """The suite that all ran."""
    suites = {name: summary.suite for name, summary in summaries.items()}
    if len(set(suites.values())) > 1:
        found = ", ".join(f"{name} ran {suite}" for name, suite in suites.items())
        raise InputError(f"{path}: {found}; bids are compared on the same profile")
    return next(iter(suites.values()))
