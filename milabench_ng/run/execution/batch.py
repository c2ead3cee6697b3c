"""Runs one batch: all tenants ready, common start, common stop, then removal of every process and group."""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.fence.kernel.limits import schedules
from milabench_ng.fence.kernel.processes import Table, identify, read_table
from milabench_ng.fence.killing import NotOursError
from milabench_ng.model.events import Entered, Start, Stop
from milabench_ng.run.execution.announcing import Announcer
from milabench_ng.run.execution.group_evidence import GroupEvidence
from milabench_ng.run.execution.interruption import Interrupted, Interruption
from milabench_ng.run.execution.lookout import Change, Lookout, Lookouts
from milabench_ng.run.execution.stacks import STACKS, dump_stacks, kernel_view, say
from milabench_ng.run.execution.starting import MachineryError, Starter
from milabench_ng.run.execution.strays import look
from milabench_ng.run.execution.tenant import Tenant
from milabench_ng.run.execution.waiting import heed_callbacks, in_thread, told
from milabench_ng.run.execution.watchdog import LaunchProgress, Limits, Pause, overdue, pauses

WATCH_INTERVAL_S = 0.2
KILL_PATIENCE_S = 10.0
"""Wait from SIGKILL to the end of the process; one that takes longer hangs in the kernel and is abandoned."""
STACKS_S = 5.0
"""Limit for writing the stacks of a launch."""
TOLD = 8
"""Changes of scheduling that a mark of a launch tells."""
INTERRUPTED_S = 10.0
"""How long tenants may take to end after an interruption."""


