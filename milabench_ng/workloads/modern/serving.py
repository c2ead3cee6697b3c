"""Continuous batching: which text reads or speaks in a step, and in which pages its keys and values lie. Pure.

An answer has as many tokens as its request says, so no token decides what comes next: equal seeds give equal plans.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

SHORTEST = 0.8
"""Of the nominal length: lengths are uniform from there up, so that texts neither begin nor end together."""

Integers = NDArray[np.int64]


class Request(msgspec.Struct, frozen=True):
    """A prompt that is to be answered; lengths are in tokens."""

    number: int
    prompt: int
    answer: int

    @property
    def kept(self) -> int:
        """Tokens whose keys and values are kept at its end: nothing reads those of the last."""
        return self.prompt + self.answer - 1


class Mix(msgspec.Struct, frozen=True):
    """What kind of requests come: their nominal lengths in tokens, and the seed of all of them."""

    prompt: int
    answer: int
    seed: int

    def request(self, number: int) -> Request:
        """The request with this number, from 0: always the same."""
        drawn = random.Random(f"{self.seed} {number}")  # no secret
        prompt, answer = (
            drawn.randint(max(1, round(SHORTEST * length)), length) for length in (self.prompt, self.answer)
        )
        return Request(number, prompt, answer)

    def tokens(self, request: Request, vocabulary: int) -> Integers:
        """The prompt of a request."""
        return np.random.default_rng([self.seed, request.number]).integers(vocabulary, size=request.prompt)

    @property
    def kept(self) -> int:
        """Tokens whose keys and values its longest request keeps."""
        return Request(0, self.prompt, self.answer).kept


def pages_for(tokens: int, page: int) -> int:
    """How many pages of ``page`` tokens hold ``tokens``."""
    return -(-tokens // page)


class Pages:
    """The free pages, from 1 on. The lowest goes first, so that those in use stay together at the beginning."""

    def __init__(self, count: int) -> None:
        self._free = list(range(1, count + 1))

    def take(self) -> int:
        """A free page."""
        return heapq.heappop(self._free)

    def give_back(self, pages: Iterable[int]) -> None:
        """Make ``pages`` free."""
        for page in pages:
            heapq.heappush(self._free, page)


class Text:
    """A request that has a slot, and how far it is."""

    def __init__(self, request: Request, slot: int) -> None:
        self.request, self.slot = request, slot
        self.read = 0
        """Tokens of the prompt whose keys and values are kept."""
        self.said = 0
        """Tokens of the answer."""
        self.pages: list[int] = []

    @property
    def ended(self) -> bool:
        """Whether the answer is complete."""
        return self.said == self.request.answer


class Reading(msgspec.Struct, frozen=True):
    """A part of a prompt that a step reads."""

    request: Request
    slot: int
    start: int
    count: int

    @property
    def last(self) -> bool:
        """Whether the prompt ends with it: the text then says its first token."""
        return self.start + self.count == self.request.prompt


class Plan(msgspec.Struct, frozen=True):
    """One step: at most one text reads, and all that have said something say one token more."""

    table: Integers
    """The pages of each slot in the order of its tokens [slots, pages of the longest]; 0 where there is none."""
    position: Integers
    """Of the token that each slot feeds, to get the next one [slots]; -1 for slots that say none."""
    reading: Reading | None
    ended: tuple[Request, ...]
    """Whose last token this step says."""
    arriving: tuple[Request, ...]
    """That come when the step ends, each in place of one that ended."""
    speaking: int
    """Slots that feed a token."""
    reach: int
    """All pages in use are before this one."""

    @classmethod
    def of(
        cls,
        table: Integers,
        position: Integers,
        reading: Reading | None = None,
        ended: tuple[Request, ...] = (),
        arriving: tuple[Request, ...] = (),
    ) -> Plan:
        """Counted once, so that a device need not wait for it."""
        return cls(table, position, reading, ended, arriving, int((position >= 0).sum()), int(table.max()) + 1)

    @property
    def said(self) -> int:
        """Tokens of answers that the step makes: of those that speak, and the first of one that has read."""
        return self.speaking + self.first

    @property
    def first(self) -> bool:
        """Whether a text says its first token."""
        return self.reading is not None and self.reading.last


class Schedule:
    """Plans steps so that as many requests as asked are under way: when one ends, the next one comes.

    A request is admitted, in the order of arrival, once a slot is free and all pages that it will need are free or
    promised to nobody. So no text loses its pages before its end.
    """

    def __init__(self, mix: Mix, *, concurrency: int, pages: int, page: int, chunk: int) -> None:
        """``pages``: how many there are, each for ``page`` tokens. ``chunk``: most tokens of a prompt in a step."""
        self._mix, self._page, self._chunk = mix, page, chunk
        self._pages, self._unpromised = Pages(pages), pages
        self._slots = list(range(concurrency))
        self._running: dict[int, Text] = {}
        """By number, in the order of admission."""
        self._waiting = deque(map(mix.request, range(concurrency)))
        self._coming = concurrency
        self._table = np.zeros((concurrency, pages_for(mix.kept, page)), np.int64)

    def begin_midway(self) -> None:
        """Have the first requests be under way as if the run had begun long ago: evenly spread over their answers."""
        self._admit()
        slots = len(self._table)
        for text in self._running.values():
            if text.request.answer > 1:
                text.read = text.request.prompt
                text.said = 1 + int((text.slot + 0.5) / slots * (text.request.answer - 1))
                self._keep(text, text.read + text.said - 1)

    def steps(self) -> Iterator[Plan]:
        """The plans, without end."""
        while True:
            yield self.step()

    def step(self) -> Plan:
        self._admit()
        speaking = [text for text in self._running.values() if text.said]
        reading = self._read()
        position = np.full(len(self._table), -1, np.int64)
        for text in speaking:
            text.said += 1
            self._keep(text, text.request.prompt + text.said - 1)
            position[text.slot] = text.request.prompt + text.said - 2
        table = self._table.copy()
        ended = tuple(text.request for text in self._running.values() if text.ended)
        for request in ended:
            self._release(self._running.pop(request.number))
        arriving = tuple(map(self._mix.request, range(self._coming, self._coming + len(ended))))
        self._coming += len(ended)
        self._waiting += arriving
        return Plan.of(table, position, reading, ended, arriving)

    def _admit(self) -> None:
        while self._waiting and self._slots and self._needs(self._waiting[0]) <= self._unpromised:
            request = self._waiting.popleft()
            self._unpromised -= self._needs(request)
            self._running[request.number] = Text(request, heapq.heappop(self._slots))

    def _read(self) -> Reading | None:
        """The next part of the prompt that was admitted first, of those that are not read."""
        for text in self._running.values():
            if text.read < text.request.prompt:
                start, count = text.read, min(self._chunk, text.request.prompt - text.read)
                text.read += count
                text.said = int(text.read == text.request.prompt)
                self._keep(text, text.read)
                return Reading(text.request, text.slot, start, count)
        return None

    def _keep(self, text: Text, tokens: int) -> None:
        """Give ``text`` the pages for so many tokens."""
        while len(text.pages) < pages_for(tokens, self._page):
            self._table[text.slot, len(text.pages)] = page = self._pages.take()
            text.pages.append(page)

    def _release(self, text: Text) -> None:
        self._pages.give_back(text.pages)
        self._unpromised += self._needs(text.request)
        self._table[text.slot] = 0
        heapq.heappush(self._slots, text.slot)

    def _needs(self, request: Request) -> int:
        return pages_for(request.kept, self._page)
