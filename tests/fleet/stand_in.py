"""A stand-in for `mnb` on nodes: it leaves a whole result folder at once, or hangs in the middle of it.

For tests of what reaches nodes; that `mnb` does its part there, tests of `local` show.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import msgspec

sys.path.append(str(Path(__file__).parents[1] / "report"))

import make_records

from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.fleet.preflight import NodeFacts
from milabench_ng.node.conditions import read_conditions
from milabench_ng.node.drivers.opening import open_drivers
from milabench_ng.node.inventory import read_inventory
from tests.fleet.made_folders import profile_of

SPREAD = """\
{"toy_reg": {"workload": "toy_reg"},
 "spread": {"workload": "scaling", "arguments": {"arch": "resnet18", "batch_size": 2, "image_size": 32}}}
"""
"""With a launch that nodes can share."""
_SCRIPT = """\
#!/bin/sh
here={here}
case $1 in
doctor)
    cat "$here/doctor.json" ;;
jobs | resume)
    for last; do :; done
    mkdir -p "$last/logs"
    echo "mnb $*"
    echo "$1" >>called
    date +%s.%N >>at
    if test -e "$here/hang-$(basename "$PWD")"; then
        head -n 3 "$here/results/ledger.jsonl" >"$last/ledger.jsonl"
        exec sleep 600
    fi
    of_node="$here/results-$(basename "$PWD")-$last"
    test -e "$of_node" || of_node="$here/results"
    cp -r "$of_node/." "$last" ;;
summary)
    of_node="$here/results-$(basename "$PWD")-$2"
    test -e "$of_node" || of_node="$here/results"
    cp "$of_node.summary.json" "$4" ;;
fleet)
    exec {python} -m milabench_ng "$@" ;;
*)
    exit 2 ;;
esac
"""


class StandIn(msgspec.Struct, frozen=True):
    """Where it lies."""

    folder: Path

    def over_the_network(self, there: Path, fleet: Path) -> tuple[str, ...]:
        """Options of `mnb fleet run` for nodes that have it, work in ``there``, and meet."""
        brief = ("--network", "--over-nodes", "--jobs", "--window 1")
        return ("--mnb", self.command, "--node-folder", str(there), "-o", str(fleet), *brief)

    @property
    def command(self) -> str:
        """What starts it."""
        return str(self.folder / "mnb")

    def hang(self, node: str, hangs: bool = True) -> None:
        """Whether it hangs on this node."""
        file = self.folder / f"hang-{node}"
        file.touch() if hangs else file.unlink()

    def leaves(self, node: str, session: str) -> Path:
        """Where results lie that this node leaves in this session, instead of those of all."""
        return self.folder / f"results-{node}-{session}"


def make_stand_in(folder: Path) -> StandIn:
    """A stand-in that tells of this machine, and leaves a run of two launches."""
    folder.mkdir()
    make_records.write_run(folder / "results", make_records.plan("tiny", {"toy_reg": make_records.PER_GPU}, 1, 2))
    summarise(folder / "results")
    with open_drivers() as drivers:
        facts = NodeFacts(inventory=read_inventory(), tier="full", conditions=read_conditions(drivers, ()))
    (folder / "doctor.json").write_bytes(msgspec.json.encode(facts))
    (folder / "mnb").write_text(_SCRIPT.format(here=folder, python=sys.executable))
    (folder / "mnb").chmod(0o755)
    (folder / "tiny.json").write_text(profile_of(folder / "results").text)
    return StandIn(folder)


def summarise(results: Path) -> None:
    """Write what the stand-in tells as the summary of these results."""
    results.with_name(f"{results.name}.summary.json").write_text(encode_summary(load(results)))


def kill_soon(folder: Path, node: str) -> None:
    """Kill a node after a while that nobody knows."""
    until = time.monotonic() + 100
    while not (found := list(folder.glob(f"there/*/{node}"))) and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2 * random.random())
    kill_all_in(found[0], 100)


def kill_all_in(folder: Path, limit_s: float = 60.0) -> None:
    """Kill every process that works in ``folder``, as soon as one hangs there."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        there = {int(one.name): _command(one) for one in Path("/proc").glob("[0-9]*") if _cwd(one) == folder}
        if any("sleep" in command for command in there.values()):
            for pid in there:
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing hangs in {folder}")


def _cwd(process: Path) -> Path | None:
    try:
        return Path(os.readlink(process / "cwd"))
    except OSError:
        return None


def _command(process: Path) -> str:
    try:
        return (process / "comm").read_text()
    except OSError:
        return ""
