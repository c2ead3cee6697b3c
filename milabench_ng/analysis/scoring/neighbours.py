"""What neighbours cost: slowdowns of victims beside antagonists, and packed with themselves. Pure.

A victim is a test that ran alone (``"company": "none"``). Other tests with its options ran beside something: beside an
antagonist, or packed, on all devices at the same time. The slowdown is the rate alone over the rate in company, of the
same device in the same repeat, so that what differs between devices cancels, and drift nearly so. Intervals and
verdicts rest on the logarithms of these pairs, of packed victims on their means by repeat, since launches at the same
moment share the node's state; p values are adjusted over the whole matrix (Holm). ``scripts/simulate-decisions`` shows
how often they are wrong. The terms are those of Bubble-Up (Mars et al., MICRO 2011).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from milabench_ng.analysis.statistics.effects import Effect, effects, of_a_cost
from milabench_ng.analysis.statistics.intervals import LogStat, WeightedStat, log_stat, stat_of_logs
from milabench_ng.analysis.summary.summary import Pressing, TestSummary, name_of_row
from milabench_ng.model.grouping import grouped
from milabench_ng.model.stats import mean

PACKED = "packed"
PAIR = "pair"
"""What intervals and verdicts rest on; those of packed victims are repeats."""
_ALONE = "_alone"
"""How names of tests that run alone may end; what is before it names the victim."""


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of the matrix."""

    victim: str
    beside: str
    """The antagonists, or `PACKED`."""
    test: str
    label: str
    """Of its row."""
    alone: float
    together: float
    """Mean rates of the pairs, in items per second."""
    unit: str
    company: dict[str, float]
    """The antagonists' own rates, in items per second; empty if packed."""
    company_units: dict[str, str] = {}
    """Their items, as far as they are known."""
    pressing: dict[str, Pressing] = {}
    """What the antagonists do, by name."""
    stat: LogStat
    """Of the rate alone over that in company: by device and repeat, or by repeat if packed."""
    by_repeat: dict[str, float]
    """The mean logarithm of the pairs of each repeat."""
    pairs: int
    """What the verdict rests on: as many as ``stat`` has."""
    lost: int
    """Pairs of launches without two rates, such as failed ones; a victim that starved is among them."""
    caches: tuple[str, str] = ("", "")
    """How the page cache held the data alone, and in company."""
    fairness: float | None = None
    """What the worst tenant kept of its rate alone over what they kept on average; None unless packed."""
    effect: Effect

    @property
    def name(self) -> str:
        """``"loader packed"``, ``"loader beside disk_write"``."""
        return f"{self.victim} {'with all tenants at once' if self.beside == PACKED else f'next to {self.beside}'}"

    @property
    def value(self) -> float:
        """The geometric mean of the pairs."""
        return math.exp(self.stat.mean)

    @property
    def sure(self) -> bool:
        """Whether it is slower beyond doubt, and by more than the margin."""
        return self.effect.verdict == "worse"

    @property
    def not_judged(self) -> str:
        """Why it has no verdict; empty if it has one."""
        return f"not judged: {self.effect.why}" if self.effect.verdict == "not judged" else ""


class MeanSlowdown(msgspec.Struct, frozen=True, kw_only=True):
    """The geometric mean over several cells, all of equal weight."""

    value: float
    cells: int
    effect: Effect


class FenceGain(msgspec.Struct, frozen=True, kw_only=True):
    """What the fence is worth in a cell: the slowdown without it over that with it."""

    victim: str
    beside: str
    fenced: float
    unfenced: float
    by_repeat: tuple[dict[str, float], dict[str, float]]
    """The logarithms of the slowdowns, by repeat, without and with the fence."""
    effect: Effect

    @property
    def value(self) -> float:
        """How many times as large the slowdown is without the fence."""
        return self.unfenced / self.fenced


def slowdowns(tests: Mapping[str, TestSummary]) -> tuple[Slowdown, ...]:
    """All cells of these rows, victim by victim; empty if no test ran alone."""
    cells = [
        (name, tests[name], label, tests[label], stat) for (name, label), stat in cell_stats(tests).items() if stat
    ]
    found = effects([[(1.0, stat)] for *_, stat in cells], each=PAIR)
    return tuple(_slowdown(*cell, of_a_cost(one)) for cell, one in zip(cells, found, strict=True))


def cell_stats(tests: Mapping[str, TestSummary]) -> dict[tuple[str, str], LogStat | None]:
    """The logarithms of the pairs by the rows of victim and test in company; None where no pair has two rates."""
    return {
        (name, label): _both_ways(log_stat(pairs := _independent(row, _pairs(victim, row))), pairs)
        for name, victim in tests.items()
        if victim.company == {}
        for label, row in tests.items()
        if row.company != {} and row.work.options and row.work == victim.work
    }


def cost_of_neighbours(cells: Sequence[Slowdown]) -> MeanSlowdown | None:
    """The mean slowdown of the victims that were packed; None if none was."""
    return _mean([cell for cell in cells if cell.beside == PACKED])


def contentiousness(cells: Sequence[Slowdown]) -> dict[str, MeanSlowdown]:
    """By antagonist, the mean slowdown of its victims: which shared resource is to blame."""
    by_antagonist = grouped((cell for cell in cells if cell.beside != PACKED), lambda cell: cell.beside)
    found = {beside: _mean(own) for beside, own in by_antagonist.items()}
    return {beside: known for beside, known in found.items() if known is not None}


