"""What is known of a run while it goes on, made of its events. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from milabench_ng.run.events.run_events import (
    AnyRunEvent,
    BatchBegins,
    BatchProgress,
    Gauges,
    LaunchEnds,
    LaunchSlots,
    LaunchState,
    RunBegins,
    RunEnds,
    Slices,
)

REMEMBERED = 30
"""Rates kept of each launch: a minute, at one in two seconds."""

Phase = Literal["waiting", "starting", "ready", "settling", "window", "full", "ended"]
"""What a tenant does: ``settling`` and ``window`` follow the common start, ``full`` waits for the others."""


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of the batch."""

    placed: LaunchSlots
    phase: Phase = "waiting"
    rates: tuple[float, ...] = ()
    """Items per second of what was told at a time, the last one last."""
    rate: float | None = None
    """Items per second now; None before the common start."""
    wait_pct: float | None = None
    """Of its time, the part that it waited for data."""
    gauges: tuple[Gauges, ...] = ()
    """Of its GPUs."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment."""

    begins: RunBegins | None = None
    batch: BatchBegins | None = None
    batch_s: float = 0.0
    """When the batch began (monotonic)."""
    working_s: float | None = None
    """Since the common start; None before it."""
    tenants: tuple[TenantView, ...] = ()
    failed: frozenset[tuple[str, str]] = frozenset()
    """Launches whose last attempt failed: label and job id."""
    marked: frozenset[tuple[str, str]] = frozenset()
    ends: RunEnds | None = None
    """How the session ended; None while it goes on."""

    @property
    def batches_done(self) -> int:
        """Launch groups that have ended: those before the current one, or all of a run that nothing is left of."""
        if self.begins and self.ends and not self.ends.missing:
            return self.begins.batches
        return self.batch.number if self.batch else 0


def seen(view: RunView, event: AnyRunEvent, time_s: float) -> RunView:
    """The view after an event that was published at ``time_s`` (monotonic)."""
    replace = msgspec.structs.replace
    match event:
        case RunBegins():
            return RunView(begins=event)
        case BatchBegins():
            tenants = tuple(TenantView(placed=placed) for placed in event.launches)
            return replace(view, batch=event, batch_s=time_s, working_s=None, tenants=tenants)
        case LaunchState():
            return replace(view, tenants=tuple(_reached(one, event) for one in view.tenants))
        case Slices():
            return replace(view, tenants=tuple(_worked(one, event) for one in view.tenants))
        case BatchProgress():
            return _progressed(view, event)
        case LaunchEnds():
            launch = frozenset({(event.label, event.job_id)})
            failed = view.failed | launch if event.cause else view.failed - launch
            return replace(view, failed=failed, marked=view.marked | launch if event.marks else view.marked - launch)
        case RunEnds():
            return replace(view, ends=event)
    return view


def _reached(tenant: TenantView, event: LaunchState) -> TenantView:
    if event.job_id != tenant.placed.job_id:
        return tenant
    phase: Phase = "settling" if event.state == "working" else event.state
    return msgspec.structs.replace(tenant, phase=phase)


def _worked(tenant: TenantView, event: Slices) -> TenantView:
    if event.job_id != tenant.placed.job_id or event.length_s <= 0:
        return tenant
    rates = (*tenant.rates, event.count / event.length_s)[-REMEMBERED:]
    return msgspec.structs.replace(tenant, rates=rates, wait_pct=100 * event.wait_s / event.length_s)


def _progressed(view: RunView, event: BatchProgress) -> RunView:
    settled = view.begins is not None and (event.working_s or 0.0) >= view.begins.settle_s

    def now(tenant: TenantView, rate: float) -> TenantView:
        phase: Phase = "window" if tenant.phase == "settling" and settled else tenant.phase
        gauges = tuple(event.gauges[slot] for slot in tenant.placed.slots if slot in event.gauges)
        known = None if event.working_s is None else rate
        return msgspec.structs.replace(tenant, phase=phase, gauges=gauges, rate=known)

    tenants = tuple(now(*each) for each in zip(view.tenants, event.items_per_s, strict=True))
    return msgspec.structs.replace(view, working_s=event.working_s, tenants=tenants)
