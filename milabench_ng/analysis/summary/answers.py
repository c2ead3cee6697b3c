"""Known answers: what verified work comes to, and all that decides it. Pure.

The same seed gives the same bits on the same kind of device with the same libraries: a run that was sound knows the
answers of all later ones. So a fault is found that is the same in each step, which no run can find alone. The name of a
GPU decides, which has the size of a MIG instance; of CPUs their model and the number of threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.records.manifest import Manifest

FIRST = "1"
"""The step whose result is known: in work that is verified, all are alike."""


def answers(good: Iterable[LaunchResult], manifests: Iterable[Manifest]) -> dict[str, str]:
    """The digests of sound launches of these runs, by what decides them."""
    known = {manifest.run_id: manifest for manifest in manifests}
    found: dict[str, str] = {}
    for result in good:
        mnb, run = result.mnb, known.get(result.run_id or "")
        if mnb is None or run is None:
            continue
        decides = sorted(result.work.options_that_change("work", "numbers", "precision").items())
        for number, (rank, device) in enumerate(zip(mnb.ranks, mnb.devices, strict=False)):
            if rank.verified and FIRST in rank.digests:
                on_cpu = device.kind == "cpu" or mnb.bound == "cpu"
                where = (run.inventory.cpus.model, rank.torch_threads) if on_cpu else (device.name,)
                work = mnb.launch.workload, decides, len(mnb.ranks), number
                found[_short_hash(run.software_key, where, work)] = rank.digests[FIRST]
    return found


def _short_hash(*what: object) -> str:
    return hashlib.sha256(msgspec.json.encode(what)).hexdigest()[:16]


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