def fence_gains(fenced: Sequence[Slowdown], unfenced: Sequence[Slowdown]) -> tuple[FenceGain, ...]:
    """By cell that was measured with and without the fence."""
    without = {(cell.victim, cell.beside): cell for cell in unfenced}
    both = [(cell, without[key]) for cell in fenced if (key := (cell.victim, cell.beside)) in without]
    parts: list[tuple[WeightedStat, ...]] = [((1.0, other.stat), (-1.0, cell.stat)) for cell, other in both]
    return tuple(
        FenceGain(
            victim=cell.victim,
            beside=cell.beside,
            fenced=cell.value,
            unfenced=other.value,
            by_repeat=(other.by_repeat, cell.by_repeat),
            effect=found,
        )
        for (cell, other), found in zip(both, effects(parts, each=PAIR), strict=True)
    )


def worth_of_fence(gains: Sequence[FenceGain]) -> MeanSlowdown | None:
    """The mean gain over all cells; None without any.

    All cells of a victim divide by the same launches alone, so their means by repeat count, not the cells.
    """
    parts = [
        (sign * len(own) / len(gains), stat_by_repeat([gain.by_repeat[side] for gain in own]))
        for own in grouped(gains, lambda gain: gain.victim).values()
        for side, sign in enumerate((1, -1))
    ]
    return _mean_of([gain.value for gain in gains], parts, "repeat")


def _both_ways(stat: LogStat | None, slowdowns: Sequence[float]) -> LogStat | None:
    """``stat``, as wide as one disturbed launch makes it: alone, it makes a slowdown small, and in company large."""
    other = log_stat([1 / slowdown for slowdown in slowdowns]) if stat else None
    return msgspec.structs.replace(stat, moved=max(stat.moved, other.moved)) if stat and other else stat


def stat_by_repeat(figures: Sequence[Mapping[str, float]]) -> LogStat | None:
    """The statistic of the means of ``figures``, logarithms by repeat, in the repeats that all have, if any."""
    common = [repeat for repeat in (figures[0] if figures else ()) if all(repeat in one for one in figures)]
    return stat_of_logs([mean([one[repeat] for one in figures]) for repeat in common]) if common else None


def _mean(cells: Sequence[Slowdown]) -> MeanSlowdown | None:
    """Of cells that share no launches."""
    found = _mean_of([cell.value for cell in cells], [(1 / len(cells), cell.stat) for cell in cells], PAIR)
    return msgspec.structs.replace(found, effect=of_a_cost(found.effect)) if found else None


def _mean_of(values: Sequence[float], parts: Sequence[WeightedStat], each: str) -> MeanSlowdown | None:
    """``each``: what the statistics of ``parts`` count."""
    if not values:
        return None
    (found,) = effects([parts], each=each)
    return MeanSlowdown(value=math.exp(mean([math.log(value) for value in values])), cells=len(values), effect=found)


def _cached(row: TestSummary) -> str:
    return " and ".join(dict.fromkeys(each.cache for each in row.work.data))


def _pairs(victim: TestSummary, row: TestSummary) -> dict[str, float]:
    """The slowdown by job id."""
    return {
        job: victim.launches[job] / rate for job, rate in row.launches.items() if job in victim.launches and rate > 0
    }


def _independent(row: TestSummary, pairs: Mapping[str, float]) -> list[float]:
    """Slowdowns from different batches: a victim beside an antagonist has one launch in each, a packed one has many."""
    if row.company is not None:
        return list(pairs.values())
    return [math.exp(logarithm) for logarithm in _by_repeat(pairs).values()]


def _by_repeat(pairs: Mapping[str, float]) -> dict[str, float]:
    """The mean logarithm of the pairs of each repeat."""
    jobs = grouped(pairs, lambda job: job.partition(".")[0])
    return {repeat: mean([math.log(pairs[job]) for job in own]) for repeat, own in jobs.items()}


def _slowdown(name: str, victim: TestSummary, label: str, row: TestSummary, stat: LogStat, found: Effect) -> Slowdown:
    jobs = _pairs(victim, row)
    return Slowdown(
        victim=name_of_row(name).removesuffix(_ALONE),
        beside=", ".join(row.company or {}) or PACKED,
        test=name_of_row(label),
        label=label,
        alone=mean([victim.launches[job] for job in jobs]),
        together=mean([row.launches[job] for job in jobs]),
        unit=row.work.unit,
        company=row.company or {},
        company_units=row.company_units,
        pressing=row.pressing,
        stat=stat,
        by_repeat=_by_repeat(jobs),
        pairs=stat.n,
        lost=max(victim.n, row.n) - len(jobs),
        caches=(_cached(victim), _cached(row)),
        fairness=_fairness(jobs) if row.company is None else None,
        effect=found,
    )


def _fairness(pairs: Mapping[str, float]) -> float | None:
    """Worst over mean, by tenant, of the part of its rate alone that each kept; None for a single tenant."""
    by_tenant = grouped(pairs, lambda job: job.partition(".")[2])
    kept = [mean([1 / pairs[job] for job in jobs]) for jobs in by_tenant.values()]
    return min(kept) / mean(kept) if len(kept) > 1 else None
