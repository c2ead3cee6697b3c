"""Tracks finished and pending work of a plan, in the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from milabench_ng.model.plan import Batch, Launch, Plan, session_of
from milabench_ng.records.batch_search import BatchSearch
from milabench_ng.records.borders import asked
from milabench_ng.records.ledger import (
    NOT_TRIED,
    AnyLedgerEvent,
    Attempt,
    Company,
    Finished,
    Interrupted,
    LaunchKey,
    Recorded,
    Sampled,
    StoppedEarly,
    attempts,
    recorded,
)
from milabench_ng.records.marks import Mark
from milabench_ng.records.names import RESERVED_BYTES, file_digest, whole_content
from milabench_ng.records.record import Record, encode_record
from milabench_ng.records.retried import lost_neighbours
from milabench_ng.run.persistence.result_writer import ResultWriter
from milabench_ng.run.persistence.spooling import FileContent


class BatchWork(msgspec.Struct, frozen=True, kw_only=True):
    """A batch to run. All its launches run, since a tenant alone would measure something else."""

    batch: Batch
    wanted: tuple[Launch, ...]
    """The launches that leave a record."""


class RunProgress:
    """Tracks the launches of a plan."""

    def __init__(
        self, plan: Plan, writer: ResultWriter, retry: int, sessions: int = 1, *, by_repeat: bool = False
    ) -> None:
        """``retry``: how often a launch that fails is tried again; ``sessions``: in how many parts the plan is run.

        ``by_repeat``: each repeat is whole, retries included, before the next one begins.
        """
        self.writer = writer
        self.retry = retry
        events = writer.chain.events
        self.plan = asked(plan, events)
        self._tried = attempts(events)
        self._standing = standing(writer)
        runs = runs_of_session(self.plan, self._standing, sessions)
        self._parts = tuple(range(run, run + 1) for run in runs) if by_repeat else (runs,)
        self._searched: dict[str, BatchSearch] = {}
        self._largest = 0
        """Of the records so far, in bytes."""
        self._failures = Counter(_key(event) for event in recorded(events) if event.cause not in (None, *NOT_TRIED))

    @property
    def missing(self) -> int:
        """Launches without a valid record."""
        return sum(map(self._is_missing, self.plan.measured))

    @property
    def failed(self) -> int:
        """Attempts that failed or left nothing, and launches that were never tried; not those that were interrupted and
        measured again."""
        untried = sum(self._tried[_key(launch)] == 0 for launch in self.plan.measured)
        known = recorded(self.writer.chain.events)
        good = [_key(event) for event in known if event.cause is None]
        again = sum(event.cause == "interrupted" and _key(event) in good for event in known)
        return self._tried.total() - len(good) - again + untried

    @property
    def helpful_retry(self) -> int | None:
        """The least ``retry`` with which a launch is tried again; None if no launch failed in its last attempt."""
        failed = (key for key in map(_key, self.plan.measured) if self._standing.get(key) is not None)
        return min((self._failures[key] for key in failed), default=None)

    def to_do(self) -> tuple[BatchWork, ...]:
        """Batches of the first part that is not done: those without valid records, then those that may be retried."""
        for runs in self._parts:
            part = tuple(batch for batch in self.plan.batches if batch.launches[0].run in runs)
            found = works(part, self._is_missing) or self._with_bereft(works(part, self._may_be_retried))
            if found:
                return found
        return ()

    def later(self, now: Sequence[BatchWork]) -> tuple[Batch, ...]:
        """The batches to do after ``now``, in this session or a later one."""
        begun = {work.batch.number for work in now}
        lacking = works(self.plan.batches, self._is_missing)
        return tuple(work.batch for work in lacking if work.batch.number not in begun)

    @property
    def border(self) -> int | None:
        """How many repeats are whole, if the next one has not begun; None at any other place."""
        work = self.to_do()
        run = work[0].batch.launches[0].run if work else 0
        begun = any(self._tried[_key(launch)] for launch in self.plan.measured if launch.run >= run)
        return None if begun else run or None

    def enough(self, event: StoppedEarly) -> None:
        """Note that the run ends here: what is left of the plan is not asked for."""
        self.writer.keep((), event)
        self.plan = asked(self.plan, (event,))

    def attempt(self, launch: Launch) -> int:
        """Number of the launch's current attempt; 0 for company, which makes none."""
        return self._tried[_key(launch)] if launch.measured else 0

    def searched(self, test: str) -> BatchSearch | None:
        """The search for the batch size of ``test`` that found one, of this session or an earlier one."""
        events = (event for event in recorded(self.writer.chain.events) if event.label == test)
        searches = (read_search(self.writer.folder.path / event.file, event.sha256) for event in events)
        return self._searched.get(test) or next((one for one in searches if one and one.size), None)

    def begin(self, work: BatchWork) -> None:
        """Note a batch about to start: its attempts are on disk before anything else of it.

        So is space for its records, each of which may be twice as large as any so far.
        """
        events: list[AnyLedgerEvent] = []
        for launch in work.batch.launches:
            place: dict[str, str] = {"label": launch.label, "job_id": launch.job_id}
            if launch.measured and launch in work.wanted:
                self._tried[_key(launch)] += 1
                number = self._tried[_key(launch)]
                events.append(Attempt(**place, number=number, batch=work.batch.number))
            else:
                events.append(Company(**place, batch=work.batch.number))
        self._keep((), *events)
        self.writer.reserve(
            sum(len(one.devices) for one in work.batch.launches) * max(RESERVED_BYTES, 2 * self._largest)
        )

    def end(self, batch: int, records: Mapping[str, Record], series: FileContent, logs: Iterable[FileContent]) -> None:
        """Keep the records of a batch, by file name, its telemetry, and logs that could not be written directly."""
        files = [(name, encode_record(record)) for name, record in records.items()]
        events: list[AnyLedgerEvent] = []
        for (name, content), record in zip(files, records.values(), strict=True):
            cause = record.mnb.failure.cause if record.mnb.failure else None
            key = (record.mnb.label, record.job_id)
            events.append(
                Recorded(
                    label=key[0],
                    job_id=key[1],
                    number=record.mnb.attempt,
                    file=name,
                    sha256=file_digest(content),
                    cause=cause,
                )
            )
            search = record.mnb.batch_search
            if search is not msgspec.UNSET and search.size:
                self._searched[record.name] = search
            if record.mnb.launch.measured and cause not in (None, *NOT_TRIED):
                self._failures[key] += 1
        self._largest = max((self._largest, *(len(content) for _, content in files)))
        events.append(Sampled(batch=batch, file=series[0], sha256=file_digest(series[1])))
        self._keep([*files, series, *logs], *events)

    def _keep(self, files: Sequence[FileContent], *events: AnyLedgerEvent) -> None:
        """Keep both; what is found to have been damaged meanwhile, and cannot be written again, is to do again."""
        self.writer.keep(files, *events)
        self._standing = standing(self.writer)

    def interrupted(self, by: str) -> None:
        """Note that the session was told to stop."""
        self._keep((), Interrupted(by=by))

    def finish(self) -> None:
        """Note that the session ends."""
        self.writer.flush()
        self._standing = standing(self.writer)
        failed = sum(cause is not None for cause in self._standing.values())
        self.writer.keep((), Finished(missing=self.missing, failed=failed))

    def _with_bereft(self, works: Sequence[BatchWork]) -> tuple[BatchWork, ...]:
        """Retries that also measure what had lost the neighbours that it has now."""
        bereft = self._bereft() if works else set()
        return tuple(
            BatchWork(
                batch=work.batch,
                wanted=tuple(one for one in work.batch.launches if one in work.wanted or _key(one) in bereft),
            )
            for work in works
        )

    def _bereft(self) -> set[LaunchKey]:
        """The launches whose last record is good and says that they lost a neighbour."""
        last = {_key(event): event for event in recorded(self.writer.chain.events) if event.cause is None}
        good = (event for key, event in last.items() if self._standing.get(key, "") is None)
        folder = self.writer.folder.path
        return {_key(event) for event in good if lost_neighbours(read_marks(folder / event.file, event.sha256))}

    def _is_missing(self, launch: Launch) -> bool:
        return _key(launch) not in self._standing

    def _may_be_retried(self, launch: Launch) -> bool:
        key = _key(launch)
        return self._standing.get(key) is not None and self._failures[key] <= self.retry


