"""Sees what somebody changes of a tenant's limits, groups or scheduling while it works, also if it is put back.

Values are compared, not events: a write that changes nothing is nothing. A thread that sets its own niceness or CPUs
when it is new is not accused: it is compared with what it was at two looks in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from milabench_ng.fence.interface import Group
from milabench_ng.fence.isolation_check import changes
from milabench_ng.fence.kernel.holds import Holds, Writes
from milabench_ng.fence.kernel.limits import ThreadSchedule, schedules
from milabench_ng.fence.kernel.mounts import parse_own_groups
from milabench_ng.fence.kernel.readings import host_text
from milabench_ng.fence.kernel.whereabouts import controlled, moved
from milabench_ng.model.grouping import grouped
from milabench_ng.records.isolation import Effective, ProcView

WatchedPath = tuple[str, str]
"""A launch's job id, and one of its slots."""

LOOK_S = 0.5
"""Time between two looks at what the kernel does not tell of."""
PAUSE_S = 0.01
"""Least time between two looks: somebody who writes without end shall not keep us busy."""


class Change(NamedTuple):
    """What has changed: what the launch has lost of its isolation, and how else it was scheduled."""

    lost: tuple[str, ...] = ()
    scheduled: tuple[str, ...] = ()


class Lookout:
    """Watches what holds a process that has entered a group, and how its threads and its descendants are scheduled."""

    def __init__(self, group: Group, effective: Effective, proc: ProcView, known: Mapping[int, ThreadSchedule]) -> None:
        """``effective`` and ``proc``: what the kernel said when it had entered; ``known``: its threads before that."""
        self._group = group
        self._entry, self._pid = effective, proc.pid
        self._groups = controlled(parse_own_groups("\n".join(proc.groups)))
        self.holds = Holds(self._groups)
        self._known = dict(known)
        self._new: dict[int, ThreadSchedule] = {}

    def limits(self) -> Change:
        """Compare the limits of its groups, and of all above. Raises OSError if the group has vanished."""
        return Change(lost=(*changes(self._entry, self._group.effective()), *self.holds.changes()))

    def processes(self) -> Change:
        """Compare groups and scheduling of the processes. Raises OSError if the group has vanished."""
        pids = self._pids()
        seen = {thread: schedule for pid in pids for thread, schedule in schedules(pid).items()}
        known = {thread: self._known[thread] for thread in seen if thread in self._known}
        odd = [(what, thread) for thread, before in known.items() for what in before.changed(seen[thread])]
        twice = {thread for thread, now in seen.items() if self._new.get(thread) == now}
        self._known, self._new = {thread: seen[thread] for thread in {*known, *twice}}, seen
        return Change(tuple(filter(None, (moved(str(pid), self._groups) for pid in pids))), tuple(_together(odd)))

    def all(self) -> Change:
        """Compare all of it, and the groups of each thread. Raises OSError if the group has vanished."""
        limits, processes = self.limits(), self.processes()
        places = [f"{pid}/task/{thread}" for pid in self._pids() for thread in schedules(pid)]
        threads = filter(None, (moved(place, self._groups) for place in places))
        return Change((*limits.lost, *processes.lost, *threads), processes.scheduled)

    def _pids(self) -> set[int]:
        return {self._pid, *self._group.pids()}


Tell = Callable[[Change], None]
"""Is told what has changed, as soon as it is seen."""


class Lookouts:
    """The lookouts of a batch; each ends with its last look."""

    def __init__(self) -> None:
        self._watched: dict[WatchedPath, tuple[Lookout, Tell]] = {}
        self._writes: Writes | None = None
        """None where the kernel tells of no writes: then limits are looked at from time to time, too."""

    def watch(self, place: WatchedPath, lookout: Lookout, tell: Tell) -> None:
        """Watch one process that has entered."""
        self._watched[place] = lookout, tell
        if self._writes is not None:
            try:
                lookout.holds.follow(self._writes)
            except OSError:  # the user's number of watches is used up
                self._hear_no_more()
        _look_at(lookout, tell, Lookout.limits)  # nobody heard what was written since it entered

    async def run(self) -> None:
        """Look whenever something is written, and every `LOOK_S`, until this is cancelled."""
        heard = asyncio.Event()
        with contextlib.suppress(OSError):  # the user's number of instances is used up
            self._writes = Writes()
            asyncio.get_running_loop().add_reader(self._writes.descriptor, heard.set)
        try:
            next_s = time.monotonic() + LOOK_S
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(next_s - time.monotonic()):
                        await heard.wait()
                if self._writes is not None:
                    self._writes.clear()
                if heard.is_set() or self._writes is None:
                    self._look(Lookout.limits)
                heard.clear()
                if time.monotonic() >= next_s:
                    self._look(Lookout.processes)
                    next_s = time.monotonic() + LOOK_S
                await asyncio.sleep(PAUSE_S)
        finally:
            self._hear_no_more()
            self._watched.clear()  # of launches that ended before the stop; they hold files open

    def last(self, place: WatchedPath) -> None:
        """Look at all once more, while the process still works, and watch it no longer."""
        watched = self._watched.pop(place, None)
        if watched is not None:
            _look_at(*watched, Lookout.all)

    def _look(self, how: Callable[[Lookout], Change]) -> None:
        for watched in tuple(self._watched.values()):
            _look_at(*watched, how)

    def _hear_no_more(self) -> None:
        if self._writes is not None:
            asyncio.get_running_loop().remove_reader(self._writes.descriptor)
            self._writes.close()
            self._writes = None


def _look_at(lookout: Lookout, tell: Tell, how: Callable[[Lookout], Change]) -> None:
    with contextlib.suppress(OSError):  # its group has vanished, which its counters show
        change = how(lookout)
        if change != Change():
            tell(change)


def _together(odd: Iterable[tuple[str, int]]) -> Iterable[str]:
    """One line for all threads of which the same is odd."""
    for what, same in grouped(odd, lambda one: one[0]).items():
        threads = sorted(thread for _, thread in same)
        name = host_text(f"{threads[0]}/comm").strip()
        others = f" and {len(threads) - 1} other threads" if len(threads) > 1 else ""
        yield f"{what} ({name} {threads[0]}{others})"
