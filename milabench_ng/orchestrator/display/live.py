"""What is shown while a run goes on: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.status import Status

from milabench_ng.orchestrator.execution.tenant import Tenant
from milabench_ng.plain import plain, plain_lines
from milabench_ng.plan import Batch
from milabench_ng.records.record import Record
from milabench_ng.records.window import launch_perf
from milabench_ng.requests import Estimated, Prepared, Progress
from milabench_ng.units import format_bytes, format_seconds

PLAIN_INTERVAL_S = 10.0
RATE_S = 2.0


class Display:
    """Tells a console; a terminal has a line that changes, a file or pipe gets a line now and then."""

    def __init__(self, console: Console, units: Mapping[str, str] | None = None) -> None:
        self._console = console
        self._units = dict(units or {})
        self._status: Status | None = None
        self._plain_s = 0.0
        self._batch: Batch | None = None
        self._heading = ""
        self._began_s = time.monotonic()

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._console.print(plain_lines(text), style="yellow", markup=False, highlight=False, soft_wrap=True)

    def stage(self, text: str) -> None:
        """Something that may take longer than two seconds begins."""
        self._show(f"{text} ...", always=True)

    def preparing(self, answer: Estimated | Progress | Prepared) -> None:
        """A data set is being made ready."""
        match answer:
            case Estimated():
                self._line(estimate_text(answer))
            case Progress():
                self._show(f"generating data set {answer.name}: {answer.done:,} of {answer.total:,} items")
            case Prepared() if answer.generated:
                self._line(f"data set {answer.place.name} is ready: {answer.place.path}")

    def batch_begins(self, batch: Batch, of: int) -> None:
        """A batch is about to start."""
        first = batch.launches[0]
        self._batch = batch
        count = len(batch.launches)
        who = f"{count} tenants" if count > 1 else f"{len(first.devices)} device(s)"
        self._heading = f"[{batch.number + 1}/{of}] {first.label}, run {first.run}, {who}"
        self._show(f"{self._heading}: starting", always=True)

    def tick(self, tenants: Sequence[Tenant], start_s: float | None) -> None:
        """Where the tenants are."""
        now = time.monotonic()
        if start_s is None:
            ready = sum(tenant.ready.done() for tenant in tenants)
            self._show(f"{self._heading}: {ready} of {len(tenants)} ready")
            return
        rates = ", ".join(f"{tenant.rate(now - RATE_S):,.1f}" for tenant in tenants)
        self._show(f"{self._heading}: {now - start_s:.0f} s, {rates} items/s")

    def batch_ends(self, records: Sequence[Record]) -> None:
        """Its records are written."""
        for record in records:
            self._line(f"{self._heading}: J{record.job_id} {_result(record)}")

    def close(self) -> None:
        """Take the live line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _line(self, text: str) -> None:
        self._console.print(plain_lines(text), markup=False, highlight=False, soft_wrap=True)
        self._plain_s = time.monotonic()

    def _show(self, text: str, *, always: bool = False) -> None:
        """In the live line; without a terminal as a line of its own, ``always`` or every ten seconds."""
        text = plain(text)
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status(text)
                self._status.start()
            self._status.update(text.replace("[", "\\["))
        elif always or time.monotonic() - self._plain_s >= PLAIN_INTERVAL_S:
            self._line(text)


def estimate_text(estimated: Estimated) -> str:
    """What generating will take: of all data sets together, then of each."""
    efforts = estimated.efforts
    each = "".join(
        f"\n  {effort.name} (scale {effort.scale:g}): {effort.files:,} files, {format_bytes(effort.bytes)}, "
        f"{format_seconds(effort.seconds)}"
        for effort in efforts
    )
    return (
        f"to generate: {len(efforts)} data set(s), {format_bytes(sum(effort.bytes for effort in efforts))} "
        f"({format_bytes(estimated.free_bytes)} are free), about "
        f"{format_seconds(sum(effort.seconds for effort in efforts))} on {estimated.processes} cores (an estimate, at "
        f"the pace that they just showed together), and what the disk takes to write them{each}"
    )


def _result(record: Record) -> str:
    if record.mnb.failure is not None:
        return f"FAILED ({record.mnb.failure.cause}): {record.mnb.failure.detail}"
    assert record.mnb.window is not None
    perf = launch_perf([rank.slices for rank in record.mnb.ranks], record.mnb.window)
    return f"{perf:,.2f} {record.mnb.unit}/s"
