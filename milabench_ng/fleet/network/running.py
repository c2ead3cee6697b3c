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
from milabench_ng.fleet.network.meetings import MEETINGS, Meeting, MeetingName, pairs_seen, read_meeting, write_meeting
from milabench_ng.fleet.network.rounds import launch_rounds, pair_rounds, ring_rounds, rounds_of
from milabench_ng.fleet.node_scripts import meeting_script
from milabench_ng.fleet.nodes import SCREEN, NodeName
from milabench_ng.fleet.writer import FleetWriter
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short
from milabench_ng.model.units import counted
from milabench_ng.records.links import (
    HELLO,
    LAUNCH,
    RESULT,
    LinkHello,
    LinkLeft,
    LinkResult,
    MeetingPlan,
    RankResult,
    Round,
)

_MOST_LINES = 100_000
"""Of one node."""
_LAUNCH_S = 240.0
"""What a launch over nodes takes at most beside its window: networks are built, and connections made."""
_STEP_S = 120.0
"""How long a message of a launch may take."""
_LOCAL = "127.0.0.1"


def meetings_left(fleet: FleetFolder) -> tuple[MeetingName, ...]:
    """The meetings that are missing, in order."""
    manifest = fleet.manifest
    asked = {"screen": manifest.network, "retest": manifest.network, "launches": bool(manifest.over_nodes)}
    held = {one.meeting for one in fleet.ledger.events if isinstance(one, NetworkMeasured)}
    return tuple(name for name in MEETINGS if asked[name] and name not in held)


def hold_meeting(
    fleet: FleetFolder, launcher: Launcher, writer: FleetWriter, tell: Callable[[str], None], name: MeetingName
) -> None:
    """Have nodes meet, and keep what they showed; the retests are of what the screen found suspicious."""
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
        for node, why in meeting.left.items():
            tell(f"{node}: left the network phase: {why}")
        if not meeting.hellos:
            tell(
                "network: not measured, since no node reached this host. mnb fleet resume tries again; --rendezvous "
                "names another address of it"
            )
            return
    sha256 = write_meeting(fleet.path, name, meeting)
    writer.tell(NetworkMeasured(meeting=name, nodes=nodes, left=tuple(meeting.left), sha256=sha256))


def _rounds(fleet: FleetFolder, name: MeetingName) -> tuple[Round, ...]:
    standings = fleet.standings
    nodes = tuple(node for node in fleet.manifest.nodes if standings[node, SCREEN].state == "ended")
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
    left: dict[NodeName, str] = {}
    with tempfile.TemporaryDirectory(prefix=".meeting-", dir=fleet.path) as room:
        late = Path(room, "left")
        with _place(plan, _LOCAL if launcher.head == _LOCAL else "", Path(room), late) as port:
            limit_s = plan.start_s + (len(plan.rounds) + 1) * plan.round_s
            script = meeting_script(fleet.manifest, launcher.head, port, limit_s)
            with launcher.run(plan.nodes, script, heard.line) as ended:
                left |= {one.node: _why(one) for one in ended if one.status != 0}
        for line in late.read_bytes().splitlines() if late.exists() else ():
            one = msgspec.json.decode(line, type=LinkLeft)
            left.setdefault(one.node, one.reason)
    return Meeting(
        plan=plan,
        hellos=tuple(heard.hellos.values()),
        results=tuple(heard.results),
        launches=tuple(heard.launches),
        left=left,
    )


class _Heard:
    """What nodes say, each for itself only."""

    def __init__(self, plan: MeetingPlan) -> None:
        self._plan = plan
        self._left = dict.fromkeys(plan.nodes, _MOST_LINES)
        self.hellos: dict[NodeName, LinkHello] = {}
        self.results: list[LinkResult] = []
        self.launches: list[RankResult] = []

    def line(self, node: NodeName, line: bytes) -> None:
        """A line that a node printed; one that is not valid is nothing that a rank says."""
        self._left[node] -= 1
        if self._left[node] < 0:
            return
        try:
            if line.startswith(HELLO.encode()):
                hello = msgspec.json.decode(line[len(HELLO) :], type=LinkHello)
                if hello.node == node:
                    self.hellos[node] = hello
            elif line.startswith(RESULT.encode()):
                result = msgspec.json.decode(line[len(RESULT) :], type=LinkResult)
                if result.node == node and self._planned(result):
                    self.results.append(result)
            elif line.startswith(LAUNCH.encode()):
                ran = msgspec.json.decode(line[len(LAUNCH) :], type=RankResult)
                if ran.node == node and self._planned(ran):
                    self.launches.append(ran)
        except (ValueError, RecursionError):  # of a text that is not UTF-8, or nested without end
            return

    def _planned(self, one: LinkResult | RankResult) -> bool:
        groups = self._plan.rounds[one.round].groups if one.round < len(self._plan.rounds) else ()
        return one.group < len(groups) and one.node in groups[one.group]


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
