"""What a record says about an automatic batch size: every trial, and what follows from them."""

from __future__ import annotations

import msgspec

from milabench_ng.model.batch_sizes import largest_fitting

SEARCH_PHASE = "batch size"
"""The name of its seconds among the phases of a launch."""


class SizeTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A few steps with one batch size, in all launches of the test at the same time."""

    size: int
    seconds: float
    peak_bytes: dict[str, int | None]
    """The most memory that was in use, by slot; null if the trial ended before it could tell.

    Of a GPU, all that is in use on it. Of a tenant on the CPU, the resident memory that its worker added, or the
    anonymous and shared memory of its group if a sample of that is larger.
    """
    unfit: dict[str, str]
    """By slot, why the size does not fit; empty if it fits all of them."""

    @property
    def fits(self) -> bool:
        """Whether all tenants can work with it."""
        return not self.unfit


class BatchSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The search for the batch size of a test. All its launches use the result."""

    size: int | None
    """The largest of the tried sizes that fits all tenants; null if none does, or a trial failed otherwise."""
    fraction: float
    """The part of its memory that a tenant may fill."""
    limit_bytes: dict[str, int]
    """That part by slot: of the GPU's memory, or of the tenant's RAM on the CPU."""
    steps: int
    """Steps of each trial."""
    batch: int
    """The batch before which it was made."""
    reused: bool = False
    """Whether this launch took the result of an earlier batch instead of searching."""
    seconds: float
    trials: tuple[SizeTrial, ...]

    @property
    def tried(self) -> dict[int, bool]:
        """Whether it fitted, by size."""
        return {trial.size: trial.fits for trial in self.trials}

    @property
    def follows(self) -> bool:
        """Whether size and verdicts follow from the trials."""
        return self.size == largest_fitting(self.tried) and all(self._follows(trial) for trial in self.trials)

    def _follows(self, trial: SizeTrial) -> bool:
        over = {
            slot
            for slot, limit in self.limit_bytes.items()
            if (peak := trial.peak_bytes.get(slot)) is None or peak > limit
        }
        return over <= trial.unfit.keys()
