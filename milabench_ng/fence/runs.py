"""The groups `<parent>/mnb/<run>` of one run: locked while it lives, watched by a guardian, reaped when it is dead.

The lock (flock(2) on each directory itself, released by the kernel with the process) tells a live run from a dead one;
no pid is ever trusted for that. An extended attribute tells a run's directory from one that somebody else made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from milabench_ng.fence import guardian
from milabench_ng.fence.kernel.processes import Process
from milabench_ng.fence.killing import OwnGroup, noted_groups, signal_child, sweep
from milabench_ng.model.errors import InUseError, IsolationError
from milabench_ng.model.files import is_locked

TOP = "mnb"
READS_S = 10.0
"""How long a guardian may take to read a line when the pipe is full."""
_OWNER = "user.mnb.owner"


class Owner(msgspec.Struct, frozen=True):
    """The owner of a run's groups, for the message of a run that finds them."""

    pid: int
    holds: str


class Guardian:
    """The process that removes what it was told about, however this one ends."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._orders = os.fdopen(writing, "wb", buffering=0)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
        os.close(reading)

    @property
    def pid(self) -> int:
        return self._process.pid

    def mind(self, one: OwnGroup | Process) -> None:
        """Tell it about a group, or a process that no group holds.

        Does nothing if it was killed or dismissed. One that somebody has stopped goes on, so that it reads; raises
        IsolationError if it does not.
        """
        if isinstance(one, OwnGroup):
            line = f"group {one.device} {one.inode} {one.path}"
        else:
            line = f"process {one.pid} {one.start}"
        self._tell(os.fsencode(f"{line}\n"))

    def dismiss(self) -> None:
        """Close the pipe, so that it removes what is left, and wait for it; kill it if it takes too long."""
        self._orders.close()
        signal_child(self._process, signal.SIGCONT)  # nothing, unless somebody has stopped it
        try:
            self._process.wait(guardian.PATIENCE_S)
        except subprocess.TimeoutExpired:
            signal_child(self._process, signal.SIGKILL)

    def _tell(self, line: bytes) -> None:
        if self._orders.closed:
            return
        for _ in range(2):
            try:
                os.write(self._orders.fileno(), line)
            except BrokenPipeError:
                return
            except BlockingIOError:  # a pipe full of lines that it has not read
                signal_child(self._process, signal.SIGCONT)
                select.select([], [self._orders], [], READS_S)
            else:
                return
        raise IsolationError(
            f"isolation: the cleanup process ({self.pid}) does not respond, so a crash would leave processes behind. "
            "Start the run again."
        )


class RunGroups:
    """The run's group in each hierarchy, by parent."""

    def __init__(self, parents: Sequence[str], run_id: str, holds: str, prepare: Callable[[Path], None]) -> None:
        """Make the groups; `prepare` is called on every new directory, so that groups below it can be used.

        Raises IsolationError if the run's name is taken or the kernel refuses.
        """
        self.run_id = run_id
        self.directories = {parent: Path(parent, TOP, run_id) for parent in parents}
        self._groups: list[OwnGroup] = []
        self._locks: list[int] = []
        try:
            with locked_top(parents[0]):
                for parent, directory in self.directories.items():
                    Path(parent, TOP).mkdir(exist_ok=True)
                    prepare(Path(parent, TOP))
                    directory.mkdir()
                    self._groups.append(OwnGroup.noted(str(directory)))
                    _sign(directory, holds)
                    prepare(directory)
                for directory in self.directories.values():
                    self._locks.append(lock(directory))
        except OSError as error:
            for descriptor in self._locks:
                os.close(descriptor)
            for group in self._groups:
                os.rmdir(group.path)
            remove_tops(parents)
            raise IsolationError(
                f"isolation: cannot make the groups of run {run_id}: {error}. mnb doctor shows what this node allows."
            ) from error
        self.guardian = Guardian()
        for group in self._groups:
            self.guardian.mind(group)

    def close(self) -> tuple[str, ...]:
        """Remove the run's groups with everything below, and `mnb` itself if no other run is there.

        Returns a sentence for each of them that is left.
        """
        sweep(self._groups, patience_s=5.0)
        self.guardian.dismiss()
        left = sweep(self._groups, patience_s=0.0).left
        for descriptor in self._locks:
            os.close(descriptor)
        remove_tops(tuple(self.directories))
        return tuple(f"isolation: {sentence}" for sentence in left)


def reap(parents: Sequence[str], allow_concurrent: bool = False) -> list[str]:
    """Remove the groups of runs whose orchestrator is gone; returns one sentence for each.

    Raises InUseError if a run is alive, unless `allow_concurrent`.
    """
    names = {path.name for parent in parents for path in Path(parent, TOP).glob("*/")}
    said: list[str] = []
    if not names:
        return said
    with locked_top(parents[0]):
        for name in sorted(names):
            directories = [Path(parent, TOP, name) for parent in parents]
            living = next((directory for directory in directories if is_locked(directory)), None)
            if living is not None:
                if not allow_concurrent:
                    raise InUseError(_living(living))
                continue
            said += _reap(name, directories)
    remove_tops(parents)
    return said


def _reap(name: str, directories: Sequence[Path]) -> Iterator[str]:
    """Remove what bears the mark of a run that is dead; nothing else."""
    there = [directory for directory in directories if directory.is_dir()]
    ours = noted_groups(str(directory) for directory in there if _is_signed(directory))
    if ours:
        swept = sweep(ours, patience_s=5.0)
        yield (
            f"isolation: cleaned up dead run {name}: killed {swept.killed} processes, removed {swept.removed} groups."
        )
        yield from (f"isolation: {sentence}" for sentence in swept.left)
    for directory in there:
        if directory.is_dir() and str(directory) not in {group.path for group in ours}:
            yield (
                f"isolation: not removed: {directory} has no mnb owner attribute ({_OWNER}). If it is yours, remove it "
                "with rmdir."
            )


def _sign(directory: Path, holds: str) -> None:
    owner = msgspec.json.encode(Owner(os.getpid(), holds))
    with contextlib.suppress(OSError):  # no extended attributes on cgroups before Linux 5.7
        os.setxattr(directory, _OWNER, owner)


def _is_signed(directory: Path) -> bool:
    """Whether a run made the directory; where there are no extended attributes, its place and its lock decide."""
    try:
        os.getxattr(directory, _OWNER)
    except OSError as error:
        return error.errno == errno.ENOTSUP
    return True


def remove_tops(parents: Sequence[str]) -> None:
    """Remove `mnb` in each hierarchy unless a run is below it. A scope may be gone with its last process."""
    with contextlib.suppress(FileNotFoundError), locked_top(parents[0]):
        for parent in parents:
            with contextlib.suppress(OSError):  # another run's groups are in it, or it is gone
                Path(parent, TOP).rmdir()


def _living(directory: Path) -> str:
    try:
        owner = msgspec.json.decode(os.getxattr(directory, _OWNER), type=Owner)
    except OSError:
        owner = Owner(0, "")
    holds = owner.holds or "devices of this node"
    pid = f" (pid {owner.pid})" if owner.pid else ""
    return (
        f"isolation: run {directory.name} holds {holds}{pid}. Wait for it to end. A run begun with "
        "--allow-concurrent need not wait, but use that only for other devices."
    )


def lock(directory: Path) -> int:
    """Open and lock the directory; return the descriptor. Raises BlockingIOError if another process has the lock."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def locked_top(parent: str, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Keep a starting and a reaping run apart: the latter must not see groups that are not locked yet."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)
