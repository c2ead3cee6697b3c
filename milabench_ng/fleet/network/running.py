"""Has nodes meet: a store on this host, a process on every node, and what they showed in a file of the fleet."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import Ended, Launcher
from milabench_ng.fleet.launchers.processes import Child, ending, turns
from milabench_ng.fleet.ledger import NetworkMeasured
from milabench_ng.fleet.network.judging import STRICT, meets_again
from milabench_ng.fleet.network.meetings import (
    RENDEZVOUS,
    Meeting,
    MeetingName,
    fits,
    pairs_seen,
    planned,
    read_meeting,
    screened,
    write_meeting,
)
from milabench_ng.fleet.network.rounds import launch_rounds, pair_rounds, ring_rounds, rounds_of
from milabench_ng.fleet.node_scripts import meeting_script
from milabench_ng.fleet.nodes import NodeName
from milabench_ng.fleet.writer import FleetWriter
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short
from milabench_ng.model.units import counted
from milabench_ng.records.links import (
    SAYS,
    TOO_LATE,
    Kept,
    LinkBegun,
    LinkHello,
    LinkLeft,
    LinkResult,
    MeetingPlan,
    RankResult,
    Round,
    Said,
)

_LONGEST_LINE = 1 << 16
"""Bytes; the variables of a node are in one line."""
_LAUNCH_S = 400.0
"""What a launch over nodes takes at most beside its window: networks are built, and connections made."""
_STEP_S = 120.0
"""How long a message of a launch may take under NCCL; under gloo a third of it, see `worker.groups`."""
_LOCAL = "127.0.0.1"


def hold_meeting(
    fleet: FleetFolder, launcher: Launcher, writer: FleetWriter, tell: Callable[[str], None], name: MeetingName
) -> bool:
    """Have nodes meet, and keep what they showed; the retests are of what the screen found suspicious.

    Whether any node came.
    """
    rounds = _rounds(fleet, name)
    nodes = tuple(dict.fromkeys(node for one in rounds for group in one.groups for node in group))
    plan = MeetingPlan(nodes=nodes, rounds=rounds)
    if name == "launches":
        longest = max((one.window_s for one in fleet.manifest.over_nodes), default=0.0)
        plan = msgspec.structs.replace(plan, round_s=_LAUNCH_S + 3 * longest, message_s=_STEP_S)
    meeting = Meeting(plan=plan)
    if nodes:
        tell(f"network, {name}: {counted(len(nodes), 'node')} meet in {counted(len(rounds), 'round')} ...")
        meeting = meet(fleet, launcher, meeting.plan)
        for one in meeting.left.values():
            tell(f"{one.node}: left the network phase: {one.reason}")
        if not any(meeting.came(node) for node in nodes):
            tell(f"network: not measured, since no node reached this host. mnb fleet resume tries again; {RENDEZVOUS}")
            return False
    sha256 = write_meeting(fleet.path, name, meeting)
    writer.tell(NetworkMeasured(meeting=name, nodes=nodes, left=tuple(meeting.left), sha256=sha256))
    return True


def _rounds(fleet: FleetFolder, name: MeetingName) -> tuple[Round, ...]:
    nodes = screened(fleet)
    if name == "launches":
        return launch_rounds(nodes, fleet.manifest.over_nodes) if nodes else ()
    if name == "screen":
        return (*pair_rounds(nodes), *ring_rounds(nodes)) if len(nodes) > 1 else ()
    screen = read_meeting(fleet.path, "screen")
    seen = tuple(pairs_seen(screen)) if screen else ()
    return rounds_of(meets_again(seen).pairs, STRICT.retests)


def meet(fleet: FleetFolder, launcher: Launcher, plan: MeetingPlan) -> Meeting:
    """What the nodes show each other. Whoever dies is left behind, and the others go on."""
    heard = _Heard(plan)
    ended: dict[NodeName, Ended] = {}
    with tempfile.TemporaryDirectory(prefix=".meeting-", dir=fleet.path) as room:
        late = Path(room, "left")
        alone = launcher.head == _LOCAL and not fleet.manifest.rendezvous
        with _place(plan, _LOCAL if alone else "", Path(room), late) as port:
            limit_s = plan.start_s + (len(plan.rounds) + 1) * plan.round_s
            script = meeting_script(fleet.manifest, launcher.head, port, limit_s)
            with launcher.run(plan.nodes, script, heard.line) as all_ended:
                ended |= {one.node: one for one in all_ended if one.status != 0}
        kept = [msgspec.json.decode(line, type=Kept) for line in late.read_bytes().splitlines()]
    begun = next((one for one in kept if isinstance(one, LinkBegun)), Meeting(plan=plan).begun)
    told = [one for one in heard.told.values() if fits(one, plan, begun)]
    behind = {one.node: one for one in kept if isinstance(one, LinkLeft)}
    blank = LinkLeft(
        node="",
        reason="it was too late",
        round=max((one.round for one in told), default=0),
        came=any(isinstance(one, LinkBegun) for one in kept),
    )
    return Meeting(
        plan=plan,
        begun=begun,
        hellos=tuple(heard.hellos.values()),
        results=tuple(one for one in told if isinstance(one, LinkResult)),
        launches=tuple(one for one in told if isinstance(one, RankResult)),
        left={
            node: left_because(behind.get(node), ended.get(node), msgspec.structs.replace(blank, node=node))
            for node in plan.nodes
            if node in behind or node in ended
        },
    )


def left_because(behind: LinkLeft | None, ended: Ended | None, unwaited: LinkLeft) -> LinkLeft:
    """Why a node has left: first what the store says, which waited for it, then how its process ended. Pure.

    ``unwaited``: what is known of it if the store did not wait for it to the end.
    """
    own = _why(ended) if ended is not None and ended.status != TOO_LATE else ""
    if behind is None:
        return msgspec.structs.replace(unwaited, reason=own or unwaited.reason)
    return msgspec.structs.replace(behind, reason=f"{behind.reason}: {own}") if own else behind


class _Heard:
    """What nodes say, each for itself only."""

    def __init__(self, plan: MeetingPlan) -> None:
        self._plan = plan
        self.hellos: dict[NodeName, LinkHello] = {}
        self.told: dict[tuple[type, NodeName, int, int, int], LinkResult | RankResult] = {}
        """What each device of a node says first of each group of a round."""

    def line(self, node: NodeName, line: bytes) -> None:
        """A line that a node printed; one that is not valid is nothing that a rank says."""
        if not line.startswith(SAYS.encode()) or len(line) > _LONGEST_LINE:
            return
        try:
            one = _said.decode(line[len(SAYS) :])
        except (ValueError, RecursionError):  # of a text that is not UTF-8, or nested without end
            return
        if one.node != node:
            return
        if isinstance(one, LinkHello):
            self.hellos.setdefault(node, one)
        elif planned(one, self._plan):
            self.told.setdefault((type(one), node, one.round, one.group, one.device), one)


_said: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)


@contextmanager
def _place(plan: MeetingPlan, address: str, room: Path, late: Path) -> Iterator[int]:
    """A store for the meeting at ``address`` of this host, in a process of its own; its port."""
    file = room / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    said: list[bytes] = []
    problems: list[bytes] = []
    words = (sys.executable, "-m", "milabench_ng.worker.meeting", address, str(file), str(late))
    place = Child(words, said.append, problems.append)
    with ending([place]):
        for _ in turns([place]):
            if said:
                break
        if not said or not said[0].isdigit():
            raise InputError(f"the place to meet did not start: {short(_last(problems))}")
        yield int(said[0])


def _last(lines: Sequence[bytes]) -> str:
    return lines[-1].decode(errors="backslashreplace") if lines else "it said nothing"


def _why(one: Ended) -> str:
    if one.status is None or one.said:
        return short(one.said.splitlines()[-1] if one.said else "it died")
    return f"it ended with status {one.status}"