def runs_of_session(plan: Plan, done: Container[LaunchKey], sessions: int) -> range:
    """The runs of the first session that has launches to do, all of them if none has. Pure."""
    missing = [launch.run for launch in plan.measured if _key(launch) not in done]
    if not missing:
        return range(plan.repeat)
    each = plan.repeat // sessions
    first = (session_of(min(missing), plan.repeat, sessions) - 1) * each
    return range(first, first + each)


def works(batches: Iterable[Batch], wanted: Callable[[Launch], bool]) -> tuple[BatchWork, ...]:
    """The batches with a measured launch that is wanted; company leaves a record whenever it works. Pure."""
    return tuple(
        BatchWork(batch=batch, wanted=tuple(one for one in batch.launches if not one.measured or wanted(one)))
        for batch in batches
        if any(one.measured and wanted(one) for one in batch.launches)
    )


def standing(writer: ResultWriter) -> dict[LaunchKey, str | None]:
    """The cause (None: success) of every launch's last valid record, whose file is complete and unchanged."""
    known = recorded(writer.chain.events)
    return {_key(event): event.cause for event in known if event.cause not in NOT_TRIED and writer.has(event)}


class _Marked(msgspec.Struct, frozen=True):
    marks: tuple[Mark, ...] = ()


class _Whole(msgspec.Struct, frozen=True):
    mnb: _Marked


def read_marks(path: Path, sha256: str) -> tuple[Mark, ...]:
    """The marks in a record that is complete and unchanged; none without one."""
    content = whole_content(path, sha256)
    return () if content is None else msgspec.json.decode(content, type=_Whole).mnb.marks


class _Ours(msgspec.Struct, frozen=True):
    batch_search: BatchSearch | None = None


class _Searched(msgspec.Struct, frozen=True):
    mnb: _Ours


def read_search(path: Path, sha256: str) -> BatchSearch | None:
    """The search in a record that is complete and unchanged; None without one."""
    content = whole_content(path, sha256)
    return None if content is None else msgspec.json.decode(content, type=_Searched).mnb.batch_search


def _key(of: Launch | Recorded) -> LaunchKey:
    return of.label, of.job_id
