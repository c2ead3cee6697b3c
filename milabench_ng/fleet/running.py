"""Runs a fleet: checks the nodes, has each of them work by itself, and pulls what each of them has made."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from milabench_ng import __version__
from milabench_ng.fleet.folder import FleetFolder, NodeSession, own_names, session_file, status_of
from milabench_ng.fleet.launchers.interface import Ended, Launcher
from milabench_ng.fleet.ledger import (
    Clock,
    Collected,
    CommonStart,
    FleetFinished,
    FleetInterrupted,
    NodeEnded,
    NodeLost,
    NodeStarted,
    NotCollected,
    Retested,
)
from milabench_ng.fleet.manifest import LOCAL, FleetManifest
from milabench_ng.fleet.network.meetings import MEETINGS, meetings_left
from milabench_ng.fleet.network.running import hold_meeting
from milabench_ng.fleet.node_scripts import NO_RESULTS, NOT_BEGUN, REFUSED, checkup_script, pull_script, run_script
from milabench_ng.fleet.nodes import SCREEN, NodeName, SessionName
from milabench_ng.fleet.preflight import (
    LARGEST,
    Asked,
    NodeFacts,
    answer,
    busy,
    clock_difference,
    clocks,
    differences,
    facts_of,
    in_words,
    loose_clocks,
    require_equal,
    versions_of,
)
from milabench_ng.fleet.pulling import Pull, pulling
from milabench_ng.fleet.retesting import missing_nodes, picked, retests_left
from milabench_ng.fleet.still_working import still_working
from milabench_ng.fleet.writer import FleetWriter, make_fleet
from milabench_ng.model.errors import InputError
from milabench_ng.model.grouping import gathered
from milabench_ng.model.plain import plain, quoted, short_end
from milabench_ng.model.units import counted, utc_iso, utc_now
from milabench_ng.records.ledger import check_chain
from milabench_ng.records.names import FLEET_MANIFEST

T = TypeVar("T")
Tell = Callable[[str], None]
"""Called with what the user should know while nodes work."""


class Checked(msgspec.Struct, frozen=True):
    """The nodes as they are before they work."""

    facts: Mapping[NodeName, NodeFacts]
    lost: Mapping[NodeName, str]
    """Why a node does not answer."""
    ended: Mapping[NodeName, int | None] = {}
    """The exit status of the check on these; None if nothing ran."""
    asked: Mapping[NodeName, Asked] = {}
    """When each of them was asked."""


class Work(msgspec.Struct, frozen=True):
    """A fleet that is being worked on."""

    folder: Path
    manifest: FleetManifest
    launcher: Launcher
    writer: FleetWriter
    tell: Tell


def run(folder: Path, manifest: FleetManifest, launcher: Launcher, tell: Tell) -> FleetFolder:
    """Run a new fleet into ``folder``. Raises InputError if no node can take part, or software differs."""
    checked = check(launcher, manifest, manifest.nodes, tell)
    _require_any(checked, manifest.mnb)
    make_fleet(folder, manifest)
    with _begun(folder, manifest, launcher, manifest.command_line, tell) as work:
        _work(work, checked)
    return FleetFolder.read(folder)


def _require_any(checked: Checked, mnb: tuple[str, ...]) -> None:
    """A mistake on the command line makes all nodes fail alike, and then there is nothing to keep or to resume."""
    if not checked.facts:
        node, why = next(iter(checked.lost.items()))
        match checked.ended.get(node):
            case None:
                advice = "Check its name, and that you can log in there without a password"
            case status if status == REFUSED:
                advice = "Change --jobs, or the nodes"
            case _:
                advice = f"Check that {' '.join(map(plain, mnb))} starts there, or name another command with --mnb"
        raise InputError(f"no node can take part. {node}: {why.rstrip('.')}. {advice}")


def resume(fleet: FleetFolder, launcher: Launcher, command_line: tuple[str, ...], tell: Tell) -> FleetFolder:
    """Run and pull what is missing of a fleet, and nothing else."""
    missing = missing_nodes(fleet)
    checked = check(launcher, fleet.manifest, missing, tell) if missing else None
    with _begun(fleet.path, fleet.manifest, launcher, command_line, tell) as work:
        _work(work, checked)
    return FleetFolder.read(fleet.path)


def collect(fleet: FleetFolder, launcher: Launcher, command_line: tuple[str, ...], tell: Tell) -> FleetFolder:
    """Pull the results of all sessions that are not here whole; nothing is run."""
    by_session = gathered(
        (session, node)
        for (node, session), standing in fleet.standings.items()
        if standing.state != "pending" and not standing.here
    )
    with _begun(fleet.path, fleet.manifest, launcher, command_line, tell) as work:
        for session, nodes in by_session.items():
            _pull(work, nodes, session)
    return FleetFolder.read(fleet.path)


def check(launcher: Launcher, manifest: FleetManifest, nodes: Collection[NodeName], tell: Tell) -> Checked:
    """Ask all nodes what they are. Raises InputError if those that answer do not run the same software."""
    tell(f"checking {counted(len(nodes), 'node')} ...")
    lines: dict[NodeName, bytes] = dict.fromkeys(nodes, b"")
    answers: dict[NodeName, bytes] = {}
    lost: dict[NodeName, str] = {}
    statuses: dict[NodeName, int | None] = {}
    asked: dict[NodeName, Asked] = {}
    since_s = time.time()

    def heard(node: NodeName, line: bytes) -> None:
        if len(lines[node]) < LARGEST:
            lines[node] += line

    with launcher.run(nodes, checkup_script(manifest), heard) as ended:
        for one in ended:
            asked[one.node] = Asked(since_s, time.time())
            if content := answer(lines[one.node]):
                answers[one.node] = content
            else:
                lost[one.node] = short_end(one.said or "mnb doctor said nothing that can be read")
                statuses[one.node] = one.status
    versions = dict(_readable(answers, versions_of, lost))
    require_equal(versions, __version__)
    facts = dict(_readable({node: answers[node] for node in versions}, facts_of, lost))
    return Checked({node: facts[node] for node in nodes if node in facts}, lost, statuses, asked)


def _readable(
    answers: Mapping[NodeName, bytes], read: Callable[[bytes, NodeName], T], lost: dict[NodeName, str]
) -> Iterator[tuple[NodeName, T]]:
    """What nodes tell of themselves; of the others, ``lost`` gets the reason."""
    for node, content in answers.items():
        try:
            yield node, read(content, node)
        except InputError as error:
            lost[node] = f"what mnb doctor says there cannot be read: {str(error).removeprefix(f'{node}: ')}"


@contextlib.contextmanager
def _begun(
    folder: Path, manifest: FleetManifest, launcher: Launcher, command_line: tuple[str, ...], tell: Tell
) -> Iterator[Work]:
    """The fleet's folder, locked, with a session in its ledger, which also gets its end."""
    with FleetWriter(folder) as writer:
        writer.begin(command_line, (folder / FLEET_MANIFEST).read_bytes())
        try:
            yield Work(folder, manifest, launcher, writer, tell)
        except SystemExit as ending:  # a signal, see model.signals
            if isinstance(ending.code, int) and ending.code > 128:
                writer.tell(FleetInterrupted(by=signal.Signals(ending.code - 128).name))
                left = "" if manifest.launcher == LOCAL else "; nodes may still work"
                tell(f"ended by a signal{left}. To go on: mnb fleet resume {quoted(folder)}")
            raise
        writer.tell(FleetFinished(lost=len(missing_nodes(FleetFolder.read(folder)))))


