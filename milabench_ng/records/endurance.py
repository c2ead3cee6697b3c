"""The beginning and the end of a launch that works for long: whether it slows down as it gets warm. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from milabench_ng.model.bounds import Amount, Moment, Spread
from milabench_ng.model.stats import mean
from milabench_ng.records.window import MEASURED_BY, SliceRow, Window, WindowRule, rate

PART_S = 600.0
"""Ten minutes at either end."""
LEAST_S = 10.0
"""Of a part; a shorter one says nothing of heat."""
QUANTITIES = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "memory_temperature_c", "power_w")
"""Of the telemetry of its GPUs."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a launch."""

    start_s: Moment
    end_s: Moment
    rate: Amount
    """Items per second: the mean of its ranks."""
    telemetry: dict[str, dict[str, Spread]]
    """Of `QUANTITIES`, by source and key; empty without GPUs."""


class Endurance(msgspec.Struct, frozen=True, kw_only=True):
    """Both ends of a launch, of the same length."""

    first: Part
    last: Part

    @property
    def change(self) -> float:
        """The rate at the end over that at the beginning, less 1; 0 if nothing was done at the beginning."""
        return self.last.rate / self.first.rate - 1 if self.first.rate > 0 else 0.0


def part_s(working_s: float) -> float:
    """The length of either end of a launch that works so long once it has settled: ten minutes, or a third of it."""
    return min(PART_S, working_s / 3)


def parts_of(start_s: float, stop_s: float, rule: WindowRule) -> tuple[Window, Window] | None:
    """The two ends of a launch between these moments; None unless it was to work longer than others."""
    begin, end = start_s + MEASURED_BY.settle_s, stop_s - rule.margin_s
    length = part_s(end - begin)
    if rule.settle_s <= MEASURED_BY.settle_s or length < LEAST_S:
        return None
    return (
        Window(start_s=begin, end_s=begin + length, edges="shared"),
        Window(start_s=end - length, end_s=end, edges="shared"),
    )


def part(window: Window, ranks: Sequence[Sequence[SliceRow]], telemetry: dict[str, dict[str, Spread]]) -> Part | None:
    """One end; None if a rank did nothing in it."""
    rates = [rate(rows, window) for rows in ranks]
    if not all(one >= 0 for one in rates):  # not a number without a slice
        return None
    seen = {key: {name: spreads[name] for name in QUANTITIES if name in spreads} for key, spreads in telemetry.items()}
    return Part(start_s=window.start_s, end_s=window.end_s, rate=mean(rates), telemetry=seen)
