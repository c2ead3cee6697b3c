"""What users write and read: sizes, bandwidths, times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from milabench_ng.model import units
from milabench_ng.model.errors import InputError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1_048_576),
        ("512b", 512),
        ("1k", 1024),
        ("1kB", 1000),
        ("1 KiB", 1024),
        ("1.5g", 1_610_612_736),
        ("256 GiB", 274_877_906_944),
        ("2TB", 2_000_000_000_000),
        (" 512mib ", 536_870_912),
    ],
)
def test_a_size_is_parsed(text: str, size: int) -> None:
    assert units.parse_bytes(text, "--ram-total") == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "5 parsecs", "1 2", "1,5g", "0x10", "٣"])
def test_what_is_no_size_is_named_with_its_option(text: str) -> None:
    with pytest.raises(InputError, match="--ram-total") as caught:
        units.parse_bytes(text, "--ram-total")
    assert repr(text) in str(caught.value)
    assert "512MiB" in str(caught.value)


@pytest.mark.parametrize(("text", "told"), [("512", "512 B. Did you mean 512GiB?"), ("1000000", "976.6 KiB.")])
def test_a_small_size_needs_its_unit(text: str, told: str) -> None:
    with pytest.raises(InputError, match=f"^--ram-total: {text} without a unit is {re.escape(told)}"):
        units.parse_bytes(text, "--ram-total")
    with pytest.raises(InputError, match=f"^--io-read: {text} without a unit .* Did you mean {text}MiB/s[?]$"):
        units.parse_bytes_per_second(f"{text}/s", "--io-read")


def test_a_bandwidth_needs_its_second() -> None:
    assert units.parse_bytes_per_second("1000 MiB/s", "io.read") == 1_048_576_000
    assert units.parse_bytes_per_second("1GB / s", "io.read") == 10**9
    for text in ("1000MiB", "1000MiB/h", "/s"):
        with pytest.raises(InputError, match=r"io\.read"):
            units.parse_bytes_per_second(text, "io.read")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1.5 * units.GIB, "1.5 GiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_printed_in_the_largest_unit(size: float, text: str) -> None:
    assert units.format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.84, "0.8 s"),
        (42.4, "42 s"),
        (59.7, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.9, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


def test_dates_are_utc_whatever_the_zone() -> None:
    moment = datetime(2026, 1, 6, 17, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    assert units.utc_iso(moment) == "2026-01-06T16:00:00.123456Z"
    assert units.utc_stamp(moment) == "20260106-160000-123456"
    assert units.utc_now().tzinfo is UTC


def test_shares() -> None:
    assert units.parse_share("2%", "--margin") == pytest.approx(0.02, rel=1e-12)
    assert units.parse_share(" 2.5% ", "--margin") == pytest.approx(0.025, rel=1e-12)
    assert units.parse_share("0.02", "--margin") == 0.02
    with pytest.raises(InputError, match="--margin: expected a percentage, got 'two'"):
        units.parse_share("two", "--margin")


def test_a_size_beyond_any_float_is_printed() -> None:
    assert units.format_bytes(10**400).endswith(" TiB")
