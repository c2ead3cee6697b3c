"""The one place where mnb signals processes and empties groups: only what is proved, at that moment, to be a run's.

No number that somebody says is enough. A process is held first (pidfd_open(2)), then proved, then signalled, so that
the signal goes to no later process with its pid. A group is the directory that the run made, by its inode.
Standard library only, since the guardian needs it too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from typing import NamedTuple, Protocol

from milabench_ng.fence.kernel.processes import lineage, proc_is_ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from subprocess import Popen
    from typing import Any

AT_ONCE = 256
"""How many processes are held at a time: a process may have 1,024 descriptors."""
_REMOVED = (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP)
"""Reading a group that has vanished, or one whose processes its parent lists (threaded)."""


class Proof(Protocol):
    """What knows processes of a run from others."""

    def proved(self, pids: Iterable[int]) -> set[int]:
        """Those of ``pids`` that are processes of the run at this moment."""


class NotOursError(Exception):
    """A process that is never signalled was to be: nothing was done to it."""


def send(number: signal.Signals, pids: Iterable[int], proof: Proof) -> set[int]:
    """Send a signal to those of ``pids`` that ``proof`` finds while they are held; return them.

    Raises NotOursError, after all others have been signalled, for a pid of this process, an ancestor of it, or pid 1,
    whatever the proof says, and for a process of another user that the proof does not find. Any other process that
    is not found has ended, or has the pid of one that has.
    """
    wanted, sent, refused = list(dict.fromkeys(pids)), set[int](), list[str]()
    spared = untouchable()
    for start in range(0, len(wanted), AT_ONCE):
        with contextlib.ExitStack() as stack:
            held = {pid: hold for pid in wanted[start : start + AT_ONCE] if (hold := _hold(pid, stack)) is not None}
            proved = proof.proved(held)
            for pid, hold in held.items():
                if pid in spared:
                    refused.append(f"process {pid} is {spared[pid]}")
                elif pid in proved:
                    sent |= _send(number, pid, hold)
                elif _of_another_user(pid):
                    refused.append(f"process {pid} is another user's")
    if refused:
        raise NotOursError(f"mnb does not signal it: {'; '.join(refused)}")
    return sent


def signal_child(child: Popen[Any], number: signal.Signals) -> None:
    """Send a signal to a child of this process, which nobody else waits for: so its pid is its own until we have."""
    child.send_signal(number)


def untouchable() -> dict[int, str]:
    """The processes that no proof makes ours, and what each is."""
    if not proc_is_ours():
        raise NotOursError("mnb signals nothing: /proc shows another pid namespace than its own")
    line = lineage(os.getpid())
    if not line:
        raise NotOursError("mnb signals nothing: its own ancestors cannot be read")
    above = {one.pid: "an ancestor of this one" for one in line[1:]}
    return {os.getppid(): "the parent of this one"} | above | {os.getpid(): "this one", 1: "the init process"}


def _hold(pid: int, stack: contextlib.ExitStack) -> int | None:
    """A descriptor of the process, until the stack is left; None if it is gone."""
    try:
        hold = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stack.callback(os.close, hold)
    return hold


def _send(number: signal.Signals, pid: int, hold: int) -> set[int]:
    try:
        signal.pidfd_send_signal(hold, number)
    except (ProcessLookupError, PermissionError):  # it has ended, or has become another user's by an exec
        return set()
    return {pid}


def _of_another_user(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid != os.geteuid()
    except FileNotFoundError:
        return False


class OwnGroup(NamedTuple):
    """A group that this run made. A directory of the same name that somebody else made is not it."""

    path: str
    device: int
    inode: int

    @staticmethod
    def noted(path: str) -> OwnGroup:
        """The group that was just made there. Raises OSError if there is none."""
        seen = os.stat(path, follow_symlinks=False)
        return OwnGroup(path, seen.st_dev, seen.st_ino)

    @contextlib.contextmanager
    def held(self) -> Iterator[str | None]:
        """A path to the directory that stays with it, whatever happens to its name; None if the group is gone."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            yield None
            return
        try:
            seen = os.fstat(descriptor)
            ours = (seen.st_dev, seen.st_ino) == (self.device, self.inode)
            yield f"/proc/self/fd/{descriptor}/" if ours else None
        finally:
            os.close(descriptor)

    def is_there(self) -> bool:
        """Whether it has not been removed."""
        with self.held() as directory:
            return directory is not None

    def members(self) -> list[int]:
        """The pids in it and in all groups below; none if it is gone. The pid 0 is outside our pid namespace."""
        with self.held() as directory:
            return _members(directory) if directory else []

    def proved(self, pids: Iterable[int]) -> set[int]:
        """Those of ``pids`` that are in it at this moment."""
        return set(pids) & set(self.members())


