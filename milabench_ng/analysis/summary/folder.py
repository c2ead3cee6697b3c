"""Loads summaries from a result folder, a stored summary, a flat summary of 2020 or a shipped baseline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.analysis.launch.traces import ReferenceTrace, compare, compare_first_loss, load_traces, traced
from milabench_ng.analysis.summary.contradictions import contradictions
from milabench_ng.analysis.summary.deviations import with_deviations
from milabench_ng.analysis.summary.launch_conditions import with_conditions
from milabench_ng.analysis.summary.launches import LaunchResult, reduce_record
from milabench_ng.analysis.summary.provenance import ReducedFolder
from milabench_ng.analysis.summary.summarise import summarise
from milabench_ng.analysis.summary.summary import (
    SUMMARY_SCHEMA,
    Provenance,
    Stat,
    Summary,
    Tally,
    TestSummary,
    check_counts,
    progression_steps,
)
from milabench_ng.model.bounds import Amount
from milabench_ng.model.builtin import Declared, read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, in_words, meant_beside, parse_json, read_content
from milabench_ng.model.known_files import refuse_other
from milabench_ng.model.plain import plain, printed_json, short
from milabench_ng.model.profile import Scheme, suite_of
from milabench_ng.model.shipped import find, names
from milabench_ng.model.similar import did_you_mean
from milabench_ng.records.borders import asked
from milabench_ng.records.folder import Folder, read_folder
from milabench_ng.records.ledger import AnyLedgerEvent
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.origin import require_schema
from milabench_ng.records.reading import Read2020, ReadManifest, ReadRecord, read_record
from milabench_ng.records.work import Work


def load(source: Path, name: str = "") -> Summary:
    """The summary of a result folder or of a single record, or a stored summary (including a flat one of 2020).

    ``name``: what the user calls it, where that is not its path.
    """
    name = name or plain(source)
    if os.path.isdir(source):
        return summary_of(read_folder(source, name))
    if not os.path.lexists(source):
        meant = meant_beside(source) or ". Give a bundle, or the folder that `mnb jobs` names in its last lines"
        raise InputError(f"{name}: no such file or folder{meant}")
    content = read_content(source, LARGE)
    found = read_record(content, name)
    if isinstance(found, ReadRecord | Read2020):
        return summary_of(Folder(source=name, records=(found,)))
    if isinstance(found, ReadManifest):
        refuse_other(parse_json(content, name, numbers="any"), "summary", name)
    return decode_summary(content, name)


def summary_of(folder: Folder) -> Summary:
    """The summary of a result folder. Raises InputError if its runs are not repeats of one work on one node."""
    return summarise(reduce_folder(folder))


def load_baseline(name: str) -> Summary:
    """The summary in the file or folder ``name``, or the shipped baseline of that name (``"v100"``)."""
    return load(find_results(name))


def find_results(name: str, option: str = "") -> Path:
    """The file or folder ``name``, or the file of the shipped baseline of that name. Raises InputError, with the
    ``option`` that named it, if there is neither."""
    path = Path(name)
    if os.path.exists(path):
        return path
    shipped = find("baselines", path.name.removesuffix(".json"))
    if shipped is None or path.name != name.removeprefix("baselines/"):
        of_suites = [one for one in names("baselines") if one.endswith(f"-{name}")]
        meant = f". For other suites: {', '.join(of_suites)}" if of_suites else ""
        meant = meant or did_you_mean(name, names("baselines")) or meant_beside(path)
        if option and "," in name:
            meant = f". One at a time: {' '.join(f'{option} {short(one)}' for one in name.split(','))}"
        named = f"{option} {short(name)}".lstrip()
        raise InputError(
            f"{named}: no such file or folder, and no shipped baseline has that name"
            f"{meant or '. mnb baseline list names the shipped ones'}"
        )
    return shipped


def reduce_folder(folder: Folder) -> ReducedFolder:
    """Reduce every record, and add what the manifests and the shipped traces say of it."""
    manifests = [read.manifest for read in folder.manifests]
    own = {name: one for manifest in manifests for name, one in manifest.declared.items()} | read_builtin()
    results = [_completed(reduce_record(read), own) for read in folder.records]
    events = folder.ledger.events
    return ReducedFolder(
        source=folder.source,
        events=events,
        results=with_conditions(with_deviations(against_traces(results, manifests, own), manifests), manifests),
        manifests=tuple(_asked(manifest, events) for manifest in manifests),
        problems=folder.problems,
        going_on=folder.going_on,
    )


def _asked(manifest: Manifest, events: Sequence[AnyLedgerEvent]) -> Manifest:
    """The manifest with the part of its plan that its rule for stopping asked for."""
    if manifest.stopping is None:
        return manifest
    return msgspec.structs.replace(manifest, plan=asked(manifest.plan, events))


def _completed(result: LaunchResult, own: Mapping[str, Declared]) -> LaunchResult:
    return msgspec.structs.replace(result, work=result.work.completed(own.get(result.work.workload)))


def against_traces(
    results: list[LaunchResult], manifests: list[Manifest], own: Mapping[str, Declared]
) -> tuple[LaunchResult, ...]:
    """Compare each result with its suite's shipped traces: add marks for deviations, and whether it was compared."""
    suites = {suite_of(result.test) for result in results}
    known = {label: trace for suite in suites for label, trace in load_traces(suite).items()}
    keys = {manifest.run_id: manifest.software_key for manifest in manifests}
    return tuple(
        _against(result, own, known.get(result.label), keys.get(result.run_id or "", "")) for result in results
    )


