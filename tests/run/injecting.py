"""Faults from outside, for scripts/fault-matrix: by signals, files and groups. The product knows nothing of them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.fence.probing.probe import probe
from milabench_ng.node.cgroup_files import parse_ids
from milabench_ng.records.ledger import Attempt, check_chain
from milabench_ng.records.marks import MarkKind
from milabench_ng.run.execution.worker_server import RESTARTS
from tests.run.processes import helper

PARENTS = probe().parents
HOG = """
import os, sys
for procs in sys.argv[1:]:
    open(procs, "w").write(str(os.getpid()))
held = []
while True:
    held.append(b"x" * (64 << 20))
"""
READS_PICTURES = ("loader", "convnet")
UNDONE = ({"stop", "pause"}, {"CPUs changed", "mnb paused"})
"""The end of a pause lets a stopped process go on; CPUs are put back before `mnb` looks."""
LOSSES = (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP))
SERVER, SAMPLER = "milabench_ng.worker.server", "milabench_ng.telemetry.sampler"


class Fault(msgspec.Struct, frozen=True):
    """Something that was done to a launch, and the cause that must be reported; None: it must not fail."""

    kind: str
    expected: str | None
    at: float
    """Seconds since 1970."""
    done_s: float
    """When it had happened (monotonic): what comes after the stop of the batch is no fault of it."""
    mark: MarkKind | None = None
    """The mark that must be on a launch that it does not fail."""
    lasts: bool = False
    """Whether the mark is due on all that begin later, and not on this launch."""


Key = tuple[str, str, int]
"""Label, job id and attempt."""


class Batch(msgspec.Struct, frozen=True):
    """A batch that has just begun."""

    number: int
    test: str
    launches: tuple[Key, ...]
    devices: tuple[int, ...]


class Deed(msgspec.Struct, frozen=True):
    """A fault that can be injected."""

    kind: str
    expected: str | None
    act: Callable[[Batch, int], bool]
    """Does it to the tenant of a device; whether it was done."""
    early: bool = False
    """Done when the worker enters, and not at a random moment."""
    all_launches: bool = False
    mark: MarkKind | None = None
    """The mark that must be on a launch that it does not fail."""
    lasts: bool = False
    """Whether the mark is due on all that begin later, and not on this launch."""


class Injector(threading.Thread):
    """Follows the ledger of a run and does two things at once in every batch."""

    def __init__(self, mnb: int, folder: Path, data: Path, moments: random.Random, window_s: float) -> None:
        """``mnb``: the orchestrator's pid."""
        super().__init__(daemon=True)
        self.mnb, self.folder, self.data, self.moments, self.window_s = mnb, folder, data, moments, window_s
        self.done: defaultdict[Key, list[Fault]] = defaultdict(list)
        self.hogs: list[subprocess.Popen[bytes]] = []
        self.servers = RESTARTS
        """How many more worker servers may be lost."""
        self.over = threading.Event()
        self.harmed: list[str] = []
        """The files of the folder to which something was done, as often as it was done."""
        self._newest: Batch | None = None

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """What run.json said first: it is removed now and then."""
        content: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return content

    def run(self) -> None:
        seen = None
        while not self.over.wait(0.02):
            batch = self.newest()
            if batch is not None and batch.launches != seen:
                seen = batch.launches
                pair = [threading.Thread(target=self.inject, args=(batch, *one)) for one in self.choose(batch)]
                for deed in pair:
                    deed.start()
                for deed in pair:
                    deed.join()

    def newest(self) -> Batch | None:
        """The batch that the ledger says has begun last, while it goes on. One that is emptied says nothing new."""
        path = self.folder / "ledger.jsonl"
        events = check_chain(path.read_bytes()).events if path.exists() else ()
        if events:
            attempts = [event for event in events if isinstance(event, Attempt)]
            self._newest = self.begun(attempts) if isinstance(events[-1], Attempt) else None
        return self._newest

    def begun(self, attempts: Sequence[Attempt]) -> Batch:
        """The batch of the last attempt."""
        number = attempts[-1].batch
        tried = {(one.label, one.job_id): one for one in attempts}
        plan = self.manifest["plan"]["batches"][number]
        devices = tuple(device for launch in plan["launches"] for device in launch["devices"])
        launches = tuple((one.label, one.job_id, one.number) for one in tried.values() if one.batch == number)
        return Batch(number, plan["launches"][0]["test"].partition(".")[2], launches, devices)

    def choose(self, batch: Batch) -> list[tuple[Deed, int, float]]:
        """Two different deeds, each with the place of its victim and its delay."""
        deeds = [
            Deed("kill", "signal", self.kill),
            Deed("stop", "timeout", self.stop),
            Deed("memory hog", "oom", self.hog, early=True),
            Deed("pause", None, self.pause),
            Deed("busy disk", None, self.busy_disk),
            Deed("nothing", None, lambda *_: True),
            Deed("mnb paused", None, self.pause_mnb),
            Deed("reniced", None, self.renice, mark="scheduling"),
            Deed("ledger emptied", None, lambda batch, _: self.harm(batch, "ledger.jsonl", empty)),
            Deed("run.json removed", None, lambda batch, _: self.harm(batch, "run.json", os.unlink)),
            Deed("record removed", None, lambda batch, _: self.harm(batch, "*.J*.json", os.unlink)),
        ]
        if batch.test != "scaling":  # CPUs that a rank does not have yet, its agent may lose
            deeds.append(Deed("CPUs changed", "isolation_lost", self.change_cpus))
        if batch.test in READS_PICTURES:
            deeds.append(Deed("damaged data", "data_error", self.damage, early=True, all_launches=True))
        deeds += [
            Deed(
                f"sampler {what}",
                None,
                lambda *_, number=number: self.signal_helper(SAMPLER, number),
                mark="telemetry missing",
                lasts=True,
            )
            for what, number in LOSSES
        ]
        deeds += [
            Deed(
                f"server {what}", "harness_error", lambda *_, number=number: self.lose_server(number), all_launches=True
            )
            for what, number in LOSSES[: max(0, self.servers)]  # both may be chosen
        ]
        pair = self.moments.sample(deeds, 2)
        while {deed.kind for deed in pair} in UNDONE:
            pair = self.moments.sample(deeds, 2)
        return [
            (
                deed,
                self.moments.randrange(len(batch.launches)),
                0.0 if deed.early else self.moments.uniform(0.1, 0.6 * self.window_s),
            )
            for deed in pair
        ]

    def inject(self, batch: Batch, deed: Deed, place: int, delay: float) -> None:
        """One fault into one batch."""
        device = batch.devices[place if len(batch.launches) > 1 else 0]
        if not self.wait_for_processes(batch, device):
            return
        time.sleep(delay)
        victims = batch.launches if deed.all_launches else (batch.launches[place],)
        moment = time.time()
        noted = Fault(deed.kind, deed.expected, moment, 0.0, deed.mark, deed.lasts)
        if deed.all_launches:  # the launches may have ended before the deed has
            for key in victims:
                self.done[key].append(noted)
        if deed.act(batch, device) and not deed.all_launches:
            self.done[victims[0]].append(msgspec.structs.replace(noted, done_s=time.monotonic()))

    def signal_helper(self, module: str, number: signal.Signals) -> bool:
        try:
            return signalled(helper(module, self.mnb), number)
        except (StopIteration, OSError):  # it was lost before
            return False

    def lose_server(self, number: signal.Signals) -> bool:
        self.servers -= 1
        return self.signal_helper(SERVER, number)

    def pause_mnb(self, *_: object) -> bool:
        if not signalled(self.mnb, signal.SIGSTOP):
            return False
        time.sleep(2.0)
        return signalled(self.mnb, signal.SIGCONT)

    def wait_for_processes(self, batch: Batch, device: int) -> bool:
        """Until the tenant's worker is in all its groups."""
        end = time.monotonic() + 10
        while time.monotonic() < end and not self.over.is_set():
            groups = tuple(self.groups(batch, device))
            if groups and all(map(members, groups)):
                return True
            time.sleep(0.02)
        return False

    def groups(self, batch: Batch, device: int) -> Iterator[Path]:
        for parent in PARENTS:
            group = Path(parent, "mnb", self.manifest["run_id"], f"b{batch.number}-d{device}")
            if group.is_dir():
                yield group

    def pids(self, batch: Batch, device: int) -> list[int]:
        """The tenant's own: a hog that is stopped takes no memory."""
        hogs = {hog.pid for hog in self.hogs}
        return [pid for pid in next(filter(None, map(members, self.groups(batch, device))), []) if pid not in hogs]

    def kill(self, batch: Batch, device: int) -> bool:
        """The worker, or in a launch over several devices whatever process of the group."""
        pids = self.pids(batch, device)
        return bool(pids) and signalled(
            pids[0] if batch.test != "scaling" else self.moments.choice(pids), signal.SIGKILL
        )

    def stop(self, batch: Batch, device: int) -> bool:
        pids = self.pids(batch, device)  # of several ranks the agent is first, and only waits
        return bool(pids) and signalled(pids[-1 if batch.test == "scaling" else 0], signal.SIGSTOP)

    def pause(self, batch: Batch, device: int) -> bool:
        pids = self.pids(batch, device)
        if not pids or not signalled(pids[0], signal.SIGSTOP):
            return False
        time.sleep(0.5)
        return signalled(pids[0], signal.SIGCONT)

    def change_cpus(self, batch: Batch, device: int) -> bool:
        """Give the group another's CPU, and its own back after less than a second."""
        for group in self.groups(batch, device):
            file = group / "cpuset.cpus"
            try:
                own = file.read_text().strip()
                file.write_text(str(min(os.sched_getaffinity(0) - set(parse_ids(own)))))
            except OSError:  # no cpuset here, or it is gone
                continue
            time.sleep(0.8)
            with contextlib.suppress(OSError):  # it is gone
                file.write_text(own)
            return True
        return False

    def renice(self, batch: Batch, device: int) -> bool:
        """Have all its processes give way."""
        pids = self.pids(batch, device)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, pid, 5)
        return bool(pids)

    def harm(self, batch: Batch, pattern: str, act: Callable[[Path], None]) -> bool:
        """Do something to one of the files that the run has written, while it goes on."""
        found = sorted(self.folder.glob(pattern))
        if not found or self.newest() != batch:
            return False
        act(found[0])
        self.harmed.append(found[0].name)
        return True

    def hog(self, batch: Batch, device: int) -> bool:
        """Join all groups of the tenant, as its own processes do, and take all their RAM."""
        groups = [str(group / "cgroup.procs") for group in self.groups(batch, device)]
        command = [sys.executable, "-c", HOG, *groups]
        self.hogs.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return self.hogs[-1].wait() != 1  # 1: a group was gone

    def busy_disk(self, *_: object) -> bool:
        with tempfile.NamedTemporaryFile(dir=self.data) as file:
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                file.write(os.urandom(1 << 20))
                file.flush()
                os.fsync(file.fileno())
        return True

    def damage(self, batch: Batch, _: int) -> bool:
        """The first bytes of every second picture, until the batch is over."""
        pictures = sorted(self.data.rglob("ImageNet/train/*/*"))[::2]
        for path in pictures:
            overwrite(path, b"\0\0")
        while not self.over.is_set() and self.newest() == batch:
            time.sleep(0.02)
        for path in pictures:
            overwrite(path, b"\xff\xd8")
        return True


def members(group: Path) -> list[int]:
    """The processes of a group; none if it is gone."""
    try:
        return sorted(map(int, (group / "cgroup.procs").read_text().split()))
    except OSError:
        return []


def empty(path: Path) -> None:
    os.truncate(path, 0)


def overwrite(path: Path, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(content)


def signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
