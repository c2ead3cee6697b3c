"""A vote on results that must be equal: tenants with the same seed, work and kind of device. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import msgspec

from milabench_ng.model.grouping import grouped


class Ballot(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one process that verifies its work."""

    job_id: str
    device: str
    """In words."""
    alike: Hashable
    """All that decides the results; only equal ones are compared."""
    digests: Mapping[str, str]
    """By step."""


def outvoted(ballots: Sequence[Ballot]) -> dict[str, str]:
    """Why each launch whose results are not those of the majority has failed, by job id.

    Without a majority nobody knows who is wrong, and all that disagree have failed.
    """
    return {
        job_id: why
        for group in grouped(ballots, lambda ballot: ballot.alike).values()
        for job_id, why in _of_group(group).items()
    }


def _of_group(ballots: Sequence[Ballot]) -> dict[str, str]:
    """The verdict at the first step at which results differ."""
    steps = dict.fromkeys(step for ballot in ballots for step in ballot.digests)
    for step in sorted(steps, key=int):
        voters = [ballot for ballot in ballots if step in ballot.digests]
        counts = Counter(ballot.digests[step] for ballot in voters)
        if len(counts) > 1:
            return _verdict(voters, step, counts)
    return {}


def _verdict(voters: Sequence[Ballot], step: str, counts: Counter[str]) -> dict[str, str]:
    (winner, most), *_ = counts.most_common()
    if 2 * most > len(voters):
        why = f"its result of step {step} is not that of the {most} other devices that agree"
        return {ballot.job_id: f"{ballot.device}: {why}" for ballot in voters if ballot.digests[step] != winner}
    devices = ", ".join(ballot.device for ballot in voters)
    unsure = f"{devices} disagree on the result of step {step}, and no majority says which is wrong"
    return {ballot.job_id: unsure for ballot in voters}
