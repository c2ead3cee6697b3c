"""The wall clock as the kernel knows it."""

from __future__ import annotations

import time

from milabench_ng.node import wall_clock


def test_the_clock_is_read_and_not_set() -> None:
    before = time.time()
    clock = wall_clock.read_wall_clock()
    assert clock is not None
    assert before <= clock.time_s <= time.time()
    assert clock.error_s >= 0
    assert abs(clock.offset_s) <= 0.5, "the kernel corrects no more"


def test_what_the_kernel_says_is_in_seconds(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    class Kernel:
        def __init__(self, status: int) -> None:
            self.status = status

        def adjtimex(self, place: object) -> int:
            asked = place._obj  # type: ignore[attr-defined]
            asked.status, asked.offset, asked.maxerror = self.status, -2_000_000, 16_000_000
            return 5

    for status, synchronized, offset in ((0x40, False, -2.0), (0x2001, True, -0.002)):
        monkeypatch.setattr(wall_clock.ctypes, "CDLL", lambda *_, status=status, **__: Kernel(status))
        clock = wall_clock.read_wall_clock()
        assert clock is not None
        assert (clock.synchronized, clock.offset_s, clock.error_s) == (synchronized, offset, 16.0)
