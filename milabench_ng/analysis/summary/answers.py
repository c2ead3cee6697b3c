"""Known answers: what verified work comes to, and all that decides it. Pure.

The same seed gives the same bits on the same kind of device with the same libraries: a run that was sound knows the
answers of all later ones. So a fault is found that is the same in each step, which no run can find alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.records.record import Mnb, Rank

FIRST = "1"
"""The step whose result is known: in work that is verified, all are alike."""


def answers(good: Iterable[LaunchResult], keys: Mapping[str, str]) -> dict[str, str]:
    """The digests of sound launches, by what decides them; ``keys``: the software key of each run, by id."""
    found: dict[str, str] = {}
    for result in good:
        mnb = result.mnb
        for rank in mnb.ranks if mnb is not None and keys.get(mnb.run_id) else ():
            if mnb is not None and rank.verified and FIRST in rank.digests:
                decides = result.work.options_that_change("work", "numbers", "precision")
                found[_decided_by(mnb, rank, keys[mnb.run_id], decides)] = rank.digests[FIRST]
    return found


def _decided_by(mnb: Mnb, rank: Rank, software_key: str, options: Mapping[str, object]) -> str:
    """A short hash: software, kind of device (a MIG instance has its size in its name), threads of a CPU, and work."""
    device = mnb.devices[rank.rank]
    threads = rank.torch_threads if device.kind == "cpu" or mnb.bound == "cpu" else None
    source = mnb.launch.workload, len(mnb.ranks), rank.rank, sorted(options.items())
    return hashlib.sha256(msgspec.json.encode([software_key, device.name, threads, *source])).hexdigest()[:16]


class KnownAnswers(msgspec.Struct, frozen=True):
    """How the answers of a run compare with those of a baseline."""

    name: str
    """The baseline's."""
    alike: tuple[str, ...]
    """The rows whose answers are known and the same."""
    other: tuple[str, ...]
    """Those that have another."""


def known_answers(summary: Summary, baselines: Sequence[tuple[str, Summary]]) -> tuple[KnownAnswers, ...]:
    """Compare with each of ``baselines`` that has answers for the same software and devices."""
    found = []
    for name, other in baselines:
        known = {key: answer for row in other.tests.values() for key, answer in row.answers.items()}
        rows = {
            label: [answer == known[key] for key, answer in row.answers.items() if key in known]
            for label, row in summary.tests.items()
        }
        alike = tuple(label for label, same in rows.items() if same and all(same))
        differing = tuple(label for label, same in rows.items() if not all(same))
        if alike or differing:
            found.append(KnownAnswers(name, alike, differing))
    return tuple(found)
