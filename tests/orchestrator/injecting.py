"""Faults from outside, for scripts/fault-matrix: by signals, files and groups. The product knows nothing of them."""

from __future__ import annotations

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
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from milabench_ng.fence.probing.probe import probe
from milabench_ng.orchestrator.execution.worker_server import RESTARTS
from milabench_ng.records.ledger import Attempt, check_chain
from tests.orchestrator.processes import helper

PARENTS = probe().parents
HOG = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
held = []
while True:
    held.append(b"x" * (64 << 20))
"""
READS_PICTURES = ("loader", "convnet")
UNDONE = {"stop", "pause"}
"""The end of a pause lets a stopped process go on."""
SERVER, SAMPLER = "milabench_ng.worker.server", "milabench_ng.telemetry.sampler"


class Fault(msgspec.Struct, frozen=True):
    """Something that was done to a launch, and the cause that must be reported; None: it must not fail."""

    kind: str
    expected: str | None
    at: float
    """Seconds since 1970."""
    done_s: float
    """When it had happened (monotonic): what comes after the stop of the batch is no fault of it."""


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
        """The batch that the ledger says has begun last, while it goes on."""
        path = self.folder / "ledger.jsonl"
        events = check_chain(path.read_bytes()).events if path.exists() else ()
        if not events or not isinstance(events[-1], Attempt):
            return None
        number = events[-1].batch
        tried = {(event.label, event.job_id): event for event in events if isinstance(event, Attempt)}
        plan = json.loads((self.folder / "run.json").read_text())["plan"]["batches"][number]
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
            Deed("sampler killed", None, lambda *_: self.signal_helper(SAMPLER, signal.SIGKILL)),
            Deed("sampler stopped", None, lambda *_: self.signal_helper(SAMPLER, signal.SIGSTOP)),
            Deed("mnb paused", None, self.pause_mnb),
        ]
        if batch.test in READS_PICTURES:
            deeds.append(Deed("damaged data", "data_error", self.damage, early=True, all_launches=True))
        lost = [("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)][: max(0, self.servers)]  # both may be chosen
        deeds += [
            Deed(f"server {what}", "machinery", lambda *_, number=number: self.lose_server(number), all_launches=True)
            for what, number in lost
        ]
        pair = self.moments.sample(deeds, 2)
        while {deed.kind for deed in pair} == UNDONE:
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
        noted = Fault(deed.kind, deed.expected, moment, 0.0)
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
        """Until the tenant's worker is in its group."""
        end = time.monotonic() + 10
        while time.monotonic() < end and not self.over.is_set():
            if self.pids(batch, device):
                return True
            time.sleep(0.02)
        return False

    def groups(self, batch: Batch, device: int, controller: str) -> Iterator[Path]:
        run_id = json.loads((self.folder / "run.json").read_text())["run_id"]
        for parent in PARENTS:
            group = Path(parent, "mnb", run_id, f"b{batch.number}-d{device}")
            if group.is_dir() and controller in (group.parts[4], "any"):
                yield group

    def pids(self, batch: Batch, device: int) -> list[int]:
        for group in self.groups(batch, device, "any"):
            try:
                found = [int(line) for line in (group / "cgroup.procs").read_text().split()]
            except OSError:
                continue
            if found:
                return sorted(found)
        return []

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

    def hog(self, batch: Batch, device: int) -> bool:
        group = next(iter(self.groups(batch, device, "memory")), None)
        group = group or next(iter(self.groups(batch, device, "any")), None)
        if group is None:
            return False
        self.hogs.append(
            subprocess.Popen([sys.executable, "-c", HOG, str(group / "cgroup.procs")], stderr=subprocess.DEVNULL)
        )
        return self.hogs[-1].wait() != 1  # 1: the group was gone

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


def overwrite(path: Path, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(content)


def signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
