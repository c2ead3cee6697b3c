"""Faults from outside, for scripts/soak: by signals, files and groups. The product knows nothing of them."""

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
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from milabench_ng.fence.probing.probe import probe
from milabench_ng.records.ledger import Attempt, check_chain

PARENTS = probe().parents
HOG = """
import os, sys
open(sys.argv[1], "w").write(str(os.getpid()))
held = []
while True:
    held.append(b"x" * (64 << 20))
"""
READS_PICTURES = ("loader", "convnet")


class Fault(msgspec.Struct, frozen=True):
    """Something that was done to a launch, and the cause that must be reported; None: it must not fail."""

    kind: str
    expected: str | None
    at: float
    """Seconds since 1970."""
    done_s: float
    """When it had happened (monotonic): what comes after the stop of the batch is no fault of it."""


class Batch(msgspec.Struct, frozen=True):
    """A batch that has just begun."""

    number: int
    test: str
    launches: tuple[tuple[str, str], ...]
    """Label and job id."""
    devices: tuple[int, ...]


class Injector(threading.Thread):
    """Follows the ledger of a run and does something to a launch of every other batch."""

    def __init__(self, folder: Path, data: Path, moments: random.Random, window_s: float) -> None:
        super().__init__(daemon=True)
        self.folder, self.data, self.moments, self.window_s = folder, data, moments, window_s
        self.done: dict[tuple[str, str], Fault] = {}
        self.hogs: list[subprocess.Popen[bytes]] = []
        self.over = threading.Event()

    def run(self) -> None:
        seen = -1
        while not self.over.wait(0.02):
            batch = self.newest()
            if batch is not None and batch.number > seen:
                seen = batch.number
                self.inject(batch)

    def newest(self) -> Batch | None:
        """The batch that the ledger says has begun last, while it goes on."""
        path = self.folder / "ledger.jsonl"
        events = check_chain(path.read_bytes()).events if path.exists() else ()
        if not events or not isinstance(events[-1], Attempt):
            return None
        number = events[-1].batch
        tried = [event for event in events if isinstance(event, Attempt) and event.batch == number]
        plan = json.loads((self.folder / "run.json").read_text())["plan"]["batches"][number]
        devices = tuple(device for launch in plan["launches"] for device in launch["devices"])
        launches = tuple((event.label, event.job_id) for event in tried)
        return Batch(number, plan["launches"][0]["test"].partition(".")[2], launches, devices)

    def inject(self, batch: Batch) -> None:
        """One fault into one batch, or none."""
        kinds: list[tuple[str, str | None, Callable[[Batch, int], bool]]] = [
            ("kill", "signal", self.kill),
            ("stop", "timeout", self.stop),
            ("memory hog", "oom", self.hog),
            ("pause", None, self.pause),
            ("busy disk", None, self.busy_disk),
            ("nothing", None, lambda *_: True),
        ]
        if batch.test == "accident":
            self.done.update(dict.fromkeys(batch.launches, Fault("exception", "exception", time.time(), 0.0)))
            return
        if batch.test in READS_PICTURES:
            kinds.append(("damaged data", "data_error", self.damage))
        kind, expected, act = self.moments.choice(kinds)
        place = self.moments.randrange(len(batch.launches))
        device = batch.devices[place if len(batch.launches) > 1 else 0]
        victims = batch.launches if kind == "damaged data" else (batch.launches[place],)
        delay = 0.0 if kind in ("damaged data", "memory hog") else self.moments.uniform(0.1, 0.6 * self.window_s)
        if not self.wait_for_processes(batch, device):
            return
        time.sleep(delay)
        moment = time.time()
        if act(batch, device):
            done_s = 0.0 if kind == "damaged data" else time.monotonic()
            self.done.update(dict.fromkeys(victims, Fault(kind, expected, moment, done_s)))

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
