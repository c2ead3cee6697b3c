"""``mnb run``."""

from __future__ import annotations

import dataclasses
import json

import msgspec

from milabench_ng.cli.node_options import NodeOptions, refuse_words
from milabench_ng.cli.run_and_report import execute, execute_into_file
from milabench_ng.cli.wrong_usage import is_a_profile
from milabench_ng.model.builtin import installed, read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import parse_profile
from milabench_ng.model.shipped import names
from milabench_ng.run.planning.refusals import refuse_unknown


def run(
    workload: str,
    /,
    *flags: str,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> int:
    """Run one workload once, for one tenant (change with --tenants or --gpus).

    With -o FILE.json, writes the record to that file instead of a result folder.

    Example: mnb run vae -o vae.json -- --batch-size 64

    Parameters
    ----------
    workload
        A workload's name, or package.module:function.
    flags
        Options for the workload, after "--".
    """
    refuse_words(flags, "One workload at a time. Put workload options after --")
    known = {*read_builtin(), *installed()}
    if workload not in known and workload in names("profiles"):
        raise InputError(is_a_profile(workload))
    if workload not in known:
        refuse_unknown(workload, known)
    alone = node if node.tenants is not None or node.gpus else dataclasses.replace(node, tenants=1)
    test = workload.rpartition(":")[2]
    text = json.dumps({test: {"workload": workload}})
    request = alone.request(parse_profile("run", text, f"run {workload}"))
    request = msgspec.structs.replace(request, flags=flags)
    if request.outdir.suffix == ".json":
        return execute_into_file(request)
    return execute(request)
