"""``run.json``: what a result folder promises and under which conditions it was made."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec

from milabench_ng.model.bounds import Amount
from milabench_ng.model.builtin import Declared
from milabench_ng.model.plain import whole_json
from milabench_ng.model.plan import Plan
from milabench_ng.model.profile import AnyProfile, parse_profile
from milabench_ng.node.inventory import Inventory
from milabench_ng.node.resctrl import Resctrl
from milabench_ng.node.storage import Storage
from milabench_ng.records.isolation import Share, Tier
from milabench_ng.records.origin import RUN_SCHEMA
from milabench_ng.records.stopping import Stopping
from milabench_ng.records.window import WindowRule


class ProfileText(msgspec.Struct, frozen=True, kw_only=True):
    """The profile as it was read."""

    file: str
    sha256: str
    text: str


class FenceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What enforced the shares."""

    requested: str
    backend: str
    tier: Tier
    notes: tuple[str, ...] = ()
    ram_total_bytes: int | None = None
    resctrl: Resctrl | msgspec.UnsetType = msgspec.UNSET
    """What the last-level caches were divided from; omitted where they were not."""


class IdlePower(msgspec.Struct, frozen=True, kw_only=True):
    """What the node drew before the first launch group, when mnb had opened its GPUs and nothing worked."""

    seconds: Amount
    gpus_w: dict[str, Amount] = {}
    """By UUID of the run's devices; a MIG instance has the power of its GPU."""
    cpu_w: Amount | None = None
    """Of the processor packages."""
    wall_w: Amount | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a run. ``job_id`` is null so that readers of 2020 skip it."""

    schema: int = RUN_SCHEMA
    job_id: None = None
    run_id: str
    version: str
    started_utc: str
    command_line: tuple[str, ...]
    profile: ProfileText
    plan: Plan
    window_rule: WindowRule
    stopping: Stopping | None = None
    """When the run may end before the last repeat of its plan."""
    start: str
    dataroot: str
    inventory: Inventory
    storage: dict[str, Storage]
    """Storage of the data root and of the result folder."""
    fence: FenceSummary
    idle: IdlePower | msgspec.UnsetType = msgspec.UNSET
    """Omitted where nothing tells it."""
    shares: dict[str, Share] = {}
    """By slot."""
    request: dict[str, Any] = {}
    """The request, as `mnb resume` needs it."""
    declared: dict[str, Declared] = {}
    """What workloads of other packages declare, by name: nobody else can know."""
    software: dict[str, str]
    """Versions by package."""
    import_path: tuple[str, ...] = ()
    """The folders that the workers import from; they get those of ``PYTHONPATH`` only in this way."""
    software_key: str
    """What two runs must share for their digests to be comparable: devices, driver and numeric libraries."""

    def stated_profile(self) -> AnyProfile:
        """The profile. Raises InputError if the text is none."""
        return parse_profile(self.plan.suite, self.profile.text, "run.json: profile")

    @property
    def sessions(self) -> int:
        """How many sessions were asked for."""
        stated = self.request.get("sessions")
        return stated if type(stated) is int and stated > 0 else 1

    @property
    def session_gap_s(self) -> float:
        """How long a session waits before the next one begins."""
        stated = self.request.get("session_gap_s")
        return float(stated) if isinstance(stated, int | float) and 0 <= stated < math.inf else 0.0


NUMERIC = ("python", "torch", "torchvision", "numpy", "cuda", "cublas", "cudnn", "nccl")


def software_key(inventory: Inventory) -> str:
    """A short hash of the devices' names, the driver and the versions of all that computes."""
    devices = sorted({gpu.name for gpu in inventory.gpus}) or [inventory.cpus.model]
    versions = [inventory.versions.get(name, "") for name in NUMERIC]
    return hashlib.sha256(msgspec.json.encode([devices, inventory.driver, versions])).hexdigest()[:16]


def encode_manifest(manifest: Manifest) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(whole_json(manifest), indent=1) + b"\n"
