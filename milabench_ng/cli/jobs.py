"""``mnb jobs``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from milabench_ng.cli.named_files import RulesFile, WeightsPath
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.options import MEASURING, RESUMING, ProfileOption, Switch
from milabench_ng.cli.resume import Differences, go_on
from milabench_ng.cli.run_and_report import execute, require_weights
from milabench_ng.cli.run_options import RunOptions
from milabench_ng.cli.show_plan import show_plan
from milabench_ng.fence.choosing import enter_scope
from milabench_ng.model.errors import InputError
from milabench_ng.run.persistence.sessions import refuse_folders
from milabench_ng.run.planning.dry_run import DryRun
from milabench_ng.run.planning.refusals import refuse_undecodable
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules

NOT_AGAIN = (
    "a resumed run keeps the options of its first session. With --resume, give only --retry, --spool, "
    "--weights, --rules and --accept-difference"
)


def jobs(
    profile: ProfileOption | None = None,
    /,
    *flags: str,
    asked: RunOptions = RunOptions(),  # noqa: B008  # frozen
    dry_run: Switch = False,
    resume: Annotated[Path | None, RESUMING] = None,
    accept_difference: Annotated[Differences, RESUMING] = (),
    weights: Annotated[WeightsPath, MEASURING] = None,
    rules: Annotated[RulesFile, MEASURING] = None,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> int:
    """Run a profile. Ends with the verdict, the score and the next step.

    Exit code: 0, 1 if a launch failed, 2 for bad input, 3 if the required isolation is unavailable,
    5 if another run uses the CPUs or GPUs, 130 after Ctrl-C.
    With --rules, as `mnb verify`: 1 if a rule is broken.

    Example: mnb jobs standard --repeat 5 --sessions 3 --session-gap 6h

    Parameters
    ----------
    flags
        Options for the workloads, after "--". Example: mnb jobs profiles/quick.json --name vae -- --batch-size 64
    weights
        A JSON file of weights by test for the final report. Default: the shipped file of the suite.
    rules
        Refuse at the start what would break these rules, and verify the results at the end: a JSON file, or the name of
        a shipped rule set (standard, procurement). Signature and timestamps come later, and are not required.
    dry_run
        Print the plan and run nothing. It has the allocations and the estimated duration.
    resume
        Resume the run in this result folder, as `mnb resume` does.
    accept_difference
        With --resume: continue although the node, software or isolation differs, and record it. May be repeated.
    """
    if resume is not None:
        kept = dataclasses.replace(asked, retry=0) == RunOptions() and node == NodeOptions(spool=node.spool)
        if flags or dry_run or not kept:
            raise InputError(NOT_AGAIN)
        return go_on(resume, profile, asked.retry, accept_difference, node.spool, weights, rules)
    if profile is None:
        raise InputError("no profile given. Name one (standard, quick or a file), or resume a run: mnb resume FOLDER")
    if accept_difference:
        raise InputError("--accept-difference needs --resume")
    request = asked.request(profile, node, flags)
    require_weights(weights, request)
    demanded = None if rules is None else load_rules(rules)
    plan = None if demanded is None else _refuse_broken(demanded, request)
    return show_plan(request, weights, plan) if dry_run else execute(request, weights, demanded)


def _refuse_broken(rules: Rules, request: RunRequest) -> DryRun:
    """Plan the run and check the node, as `mnb doctor` does, before hours of work."""
    from milabench_ng.cli.preflight import refuse_broken

    refuse_undecodable(request)
    refuse_folders(request)
    enter_scope(request.isolation, request.cgroup_parent)
    return refuse_broken(rules, request)
