"""``mnb jobs``."""

from __future__ import annotations

import inspect
import secrets
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from milabench_ng.cli.named_files import RulesFile, WeightsPath
from milabench_ng.cli.node_options import NodeOptions, lasting_rule, not_negative, refuse_words
from milabench_ng.cli.options import (
    FAILURES,
    MEASURING,
    ORDER,
    REPEATS,
    RESUMING,
    Fraction,
    ProfileOption,
    Several,
    Switch,
    Whole,
)
from milabench_ng.cli.resume import Differences, go_on
from milabench_ng.cli.run_and_report import execute, require_weights
from milabench_ng.cli.show_plan import show_plan
from milabench_ng.fence.choosing import enter_scope
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import quoted
from milabench_ng.model.plan import Order
from milabench_ng.model.planner import MOST_RUNS
from milabench_ng.model.profile import Neighbors
from milabench_ng.model.shipped import names
from milabench_ng.model.units import parse_seconds
from milabench_ng.records.stopping import Stopping
from milabench_ng.run.persistence.sessions import refuse_outdir
from milabench_ng.run.planning.refusals import refuse_no_borders, refuse_undecodable
from milabench_ng.run.planning.request import RunRequest, named_tests
from milabench_ng.verification.rules import Rules, load_rules

NOT_AGAIN = (
    "a resumed run keeps the options of its first session. With --resume, give only --retry, --spool, "
    "--weights, --rules and --accept-difference"
)


