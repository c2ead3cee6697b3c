"""Several folders of one study of neighbours: a victim in each, all on one kind of node. Pure.

A slowdown rests on pairs within one folder, so the folders may be of different nodes, hosts and days. What the nodes
are must be the same, and no folder may have the victims of another: they would be more repeats of other hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from milabench_ng.analysis.summary.summary import Summary, name_of_row
from milabench_ng.model.errors import InputError

_SOFTWARE = ("mnb", "torch", "cuda", "cudnn")


def one_study(parts: Sequence[Summary]) -> Summary:
    """The summaries as one. Raises InputError if they are of different kinds of node, or share a test."""
    first, *others = parts
    rows = dict(first.tests)
    for other in others:
        _refuse_other_kind(first, other)
        both = [name_of_row(label) for label in rows.keys() & other.tests.keys()]
        if both:
            raise InputError(
                f"{other.provenance.source}: another folder has {', '.join(sorted(both)[:3])} too. Name folders of "
                "different victims"
            )
        rows |= other.tests
    source = " and ".join(part.provenance.source for part in parts)
    return msgspec.structs.replace(
        first,
        tests=rows,
        omitted=tuple(label for label in first.omitted if label not in rows),
        provenance=msgspec.structs.replace(first.provenance, source=source),
        sessions=sum(part.sessions for part in parts),
        starts=sum(part.starts for part in parts),
        going_on=any(part.going_on for part in parts),
        interrupted=any(part.interrupted for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        host_pace=None,
        problems=tuple(problem for part in parts for problem in part.problems),
    )


def _refuse_other_kind(first: Summary, other: Summary) -> None:
    ours, theirs = _kind(first), _kind(other)
    differing = [
        f"{name} {ours.get(name, 'not recorded')} and {theirs.get(name, 'not recorded')}"
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    ]
    if differing:
        sources = f"{first.provenance.source} and {other.provenance.source}"
        raise InputError(
            f"{sources} are not one study: {'; '.join(differing)}. Name folders of the same profile and kind of node"
        )


def _kind(summary: Summary) -> dict[str, str]:
    """What folders of one study have in common, in words."""
    found = summary.provenance
    return {
        "profile": ", ".join(sha[:12] for sha in summary.profile_sha256),
        "devices": found.hardware,
        "processors": found.node.get("processors", ""),
        "machine": found.node.get("machine", ""),
        "driver": found.node.get("driver", ""),
        "isolation": summary.isolation,
        **{name: found.software[name] for name in _SOFTWARE if name in found.software},
    }
