"""Where a summary comes from: a result folder, a stored summary, a flat summary of 2020, a shipped baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.records.reading import (
    ManifestView,
    Problem,
    ReadRecord,
    is_going_on,
    read_file,
    read_folder,
    read_ledger,
)
from milabench_ng.report.launches import LaunchResult, reduce_record
from milabench_ng.report.summarise import Folder, summarise
from milabench_ng.report.summary import SUMMARY_SCHEMA, Provenance, Stat, Summary, TestSummary
from milabench_ng.shipped import find


def load(source: Path) -> Summary:
    """The summary of a result folder or of a single record, or a stored one (a flat one of 2020 too)."""
    if source.is_dir():
        return summarise(collect(source))
    found = read_file(str(source), source.name)
    if isinstance(found, ReadRecord):
        return summarise(Folder(source=str(source), results=(reduce_record(found),)))
    try:
        content = source.read_bytes()
    except OSError as error:
        raise InputError(f"{source}: {error.strerror}; give a result folder or a summary file") from None
    return decode_summary(content, str(source))


def load_baseline(name: str) -> Summary:
    """The summary in the file or folder ``name``, or the shipped baseline of that name (``"v100"``)."""
    path = Path(name)
    if path.exists():
        return load(path)
    shipped = find("baselines", path.name.removesuffix(".json"))
    if shipped is None or path.name != name.removeprefix("baselines/"):
        raise InputError(f"--compare {name}: no such file or folder, and no baseline of that name is shipped")
    return load(shipped)


def collect(folder: Path) -> Folder:
    """Read ``folder``; every record is reduced at once, so that memory stays small."""
    going_on = is_going_on(folder)  # asked first: what ends while we read is then merely pending
    results: list[LaunchResult] = []
    manifests: list[ManifestView] = []
    problems: list[Problem] = []
    for found in read_folder(folder):
        if isinstance(found, ReadRecord):
            results.append(reduce_record(found))
        elif isinstance(found, ManifestView):
            manifests.append(found)
        else:
            problems.append(found)
    return Folder(
        source=str(folder),
        events=read_ledger(folder).events,
        results=tuple(results),
        manifests=tuple(manifests),
        problems=tuple(problems),
        going_on=going_on,
    )


def encode_summary(summary: Summary) -> str:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=1).decode() + "\n"


def decode_summary(content: bytes, source: str) -> Summary:
    """A stored summary, or a flat one of 2020; ``source`` is for errors."""
    try:
        raw = json.loads(content)
    except ValueError as error:
        raise InputError(f"{source}: not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{source}: not a summary; give a result folder or what `mnb summary -o` wrote")
    if "schema" not in raw:
        return _from_2020(raw, source)
    schema = raw["schema"]
    if not isinstance(schema, int) or schema > SUMMARY_SCHEMA:
        raise InputError(f"{source}: summary schema {schema!r}; this version of mnb reads up to {SUMMARY_SCHEMA}")
    try:
        return msgspec.convert(raw, Summary)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: not a summary: {error}") from None


class _Row2020(msgspec.Struct, frozen=True):
    n: int
    failures: int
    train: Stat
    total: Stat | None = None
    pergpu: dict[str, Stat] | None = None
    peak_memory: float | None = None


def _from_2020(raw: dict[str, Any], source: str) -> Summary:
    """A flat summary of 2020: a row by name, rates in the items of 2020."""
    try:
        rows = msgspec.convert(raw, dict[str, _Row2020])
    except msgspec.ValidationError as error:
        raise InputError(
            f"{source}: neither a summary of mnb nor one of 2020 ({error}); give a result folder or a summary file"
        ) from None
    if not rows:
        raise InputError(f"{source}: the summary is empty")
    steps = progression_steps(list(rows))
    devices = max(len({device for row in rows.values() for device in row.pergpu or {}}), 1, *steps.values())
    return Summary(
        suite=next(iter(rows)).partition(".")[0],
        units="classic",
        devices=devices,
        provenance=Provenance(kind="measured", source=source, hardware="not recorded"),
        has_plan=False,
        tests={
            label: TestSummary(
                n=row.n,
                failures=row.failures,
                total=row.total,
                train=row.train,
                pergpu=row.pergpu or None,
                peak_memory=row.peak_memory or 0.0,
                scheme="gpu-progression" if label in steps else "per-gpu",
                devices=steps.get(label, devices),
            )
            for label, row in rows.items()
        },
    )


def progression_steps(labels: list[str]) -> dict[str, int]:
    """The labels that are steps of a progression (``suite.test.K``), with their K."""
    parts = {label: label.rpartition(".") for label in labels}
    return {label: int(step) for label, (base, _, step) in parts.items() if step.isdigit() and "." in base}