class BatchRunner:
    """Runs the tenants of one batch, from request to exit."""

    def __init__(
        self,
        tenants: Sequence[Tenant],
        starter: Starter,
        limits: Mapping[str, Limits],
        interrupted: Interruption,
        announcer: Announcer,
    ) -> None:
        """``interrupted`` ends the batch early; ``limits``: by test (`suite.test`)."""
        self.tenants = tenants
        self.starter = starter
        self.limits = limits
        self.interrupted = interrupted
        self.announcer = announcer
        self.evidence = {one.launch.job_id: dict.fromkeys(one.groups, GroupEvidence()) for one in tenants}
        self.timed_out: dict[str, str] = {}
        """What the watchdog waited for, by job id."""
        self.cut_short: set[str] = set()
        """Launches that did not end soon after an interruption, and were killed."""
        self.pauses: list[Pause] = []
        """When this process stood still."""
        self.broken = ""
        """What a task of this runner died of."""
        self._killed: dict[str, float] = {}
        """When each launch was killed (monotonic)."""
        self._lookouts = Lookouts()
        self.start_s: float | None = None
        """When its tenants began to work (monotonic), like the next; None for what it did not reach."""
        self.stop_s: float | None = None
        for tenant in tenants:
            for slot, group in tenant.groups.items():
                self._read(tenant, slot, group.events, "before")

    async def run(self) -> None:
        """All of it; returns when no process of the batch is left, even if a task of this runner fails."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                watches = (self._watch(), self._lookouts.run(), self._end_interrupted(), heed_callbacks())
                background = [self._tasks.create_task(one) for one in watches]
                await self._work()
                for task in background:
                    task.cancel()
        except ExceptionGroup as errors:
            self.broken = "".join(traceback.format_exception(errors)) + told(errors)
            await self._give_up()
        finally:
            self._collect()

    def note(self, job_id: str, slot: str, **seen: object) -> None:
        """Add to the evidence of a launch's group what was seen of it."""
        evidence = self.evidence[job_id]
        evidence[slot] = msgspec.structs.replace(evidence[slot], **seen)

    def accuse(self, job_id: str, slot: str, why: str | None) -> None:
        """Note why a launch is not known to be held to its share, if anything; the first reason is the one told."""
        self.note(job_id, slot, mismatch=self.evidence[job_id][slot].mismatch or why)

    async def _work(self) -> None:
        await self._start_workers()
        await self._until(lambda tenant: tenant.ready.done())
        self._start()
        if self.start_s is not None:
            await self._until(lambda tenant: tenant.full.done(), self._latest_stop())
        self._stop()
        await asyncio.wait({tenant.ended for tenant in self.tenants})

    async def _start_workers(self) -> None:
        """Start all workers, unless the run is interrupted; a tenant without one has ended."""
        with contextlib.suppress(Interrupted):
            await self.interrupted.unless(self._start_all())
        for tenant in self.tenants:
            if tenant.pid is None:
                tenant.abandon()

    async def _start_all(self) -> None:
        async with asyncio.TaskGroup() as starts:
            for tenant in self.tenants:
                starts.create_task(self._start_worker(tenant))

    async def _start_worker(self, tenant: Tenant) -> None:
        try:
            await tenant.start(self.starter, self._verify)
        except MachineryError as error:
            tenant.harness_error = str(error)
        else:
            self.announcer.reached(tenant, "starting")

    async def _until(self, reached: Callable[[Tenant], bool], deadline_s: float | None = None) -> None:
        """Return when every living tenant has reached something, at the deadline, or on an interruption."""
        while not all(self._is_past(reached, tenant) for tenant in self.tenants):
            if self.interrupted.is_set() or (deadline_s is not None and time.monotonic() >= deadline_s):
                return
            await self._next_change(deadline_s)

    def _is_past(self, reached: Callable[[Tenant], bool], tenant: Tenant) -> bool:
        """Whether nothing waits for it. A tenant being ended must be gone: it may wake up to write its stack."""
        return not tenant.alive or (reached(tenant) and tenant.launch.job_id not in self.timed_out)

    async def _next_change(self, deadline_s: float | None) -> None:
        interruption = self._tasks.create_task(self.interrupted.wait())
        pending: set[asyncio.Future[Any]] = {interruption}
        for tenant in self.tenants:
            pending |= {one for one in (tenant.ready, tenant.full, tenant.ended) if not one.done()}
        timeout = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        await asyncio.wait(pending, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        interruption.cancel()

    def _latest_stop(self) -> float:
        """When the tenant with the largest ``--max-seconds`` must stop."""
        seconds = [float(tenant.launch.arguments["max_seconds"] or 0) for tenant in self.tenants]
        return (self.start_s or 0.0) + max(seconds)

    def _start(self) -> None:
        ready = [tenant for tenant in self.tenants if tenant.alive and tenant.ready.done()]
        for tenant in ready:
            self._require_proof(tenant)
        if ready and not self.interrupted.is_set():
            self.start_s = time.monotonic()
            for tenant in ready:
                tenant.heard_s = self.start_s
                tenant.tell(Start())
            for tenant in ready:
                self.announcer.reached(tenant, "working")

    def _stop(self) -> None:
        self.stop_s = time.monotonic()
        table = read_table()
        for tenant in self.tenants:
            if tenant.alive:
                self._read_counters(tenant, end=True)
                self._look_outside(tenant, table)
                for slot in tenant.groups:
                    self._lookouts.last((tenant.launch.job_id, slot))
        for tenant in self.tenants:
            tenant.tell(Stop())
            if not tenant.ready.done():
                self._kill(tenant)

    async def _watch(self) -> None:
        """Track peak usage, do what the fence leaves to us, and run the watchdog."""
        asked = ticked = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            now = time.monotonic()
            self.pauses += pauses(ticked + WATCH_INTERVAL_S, now)
            ticked = now
            for tenant in self.tenants:
                if tenant.alive:
                    for slot, group in tenant.groups.items():
                        self._read(tenant, slot, group.watch)
                    self._end_if_late(tenant, now, asked)
                    self._abandon_if_stuck(tenant, now)
            self.announcer.look(now, self.start_s)

    def _end_if_late(self, tenant: Tenant, now: float, asked: float) -> None:
        """End a tenant that is late, also after all that it has said was heard."""
        if tenant.launch.job_id in self.timed_out or not self._late(tenant, now, asked):
            return
        tenant.drain()
        late = self._late(tenant, now, asked)
        if late:
            self.timed_out[tenant.launch.job_id] = late
            self._tasks.create_task(self._end_hung(tenant, late))

    def _late(self, tenant: Tenant, now: float, asked: float) -> str | None:
        progress = LaunchProgress(
            asked_s=asked,
            ready=tenant.ready.done(),
            start_s=self.start_s,
            stop_s=self.stop_s,
            heard_s=tenant.heard_s,
            longest_slice_s=tenant.longest_slice_s,
            pauses=tuple(self.pauses),
        )
        return overdue(progress, self.limits[tenant.launch.test], now)

    async def _end_hung(self, tenant: Tenant, late: str) -> None:
        """Dump its stacks into its log, then kill it, whatever becomes of the stacks."""
        try:
            say(tenant.log.descriptor, f"{late}; printing its stacks, then killing it")
            async with asyncio.timeout(STACKS_S):
                await dump_stacks(tenant.pids(), tenant, tenant.log.descriptor)
        except TimeoutError:
            say(tenant.log.descriptor, f"no more stacks after {STACKS_S:.0f} s")
        finally:
            self._kill(tenant)

    async def _end_interrupted(self) -> None:
        """After an interruption, kill what does not end in a few seconds."""
        await self.interrupted.wait()
        await asyncio.sleep(INTERRUPTED_S)
        for tenant in self.tenants:
            if tenant.alive:
                self.cut_short.add(tenant.launch.job_id)
                self._kill(tenant)

    def _abandon_if_stuck(self, tenant: Tenant, now: float) -> None:
        """Stop waiting for a tenant that a SIGKILL has not ended."""
        job_id = tenant.launch.job_id
        if now - self._killed.get(job_id, now) > KILL_PATIENCE_S:
            states = "; ".join(f"{pid}: {kernel_view(pid)}" for pid in tenant.pids()[:STACKS])
            why = self.timed_out.get(job_id, "it was killed")
            self.timed_out[job_id] = f"{why}; {KILL_PATIENCE_S:.0f} s after SIGKILL still there: {states}"
            tenant.abandon()

    async def _give_up(self) -> None:
        """End all tenants, since nothing watches them any more."""
        for tenant in self.tenants:
            self._kill(tenant)
        await asyncio.wait({tenant.ended for tenant in self.tenants}, timeout=KILL_PATIENCE_S)
        for tenant in self.tenants:
            tenant.abandon()

    def _verify(self, tenant: Tenant, entered: Entered) -> None:
        """Compare the share of a process that has entered with what the kernel gives it."""
        slot = tenant.launch.slot_ids[entered.rank]
        try:
            process = tenant.entering(entered)
            if process is None or tenant.ranks[entered.rank].entered:  # the tenant refuses a second one
                return
            known = schedules(process.pid)
            effective, proc = tenant.groups[slot].verify(process)
            if identify(process.pid) != process:
                return
        except IsolationMismatch as error:
            self._lose(tenant, slot, str(error))
        except ProcessLookupError:
            return
        except OSError as error:
            self._lose(tenant, slot, f"isolation cannot be verified: process {entered.pid} cannot be read: {error}")
        else:
            tenant.ranks[entered.rank].process = process
            self.note(tenant.launch.job_id, slot, effective=effective, proc=proc)
            lookout = Lookout(tenant.groups[slot], effective, proc, known)
            self._lookouts.watch((tenant.launch.job_id, slot), lookout, partial(self._changed, tenant, slot))

    def _require_proof(self, tenant: Tenant) -> None:
        """End a tenant that is ready although one of its ranks is no process that was found and verified."""
        for number, (slot, rank) in enumerate(zip(tenant.launch.slot_ids, tenant.ranks, strict=True)):
            if rank.process is None and not self.evidence[tenant.launch.job_id][slot].mismatch:
                pid = rank.entered.pid if rank.entered else None
                why = f"it says that it is process {pid}, which does not exist" if pid else "it named no process"
                self._lose(tenant, slot, f"isolation: rank {number} reported ready but never entered: {why}.")

    def _changed(self, tenant: Tenant, slot: str, change: Change) -> None:
        """Note what somebody has changed of a launch, unless it is being ended."""
        job_id, start_s = tenant.launch.job_id, self.start_s
        if not tenant.alive or job_id in self._killed:
            return
        when = "before the start" if start_s is None else f"{time.monotonic() - start_s:.1f} s after the start"
        lost = f"isolation changed {when}: {'; '.join(change.lost)}" if change.lost else None
        told = (*self.evidence[job_id][slot].rescheduled, *(f"{what}, {when}" for what in change.scheduled))[:TOLD]
        self.note(job_id, slot, rescheduled=told)
        self.accuse(job_id, slot, lost)

    def _lose(self, tenant: Tenant, slot: str, why: str) -> None:
        """End a tenant of which nobody can say that it is held to its share."""
        self.accuse(tenant.launch.job_id, slot, why)
        self._kill(tenant)

    def _kill(self, tenant: Tenant) -> None:
        """Kill it, and read its counters first: the kill itself raises them (forks are refused)."""
        if tenant.alive and tenant.launch.job_id not in self._killed:
            self._killed[tenant.launch.job_id] = time.monotonic()
            self._read_counters(tenant, end=False)
            tenant.kill()

    def _collect(self) -> None:
        for tenant in self.tenants:
            if tenant.launch.job_id not in self._killed:
                self._read_counters(tenant, end=False)
            if tenant.intruder:
                self.accuse(tenant.launch.job_id, tenant.launch.slot_ids[0], tenant.intruder)

    def _look_outside(self, tenant: Tenant, table: Table) -> None:
        """Fail a launch of which something has left its fence: no group shows that."""
        slot = tenant.launch.slot_ids[0]
        if tenant.worker is None or not any(rank.process for rank in tenant.ranks):
            return
        try:
            seen = look(tenant.worker.family, tuple(tenant.groups.values()), table)
        except OSError as error:
            self._lose(tenant, slot, f"isolation cannot be verified: a process of it cannot be read: {error}")
        else:
            self.note(tenant.launch.job_id, slot, privileged=seen.privileged)
            self.accuse(tenant.launch.job_id, slot, seen.departed or None)

    def _read_counters(self, tenant: Tenant, *, end: bool) -> None:
        """Read usage and events; at the ``end`` of the measurement, while the tenant still works, also limits."""
        for slot, group in tenant.groups.items():
            self._read(tenant, slot, group.usage, "usage")
            self._read(tenant, slot, group.events, "after")
            if end:
                self._read(tenant, slot, group.effective, "effective_end")

    def _read(self, tenant: Tenant, slot: str, read: Callable[[], object], name: str = "") -> None:
        """Read something of a group and note it under ``name``; a group that cannot be read holds nothing."""
        job_id = tenant.launch.job_id
        try:
            seen = read()
        except OSError as error:
            self._lose(tenant, slot, f"its cgroup is no longer readable: {error}")
        except NotOursError as error:  # the fence was to kill it, by itself
            self._lose(tenant, slot, str(error))
        else:
            self.note(job_id, slot, **({name: seen} if name else {}))


async def gone(tenants: Iterable[Tenant]) -> list[str]:
    """Remove the groups of all tenants; return the names of those still busy after some seconds."""
    left = [group for tenant in tenants for group in tenant.groups.values()]
    for _ in range(5):
        left = [group for group in left if not await in_thread(group.remove)]
        if not left:
            break
        await asyncio.sleep(0.5)
    return [group.name for group in left]
