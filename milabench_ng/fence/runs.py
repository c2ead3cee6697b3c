"""The groups `<parent>/mnb/<run>` of one run: locked while it lives, watched by a guardian, reaped when it is dead.

The lock (flock(2) on the directory itself, released by the kernel with the process) tells a live run from a dead one;
no pid is ever trusted for that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from milabench_ng.errors import IsolationError
from milabench_ng.fence import guardian
from milabench_ng.files import is_locked

TOP = "mnb"
_OWNER = "user.mnb.owner"


class Owner(msgspec.Struct, frozen=True):
    """The owner of a run's groups, for the message of a run that finds them."""

    pid: int
    holds: str


class Guardian:
    """The process that removes what it was told about, however this one ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def mind(self, what: str, name: str | int) -> None:
        """Tell it about a `group` (a directory) or a `session` (an id; `forget` takes that back).

        Does nothing if it was killed.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{what} {name}\n".encode())
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Close the pipe, so that it removes what is left, and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(guardian.PATIENCE_S)


class RunGroups:
    """The run's group in each hierarchy, by parent."""

    def __init__(self, parents: Sequence[str], run_id: str, holds: str, prepare: Callable[[Path], None]) -> None:
        """Make the groups; `prepare` is called on every new directory, so that groups below it can be used.

        Raises IsolationError if the run's name is taken or the kernel refuses.
        """
        self.run_id = run_id
        self.directories = {parent: Path(parent, TOP, run_id) for parent in parents}
        made: list[Path] = []
        try:
            with locked_top(parents[0]):
                for parent, directory in self.directories.items():
                    Path(parent, TOP).mkdir(exist_ok=True)
                    prepare(Path(parent, TOP))
                    directory.mkdir()
                    made.append(directory)
                    prepare(directory)
                self._lock = lock(self.directories[parents[0]])
        except OSError as error:
            for directory in made:
                directory.rmdir()
            remove_tops(parents)
            raise IsolationError(f"isolation: cannot make the groups of run {run_id}: {error}") from error
        self._sign(holds)
        self.guardian = Guardian()
        for directory in self.directories.values():
            self.guardian.mind("group", str(directory))

    def close(self) -> None:
        """Remove the run's groups with everything below, and `mnb` itself if no other run is there."""
        guardian.sweep(map(str, self.directories.values()), patience_s=5.0)
        self.guardian.dismiss()
        os.close(self._lock)
        remove_tops(tuple(self.directories))

    def _sign(self, holds: str) -> None:
        owner = msgspec.json.encode(Owner(os.getpid(), holds))
        with contextlib.suppress(OSError):  # no extended attributes on cgroups before Linux 5.7
            os.setxattr(next(iter(self.directories.values())), _OWNER, owner)


def reap(parents: Sequence[str], allow_concurrent: bool = False) -> list[str]:
    """Remove the groups of runs whose orchestrator is gone; returns one sentence for each.

    Raises IsolationError if a run is alive, unless `allow_concurrent`.
    """
    names = {path.name for parent in parents for path in Path(parent, TOP).glob("*/")}
    said: list[str] = []
    if not names:
        return said
    with locked_top(parents[0]):
        for name in sorted(names):
            directories = [str(Path(parent, TOP, name)) for parent in parents]
            if not _dead(Path(directories[0])):
                if not allow_concurrent:
                    raise IsolationError(_living(Path(directories[0])))
                continue
            killed, removed, _ = guardian.sweep(directories, patience_s=5.0)
            said.append(
                f"isolation: reaped run {name} (orchestrator gone): "
                f"killed {killed} processes, removed {removed} groups."
            )
    remove_tops(parents)
    return said


def remove_tops(parents: Sequence[str]) -> None:
    """Remove `mnb` in each hierarchy unless a run is below it. A scope may be gone with its last process."""
    with contextlib.suppress(FileNotFoundError), locked_top(parents[0]):
        for parent in parents:
            with contextlib.suppress(OSError):  # another run's groups are in it, or it is gone
                Path(parent, TOP).rmdir()


def _dead(directory: Path) -> bool:
    """Whether the run's lock is free (or its first group is gone, and only remains are left)."""
    try:
        return not is_locked(directory)
    except FileNotFoundError:
        return True


def _living(directory: Path) -> str:
    try:
        owner = msgspec.json.decode(os.getxattr(directory, _OWNER), type=Owner)
    except OSError:
        owner = Owner(0, "")
    holds = owner.holds or "devices of this node"
    pid = f" (pid {owner.pid})" if owner.pid else ""
    return (
        f"isolation: run {directory.name} holds {holds}{pid}. Use --allow-concurrent only with other GPUs, "
        "or wait for it to end."
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
