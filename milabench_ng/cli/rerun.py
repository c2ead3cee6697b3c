"""``mnb rerun``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.run_and_report import execute
from milabench_ng.model.profile import parse_profile
from milabench_ng.run.planning.rerun import profile_of


def rerun(
    record: Path,
    /,
    *flags: str,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> int:
    """Run the test of a record again, with the same workload, arguments and number of tenants.

    Example: mnb rerun results/standard.vae.J0.0.20260106-160000-123456.json

    Parameters
    ----------
    record
        A record in a result folder.
    flags
        Options for the workload that differ from the record's, after "--".
    """
    again = profile_of(record)
    same = dataclasses.replace(
        node,
        classic_data=node.classic_data or again.classic_data,
        cache_shares=node.cache_shares or again.cache_shares,
    )
    beside = same if same.tenants or same.gpus else dataclasses.replace(same, tenants=again.tenants)
    request = beside.request(parse_profile("rerun", again.text, str(record)))
    return execute(msgspec.structs.replace(request, flags=flags))
