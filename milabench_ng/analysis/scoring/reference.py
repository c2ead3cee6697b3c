"""The reference of a suite's score: the stored result that its weights name, and whose rates are 1 in the score."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from milabench_ng.analysis.scoring.weights import WeightsFile, WeightsHeader
from milabench_ng.analysis.summary.folder import decode_summary
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_content
from milabench_ng.model.plain import plain, short
from milabench_ng.model.shipped import find

REFERENCE = "reference.json"
"""The name of the reference in a bundle, next to its weights."""
CLASSIC_UNIT = "classic items/s"
"""The unit of a score without a reference, as in 2020."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A stored result that scores are multiples of."""

    name: str
    file: Path
    sha256: str
    summary: Summary
    borrows_name: bool = False
    """Whether it is another file than the shipped baseline of its name."""

    @property
    def unit(self) -> str:
        """The unit of a score: one device of the reference has 1."""
        return f"x {plain(self.name)}{f' (SHA-256 {self.sha256[:12]})' if self.borrows_name else ''}"


def bare_unit(unit: str) -> str:
    """``unit`` without the digest that tells its reference from the shipped one, which changes with the version."""
    return unit.partition(" (SHA-256 ")[0]


def score_unit(reference: Reference | None) -> str:
    return CLASSIC_UNIT if reference is None else reference.unit


def load_reference(weights: WeightsFile) -> Reference | None:
    """The reference that ``weights`` name; None if they name none.

    It is a file next to the weights, or a shipped baseline. Raises InputError if there is none of that name with the
    SHA-256 that the weights state, or if it lacks a rate of a weighted test.
    """
    stated = weights.header
    if stated is None:
        return None
    where = f"weights {plain(weights.path)}"
    if Path(stated.reference).name != stated.reference:
        raise InputError(
            f"{where}: reference {short(repr(stated.reference))}: expected the name of a file next to the weights, "
            "without a folder"
        )
    found = _find(weights.path, stated, where)
    for label in weights.weights:
        row = found.summary.tests.get(label)
        if row is None or not row.rated:
            raise InputError(
                f"{where}: reference {plain(found.name)} has no rate of {short(label)}. Leave its weight out"
            )
    return found


def _find(weights: Path, stated: WeightsHeader, where: str) -> Reference:
    name = stated.reference.removesuffix(".json")
    seen: list[str] = []
    for file in _candidates(weights, name):
        content = read_content(file)
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 == stated.sha256:
            shipped = find("baselines", name)
            return Reference(
                name=name,
                file=file,
                sha256=sha256,
                summary=decode_summary(content, str(file)),
                borrows_name=shipped is not None and read_content(shipped) != content,
            )
        seen.append(f"{plain(file)} has SHA-256 {sha256[:12]}")
    found = "; ".join(seen) or "there is no such file next to the weights, and no such shipped baseline"
    raise InputError(f"{where}: reference {plain(name)} with SHA-256 {short(stated.sha256[:12])}: {found}")


def _candidates(weights: Path, name: str) -> Iterator[Path]:
    packed = f"{Path(REFERENCE).stem}{weights.name.removeprefix('weights')}"  # reference-modern.json
    near = (weights.with_name(known) for known in (f"{name}.json", REFERENCE, packed))
    yield from (file for file in near if file.is_file())
    shipped = find("baselines", name)
    if shipped is not None:
        yield shipped


def unit_told(unit: str) -> str:
    """The unit of a score in words: the classic items/s of 2020 are points."""
    return "points" if unit == CLASSIC_UNIT else unit
