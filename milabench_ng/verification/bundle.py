"""Bundles: a result folder in one ``.tar.gz``, with the checksum of every file and the numbers that the sender printed.

The same folder always gives the same bytes: members are sorted by name and have neither date nor owner.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from milabench_ng import __version__
from milabench_ng.analysis.scoring.failure_rate import failure_rate
from milabench_ng.analysis.scoring.reference import CLASSIC_UNIT, REFERENCE, score_unit
from milabench_ng.analysis.scoring.scale import Scale, load_scales
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.scoring.scored import scored_tests
from milabench_ng.analysis.summary.ending import left_pending
from milabench_ng.analysis.summary.folder import summary_of
from milabench_ng.analysis.summary.suites import by_suite
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.profile import SUITE_NAME
from milabench_ng.model.units import counted
from milabench_ng.records.folder import Folder, read_folder
from milabench_ng.records.names import MANIFEST, RECORD_NAME, file_digest, instead_of, is_result_file
from milabench_ng.records.output_files import check_target, write_output
from milabench_ng.records.spool_folder import waiting
from milabench_ng.verification.folder_files import result_files, sha256_of
from milabench_ng.verification.signing import sign

BUNDLE_SCHEMA = 1
STATISTICS = 3
"""3: no interval of few repeats. 2: intervals by the jackknife over the repeats. 1: around the score as it is printed,
with its charges as exact."""
PACKING_LIST = "bundle.json"
SIGNATURE = "bundle.json.sig"
WEIGHTS = "weights.json"
RESULTS = "results/"
_OF_SCORES = re.compile(rf"(weights|reference)(-{SUITE_NAME.pattern})?\.json")


class FileSum(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a bundle."""

    bytes: int
    sha256: str


