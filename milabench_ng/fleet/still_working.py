"""Tells once a minute that nodes are still at work, since a session says nothing until its first node ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from milabench_ng.model.units import format_seconds

_EVERY_S = 60.0


@contextmanager
def still_working(session: str, nodes: int, ended: Callable[[], int], tell: Callable[[str], None]) -> Iterator[None]:
    """Tell until the context ends; ``ended``: how many of the nodes are done."""
    over = threading.Event()
    teller = threading.Thread(target=tell_until, args=(over.wait, session, nodes, ended, tell), daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def tell_until(
    over: Callable[[float], bool], session: str, nodes: int, ended: Callable[[], int], tell: Callable[[str], None]
) -> None:
    """``over``: waits for so many seconds, and says whether that was the last time."""
    began_s = time.monotonic()
    while not over(_EVERY_S):
        worked = format_seconds(round(time.monotonic() - began_s))
        tell(f"{session}: {nodes - ended()} of {nodes} still at work after {worked}")
