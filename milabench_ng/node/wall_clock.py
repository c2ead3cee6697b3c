"""How well the node's wall clock is set, as the kernel knows from its NTP client."""

from __future__ import annotations

import ctypes
import time

import msgspec

_UNSYNCHRONIZED = 0x40
"""STA_UNSYNC of ``<sys/timex.h>``."""
_NANOSECONDS = 0x2000
"""STA_NANO."""


class WallClock(msgspec.Struct, frozen=True, kw_only=True):
    """The wall clock and what the kernel says of it."""

    time_s: float
    """POSIX time."""
    synchronized: bool
    offset_s: float
    """What the NTP client is still correcting."""
    error_s: float
    """The most that the clock may be off."""


class _Timex(ctypes.Structure):
    """``struct timex`` of adjtimex(2)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 30),
    )


def read_wall_clock() -> WallClock | None:
    """The clock now; None where the kernel may not be asked."""
    asked = _Timex()  # modes 0: changes nothing
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(asked)) < 0:
        return None
    return WallClock(
        time_s=time.time(),
        synchronized=not asked.status & _UNSYNCHRONIZED,
        offset_s=asked.offset / (1e9 if asked.status & _NANOSECONDS else 1e6),
        error_s=asked.maxerror / 1e6,
    )
