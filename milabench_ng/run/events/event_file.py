"""The events of a run, read from its folder by another process while it goes on, or after its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain
from milabench_ng.records.names import ResultFolder
from milabench_ng.records.reading import is_going_on
from milabench_ng.run.events.run_events import RunBegins, Stamped

POLL_S = 0.5
"""How often the file is looked at."""
LONGEST_PAUSE_S = 2.0
"""Of a replay: nobody waits for the hours between two sessions."""


class EventFile:
    """``events.jsonl`` of a result folder, and how far it was read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = ResultFolder(folder).events
        self._end = 0
        """Of the last whole line that was read: a run that is resumed removes one that is not whole."""
        self._decoder = msgspec.json.Decoder(Stamped)

    def read(self) -> tuple[Stamped, ...]:
        """What was written since the last call; empty as long as there is no file. Raises InputError."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._end)
                chunk = file.read()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise InputError(f"{plain(self._path)}: {error.strerror}") from None
        whole = chunk[: chunk.rfind(b"\n") + 1]
        self._end += len(whole)
        try:
            return tuple(self._decoder.decode_lines(whole))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(
                f"{plain(self._path)}: not the events of a run, or those of another version: {error}. Use the mnb "
                "that wrote them"
            ) from None

    def follow(self, rest: Callable[[float], None] = time.sleep) -> Iterator[Stamped]:
        """What is written until the session ends, as it is written; nothing if none goes on and there are no events."""
        going_on = True
        while going_on:
            going_on = is_going_on(self._folder)  # asked first, so that nothing is written after the last reading
            yield from self.read()
            if going_on:
                rest(POLL_S)


def last_session(events: Sequence[Stamped]) -> Sequence[Stamped]:
    begins = [place for place, stamped in enumerate(events) if isinstance(stamped.event, RunBegins)]
    return events[begins[-1] :] if begins else ()


def replayed(events: Sequence[Stamped], speed: float, rest: Callable[[float], None] = time.sleep) -> Iterator[Stamped]:
    """The events again, ``speed`` times as fast as they were published."""
    before_s = events[0].time_s if events else 0.0
    for stamped in events:
        pause_s = (stamped.time_s - before_s) / speed
        if pause_s > 0:  # a session after a restart of the node has earlier times
            rest(min(pause_s, LONGEST_PAUSE_S))
        before_s = stamped.time_s
        yield stamped
