"""Kills and removes groups; as a program, the guardian that does so when the orchestrator is gone.

Standard library only: the guardian is `python -I -S guardian.py`, in its own session, blocked on a pipe from the
orchestrator. The pipe's lines name what to remove (`group DIRECTORY`, `session ID`, or `forget ID`); its end, which the
kernel causes even after SIGKILL, triggers the removal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PATIENCE_S = 20.0
AT_ONCE = 256
"""How many processes are held at a time: a process may have 1,024 descriptors."""


def processes(directory: str) -> list[int]:
    """The pids in the group and all groups below it; none if it is gone."""
    found: list[int] = []
    for group in _groups(directory):
        try:
            with open(os.path.join(group, "cgroup.procs")) as file:
                found += [int(line) for line in file]
        except OSError:  # removed in the meantime
            continue
    return found


def kill(directories: Iterable[str]) -> set[int]:
    """Forbid forks, then SIGKILL everything in the groups or below. Returns the pids that were there."""
    found: set[int] = set()
    for directory in directories:
        for group in _groups(directory):
            _set(group, "pids.max", "0")
        found.update(pid for pid in processes(directory) if pid)
        _set(directory, "cgroup.kill", "1")
        kill_all(lambda directory=directory: processes(directory))  # type: ignore[misc]
    return found


def kill_all(members: Callable[[], Iterable[int]]) -> None:
    """SIGKILL to all processes that `members` lists, and lists again once they are held: a pid that was given to
    another process in between is no member. The pid 0 is a process outside our pid namespace."""
    pids = [pid for pid in members() if pid not in (0, os.getpid())]
    for start in range(0, len(pids), AT_ONCE):
        held = [(pid, hold) for pid in pids[start : start + AT_ONCE] if (hold := _hold(pid)) is not None]
        still = set(members())
        for pid, hold in held:
            if pid in still:
                with contextlib.suppress(OSError):  # it is gone, or not ours
                    signal.pidfd_send_signal(hold, signal.SIGKILL)
            os.close(hold)


def _hold(pid: int) -> int | None:
    """A descriptor of the process (pidfd_open(2)); None if it is gone."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def sweep(directories: Iterable[str], patience_s: float) -> tuple[int, int, bool]:
    """Kill everything in the groups and remove them with all below, in at most `patience_s` seconds.

    Returns the number of processes that were there, the number of groups that were there and are gone, and whether
    nothing is left. It does not matter what removed a group: systemd removes a scope's once its last process ends.
    """
    directories = list(directories)
    end, pause_s = time.monotonic() + patience_s, 0.001
    killed: set[int] = set()
    seen: set[str] = set()
    while True:
        seen.update(group for directory in directories for group in _groups(directory))
        killed |= kill(directories)
        for directory in directories:
            for group in reversed(list(_groups(directory))):
                with contextlib.suppress(OSError):  # still busy, or removed by another process: the next pass tells
                    os.rmdir(group)
        done = not any(os.path.isdir(directory) for directory in directories)
        if done or time.monotonic() > end:
            return len(killed), sum(not os.path.isdir(group) for group in seen), done
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


def session_members(sessions: Iterable[int]) -> dict[int, int]:
    """The processes of these sessions and their descendants, from /proc: session by pid."""
    members = {session for session in sessions if session > 1}
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    living = {pid: stat for pid, stat in stats.items() if stat}
    size = -1
    while size != len(members):
        size = len(members)
        members.update(pid for pid, (parent, session) in living.items() if session in members or parent in members)
    return {pid: session for pid, (_, session) in living.items() if pid in members}


def _stat(pid: int) -> tuple[int, int] | None:
    """The parent and session of a process; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, parent, _, session = file.read().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state in "ZX" else (int(parent), int(session))


def _groups(directory: str) -> Iterator[str]:
    """The group and all groups below it, parents first."""
    for group, _, _ in os.walk(directory):
        yield group


def _set(group: str, name: str, text: str) -> None:
    """Write to the file if this kernel has it; a group that vanishes meanwhile is fine."""
    path = os.path.join(group, name)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, text.encode())
    except OSError:
        pass
    finally:
        os.close(descriptor)


def main() -> int:
    """Read the pipe to its end, then remove what it named."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: list[str] = []
    sessions: set[int] = set()
    for line in sys.stdin:
        what, name = line.rstrip("\n").split(" ", 1)
        if what == "group":
            groups.append(name)
        elif what == "session":
            sessions.add(int(name))
        else:
            sessions.discard(int(name))
    if sessions:
        kill_all(lambda: session_members(sessions))
    return 0 if not groups or sweep(groups, PATIENCE_S)[2] else 1


if __name__ == "__main__":
    sys.exit(main())
