"""All rules, with the order and ids of docs/reference/rules.md."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from milabench_ng.verification.absurd import ABSURD, incomputable
from milabench_ng.verification.checks import (
    check_arguments,
    check_ceiling,
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
    Rule("R1", "recomputed", "files as they were packed", check_files.files),
    Rule("R2", "recomputed", "signed by an allowed signer", check_files.signature),
    Rule("R3", "recomputed", "numbers follow from the slices", check_numbers.numbers),
    Rule("R4", "recomputed", "slices without gaps, of every rank", check_numbers.slices),
    Rule("R5", "self-reported", "no rate above the ceiling", check_ceiling.ceiling),
    Rule("R6", "recomputed", "profile as demanded", check_plan.profile),
    Rule("R7", "recomputed", "weights as demanded", check_plan.weights),
    Rule("R8", "recomputed", "plan as the profile makes it", check_plan.plan),
    Rule("R9", "recomputed", "order as the nonce makes it", check_plan.order),
    Rule("R10", "recomputed", "arguments as the profile states them", check_arguments.arguments),
    Rule("R11", "recomputed", "repeats as demanded", check_plan.repeats),
    Rule("R12", "recomputed", "a record of every planned launch", check_ledger.complete),
    Rule("R13", "recomputed", "ledger unbroken, every attempt recorded", check_ledger.ledger),
    Rule("R14", "recomputed", "failures, retries, resumes, sessions within caps", check_ledger.caps),
    Rule("R15", "recomputed", "score complete, interval within the margin", check_score.margin),
    Rule("R16", "self-reported", "isolation in force in every launch", check_fence.isolation),
    Rule("R17", "self-reported", "tenants together, batches one by one", check_fence.together),
    Rule("R18", "self-reported", "precision that was asked for ran", check_work.precision),
    Rule("R19", "self-reported", "data as demanded", check_work.data),
    Rule("R20", "self-reported", "storage as demanded", check_work.storage),
    Rule("R21", "self-reported", "workloads unchanged", check_work.code),
    Rule("R22", "self-reported", "no marks", check_work.marks),
    Rule("R23", "self-reported", "every GPU worked", check_node.every_gpu),
    Rule("R24", "self-reported", "ECC on, no uncorrected errors", check_node.ecc),
    Rule("R25", "self-reported", "default power limits and clocks, no throttling", check_node.clocks),
    Rule("R26", "self-reported", "no processes of others on the GPUs", check_node.foreign),
    Rule("R27", "self-reported", "one node, one version", check_node.one_node),
    Rule("R28", "witness", "the node is the one that is offered", witnessed("R28")),
    Rule("R29", "witness", "the run was seen, from nonce to bundle", witnessed("R29")),
    Rule("R30", "witness", "firmware, power and cooling as offered", witnessed("R30")),
    Rule("R31", "self-reported", "settings on the list", check_settings.settings),
    Rule("R32", "recomputed", "stamped in time", check_stamps.stamps),
    Rule("R33", "self-reported", "a version that is known, all of its evidence", check_version.version),
    Rule("R35", "recomputed", "windows as long as demanded", check_numbers.windows),
    Rule("R36", "recomputed", "stopped when the slices say so", stops.stops),
    Rule("R37", "recomputed", "items as options and workload have them", check_items.items),
    Rule("R38", "recomputed", "every launch as planned", check_arguments.as_planned),
)


def judge(evidence: Evidence) -> tuple[Ruling, ...]:
    """What every rule finds."""
    return tuple(_ruling(rule, evidence) for rule in RULES)


def _ruling(rule: Rule, evidence: Evidence) -> Ruling:
    try:
        finding = rule.check(evidence)
    except ABSURD as error:
        finding = judged([incomputable(error)])
    return Ruling(id=rule.id, title=rule.title, basis=rule.basis, result=finding.result, reasons=finding.reasons)