def _work(work: Work, checked: Checked | None) -> None:
    """All phases, of each what is missing; ``checked``: the nodes that the screen lacks."""
    if checked is not None:
        _screen(work, checked)
    _retest(work)
    _network(work)


def _screen(work: Work, checked: Checked) -> None:
    """The first session, on all nodes that answer."""
    for node, reason in checked.lost.items():
        work.writer.tell(NodeLost(node=node, session=SCREEN, reason=reason))
        work.tell(f"{node}: lost: {reason}")
    known = tuple(clocks(checked.facts, checked.asked))
    for difference in (*differences(checked.facts), *clock_difference(known)):
        work.writer.tell(difference)
        work.tell(f"nodes differ in {in_words(difference)}")
    work.writer.tell(*known)
    for node, why in busy(checked.facts).items():
        work.tell(f"{node}: {why}")
    run_session(work, tuple(checked.facts), SCREEN, begins_at=_common_start(work, checked.facts, known))


def _common_start(work: Work, nodes: Collection[NodeName], known: Collection[Clock]) -> float | None:
    """The moment at which the nodes begin, if it is to be one."""
    if not work.manifest.common_start_s:
        return None
    for loose in loose_clocks(nodes, known):
        work.tell(f"common start: {loose}")
    begins = utc_now() + timedelta(seconds=work.manifest.common_start_s)
    work.writer.tell(CommonStart(session=SCREEN, at_utc=utc_iso(begins)))
    work.tell(f"all nodes begin at {begins:%H:%M:%S} UTC")
    return begins.timestamp()