def _against(
    result: LaunchResult, own: Mapping[str, Declared], trace: ReferenceTrace | None, software_key: str
) -> LaunchResult:
    if result.mnb is None:
        return result
    seen = traced(result.mnb, result.work)
    declared = own.get(result.work.workload)
    if trace is not None and declared is not None:
        lacking = {name: value for name, value in declared.formerly.items() if name in seen.arguments}
        trace = msgspec.structs.replace(trace, arguments=lacking | trace.arguments)
    found = compare(seen, trace, software_key)
    if found.lacking and declared and declared.first_loss:
        found = compare_first_loss(seen, declared.first_loss)
    return msgspec.structs.replace(
        result,
        marks=(*result.marks, *found.deviations),
        reference=found.sentence,
    )


def encode_summary(summary: Summary) -> str:
    """Encode as indented JSON; what makes a row's work stands beside its figures."""
    raw = msgspec.to_builtins(summary)
    for label, row in raw["tests"].items():
        raw["tests"][label] = row | row.pop("work")
    return printed_json(raw)


def decode_summary(content: bytes, source: str) -> Summary:
    """Decode a stored summary, or a flat one of 2020; ``source`` is for errors."""
    raw = parse_json(content, source)
    refuse_other(raw, "summary", source)
    if not isinstance(raw, dict):
        raise InputError(f"{source}: not a summary. Give a result folder, or a file that `mnb summary -o` wrote")
    if "schema" not in raw:
        return _from_2020(raw, source)
    require_schema(raw["schema"], "summary", SUMMARY_SCHEMA, source)
    if isinstance(rows := raw.get("tests"), dict):
        raw["tests"] = {label: {**row, "work": row} if isinstance(row, dict) else row for label, row in rows.items()}
    try:
        made = _consistent(msgspec.convert(raw, Summary), source)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: not a summary: {in_words(error)}. Make it again with `mnb summary -o`") from None
    own = read_builtin()
    rows = {
        label: msgspec.structs.replace(row, work=row.work.completed(own.get(row.work.workload)))
        for label, row in made.tests.items()
    }
    return msgspec.structs.replace(made, tests=rows)


def _consistent(summary: Summary, source: str) -> Summary:
    """Return ``summary``. Raises InputError if it contradicts itself."""
    why = next(contradictions(summary), "")
    if why:
        raise InputError(f"{source}: not a summary that mnb wrote: {short(why)}. Make it again with `mnb summary -o`")
    return summary


class _Row2020(msgspec.Struct, frozen=True):
    n: Tally
    failures: Tally
    train: Stat
    total: Stat | None = None
    pergpu: dict[str, Stat] | None = None
    peak_memory: Amount | None = None

    def __post_init__(self) -> None:
        check_counts(self.n, self.failures, self.train)


def _from_2020(raw: dict[str, Any], source: str) -> Summary:
    """Convert a flat summary of 2020: rows by name, rates in the items of 2020."""
    try:
        rows = msgspec.convert(raw, dict[str, _Row2020])
    except msgspec.ValidationError as error:
        raise InputError(
            f"{source}: not a summary of mnb or milabench 2020 ({in_words(error)}). Give a result folder or a "
            "summary file"
        ) from None
    if not rows:
        raise InputError(f"{source}: the summary is empty. Give a result folder or a summary file")
    steps = progression_steps(list(rows))
    devices = max(len({device for row in rows.values() for device in row.pergpu or {}}), 1, *steps.values())
    made = Summary(
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
                work=Work(scheme=Scheme.PROGRESSION if label in steps else Scheme.PER_GPU),
                devices=steps.get(label, devices),
            )
            for label, row in rows.items()
        },
    )
    return _consistent(made, source)
