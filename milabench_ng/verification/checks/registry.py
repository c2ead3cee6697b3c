"""All rules, with the order and ids of docs/reference/rules.md."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from milabench_ng.verification.absurd import ABSURD, incomputable
from milabench_ng.verification.checks import (
    check_arguments,
    check_ceiling,
    check_conditions,
    check_fence,
    check_files,
    check_items,
    check_ledger,
    check_node,
    check_numbers,
    check_plan,
    check_score,
    check_settings,
    check_stamps,
    check_version,
    check_work,
    stops,
)
from milabench_ng.verification.checks.check_witness import witnessed
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import Basis, Finding, Ruling, judged


class Rule(msgspec.Struct, frozen=True):
    """What is demanded, what the answer rests on, and the function that gives it."""

    id: str
    basis: Basis
    title: str
    check: Callable[[Evidence], Finding]


RULES: tuple[Rule, ...] = (
    Rule("R1", "recomputed", "files unchanged since packing", check_files.files),
    Rule("R2", "recomputed", "signed by an allowed signer", check_files.signature),
    Rule("R3", "recomputed", "numbers match the slices", check_numbers.numbers),
    Rule("R4", "recomputed", "slices without gaps, for every rank", check_numbers.slices),
    Rule("R5", "self-reported", "no rate above the ceiling", check_ceiling.ceiling),
    Rule("R6", "recomputed", "required profile", check_plan.profile),
    Rule("R7", "recomputed", "required weights", check_plan.weights),
    Rule("R8", "recomputed", "plan matches the profile", check_plan.plan),
    Rule("R9", "recomputed", "order matches the nonce", check_plan.order),
    Rule("R10", "recomputed", "arguments match the profile", check_arguments.arguments),
    Rule("R11", "recomputed", "required repeats", check_plan.repeats),
    Rule("R12", "recomputed", "a record for every planned launch", check_ledger.complete),
    Rule("R13", "recomputed", "ledger intact, every attempt recorded", check_ledger.ledger),
    Rule("R14", "recomputed", "failures, retries, resumes and sessions within limits", check_ledger.caps),
    Rule("R15", "recomputed", "score complete, interval within the limit", check_score.margin),
    Rule("R16", "self-reported", "isolation enforced in every launch", check_fence.isolation),
    Rule("R17", "self-reported", "tenants ran concurrently; launch groups did not overlap", check_fence.together),
    Rule("R18", "self-reported", "the requested precision ran", check_work.precision),
    Rule("R19", "self-reported", "required data", check_work.data),
    Rule("R20", "self-reported", "required storage", check_work.storage),
    Rule("R21", "self-reported", "workloads unchanged", check_work.code),
    Rule("R22", "self-reported", "no marks", check_work.marks),
    Rule("R23", "self-reported", "every GPU worked", check_node.every_gpu),
    Rule("R24", "self-reported", "ECC on, no uncorrected errors", check_node.ecc),
    Rule("R25", "self-reported", "default power limits and clocks, no throttling", check_node.clocks),
    Rule("R26", "self-reported", "no other processes on the GPUs", check_node.foreign),
    Rule("R27", "self-reported", "one node, one version", check_node.one_node),
    Rule("R28", "witness", "the node is the offered one", witnessed("R28")),
    Rule("R29", "witness", "the run was witnessed, from nonce to bundle", witnessed("R29")),
    Rule("R30", "witness", "firmware, power and cooling as offered", witnessed("R30")),
    Rule("R31", "self-reported", "only allow-listed settings", check_settings.settings),
    Rule("R32", "recomputed", "ledger timestamped on time", check_stamps.stamps),
    Rule("R33", "self-reported", "supported version, complete evidence", check_version.version),
    Rule("R35", "recomputed", "required window length", check_numbers.windows),
    Rule("R36", "recomputed", "stopped when the slices are complete", stops.stops),
    Rule("R37", "recomputed", "item counts match options and workload", check_items.items),
    Rule("R38", "recomputed", "every launch ran as planned", check_arguments.as_planned),
    Rule("R39", "self-reported", "conditions within their limits", check_conditions.conditions),
)


def judge(evidence: Evidence) -> tuple[Ruling, ...]:
    return tuple(_ruling(rule, evidence) for rule in RULES)


def _ruling(rule: Rule, evidence: Evidence) -> Ruling:
    try:
        finding = rule.check(evidence)
    except ABSURD as error:
        finding = judged([incomputable(error)])
    return Ruling(id=rule.id, title=rule.title, basis=rule.basis, result=finding.result, reasons=finding.reasons)
