"""``run.json``: what a result folder promises and under which conditions it was made."""

from __future__ import annotations

import msgspec

from milabench_ng.node.inventory import Inventory
from milabench_ng.node.storage import Storage
from milabench_ng.plan import Plan
from milabench_ng.records.window import WindowRule

RUN_SCHEMA = 1


class ProfileText(msgspec.Struct, frozen=True, kw_only=True):
    """The profile as it was read."""

    file: str
    sha256: str
    text: str


class FenceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What enforced the shares."""

    requested: str
    backend: str
    tier: str
    notes: tuple[str, ...] = ()
    ram_total_bytes: int | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a run. ``job_id`` is null so that readers of 2020 pass it by."""

    schema: int = RUN_SCHEMA
    job_id: None = None
    run_id: str
    version: str
    started_utc: str
    command_line: tuple[str, ...]
    profile: ProfileText
    plan: Plan
    window_rule: WindowRule
    start: str
    dataroot: str
    inventory: Inventory
    storage: dict[str, Storage]
    """Of the data root and of the result folder."""
    fence: FenceSummary
    software: dict[str, str]
    """Versions by package; ``key`` is what two runs must share for their digests to be comparable."""


def encode_manifest(manifest: Manifest) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
