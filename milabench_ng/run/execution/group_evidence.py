"""What was observed of one group from the outside."""

from __future__ import annotations

import msgspec

from milabench_ng.records.isolation import Effective, GroupEvents, IoEvidence, ProcView, Usage


class GroupEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was observed of one group from the outside."""

    effective: Effective | None = None
    proc: ProcView | None = None
    effective_end: Effective | None = None
    usage: Usage | None = None
    before: GroupEvents | None = None
    after: GroupEvents | None = None
    mismatch: str | None = None
    privileged: tuple[str, ...] = ()
    """What put threads of it before those of others at the stop."""
    rescheduled: tuple[str, ...] = ()
    """What of the scheduling of its threads was changed, and when."""
    io: IoEvidence | None = None
