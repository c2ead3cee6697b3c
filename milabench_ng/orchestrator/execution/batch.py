"""Runs one batch: all tenants ready, common start, common stop, then removal of every process and group."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from milabench_ng.events import Entered, Start, Stop
from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.orchestrator.execution.announcing import Announcer
from milabench_ng.orchestrator.execution.interruption import Interruption
from milabench_ng.orchestrator.execution.stacks import dump_stacks, kernel_view
from milabench_ng.orchestrator.execution.starting import Starter
from milabench_ng.orchestrator.execution.strays import living_parents, look
from milabench_ng.orchestrator.execution.tenant import Tenant
from milabench_ng.orchestrator.execution.watchdog import LaunchProgress, Limits, overdue
from milabench_ng.records.isolation import Effective, GroupEvents, IoEvidence, ProcView, Usage

WATCH_INTERVAL_S = 0.2
KILL_PATIENCE_S = 10.0
"""Wait from SIGKILL to the end of the process; one that takes longer hangs in the kernel and is abandoned."""


class GroupEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was observed of one group from the outside."""

    effective: Effective | None = None
    proc: ProcView | None = None
    effective_end: Effective | None = None
    usage: Usage | None = None
    before: GroupEvents | None = None
    after: GroupEvents | None = None
    mismatch: str | None = None
    privileged: tuple[str, ...] = ()
    """What put threads of it before those of others at the stop."""
    io: IoEvidence | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a batch (monotonic); None for what it did not reach."""

    start_s: float | None
    stop_s: float | None


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
        self.evidence: dict[str, dict[str, GroupEvidence]] = {
            tenant.launch.job_id: {slot: GroupEvidence(before=group.events()) for slot, group in tenant.groups.items()}
            for tenant in tenants
        }
        self.timed_out: dict[str, str] = {}
        """What the watchdog waited for, by job id."""
        self._killed: set[str] = set()
        self._endings: set[asyncio.Task[None]] = set()
        """Launches being ended: dump the stacks, kill, wait a while."""
        self.start_s: float | None = None
        self.stop_s: float | None = None

    async def run(self) -> Timeline:
        """All of it; returns when no process of the batch is left."""
        self._watching = asyncio.create_task(self._watch())
        try:
            await asyncio.gather(*(self._start_worker(tenant) for tenant in self.tenants))
            await self._until(lambda tenant: tenant.ready.done())
            self._start()
            if self.start_s is not None:
                await self._until(lambda tenant: tenant.full.done(), self._latest_stop())
            self._stop()
            await self._unless_unwatched(asyncio.gather(*(tenant.ended for tenant in self.tenants)))
        finally:
            self._watching.cancel()
            for ending in self._endings:
                ending.cancel()
            self._collect()
        return Timeline(start_s=self.start_s, stop_s=self.stop_s)

    def note(self, job_id: str, slot: str, **seen: object) -> None:
        """Add to the evidence of a launch's group what was seen of it."""
        evidence = self.evidence[job_id]
        evidence[slot] = msgspec.structs.replace(evidence[slot], **seen)

    async def _start_worker(self, tenant: Tenant) -> None:
        await tenant.start(self.starter, self._verify)
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
        interruption = asyncio.create_task(self.interrupted.wait())
        pending: set[asyncio.Future[object]] = {interruption}  # type: ignore[arg-type]
        for tenant in self.tenants:
            pending |= {one for one in (tenant.ready, tenant.full, tenant.ended) if not one.done()}  # type: ignore[misc]
        timeout = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        await self._unless_unwatched(*pending, timeout=timeout)
        interruption.cancel()

    async def _unless_unwatched(self, *pending: asyncio.Future[Any], timeout: float | None = None) -> None:
        """Wait for any of these; raise what the watchdog died of, since nothing limits the tenants without it."""
        await asyncio.wait({*pending, self._watching}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._watching.done():
            self._watching.result()

    def _latest_stop(self) -> float:
        """When the tenant with the largest ``--max-seconds`` must stop."""
        seconds = [float(tenant.launch.arguments["max_seconds"] or 0) for tenant in self.tenants]
        return (self.start_s or 0.0) + max(seconds)

    def _start(self) -> None:
        ready = [tenant for tenant in self.tenants if tenant.alive and tenant.ready.done()]
        if ready and not self.interrupted.is_set():
            self.start_s = time.monotonic()
            for tenant in ready:
                tenant.heard_s = self.start_s
                tenant.tell(Start())
            for tenant in ready:
                self.announcer.reached(tenant, "working")

    def _stop(self) -> None:
        self.stop_s = time.monotonic()
        parents = living_parents()
        for tenant in self.tenants:
            if tenant.alive:
                self._read_counters(tenant, end=True)
                self._look_outside(tenant, parents)
        for tenant in self.tenants:
            tenant.tell(Stop())
            if not tenant.ready.done():
                self._kill(tenant)

    async def _watch(self) -> None:
        """Track peak usage, do what the fence leaves to us, and run the watchdog."""
        asked = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            now = time.monotonic()
            for tenant in self.tenants:
                if tenant.alive:
                    self._look(tenant)
                    self._end_if_late(tenant, now, asked)
            self.announcer.look(now, self.start_s)

    def _look(self, tenant: Tenant) -> None:
        """Watch the tenant's groups; a group that can no longer be read holds nothing."""
        for slot, group in tenant.groups.items():
            try:
                group.watch()
            except OSError as error:
                self.note(tenant.launch.job_id, slot, mismatch=f"its group cannot be read any more: {error}")
                self._kill(tenant)

    def _end_if_late(self, tenant: Tenant, now: float, asked: float) -> None:
        """End a tenant that is late."""
        progress = LaunchProgress(
            asked_s=asked,
            ready=tenant.ready.done(),
            start_s=self.start_s,
            stop_s=self.stop_s,
            heard_s=tenant.heard_s,
            longest_slice_s=tenant.longest_slice_s,
        )
        late = overdue(progress, self.limits[tenant.launch.test], now)
        if late and tenant.launch.job_id not in self.timed_out:
            self.timed_out[tenant.launch.job_id] = late
            self._begin(self._end_hung(tenant, late))

    async def _end_hung(self, tenant: Tenant, late: str) -> None:
        """Dump its stacks into its log, then kill it."""
        os.write(tenant.log.descriptor, f"\nmnb: {late}; its stacks, then it is killed\n".encode())
        await dump_stacks(tenant.pids(), tenant.log.descriptor)
        self._kill(tenant)

    async def _wait_for_death(self, tenant: Tenant) -> None:
        """Wait a limited time for a killed tenant to be gone."""
        await asyncio.wait({tenant.ended}, timeout=KILL_PATIENCE_S)
        if tenant.alive:
            states = "; ".join(f"{pid}: {kernel_view(pid)}" for pid in tenant.pids())
            why = self.timed_out.get(tenant.launch.job_id, "it was killed")
            self.timed_out[tenant.launch.job_id] = f"{why}; {KILL_PATIENCE_S:.0f} s after SIGKILL still there: {states}"
            tenant.abandon()

    def _begin(self, ending: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    def _verify(self, tenant: Tenant, entered: Entered) -> None:
        """Compare the share of a process that has entered with what the kernel gives it."""
        slot = tenant.launch.slot_ids[entered.rank]
        job_id = tenant.launch.job_id
        try:
            effective, proc = tenant.groups[slot].verify(entered.pid)
        except IsolationMismatch as error:
            self.note(job_id, slot, mismatch=str(error))
            self._kill(tenant)
        except ProcessLookupError:
            return
        else:
            self.note(job_id, slot, effective=effective, proc=proc)

    def _kill(self, tenant: Tenant) -> None:
        """Kill it, and read its counters first: the kill itself raises them (forks are refused)."""
        if tenant.alive and tenant.launch.job_id not in self._killed:
            self._read_counters(tenant, end=False)
            self._killed.add(tenant.launch.job_id)
            tenant.kill()
            self._begin(self._wait_for_death(tenant))

    def _collect(self) -> None:
        for tenant in self.tenants:
            if tenant.launch.job_id not in self._killed:
                self._read_counters(tenant, end=False)

    def _look_outside(self, tenant: Tenant, parents: Mapping[int, int]) -> None:
        """Fail a launch of which something has left its fence: no group shows that."""
        entered = [rank.entered.pid for rank in tenant.ranks if rank.entered]
        seen = look(entered, tuple(tenant.groups.values()), parents)
        changes: dict[str, object] = {"mismatch": seen.departed} if seen.departed else {}
        self.note(tenant.launch.job_id, tenant.launch.slot_ids[0], privileged=seen.privileged, **changes)

    def _read_counters(self, tenant: Tenant, *, end: bool) -> None:
        """Read usage and events; at the ``end`` of the measurement, while the tenant still works, also limits."""
        for slot, group in tenant.groups.items():
            changes: dict[str, object] = {"usage": group.usage(), "after": group.events()}
            if end:
                changes["effective_end"] = group.effective()
            self.note(tenant.launch.job_id, slot, **changes)


async def gone(tenants: Iterable[Tenant]) -> list[str]:
    """Remove the groups of all tenants; return the names of those still busy after some seconds."""
    left = [group for tenant in tenants for group in tenant.groups.values()]
    for _ in range(5):
        left = [group for group in left if not group.remove()]
        if not left:
            break
        await asyncio.sleep(0.5)
    return [group.name for group in left]