def _retest(work: Work) -> None:
    """Run the suspicious nodes and the controls again, each time in a session of its own."""
    fleet = FleetFolder.read(work.folder)
    nodes, known = picked(fleet), fleet.standings
    for session, missing in retests_left(fleet, nodes).items():
        if new := {node: nodes[node] for node in missing if (node, session) not in known}:
            work.writer.tell(Retested(session=session, nodes=new))
        for node in missing:
            work.tell(f"{session}: {node}: {nodes[node]}")
        run_session(work, missing, session)


def _network(work: Work) -> None:
    """Have the nodes meet whose screen has ended."""
    for name in MEETINGS:
        fleet = FleetFolder.read(work.folder)
        if name in meetings_left(fleet) and not hold_meeting(fleet, work.launcher, work.writer, work.tell, name):
            return


def run_session(
    work: Work, nodes: Collection[NodeName], session: SessionName, *, begins_at: float | None = None
) -> None:
    """Have each of ``nodes`` run a session by itself, all at once, and pull the results of each when it ends."""
    if not nodes:
        return
    lost: list[NodeName] = []
    script = run_script(work.manifest, session, begins_at=begins_at)
    with pulling(work.folder, session, nodes) as pull:
        work.writer.tell(*(NodeStarted(node=node, session=session) for node in nodes))
        work.tell(f"{session}: {counted(len(nodes), 'node')} at work ...")
        with (
            still_working(session, len(nodes), lambda: len(nodes) - len(pull.parcels) + len(lost), work.tell),
            work.launcher.run(nodes, script, pull.heard) as ended,
        ):
            for place, one in enumerate(ended, 1):
                done = f"({place} of {len(nodes)})"
                if one.status not in (0, 1):
                    reason = _why(one, "mnb jobs")
                    work.writer.tell(NodeLost(node=one.node, session=session, reason=reason))
                    work.tell(f"{one.node}: lost {done}: {reason}")
                    lost.append(one.node)
                    continue
                _keep_ended(work, pull, one, done)
    _pull(work, lost, session)


def _keep_ended(work: Work, pull: Pull, one: Ended, done: str) -> None:
    """Keep what a node sent whose run ended by itself.

    It ends with 1 for failed launches, and if it could not save its results: then its ledger lacks some.
    """
    made = pull.keep(one.node, said=one.said)
    if one.status and isinstance(made, Collected) and _status_here(work, made) is None:
        reason = f"mnb jobs ended with status 1, and its ledger lacks launches{_last_of_log(work, made)}"
        work.writer.tell(NodeLost(node=one.node, session=pull.session, reason=reason))
        work.tell(f"{one.node}: lost {done}: {reason}")
    else:
        work.writer.tell(NodeEnded(node=one.node, session=pull.session, status=1 if one.status else 0))
        work.tell(f"{one.node}: done {done}{', with failed launches' if one.status else ''}")
    _tell_made(work, made)


def _pull(work: Work, nodes: Collection[NodeName], session: SessionName) -> None:
    if not nodes:
        return
    with (
        pulling(work.folder, session, nodes) as pull,
        work.launcher.run(nodes, pull_script(work.manifest, session), pull.heard) as ended,
    ):
        for one in ended:
            made = pull.keep(one.node, "" if one.status == 0 else _why(one, "the shell"), said=one.said)
            if isinstance(made, Collected) and (status := _status_here(work, made)) is not None:
                work.writer.tell(NodeEnded(node=one.node, session=session, status=status))
                work.tell(f"{one.node}: collected after all{', with failed launches' if status else ''}")
            _tell_made(work, made)


def _tell_made(work: Work, made: Collected | NotCollected) -> None:
    work.writer.tell(made)
    if isinstance(made, NotCollected):
        work.tell(f"{made.node}: not collected: {made.reason}")


def _status_here(work: Work, made: Collected) -> Literal[0, 1] | None:
    """How a session that was collected ended by its own ledger."""
    here = NodeSession(made.node, made.session, session_file(work.folder, made.node, made.session))
    return status_of(check_chain(here.read_ledger()))


def _last_of_log(work: Work, made: Collected) -> str:
    """The last line that its run printed, which says where unsaved results are."""
    log = session_file(work.folder, made.node, made.session).with_name(own_names(made.session)[0])
    lines = log.read_bytes().splitlines()
    return f": {short_end(lines[-1].decode(errors='backslashreplace'))}" if lines else ""


def _why(one: Ended, command: str) -> str:
    """Why a node has no result."""
    if one.status is None:
        return short_end(one.said)
    if one.status == NOT_BEGUN:
        how = "did not begin"
    elif one.status == NO_RESULTS:
        return "it has no results yet"
    elif one.status > 128:
        how = f"was ended by a signal ({_signal(one.status - 128)})"
    else:
        how = f"ended with status {one.status}"
    return f"{command} {how}{one.said and f': {short_end(one.said)}'}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
