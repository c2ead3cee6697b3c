"""From a bids file to the evaluated tender: reads the results of every bid."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from milabench_ng.analysis.scoring.scale import Scale, load_scales
from milabench_ng.analysis.scoring.weights import Weights, read_weights, weights_over
from milabench_ng.analysis.summary.folder import find_results
from milabench_ng.analysis.summary.suites import parts_of
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, short
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, build_report
from milabench_ng.tender.bids import Bid, Bids, read_bids
from milabench_ng.tender.evaluating import evaluate
from milabench_ng.tender.own_bounds import own_bounds
from milabench_ng.tender.ranking import common_tests, common_with_reference
from milabench_ng.tender.same_work import other_work, set_aside
from milabench_ng.tender.tender import Tender
from milabench_ng.verification.absurd import computing_from
from milabench_ng.verification.opening import load_source
from milabench_ng.verification.rules_file import profile_to_run
from milabench_ng.verification.verified_results import CheckedResults, Demands, check_results, same_runs


def compare_bids(path: Path, demands: Demands | None = None) -> Tender:
    """Evaluate the bids in the file ``path``, all held against the same ``demands``. Paths in it are relative to it.

    A bid that cannot be read, breaks a rule or shares no work with most is refused: nothing of it counts, and the
    tender says why. Raises InputError if that leaves none.
    """
    bids, asked = read_bids(path), demands or Demands()
    _require_signers(path, bids, asked)
    _require_files(path, bids)
    here = path.parent
    near = here / bids.reference
    reference = load_source(str(near if os.path.exists(near) else find_results(bids.reference, f"{path}: reference")))
    with computing_from(bids.reference):
        build_report(own_bounds(reference), bids.reference)
    found, refused = _checked(path, bids, reference, asked)
    refused |= same_runs(found)
    summaries = {name: one.summary for name, one in found.items() if name not in refused}
    if not summaries:
        reasons = "\n".join(f"  {short(name)}: {why}" for name, why in refused.items())
        raise InputError(f"{path}: all bids are refused:\n{reasons}")
    refused |= set_aside(summaries, reference)
    kept = msgspec.structs.replace(bids, bids={name: bid for name, bid in bids.bids.items() if name not in refused})
    ranked = {name: summaries[name] for name in kept.bids}
    scales = load_scales(here / bids.weights if bids.weights else None, next(iter(ranked.values())))
    with computing_from(path):
        first, *further = [
            msgspec.structs.replace(_evaluated(kept, scales[suite], *sides), profile=profile_to_run(asked.rules, suite))
            for suite, sides in _by_suite(path, kept, reference, ranked).items()
        ]
    return msgspec.structs.replace(
        first,
        further=tuple(further),
        verdicts={name: found[name].sentence for name in ranked},
        refused={name: refused[name] for name in bids.bids if name in refused},
    )


def _checked(
    path: Path, bids: Bids, reference: Summary, demands: Demands
) -> tuple[dict[str, CheckedResults], dict[str, str]]:
    """The sound bids, and why the others are refused: one that cannot be read spoils nobody else's."""
    sound: dict[str, CheckedResults] = {}
    refused: dict[str, str] = {}
    for name, bid in bids.bids.items():
        results = path.parent / bid.results
        try:
            one = check_results(str(results), _of_bid(demands, bid))
            with computing_from(results):
                build_report(own_bounds(one.summary), name, baselines=[(bids.reference, reference)])
        except InputError as error:
            refused[name] = short(error)
            continue
        if one.broken:
            refused[name] = one.refusal
        else:
            sound[name] = one
    return sound, refused


def _require_signers(path: Path, bids: Bids, demands: Demands) -> None:
    """Raise InputError, before bundles are read, if a bid names its signer and nobody's key is known."""
    named = next((name for name, bid in bids.bids.items() if bid.signed_by is not None), None)
    if named is not None and demands.allowed_signers is None:
        raise InputError(
            f"{path}: bid {short(repr(named))}: signed_by names its signer, and no keys are given. Pass "
            "--allowed-signers FILE with the vendors' public keys, or leave signed_by out"
        )


def _require_files(path: Path, bids: Bids) -> None:
    """Raise InputError, before any bundle is verified, for a file that the bids file names and that there is not."""
    for name, bid in bids.bids.items():
        results = path.parent / bid.results
        if not os.path.exists(results):  # a shipped baseline of that name is nobody's bid
            raise InputError(
                f"{path}: bid {short(repr(name))}: {plain(results)}: no such bundle, folder or summary. Paths are "
                f"relative to {plain(path.parent)}"
            )
    if bids.weights is not None:
        read_weights(path.parent / bids.weights, "SUITE")


def _of_bid(demands: Demands, bid: Bid) -> Demands:
    """The demands on one bid: it may have to be signed by its own vendor."""
    if bid.signed_by is None:
        return demands
    rules = msgspec.structs.replace(demands.rules, signed=True, signed_by=(bid.signed_by,))
    return msgspec.structs.replace(demands, rules=rules)


def _by_suite(
    path: Path, bids: Bids, reference: Summary, summaries: dict[str, Summary]
) -> dict[str, tuple[Summary, dict[str, Summary]]]:
    """The reference and the bids in each suite; all bids ran the same ones."""
    ran = {name: one.known_suites for name, one in summaries.items()}
    if len(set(map(frozenset, ran.values()))) > 1:
        found = ", ".join(f"{name} ran {' and '.join(suites)}" for name, suites in ran.items())
        raise InputError(
            f'{path}: {found}. Bids must use the same profile. Set "reference" to a node that ran '
            "it, which decides which bids are compared"
        )
    suites = next(iter(ran.values()))
    lacking = [suite for suite in suites if not parts_of(reference, suite)]
    if lacking and len(suites) > 1:
        raise InputError(
            f"{path}: the bids ran {' and '.join(suites)}, and the reference {short(bids.reference)} has no "
            f"{' and no '.join(lacking)}. Name a reference that ran the same profile"
        )
    return {
        suite: (
            own_bounds(next(iter(parts_of(reference, suite)), reference)),
            {name: own_bounds(part) for name, one in summaries.items() for part in parts_of(one, suite)},
        )
        for suite in suites
    }


def _evaluated(bids: Bids, scale: Scale, reference: Summary, summaries: dict[str, Summary]) -> Tender:
    weights = scale.weights or {}
    apart = other_work(summaries, weights)
    unlike = {one.test for one in apart}
    alike = weights_over(weights, [label for label in weights if label not in unlike]) or weights
    scored = Scale(weights=alike, reference=scale.reference)
    options = ReportOptions(margin=bids.margin)

    def reported(compared: Weights | None) -> dict[str, Report]:
        """Each bid against the reference of the tender, over the tests in ``compared``."""
        against = [(bids.reference, reference)]
        return {
            name: build_report(one, name, scored, against, options, compared=compared)
            for name, one in summaries.items()
        }

    each_its_own = reported(None)
    shared = common_tests(each_its_own, weights, apart)
    tests = common_with_reference(each_its_own, shared)
    return evaluate(bids, reported(weights_over(weights, tests)), weights, apart, shared, tests, scale.groups)
