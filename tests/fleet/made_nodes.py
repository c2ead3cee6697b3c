"""A made-up cluster that sends its results: `mnb fleet` with a launcher whose nodes have done their work before.

python -m tests.fleet.made_nodes FOLDER [--nodes 1000]: nodes of 8 devices with the profile standard and 3 repeats, of
which 10 % are killed at random moments. It collects them, resumes, and prints how long the head took, and how many
records are there.
"""

from __future__ import annotations

import argparse
import base64
import math
import random
import resource
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers.interface import OUTPUT, Ended, Heard
from milabench_ng.fleet.node_scripts import WIDTH
from milabench_ng.fleet.preflight import NodeFacts
from milabench_ng.fleet.running import resume, run
from milabench_ng.node.conditions import read_conditions
from milabench_ng.node.drivers.opening import open_drivers
from milabench_ng.node.inventory import read_inventory
from milabench_ng.records.names import LEDGER, RECORD_NAME, file_digest
from tests.fleet.made_folders import made_manifest, packed, scaled, write_node

DIED = 0.1
"""Share of the nodes."""
KINDS = 16
"""So many different summaries there are."""


class Cluster:
    """A launcher. The records of all nodes are the same, and their summaries vary."""

    arguments = ()

    def __init__(self, whole: Path, count: int) -> None:
        luck = random.Random()
        self.nodes = tuple(f"n{number}" for number in range(count))
        self.dying = {node: 0.99 * luck.random() for node in luck.sample(self.nodes, round(DIED * count))}
        """Nodes that are killed, and the share of their files that they have written then."""
        self.of_nodes_s = 0.0
        """Time that this took, and not the head; and of it on the processor."""
        self.of_nodes_cpu_s = 0.0
        self._summary = load(whole)
        self._ledger = (whole / LEDGER).read_bytes().splitlines(keepends=True)
        self._files = {path.name: path.read_bytes() for path in sorted(whole.iterdir()) if path.is_file()}
        del self._files[LEDGER]
        self._doctor = base64.b64encode(msgspec.json.encode(_facts()))
        self._sent = [self._lines(self._packed(1.0)) for _ in range(KINDS)]
        self._slow = self._lines(self._packed(1.0, 0.9))

    @contextmanager
    def run(self, nodes: Collection[str], script: str, heard: Heard) -> Iterator[Iterator[Ended]]:
        """See `Launcher.run`."""
        yield (self._ended(node, script, heard) for node in nodes)

    def _ended(self, node: str, script: str, heard: Heard) -> Ended:
        if " doctor " in script:
            for line in (OUTPUT.encode(), self._doctor):
                heard(node, line)
            return Ended(node, 0, "")
        began, cpu = time.monotonic(), time.process_time()
        if node not in self.dying:
            lines = self._slow if node == "n7" else self._sent[hash(node) % KINDS]
        elif " jobs " in script:
            return Ended(node, None, "killed")
        else:  # what it had is pulled, and then it comes back
            lines = self._lines(self._packed(self.dying.pop(node)))
        self.of_nodes_s += time.monotonic() - began
        self.of_nodes_cpu_s += time.process_time() - cpu
        for line in lines:
            heard(node, line)
        return Ended(node, 0, "")

    def _packed(self, had: float, rate: float = 1.0) -> bytes:
        factors = {label: rate * math.exp(random.gauss(0, 0.01)) for label in self._summary.tests}
        content = {"screen.log": b""}
        if had == 1:
            content["screen.summary.json"] = encode_summary(scaled(self._summary, factors)).encode()
        content[f"screen/{LEDGER}"] = b"".join(self._ledger[: math.ceil(had * len(self._ledger))])
        there = list(self._files)[: math.ceil(had * len(self._files))]
        return packed(content | {f"screen/{name}": self._files[name] for name in there})

    def _lines(self, parcel: bytes) -> list[bytes]:
        text = base64.b64encode(parcel)
        return [
            OUTPUT.encode(),
            *(text[at : at + WIDTH] for at in range(0, len(text), WIDTH)),
            f"{OUTPUT} {file_digest(parcel)}".encode(),
        ]


def _facts() -> NodeFacts:
    with open_drivers() as drivers:
        return NodeFacts(inventory=read_inventory(), tier="full", conditions=read_conditions(drivers, ()))


def records_in(parcel: Path) -> int:
    """How many records are in a packed folder."""
    with tarfile.open(parcel) as archive:
        return sum(RECORD_NAME.fullmatch(Path(name).name) is not None for name in archive.getnames())


def measured(what: str, launcher: Cluster, work: Callable[[], FleetFolder]) -> FleetFolder:
    """Do it, and print what it took of the head."""
    of_nodes, of_nodes_cpu = launcher.of_nodes_s, launcher.of_nodes_cpu_s
    began, cpu = time.monotonic(), time.process_time()
    found = work()
    wall = time.monotonic() - began - (launcher.of_nodes_s - of_nodes)
    cpu = time.process_time() - cpu - (launcher.of_nodes_cpu_s - of_nodes_cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lost = sum(one.state == "lost" for one in found.standings.values())
    print(f"{what}: {wall:.1f} s ({cpu:.1f} s of CPU), peak {peak:.0f} MiB; {lost} nodes lost", flush=True)
    return found


def main() -> None:
    """Run it, resume it, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=1000)
    given = parser.parse_args()
    whole = write_node(given.folder.with_name(f"{given.folder.name}-node"))
    launcher = Cluster(whole, given.nodes)
    asked = made_manifest(launcher.nodes)
    first = measured("collected", launcher, lambda: run(given.folder, asked, launcher, str))
    found = measured("resumed and collected", launcher, lambda: resume(first, launcher, (), str))
    one = sum(RECORD_NAME.fullmatch(path.name) is not None for path in whole.iterdir())
    with ProcessPoolExecutor() as pool:
        there = sum(pool.map(records_in, [session.path for session in found.sessions], chunksize=8))
    print(f"records: {there:,} of {one * given.nodes:,}")
    shutil.rmtree(whole)


if __name__ == "__main__":
    main()
