"""What ``jobs`` and the nodes of a fleet run of a profile: which tests, how often, and in which order."""

from __future__ import annotations

import dataclasses
import secrets
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from milabench_ng.cli.node_options import NodeOptions, lasting_rule, not_negative, refuse_words
from milabench_ng.cli.options import FAILURES, ORDER, REPEATS, Fraction, Several, Whole
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import quoted
from milabench_ng.model.plan import Order
from milabench_ng.model.planner import MOST_RUNS
from milabench_ng.model.profile import Neighbors
from milabench_ng.model.shipped import names
from milabench_ng.model.units import parse_seconds
from milabench_ng.records.stopping import Stopping
from milabench_ng.run.planning.refusals import refuse_no_borders
from milabench_ng.run.planning.request import RunRequest, named_tests


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is run of a profile.

    Parameters
    ----------
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
    """

    name: Several = ()
    repeat: Whole = 1
    sessions: Annotated[Whole, REPEATS] = 1
    session_gap: Annotated[str | None, REPEATS] = None
    target_ci: Annotated[Fraction | None, REPEATS] = None
    budget: Annotated[str | None, REPEATS] = None
    lasting: Annotated[str | None, Parameter(name="--for", group=REPEATS.group)] = None
    order: Annotated[Order | None, ORDER] = None
    nonce: Annotated[str | None, ORDER] = None
    neighbors: Annotated[Several, ORDER] = ()
    retry: Annotated[Whole, FAILURES] = 0

    def request(self, profile: Path, node: NodeOptions, flags: tuple[str, ...] = ()) -> RunRequest:
        """The request made of these options and a profile. Raises InputError for what no run can have."""
        _refuse_loose(flags, self.name)
        refuse_counts(self.repeat, self.sessions, self.session_gap)
        if self.nonce is not None and (not self.nonce or self.order in ("file", "interleaved")):
            raise InputError("--nonce: must not be empty, and needs --order random")
        asked = node.profile_request(profile)
        lasting_s = None if self.lasting is None else parse_seconds(self.lasting, "--for")
        request = msgspec.structs.replace(
            asked,
            names=named_tests(asked, self.name),
            repeat=self.repeat,
            stopping=_stopping(self.target_ci, self.budget),
            sessions=self.sessions,
            session_gap_s=parse_seconds(self.session_gap, "--session-gap") if self.session_gap else 0.0,
            rule=asked.rule if lasting_s is None else lasting_rule(asked.rule, lasting_s),
            flags=flags,
            order=self.order or ("random" if self.nonce is not None else "interleaved"),
            nonce=secrets.token_hex(8) if self.order == "random" and self.nonce is None else self.nonce,
            company=_neighbors(self.neighbors),
            retry=not_negative(self.retry, "--retry"),
        )
        refuse_no_borders(request)
        return request


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
