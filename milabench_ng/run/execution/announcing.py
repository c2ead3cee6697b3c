"""Publishes the progress of a batch's launches: state changes, slices, and a sign of life."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from milabench_ng.run.events.run_events import AnyRunEvent, BatchProgress, Gauges, LaunchState, Slices, State
from milabench_ng.run.execution.tenant import Tenant

SLICES_S = 2.0
"""The least time between two `Slices` of a launch."""
PROGRESS_S = 1.0
"""Time between two `BatchProgress`."""


class Announcer:
    """Publishes events about the tenants of one batch; neither ``publish`` nor ``gauges`` may wait."""

    def __init__(
        self,
        batch: int,
        tenants: Sequence[Tenant],
        publish: Callable[[AnyRunEvent], None],
        gauges: Callable[[], Mapping[str, Gauges]] = dict,
    ) -> None:
        """``gauges``: the last samples of the GPUs, by slot."""
        self.batch = batch
        self.tenants = tenants
        self.publish = publish
        self.gauges = gauges
        self._told = {tenant.launch.job_id: [0 for _ in tenant.ranks] for tenant in tenants}
        """Slices published so far, by job id and rank."""
        self._reached: dict[str, set[State]] = {job_id: set() for job_id in self._told}
        """States published so far, by job id."""
        self._slices_s = dict.fromkeys(self._told, 0.0)
        self._progress_s = time.monotonic()
        for tenant in tenants:
            tenant.ready.add_done_callback(lambda _, tenant=tenant: self.reached(tenant, "ready"))  # type: ignore[misc]
            tenant.full.add_done_callback(lambda _, tenant=tenant: self.reached(tenant, "full"))  # type: ignore[misc]
            tenant.ended.add_done_callback(lambda _, tenant=tenant: self._ended(tenant))  # type: ignore[misc]

    def reached(self, tenant: Tenant, state: State) -> None:
        """Publish that a tenant has reached ``state``, once; a working one has been ready."""
        if state == "working":
            self.reached(tenant, "ready")  # the callback of its future may still be due
        known = self._reached[tenant.launch.job_id]
        if state in known:
            return
        known.add(state)
        self.publish(
            LaunchState(
                batch=self.batch,
                job_id=tenant.launch.job_id,
                label=tenant.launch.label,
                state=state,
                pid=tenant.pid,
                rank_pids=tuple(rank.process.pid for rank in tenant.ranks if rank.process),
            )
        )

    def look(self, now: float, start_s: float | None) -> None:
        """Publish what is new at ``now``, if it is due. ``start_s``: the common start, None before it."""
        for tenant in self.tenants:
            if now - self._slices_s[tenant.launch.job_id] >= SLICES_S and tenant.alive:
                self._tell_slices(tenant, now)
        if now - self._progress_s >= PROGRESS_S:
            self._progress_s = now
            self._tell_progress(now, start_s)

    def _ended(self, tenant: Tenant) -> None:
        self._tell_slices(tenant, time.monotonic())
        self.reached(tenant, "ended")

    def _tell_slices(self, tenant: Tenant, now: float) -> None:
        told = self._told[tenant.launch.job_id]
        new = [row for rank, known in zip(tenant.ranks, told, strict=True) for row in rank.slices[known:]]
        if not new:
            return
        told[:] = [len(rank.slices) for rank in tenant.ranks]
        self._slices_s[tenant.launch.job_id] = now
        self.publish(
            Slices(
                batch=self.batch,
                job_id=tenant.launch.job_id,
                count=sum(row.count for row in new),
                steps=sum(row.steps for row in new),
                length_s=sum(row.length_s for row in new),
                wait_s=sum(row.wait_s for row in new),
                slices=tuple(told),
            )
        )

    def _tell_progress(self, now: float, start_s: float | None) -> None:
        self.publish(
            BatchProgress(
                number=self.batch,
                launches=len(self.tenants),
                ready=sum(tenant.ready.done() for tenant in self.tenants),
                working_s=None if start_s is None else now - start_s,
                items_per_s=tuple(tenant.rate(now) for tenant in self.tenants),
                gauges=dict(self.gauges()),
            )
        )