class ClaimedTest(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender's report says about a test. Rates are in items of ``unit`` per second."""

    unit: str
    n: int
    fail: int
    perf: float | None
    std_pct: float | None
    perf_adj: float | None
    low: float | None
    """Lower bound of the 95 % interval (``high``: the upper one); None without an interval."""
    high: float | None


class ClaimedScore(msgspec.Struct, frozen=True, kw_only=True):
    """What the sender's report says about the score of a suite; see `Claim`."""

    status: str | None
    unit: str
    per_device: float | None
    per_node: float | None
    low: float | None
    high: float | None
    why: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that the sender printed. Scores are in ``unit``; None if there is no score."""

    suite: str
    devices: int
    hardware: str
    versions: dict[str, str]
    status: str | None
    unit: str = CLASSIC_UNIT
    """Of the score; versions that knew no other left it out."""
    per_device: float | None
    per_node: float | None
    low: float | None
    """Lower bound of the 95 % interval of the score per device (``high``: the upper one); None: see ``why``."""
    high: float | None
    why: str
    statistics: int = 1
    """The version of the formulas behind ``low`` and ``high``."""
    tests: dict[str, ClaimedTest]
    suites: dict[str, ClaimedScore] | msgspec.UnsetType = msgspec.UNSET
    """The scores of several suites; then there is no other. Omitted for one."""

    @property
    def scores(self) -> dict[str, ClaimedScore]:
        if self.suites is not msgspec.UNSET:
            return self.suites
        return {self.suite: msgspec.convert(self, ClaimedScore, from_attributes=True)}


class PackingList(msgspec.Struct, frozen=True, kw_only=True):
    """``bundle.json``: what the bundle contains, and what the sender claims about it. The signature is over this."""

    schema: int = BUNDLE_SCHEMA
    job_id: None = None
    version: str
    claim: Claim
    files: dict[str, FileSum]
    """By name in the bundle; excludes ``bundle.json`` itself and its signature."""


def damage(listed: Mapping[str, FileSum], sums: Mapping[str, FileSum]) -> Iterator[str]:
    """What is not as it was packed, where the packing list has ``listed`` and the files have ``sums``."""
    for name, one in listed.items():
        there = sums.get(name)
        if there is None:
            yield f"{name} is in the packing list but not in the bundle"
        elif there != one:
            was = f"its SHA-256 is {there.sha256[:12]}, not {one.sha256[:12]}"
            yield f"{name} was changed after it was packed ({was})"
    yield from (f"{name} is in the bundle but not in its packing list" for name in sums if name not in listed)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What was packed."""

    path: Path
    sha256: str
    files: int
    bytes: int
    """Total size of the files, unpacked."""
    left_out: tuple[str, ...]
    """Files in the folder that belong to no run."""
    signed: bool
    altered: tuple[str, ...] = ()
    """What breaks R13: changed lines of the ledger, and records that are not those that it names."""
    left: int = 0
    """Launches of an interrupted run that have not run yet."""


def make_claim(summary: Summary, scales: Mapping[str, Scale]) -> Claim:
    """The numbers that a report on ``summary`` prints, whose suites have ``scales``. Pure."""
    scores = {part.suite: _claimed_score(part, scales[part.suite]) for part in by_suite(summary)}
    only = _EACH_ITS_OWN if summary.suites else scores[summary.suite]
    return Claim(
        suite=summary.suite,
        devices=summary.devices,
        hardware=summary.provenance.hardware,
        versions=summary.provenance.software,
        statistics=STATISTICS,
        tests={
            label: msgspec.convert(row, ClaimedTest, from_attributes=True)
            for label, row in scored_tests(summary, None).items()
        },
        suites=scores if summary.suites else msgspec.UNSET,
        **msgspec.structs.asdict(only),
    )


_EACH_ITS_OWN = ClaimedScore(
    status=None, unit=CLASSIC_UNIT, per_device=None, per_node=None, low=None, high=None, why="each suite has its own"
)


def _claimed_score(summary: Summary, scale: Scale) -> ClaimedScore:
    own = score(summary, scale.weights, scale.reference) if scale.weights else None
    interval = own.interval if own else None
    return ClaimedScore(
        status=own.status if own else None,
        unit=score_unit(scale.reference),
        per_device=own.per_device if own else None,
        per_node=own.per_node if own else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        why=own.why if own else "there are no weights",
    )


def pack(
    folder: Path, output: Path | None, weights: Path | None = None, key: Path | None = None, *, force: bool = False
) -> Written:
    """Pack a result folder into ``output`` (default: ``FOLDER.bundle.tar.gz``, next to it), signed with ``key``.

    ``weights``: the weights file behind the claimed score (default: the suite's shipped one); ``force``: replace an
    existing file, though never evidence.
    """
    names, left_out = result_files(folder)
    if MANIFEST not in names:
        advice = instead_of(folder, "Give the folder that `mnb jobs` wrote")
        raise InputError(f"{folder}: no run.json in it. {advice}")
    read = read_folder(folder)
    _refuse_without_results(read, folder, names)
    target = bundle_target(folder, output, force=force)
    summary = summary_of(read)
    scales = load_scales(weights, summary)
    sources = {f"{RESULTS}{name}": folder / name for name in names}
    for suite, scale in scales.items():
        if scale.file is not None:
            sources[of_suite(WEIGHTS, suite, summary)] = scale.file
        if scale.reference is not None:
            sources[of_suite(REFERENCE, suite, summary)] = scale.reference.file
    packing = PackingList(
        version=__version__,
        claim=make_claim(summary, scales),
        files={name: sum_of(path) for name, path in sorted(sources.items())},
    )
    made = io.BytesIO()
    write_archive(made, listed(packing, PACKING_LIST, key), dict(sorted(sources.items())))
    content = made.getvalue()
    write_output(target, content, "--output", force=force)
    return Written(
        path=target,
        sha256=file_digest(content),
        files=len(sources),
        bytes=sum(one.bytes for one in packing.files.values()),
        left_out=left_out,
        altered=read.contradicted,
        left=failure_rate(left_pending(summary)).left,
        signed=key is not None,
    )


def _refuse_without_results(read: Folder, folder: Path, names: Iterable[str]) -> None:
    """Raise InputError for a run whose results are still to come, or wait elsewhere."""
    if read.going_on:
        raise InputError(f"{folder}: the run is still in progress. Pack it when it has ended")
    if spooled := waiting(folder, read.ledger):
        saved = f"the results of {counted(len(spooled.launches), 'launch')} wait in {plain(spooled.place)}"
        raise InputError(f"{folder}: {saved}. To bring them back, run mnb resume {quoted(folder)}")
    if not any(map(RECORD_NAME.fullmatch, names)):
        raise InputError(f"{folder}: no record in it. To run its launches, run mnb resume {quoted(folder)}")


def bundle_target(folder: Path, output: Path | None, *, force: bool) -> Path:
    """``output``, or the usual name beside the folder. Raises InputError for what may not be replaced."""
    target = output or folder.resolve().with_name(f"{folder.resolve().name}.bundle.tar.gz")
    check_target(target, "--output", force=force)
    return target


def listed(packing: msgspec.Struct, name: str, key: Path | None) -> dict[str, bytes]:
    """The files that a bundle begins with: the packing list under its name, and its signature with ``key``."""
    content = msgspec.json.format(msgspec.json.encode(packing), indent=1) + b"\n"
    return {name: content} if key is None else {name: content, f"{name}.sig": sign(content, key)}


def sum_of(path: Path) -> FileSum:
    """Size and checksum of a file. Raises InputError if it cannot be read."""
    return FileSum(bytes=path.stat().st_size, sha256=sha256_of(path))


def write_archive(file: IO[bytes], own: Mapping[str, bytes], sources: Mapping[str, Path], *, level: int = 9) -> None:
    """Write the archive, with the packing list first so that a reader knows what follows."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=level) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, content in own.items():
            _add(archive, name, len(content), io.BytesIO(content))
        for name, path in sources.items():
            with path.open("rb") as source:
                _add(archive, name, os.fstat(source.fileno()).st_size, source)


def _add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    archive.addfile(member, content)


def of_suite(name: str, suite: str, summary: Summary) -> str:
    """The name in a bundle of the weights or the reference of ``suite``, one of those of ``summary``."""
    return name.replace(".json", f"-{suite}.json") if summary.suites else name


def is_member(name: str) -> bool:
    """Whether a file of that name belongs in a bundle."""
    if name.startswith(RESULTS):
        return is_result_file(name.removeprefix(RESULTS))
    return name in (PACKING_LIST, SIGNATURE) or _OF_SCORES.fullmatch(name) is not None