def noted_groups(paths: Iterable[str]) -> list[OwnGroup]:
    """The groups of a dead run at these places, without those that its guardian has removed meanwhile."""
    found = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found.append(OwnGroup.noted(path))
    return found


class Swept(NamedTuple):
    """What became of groups that were to be removed."""

    killed: int
    """Processes that were there."""
    removed: int
    """Groups that were there and are gone. It does not matter what removed a group: systemd removes a scope's once its
    last process ends."""
    left: tuple[str, ...]
    """What is left, and why; empty if nothing is."""


def kill(groups: Iterable[OwnGroup]) -> set[int]:
    """Forbid forks, then SIGKILL everything in the groups or below. Returns the pids that were there.

    Raises NotOursError, after everything else has been killed, if a process is among them that is never signalled.
    """
    found: set[int] = set()
    refused: list[NotOursError] = []
    for group in groups:
        try:
            found |= _kill(group)
        except NotOursError as error:
            refused.append(error)
    if refused:
        raise refused[0]
    return found


def _kill(group: OwnGroup) -> set[int]:
    with group.held() as directory:
        if directory is None:
            return set()
        members = set(_members(directory))
        if not members & untouchable().keys():
            for one in _groups(directory):
                _set(one, "pids.max", "0")
            members |= set(_members(directory))
            _set(directory, "cgroup.kill", "1")
        members.discard(0)
        try:
            send(signal.SIGKILL, sorted(members), group)
        except NotOursError as error:
            raise NotOursError(f"{error}; it is in the group {group.path}: move it out") from None
        return members


def sweep(groups: Iterable[OwnGroup], patience_s: float) -> Swept:
    """Kill everything in the groups and remove them with all below, in at most `patience_s` seconds."""
    groups = list(groups)
    end, pause_s = time.monotonic() + patience_s, 0.001
    killed: set[int] = set()
    seen: set[tuple[OwnGroup, str]] = set()
    while True:
        refused = ""
        seen.update((group, below) for group in groups for below in _below(group))
        try:
            killed |= kill(groups)
        except NotOursError as error:
            refused = str(error)
        for group in groups:
            _remove(group)
        remaining = {(group, below) for group in groups for below in _below(group)}
        if not remaining or time.monotonic() > end:
            return Swept(len(killed), len(seen - remaining), _left(groups, refused))
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


def _left(groups: Sequence[OwnGroup], refused: str) -> tuple[str, ...]:
    """What is at the places of the groups."""
    busy = [f"{group.path} is still busy{f' ({refused})' if refused else ''}" for group in groups if group.is_there()]
    others = [group.path for group in groups if os.path.lexists(group.path) and not group.is_there()]
    return (*busy, *(f"not removed: {path} was not created by this run" for path in others))


def _remove(group: OwnGroup) -> None:
    """Remove the group and all below that hold no processes; the next pass tells what another has removed meanwhile."""
    with group.held() as directory:
        if directory is None:
            return
        for below in reversed(list(_groups(directory))):
            with contextlib.suppress(OSError):  # still busy, or gone
                os.rmdir(group.path if below == directory else below)


def _below(group: OwnGroup) -> list[str]:
    """The group and all groups below it, by their path from it; none if it is gone."""
    with group.held() as directory:
        return [below[len(directory) :] for below in _groups(directory)] if directory else []


def _groups(directory: str) -> Iterator[str]:
    """The group and all groups below it, parents first."""
    for group, _, _ in os.walk(directory):
        yield group


def _members(directory: str) -> list[int]:
    found: list[int] = []
    for group in _groups(directory):
        try:
            with open(os.path.join(group, "cgroup.procs")) as file:
                found += [int(line) for line in file]
        except OSError as error:
            if error.errno not in _REMOVED:
                raise
    return found


def _set(group: str, name: str, text: str) -> None:
    """Write to the file if this kernel has it; a group that vanishes meanwhile is fine."""
    try:
        descriptor = os.open(os.path.join(group, name), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, text.encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)
