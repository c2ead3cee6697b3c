"""A run that has been planned and not yet begun, and what its folder promises of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from milabench_ng import __version__
from milabench_ng.catalogue import Catalogue
from milabench_ng.fence.backends import Wish
from milabench_ng.fence.interface import Fence
from milabench_ng.fence.shares import Allocation
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.storage import read_storage
from milabench_ng.orchestrator.request import RunRequest, encode_request
from milabench_ng.plan import Plan
from milabench_ng.profile import Profile
from milabench_ng.records.isolation import IoEvidence, Share
from milabench_ng.records.manifest import FenceSummary, Manifest, ProfileText, software_key
from milabench_ng.units import utc_iso, utc_now


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has been planned and not yet begun."""

    profile: Profile
    plan: Plan
    catalogue: Catalogue
    allocation: Allocation
    isolation: Wish
    io: Mapping[str, IoEvidence]
    """The I/O shares that were asked for, by test (`suite.test`)."""


def shares_by_device(allocation: Allocation) -> Mapping[int, Share]:
    """The shares by device index."""
    return {int(name): share for name, share in allocation.shares.items()}


def make_manifest(
    request: RunRequest, prospect: Prospect, run_id: str, fence: Fence, command_line: tuple[str, ...]
) -> Manifest:
    """What the result folder promises."""
    inventory = read_inventory()
    return Manifest(
        run_id=run_id,
        version=__version__,
        started_utc=utc_iso(utc_now()),
        command_line=command_line,
        profile=ProfileText(file=request.profile_source, sha256=prospect.profile.sha256, text=prospect.profile.text),
        plan=prospect.plan,
        window_rule=request.rule,
        start=request.start,
        dataroot=str(request.dataroot),
        inventory=inventory,
        storage={"dataroot": read_storage(request.dataroot), "outdir": read_storage(request.outdir)},
        fence=FenceSummary(
            requested=prospect.isolation,
            backend=fence.backend,
            tier=fence.tier,
            notes=fence.notes,
            ram_total_bytes=request.ram_total_bytes,
        ),
        shares=dict(prospect.allocation.shares),
        request=encode_request(request),
        software=inventory.versions,
        software_key=software_key(inventory),
    )
