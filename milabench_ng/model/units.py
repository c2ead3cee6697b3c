"""Units: parse what users write, print what users read. Bytes are binary (KiB, MiB, GiB), time is in seconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import Decimal

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1 << 40,
    "k": KIB,
    "m": MIB,
    "g": GIB,
    "t": 1 << 40,
}
_DURATION = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(s|min|h)\s*")
_NOTHING = re.compile(r"\s*(-.*|[0.]+\s*(s|min|h)?\s*)")
"""A duration below 0, or of 0 in any unit."""
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str, what: str) -> int:
    """Bytes of a size such as ``"256 GiB"``, ``"256g"`` or ``"274877906944"``. ``what`` names the option in the error.

    Below 1 MiB, a unit is needed: a bare ``512`` is rarely meant as bytes.
    """
    return _bytes(text, what, "GiB")


def parse_bytes_per_second(text: str, what: str) -> int:
    """Bytes per second of a bandwidth such as ``"1000 MiB/s"``."""
    size, slash, second = text.partition("/")
    if not slash or second.strip() != "s":
        raise InputError(f"{what}: expected a bandwidth, got {short(repr(text))}. Try 1000MiB/s")
    return _bytes(size, what, "MiB/s")


def _bytes(text: str, what: str, usual: str) -> int:
    """``usual``: the unit that one without a unit was probably meant to have."""
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InputError(f"{what}: expected a size, got {short(repr(text))}. Try 512MiB or 256GiB")
    size = float(match[1]) * factor
    if not match[2] and 0 < size < MIB:
        number = short(match[1])
        raise InputError(f"{what}: {number} without a unit is {format_bytes(size)}. Did you mean {number}{usual}?")
    if size >= 1 << 63:
        raise InputError(f"{what}: {short(text)} is more than any machine has")
    return int(size)


def parse_share(text: str, what: str) -> float:
    """A fraction, such as 0.02 from ``"2%"`` or ``"0.02"``. ``what`` names the option in the error."""
    number, factor = (text.strip().removesuffix("%"), 0.01) if text.strip().endswith("%") else (text, 1.0)
    try:
        return float(number) * factor
    except ValueError:
        raise InputError(f"{what}: expected a percentage, got {text!r}, not one such as 97% or 2.5%") from None


def parse_seconds(text: str, what: str) -> float:
    """Seconds of a duration such as ``"30min"``, ``"1.5 h"`` or ``"90s"``. ``what`` names the option in the error."""
    match = _DURATION.fullmatch(text)
    if _NOTHING.fullmatch(text):
        raise InputError(f"{what}: expected a duration above 0, got {short(repr(text))}. Try 30min")
    if match is None:
        raise InputError(f"{what}: expected a duration with its unit (s, min or h), got {short(repr(text))}. Try 30min")
    return float(match[1]) * {"s": 1, "min": 60, "h": 3600}[match[2]]


def format_bytes(size: float) -> str:
    """``"1.5 GiB"``: the largest unit that leaves a number of at least 1."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size) >= factor:
            return f"{Decimal(size) / factor:.1f} {unit}"  # a foreign record may exceed the range of a float
    return f"{size:.0f} B"


def format_limit(bytes_per_s: float) -> str:
    """``"1000 MiB/s"``, as one writes a limit: no decimal that says nothing."""
    size, unit = format_bytes(bytes_per_s).split(" ")
    return f"{size.removesuffix('.0')} {unit}/s"


def figure(number: float, unit: str) -> str:
    """``"2.5%"`` of a share from 0 to 1, ``"3 s"`` of another unit, ``"3"`` without one."""
    return f"{100 * number:.3g}%" if unit == "%" else f"{number:g} {unit}".strip()


def counted(count: int, noun: str) -> str:
    """``"1 test"``, ``"2 tests"``, ``"2 launches"``."""
    ending = "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{count} {noun}{'' if count == 1 else ending}"


def format_seconds(seconds: float) -> str:
    """``"0.8 s"``, ``"42 s"``, ``"3 min 20 s"``, ``"2 h 5 min"``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def utc_iso(moment: datetime) -> str:
    """``"2026-01-06T16:00:00.123456Z"``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_stamp(moment: datetime) -> str:
    """The date in file names, as in 2020: ``"20260106-160000-123456"`` (UTC)."""
    return moment.astimezone(UTC).strftime("%Y%m%d-%H%M%S-%f")


def utc_now() -> datetime:
    """The date, in UTC. Durations come from the monotonic clock, never from this."""
    return datetime.now(UTC)


def four_digits(value: float) -> str:
    """Four significant digits, written out: ``"2,901"``, ``"51.71"``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = 3 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"
