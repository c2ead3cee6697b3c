"""One ordered stream of run events for many sinks, none of which can delay or end the run.

Each sink has a thread and a bounded queue. A sink that raises, or whose queue is full, is
dropped, and the others are told.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.run.events.run_events import AnyRunEvent, Note, Preparing, RunEvent, Stage, Stamped
from milabench_ng.worker.requests import DataEstimate, DataProgress, Prepared

QUEUED = 4096
"""How many events a sink may lag behind: minutes on a large node."""
CLOSE_S = 2.0
"""How long the end of a run waits for lagging sinks, and then again for sinks to close."""


class Sink(Protocol):
    """A receiver of events. Both methods are called in the sink's own thread, one call at a time."""

    name: str
    """For the note about one that failed."""
    wants: tuple[type[RunEvent], ...]
    """The events that it is told; a display that is paused for minutes must not fall behind because of others."""

    def receive(self, stamped: Stamped) -> None:
        """Take one event; events come in the order of publication."""

    def close(self) -> None:
        """Close: no event follows."""


class Bus:
    """Carries events to sinks; may be used from any thread."""

    def __init__(self, *sinks: Sink) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._outlets: list[_Outlet] = []
        for sink in sinks:
            self.add(sink)

    def add(self, sink: Sink) -> None:
        """Add ``sink``; it receives events from now on."""
        with self._lock:
            try:
                self._outlets.append(_Outlet(sink, self._failed))
            except RuntimeError as error:  # no thread can be started: a limit on processes
                self._hand_on(Note(text=f"cannot report to {sink.name}, the run continues: {error}"))

    def publish(self, event: AnyRunEvent) -> None:
        """Send an event to all sinks. Neither waits nor raises, whatever they do."""
        with self._lock:
            self._hand_on(event)

    def note(self, text: str) -> None:
        self.publish(Note(text=text))

    def stage(self, text: str) -> None:
        self.publish(Stage(text=text))

    def preparing(self, answer: DataEstimate | DataProgress | Prepared) -> None:
        self.publish(Preparing(answer=answer))

    def close(self) -> None:
        """Let the sinks hear the rest and close, within twice `CLOSE_S`. What is published later reaches nobody."""
        with self._lock:
            marks = [(outlet, outlet.mark()) for outlet in self._outlets]
        end_s = time.monotonic() + CLOSE_S
        late = [outlet for outlet, mark in marks if not mark.wait(max(0.0, end_s - time.monotonic()))]
        with self._lock:
            for outlet in late:
                self._drop(outlet, f"was still behind {CLOSE_S:.0f} s after the end")
            closing, self._outlets = self._outlets, []
        end_s = time.monotonic() + CLOSE_S
        for outlet in closing:
            outlet.end(max(0.0, end_s - time.monotonic()))

    def _hand_on(self, event: AnyRunEvent) -> None:
        stamped = Stamped(number=self._number, utc=utc_iso(utc_now()), time_s=time.monotonic(), event=event)
        self._number += 1
        wanting = [outlet for outlet in self._outlets if isinstance(event, outlet.sink.wants)]
        full = [outlet for outlet in wanting if not outlet.offer(stamped)]
        for outlet in full:
            self._drop(outlet, f"is {QUEUED} events behind")

    def _failed(self, outlet: _Outlet, why: str) -> None:
        with self._lock:
            self._drop(outlet, why)

    def _drop(self, outlet: _Outlet, why: str) -> None:
        if outlet in self._outlets:
            self._outlets.remove(outlet)
            outlet.dropped = True
            self._hand_on(Note(text=f"{outlet.sink.name} {why}: stopped reporting to it; the run continues"))


class _Outlet:
    """A sink with its queue and thread."""

    def __init__(self, sink: Sink, failed: Callable[[_Outlet, str], None]) -> None:
        self.sink = sink
        self.dropped = False
        self._failed = failed
        self._waiting: queue.Queue[Stamped | threading.Event | None] = queue.Queue(QUEUED)
        # A daemon thread: a sink that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=f"mnb: {sink.name}", daemon=True)
        self._thread.start()

    def offer(self, item: Stamped | threading.Event | None) -> bool:
        """Queue ``item``; return whether there was room."""
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            return False
        return True

    def mark(self) -> threading.Event:
        """An event that is set once the sink has received everything offered before."""
        mark = threading.Event()
        self.offer(mark)
        return mark

    def end(self, patience_s: float) -> None:
        """Have the sink close, and wait up to ``patience_s`` for it."""
        self.offer(None)
        self._thread.join(patience_s)

    def _work(self) -> None:
        self._guarded(self._receive_all)
        self._set_marks()
        self._guarded(self.sink.close)

    def _receive_all(self) -> None:
        while not self.dropped and (item := self._waiting.get()) is not None:
            if isinstance(item, threading.Event):
                item.set()
            else:
                self.sink.receive(item)

    def _set_marks(self) -> None:
        """Let nobody wait for what a sink that was dropped will not hear."""
        while not self._waiting.empty():
            item = self._waiting.get()
            if isinstance(item, threading.Event):
                item.set()

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001  # whatever a sink raises costs the sink, and not the run
            self._failed(self, f"failed ({_in_words(error)})")


def _in_words(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return f"{type(error).__name__}: {error}"
    return f"{error.strerror}. Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
