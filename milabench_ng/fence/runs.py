"""The groups `<parent>/mnb/<run>` of one run: locked while it lives, watched by a guardian, reaped when it is dead.

The lock (flock(2) on the directory itself, released by the kernel with the process) is what tells a living run from a
dead one; no pid is ever trusted for that.
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

TOP = "mnb"
_OWNER = "user.mnb.owner"


class Owner(msgspec.Struct, frozen=True):
    """Who made a run's groups, for the message to somebody who finds them."""

    pid: int
    holds: str


class Guardian:
    """The process that removes what it was told of when this one ends in whatever way."""

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
        """Tell it of a `group` (a directory) or a `session` (an id; `forget` takes that back).

        Nothing happens if it was killed.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{what} {name}\n".encode())
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """End the pipe, so that it removes what is left, and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(guardian.PATIENCE_S)


class RunGroups:
    """The run's group in each hierarchy, by the parent below which it is."""

    def __init__(self, parents: Sequence[str], run_id: str, holds: str, prepare: Callable[[Path], None]) -> None:
        """Make them; `prepare` is called on every new directory, so that groups below it can be used.

        Raises IsolationError if the run's name is taken or the kernel refuses.
        """
        self.directories = {parent: Path(parent, TOP, run_id) for parent in parents}
        made: list[Path] = []
        try:
            with _locked_top(parents[0]):
                for parent, directory in self.directories.items():
                    Path(parent, TOP).mkdir(exist_ok=True)
                    prepare(Path(parent, TOP))
                    directory.mkdir()
                    made.append(directory)
                    prepare(directory)
                self._lock = _lock(self.directories[parents[0]])
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
        """Remove everything below the run's groups and them, and `mnb` itself if no other run is there."""
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
    with _locked_top(parents[0]):
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
    """Remove `mnb` in each hierarchy unless a run is below it. A scope whose last process has ended may be gone."""
    with contextlib.suppress(FileNotFoundError), _locked_top(parents[0]):
        for parent in parents:
            with contextlib.suppress(OSError):  # another run's groups are in it, or it is gone
                Path(parent, TOP).rmdir()


def _dead(directory: Path) -> bool:
    """Whether nobody holds the lock of the run (or its first group is gone, and only remains are left)."""
    try:
        os.close(_lock(directory))
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
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


def _lock(directory: Path) -> int:
    """An open descriptor of the directory with its lock. Raises BlockingIOError if somebody else has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def _locked_top(parent: str) -> Iterator[None]:
    """Keep a starting run and one that reaps apart: the latter must not see groups that are not locked yet."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
