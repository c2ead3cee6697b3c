"""``mnb rerun``."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import msgspec

from milabench_ng.cli.node_options import NodeOptions, refuse_words
from milabench_ng.cli.run_and_report import execute
from milabench_ng.model.profile import parse_profile
from milabench_ng.node.drivers.opening import read_gpus
from milabench_ng.node.topology import read_topology
from milabench_ng.run.planning.devices import choose_devices
from milabench_ng.run.planning.rerun import profile_of, refuse_other_devices


def rerun(
    record: Path,
    /,
    *flags: str,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> int:
    """Run the test of a record again, with the same workload, arguments and number of tenants.

    A test recorded on a GPU does not run on CPUs, nor the other way round, unless --tenants or --gpus is given.

    Example: mnb rerun results/standard.vae.J0.0.20260106-160000-123456.json

    Parameters
    ----------
    record
        A record in a result folder.
    flags
        Options for the workload that differ from the record's, after "--".
    """
    refuse_words(flags, "One record at a time. Put workload options after --")
    again = profile_of(record)
    same = dataclasses.replace(
        node,
        classic_data=node.classic_data or again.classic_data,
        cache_shares=node.cache_shares or again.cache_shares,
    )
    named = same.tenants is not None or bool(same.gpus)
    beside = same if named else dataclasses.replace(same, tenants=again.tenants)
    profile = parse_profile(again.suite, again.text, str(record))
    request = msgspec.structs.replace(beside.request(profile), names=(again.test,), flags=flags)
    if not named:
        usual = msgspec.structs.replace(request, tenants=None)
        here = choose_devices(read_gpus().devices, usual, len(read_topology().online), os.environ)
        refuse_other_devices(record, again.devices, here.devices)
    return execute(request)