def jobs(
    profile: ProfileOption | None = None,
    /,
    *flags: str,
    name: Several = (),
    repeat: Whole = 1,
    dry_run: Switch = False,
    sessions: Annotated[Whole, REPEATS] = 1,
    session_gap: Annotated[str | None, REPEATS] = None,
    target_ci: Annotated[Fraction | None, REPEATS] = None,
    budget: Annotated[str | None, REPEATS] = None,
    lasting: Annotated[str | None, Parameter(name="--for", group=REPEATS.group)] = None,
    order: Annotated[Order | None, ORDER] = None,
    nonce: Annotated[str | None, ORDER] = None,
    neighbors: Annotated[Several, ORDER] = (),
    retry: Annotated[Whole, FAILURES] = 0,
    resume: Annotated[Path | None, RESUMING] = None,
    accept_difference: Annotated[Differences, RESUMING] = (),
    weights: Annotated[WeightsPath, MEASURING] = None,
    rules: Annotated[RulesFile, MEASURING] = None,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> int:
    """Run a profile. Ends with the verdict, the score and the next step.

    Exit code: 0, 1 if a launch failed, 2 for bad input, 3 if the required isolation is unavailable, 130 after Ctrl-C.
    With --rules, as `mnb verify`: 1 if a rule is broken.

    Example: mnb jobs standard --repeat 5 --sessions 3 --session-gap 6h

    Parameters
    ----------
    flags
        Options for the workloads, after "--". Example: mnb jobs profiles/quick.json --name vae -- --batch-size 64
    name
        Run only this test, or those that match 'loader_*'. May be repeated.
    repeat
        Number of repeats of every test in each session.
    target_ci
        Stop when the 95% interval of the mean rate (in a study of neighbors: of their cost) is within this, such as 2%
        for ±2%. --repeat is the upper limit. Tender rules may refuse this and --budget (stopping).
    budget
        Stop before a repeat that would finish after this time, such as 30min. At least one repeat runs.
    lasting
        Let each launch work this long, such as 30min, and average over its last ten minutes (of less than 30, its last
        third), which the report compares with the first.
    sessions
        Repeat the run this many times, each with new processes and new isolation. Sessions without --session-gap count
        as one. With 3 or more that are 6 h apart, intervals also cover other days.
    session_gap
        Wait this long between two sessions, such as 6h, so that they count as separate. After Ctrl-C during the wait,
        `mnb resume` starts the next session, even on another day.
    order
        Order of the launches: test by test (file), all tests in turn (interleaved, default), or by the nonce (random).
    nonce
        Any text. It is recorded and seeds the random order, which becomes the default.
    neighbors
        What runs on the other slots while a test is measured on one: the same test (same, default), nothing (none), or
        this test of the profile. May be repeated. Results get a comparability warning.
    retry
        Retry a failed launch up to this many times. Failed attempts are kept and count.
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
    given = {name: value for name, value in locals().items() if name not in _AGAIN}
    if resume is not None:
        if given != _USUAL or node != NodeOptions(spool=node.spool):
            raise InputError(NOT_AGAIN)
        return go_on(resume, profile, retry, accept_difference, node.spool, weights, rules)
    if profile is None:
        raise InputError("no profile given. Name one (standard, quick or a file), or resume a run: mnb resume FOLDER")
    if accept_difference:
        raise InputError("--accept-difference needs --resume")
    request = jobs_request(
        profile,
        *flags,
        name=name,
        repeat=repeat,
        target_ci=target_ci,
        budget=budget,
        lasting=lasting,
        sessions=sessions,
        session_gap=session_gap,
        order=order,
        nonce=nonce,
        neighbors=neighbors,
        retry=retry,
        node=node,
    )
    require_weights(weights, request)
    demanded = None if rules is None else load_rules(rules)
    if demanded is not None:
        _refuse_broken(demanded, request)
    return show_plan(request, weights) if dry_run else execute(request, weights, demanded)


def jobs_request(
    profile: Path,
    *flags: str,
    name: tuple[str, ...] = (),
    repeat: int = 1,
    target_ci: float | None = None,
    budget: str | None = None,
    lasting: str | None = None,
    sessions: int = 1,
    session_gap: str | None = None,
    order: Order | None = None,
    nonce: str | None = None,
    neighbors: tuple[str, ...] = (),
    retry: int = 0,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> RunRequest:
    """The request made of a profile and the options of `mnb jobs`. Raises InputError for what no run can have."""
    _refuse_loose(flags, name)
    refuse_counts(repeat, sessions, session_gap)
    if nonce is not None and (not nonce or order in ("file", "interleaved")):
        raise InputError("--nonce: must not be empty, and needs --order random")
    asked = node.profile_request(profile)
    request = msgspec.structs.replace(
        asked,
        names=named_tests(asked, name),
        repeat=repeat,
        stopping=_stopping(target_ci, budget),
        sessions=sessions,
        session_gap_s=parse_seconds(session_gap, "--session-gap") if session_gap else 0.0,
        rule=asked.rule if lasting is None else lasting_rule(asked.rule, parse_seconds(lasting, "--for")),
        flags=flags,
        order=order or ("random" if nonce is not None else "interleaved"),
        nonce=secrets.token_hex(8) if order == "random" and nonce is None else nonce,
        company=_neighbors(neighbors),
        retry=not_negative(retry, "--retry"),
    )
    refuse_no_borders(request)
    return request


_AGAIN = {"profile", "retry", "resume", "accept_difference", "weights", "rules", "node"}
"""What may be given of a run that is resumed; of ``node``, only the spool."""
_USUAL = {
    name: () if one.kind is one.VAR_POSITIONAL else one.default
    for name, one in inspect.signature(jobs).parameters.items()
    if name not in _AGAIN
}


def refuse_counts(repeat: int, sessions: int, session_gap: str | None) -> None:
    """Raise InputError for numbers of which nothing would run."""
    for option, count in (("--repeat", repeat), ("--sessions", sessions)):
        if not 1 <= count <= MOST_RUNS:
            raise InputError(f"{option}: expected 1 to {MOST_RUNS:,}, got {count}")
    if repeat * sessions > MOST_RUNS:
        raise InputError(
            f"--repeat {repeat} --sessions {sessions}: {repeat * sessions:,} repeats in all. The limit is {MOST_RUNS:,}"
        )
    if session_gap is not None and sessions == 1:
        raise InputError("--session-gap needs several sessions. Add --sessions 3")


def _refuse_broken(rules: Rules, request: RunRequest) -> None:
    """Plan the run and check the node, as `mnb doctor` does, before hours of work."""
    from milabench_ng.cli.preflight import refuse_broken

    refuse_undecodable(request)
    refuse_outdir(request.outdir)
    enter_scope(request.isolation, request.cgroup_parent)
    refuse_broken(rules, request)


def _stopping(width: float | None, budget: str | None) -> Stopping | None:
    """When the run may end before its last repeat; None without either option."""
    if width is None and budget is None:
        return None
    return Stopping(width=width, budget_s=None if budget is None else parse_seconds(budget, "--budget"))


def _neighbors(words: tuple[str, ...]) -> Neighbors | None:
    """What ``--neighbors`` means; None if it was not given."""
    match words:
        case ():
            return None
        case ("same",):
            return "same"
        case ("none",):
            return "none"
    if {"same", "none"} & set(words):
        raise InputError(
            f"--neighbors {' --neighbors '.join(words)}: expected same, none, or tests of the profile, not a "
            "mix of them"
        )
    return words


def _refuse_loose(flags: tuple[str, ...], name: tuple[str, ...]) -> None:
    """Refuse words that are neither options of the workloads nor their values: forgotten ``--name``s."""
    if flags and (flags[0] in names("profiles") or flags[0].endswith(".json")):
        raise InputError(f"{flags[0]}: one profile at a time. Run it on its own: mnb jobs {quoted(flags[0])}")
    selecting = " ".join(f"--name {each}" for each in (*name, *flags[:1]))
    refuse_words(flags, f"To select several tests, write {selecting}. Put workload options after --")
