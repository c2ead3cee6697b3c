"""The buyer's rules as data: what a result must show. Omitted keys demand nothing."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from milabench_ng.model.bounds import Amount, WholeNumber
from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.limits import ConditionKind
from milabench_ng.node.storage import StorageKind as StorageKind
from milabench_ng.records.isolation import Tier
from milabench_ng.records.marks import MarkKind
from milabench_ng.records.separate_sessions import SESSION_GAP_H

RULES_SCHEMA = 1

Proportion = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A share, from 0 to 1."""


Sha256 = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9a-fA-F]{64}$",
        description="a SHA-256 of 64 hexadecimal digits, as sha256sum FILE prints it (mnb verify shows the first 12)",
    ),
]
"""A SHA-256 in hexadecimal."""


class Pin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that must be identical: the name of a shipped one, its SHA-256, or both."""

    name: str | None = None
    sha256: Sha256 | None = None


class DataRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Demands on a dataset."""

    kind: Literal["twin", "real"] | None = None
    scale: Amount | None = None
    """Minimum."""
    checksums: tuple[Sha256, ...] = ()
    """SHA-256 as printed by ``mnb prepare``; may be several, since JPEG files depend on the JPEG library."""
    cache: Literal["cold", "warm"] | None = None
    """State of the page cache before each batch."""


class StampRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Demands on time stamps: at the start, after each repeat and at the end."""

    delay_s: Annotated[float, msgspec.Meta(gt=0)]
    """How much later than the ledger's line a stamp may be."""
    idle_s: Amount = 120.0
    """Longest time between two batches of a session: in idle time, a run could be tried and thrown away."""


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arithmetic limits that no rate can exceed."""

    peak_flops: dict[str, dict[str, Annotated[float, msgspec.Meta(gt=0)]]] = {}
    """Dense FLOP/s by device name and precision, for devices that are not in `analysis.baselines.peaks`."""
    flops_per_item: dict[str, float]
    """FLOP by test (``suite.test``): forward and backward pass of one item, as direct algorithms count."""
    slack: float = 1.0
    """The factor that a clever algorithm may save: Winograd's F(2x2, 3x3) needs 2.25 times fewer multiplications."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The demands of a request for proposals. The ids in brackets are those of docs/reference/rules.md."""

    schema: int = RULES_SCHEMA
    name: str = ""
    signed: bool = False
    """(R2) By a signer in the evaluator's file of allowed signers."""
    signed_by: tuple[str, ...] = ()
    """(R2) Who may have signed, by name in the file of allowed signers; empty for everybody in it."""
    window_s: Amount = 9.0
    """(R4) Shortest averaging window; the time before and after it is demanded in proportion."""
    ceiling: Ceiling | None = None
    """(R5)"""
    profile: Pin | None = None
    """(R6)"""
    weights: Pin | None = None
    """(R7)"""
    suite_weights: dict[str, Pin] = {}
    """(R7) By suite, for a profile with tests of several."""
    nonce: str | None = None
    """(R9) The buyer's nonce, given when the run began; it seeds the order of the tests."""
    arguments: dict[str, dict[str, Scalar | None]] = {}
    """(R10) Options beyond those in the profile, by test of the profile; ``*`` for all tests."""
    repeat: WholeNumber | None = None
    """(R11) Minimum."""
    least_sessions: WholeNumber | None = None
    """(R11) Minimum number of separate sessions over which the runs are spread."""
    session_gap_h: Annotated[float, msgspec.Meta(gt=0, le=1000)] = SESSION_GAP_H
    """(R11) Least hours between two sessions that count as separate, by the ledger's clock."""
    stopping: bool = True
    """(R11) Whether a rule for stopping (``--target-ci``, ``--budget``) may have ended the run early."""
    ledger: bool = False
    """(R13) Whether there must be one."""
    failure_rate: Proportion | None = None
    """(R14) Maximum, 0 to 1; broken when even the lower 95 % bound of the rate exceeds it."""
    retries: WholeNumber | None = None
    """(R14) Maximum."""
    resumes: WholeNumber | None = None
    """(R14) Maximum."""
    sessions: WholeNumber | None = None
    """(R14) Maximum."""
    margin: Amount | None = None
    """(R15) Largest half width of the score's 95 % interval, relative to the score."""
    isolation: Tier | None = None
    """(R16) Weakest accepted tier."""
    data: dict[str, DataRule] = {}
    """(R19) By dataset; ``*`` for all others."""
    storage_refused: tuple[StorageKind, ...] = ()
    """(R20) ``memory`` is tmpfs."""
    closed: bool = False
    """(R21, R31) Whether the code must be that of the verifying version of mnb, unchanged, and all settings listed."""
    libraries: tuple[Sha256, ...] = ()
    """(R21) SHA-256 of all distributions that the workers use, as a verdict shows it; any of these, with ``closed``."""
    listed: tuple[str, ...] = ()
    """(R31) What may be set beyond the list of the closed division: variables, kernel parameters as they are given,
    clock sources, folders of the import path."""
    marks_refused: bool = False
    """(R22)"""
    marks_accepted: dict[MarkKind, float | None] = {}
    """(R22) Kinds of marks that are accepted all the same, each up to a value in the unit of its kind, or at any."""
    doubts_refused: tuple[str, ...] = ()
    """Names of doubts (docs/reference/doubts.md) that are refused like broken rules."""
    conditions_refused: tuple[ConditionKind, ...] = ()
    """(R39) Kinds of conditions that no launch may have beyond their limits (docs/methodology/limits.md)."""
    every_gpu: bool = False
    """(R23)"""
    gpus: WholeNumber | None = None
    """(R23) Number of GPUs in the node."""
    whole_gpus: bool = False
    """(R23) Whether every device must be a whole GPU, and none an instance of MIG."""
    ecc: bool = False
    """(R24)"""
    default_power: bool = False
    """(R25) Also refuses clocks above the highest of the device."""
    mitigations: bool = False
    """(R25) Whether the kernel's mitigations of CPU faults must be on."""
    throttled: Proportion | None = None
    """(R25) Largest share of a batch's time for which heat or a power brake may hold the clocks down, 0 to 1."""
    foreign_refused: bool = False
    """(R26) Whether foreign compute processes on the GPUs are refused."""
    stamps: StampRule | None = None
    """(R32)"""
    least_version: (
        Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)*$", description="a version, such as 0.3.0")] | None
    ) = None
    """(R33) Oldest version of mnb that may have made it: older ones tell less."""
    witnessed: dict[str, str] = {}
    """(R28 and following) Who saw it and when, by rule id. The evaluator fills this in."""


def with_options(rules: Rules, **options: object) -> Rules:
    """The rules, overridden by the options given on the command line."""
    return msgspec.structs.replace(rules, **{key: value for key, value in options.items() if value is not None})
