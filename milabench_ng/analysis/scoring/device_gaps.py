"""How far each device of a model is from the others, and how well that is known. Pure.

The launches of a batch share the node's state, so what a batch does to all devices is taken out first: the logarithm of
a rate is the sum of a device's mean, a batch's mean and a residual (a two-way layout without interaction: Scheffe, The
Analysis of Variance, 1959). The residuals give the noise.

Over all tests, each batch of each test counts: 3 repeats of 12 tests are 36 comparisons. A device may also be slower
in one whole repeat, which its batches have in common. What the repeats vary beyond the noise of the batches is
therefore part of the error, with the few degrees of freedom of the repeats (Satterthwaite, Biometrics Bulletin 2,
1946).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from milabench_ng.analysis.statistics.intervals import t_quantile, t_tail
from milabench_ng.analysis.summary.summary import TestSummary
from milabench_ng.model.stats import mean

SLOWER_BY = 0.03
"""How far below the others a device may be without being called slow."""

MARGIN = math.log1p(-SLOWER_BY)
"""The same as a logarithm."""


class DeviceGap(msgspec.Struct, frozen=True, kw_only=True):
    """How far a device is from the others, in logarithms."""

    device: str
    test: str | None
    """None means over all tests."""
    mean: float
    error: float
    df: float
    repeats: int
    """The fewest of any test behind it."""

    @property
    def p(self) -> float:
        """One-sided: the probability of a gap this wide if the device is just 3 % slower."""
        beyond = MARGIN - self.mean
        if self.error == 0:
            return 0.0 if beyond > 0 else 1.0
        return t_tail(beyond / self.error, self.df)

    def noticed(self, gap: float, level: float, repeats: int) -> float:
        """The probability that a device whose true gap is ``gap`` is called slow at ``level``, with so many repeats.

        Of the noncentral t distribution (Johnson and Welch, Biometrika 31, 1940).
        """
        if self.error == 0:
            return float(gap < MARGIN)
        error = self.error * math.sqrt(self.repeats / repeats)
        df = self.df * (repeats - 1) / (self.repeats - 1)
        return t_tail(t_quantile(level, df), df, (MARGIN - gap) / error)


Matrix = Mapping[str, Mapping[str, float]]
"""Logarithms of rates, by repeat and device; every repeat has the same devices."""


class Layout(msgspec.Struct, frozen=True):
    """A test's matrix taken apart, of at least two repeats and devices."""

    gaps: dict[str, float]
    """Each device's distance from the mean of the others."""
    residuals: Matrix
    """What neither a device's mean nor a repeat's explains."""

    @property
    def others(self) -> int:
        """How many devices each is compared with."""
        return len(self.gaps) - 1

    @property
    def repeats(self) -> int:
        return len(self.residuals)

    @property
    def df(self) -> int:
        """The degrees of freedom of the residuals."""
        return self.others * (self.repeats - 1)

    @property
    def variance(self) -> float:
        """Of a gap."""
        squares = math.fsum(value * value for row in self.residuals.values() for value in row.values())
        return squares / self.df / self.repeats * (1 + 1 / self.others)


def log_matrix(row: TestSummary, alike: Sequence[str]) -> Matrix:
    """The logarithms of a test's rates on the devices in ``alike`` that have any, in the repeats of all of these."""
    found: dict[str, dict[str, float]] = {}
    for job, rate in row.launches.items():
        repeat, _, slot = job.partition(".")
        device, _, again = slot.partition("#")
        if device in alike and rate > 0:
            found.setdefault(f"{repeat}#{again}", {})[device] = math.log(rate)
    devices = {device for logs in found.values() for device in logs}
    return {repeat: logs for repeat, logs in found.items() if logs.keys() == devices}


def layout(matrix: Matrix) -> Layout | None:
    """The matrix taken apart; None for one repeat or one device."""
    devices = list(next(iter(matrix.values()), ()))
    if len(matrix) < 2 or len(devices) < 2:
        return None
    means = {device: mean([logs[device] for logs in matrix.values()]) for device in devices}
    centre = mean(list(means.values()))
    middle = {repeat: mean(list(logs.values())) - centre for repeat, logs in matrix.items()}
    return Layout(
        gaps={device: (value - centre) * len(devices) / (len(devices) - 1) for device, value in means.items()},
        residuals={
            repeat: {device: logs[device] - means[device] - middle[repeat] for device in devices}
            for repeat, logs in matrix.items()
        },
    )


def device_gaps(made: Layout, test: str) -> list[DeviceGap]:
    """Each device against the mean of the others, in one test."""
    error = math.sqrt(made.variance)
    return [
        DeviceGap(device=device, test=test, mean=gap, error=error, df=made.df, repeats=made.repeats)
        for device, gap in made.gaps.items()
    ]


def gaps_over_tests(layouts: Sequence[Layout]) -> list[DeviceGap]:
    """The means over the tests, which have the same devices.

    Their variance is that of the batches, and what repeats add to it.
    """
    if not layouts:
        return []
    of_tests = [one.variance / len(layouts) ** 2 for one in layouts]
    batches = math.fsum(of_tests)
    known = {repeat for one in layouts for repeat in one.residuals}
    added = max(0.0, _between_repeats(layouts, known) - batches)
    squares = math.fsum(part * part / one.df for part, one in zip(of_tests, layouts, strict=True))
    squares += added * added / (layouts[0].others * (len(known) - 1))
    variance = batches + added
    return [
        DeviceGap(
            device=device,
            test=None,
            mean=mean([one.gaps[device] for one in layouts]),
            error=math.sqrt(variance),
            df=variance * variance / squares if squares > 0 else math.inf,
            repeats=min(one.repeats for one in layouts),
        )
        for device in layouts[0].gaps
    ]


def _between_repeats(layouts: Sequence[Layout], known: Collection[str]) -> float:
    """The variance of a mean over the tests, from what each repeat does to it in all of them together."""
    squares = math.fsum(
        math.fsum(one.residuals[repeat][device] / one.repeats for one in layouts if repeat in one.residuals) ** 2
        for repeat in known
        for device in layouts[0].gaps
    )
    others = layouts[0].others
    return squares / len(layouts) ** 2 * len(known) / (len(known) - 1) * (others + 1) / others**2
