"""Rules on what was computed, from which data and with which code."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator

import msgspec

from milabench_ng.model.builtin import Declared
from milabench_ng.model.catalogue import data_set_of
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import names_of
from milabench_ng.node.conditions import CLOCK_LIMIT_S
from milabench_ng.node.storage import MEMORY, UNKNOWN, Storage, StorageKind, in_memory
from milabench_ng.records.isolation import handicaps
from milabench_ng.records.marks import Mark
from milabench_ng.records.precision_seen import FP32_ERROR, IN_THE_WEIGHTS, TRAITS, PrecisionSeen
from milabench_ng.records.record import SKIPPED_LIMIT, Data, Record, kind_word
from milabench_ng.records.surroundings import marks_of_surroundings
from milabench_ng.verification.checks.check_proof import (
    other_commit,
    uncompared,
    unproven_code,
    unproven_data,
    with_what,
)
from milabench_ng.verification.checks.clocks import set_by_s
from milabench_ng.verification.checks.other_programs import untold_load
from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged, unknown


def precision(evidence: Evidence) -> Finding:
    """The device computed in the requested mode, before the start and after the stop."""
    return judged([*_modes(evidence), *odd_types(evidence)])


def _modes(evidence: Evidence) -> Iterator[str]:
    probes = ((record.mnb.label, record.mnb.precision) for _, record in evidence.named())
    typed = {label for label, found in probes if found and found.layer_dtype is not None}
    for name, record in evidence.named():
        found, asked = record.mnb.precision, record.mnb.launch.arguments.get("precision")
        if found is None:
            if record.success:
                yield f"{name}: no probe of the precision is recorded"
            continue
        if found.requested != asked:
            yield f"{name}: the plan asks for {asked}, the record for {found.requested}"
        ran = [mode for mode in (found.ran_before, found.ran_after) if mode is not None]
        if _shows_its_mode(record, found) and any(mode != found.requested for mode in ran):
            yield f"{name}: {found.requested} was asked for, {', then '.join(dict.fromkeys(ran))} ran"
        if record.success and found.layer_dtype is None and record.mnb.label in typed:
            yield f"{name}: it does not say in which type its layers computed, as other launches of its test do"
        if not found.layers_fit:
            yield f"{name}: {found.requested} was asked for, the model's layers gave {found.layer_dtype}"
        if record.success and found.ran_after is None:
            yield f"{name}: the precision was not probed after the stop"
        for mode, error in ((found.ran_before, found.matmul_error_before), (found.ran_after, found.matmul_error_after)):
            if mode in ("fp32", "torch_default") and error is not None and error >= FP32_ERROR:
                yield f"{name}: the record says {mode}, but the product of the probe was wrong by {error:.2g}"


STORED = ("dataroot", "outdir")
"""Whose storage a manifest names."""


def _shows_its_mode(record: Record, found: PrecisionSeen) -> bool:
    """Whether the mode that ran is visible: in the probe, or in parameters, even if their types are left out."""
    trained = any(rank.digests or any(rank.gradient_norms.values()) for rank in record.mnb.ranks)
    return bool(found.dtypes) or trained or found.requested not in IN_THE_WEIGHTS


def data(evidence: Evidence) -> Finding:
    """All launches read the same data, of the demanded kind, size, content and cache state."""
    found = [
        *_not_said(evidence),
        *_resident(evidence),
        *_renamed(evidence),
        *_differing(evidence),
        *_not_demanded(evidence),
    ]
    return judged([*found, *unproven_data(evidence)])


def _not_said(evidence: Evidence) -> Iterator[str]:
    reads = {record.mnb.label for _, record in evidence.named() if record.mnb.data is not None}
    for name, record in evidence.named():
        if not record.success or record.mnb.data is not None:
            continue
        launch = record.mnb.launch
        own = evidence.as_ran.get(launch.workload)
        if own is not None and (name_of_set := data_set_of(own.data, launch.arguments)):
            yield f"{name}: it does not say what it read; {launch.workload} reads {name_of_set}"
        elif record.mnb.label in reads:
            yield f"{name}: it does not say what it read, as other launches of its test do"


_COLD, _WARM = 0.05, 0.95
"""Of the set's bytes in the page cache (`run.execution.caching`)."""


def _resident(evidence: Evidence) -> Iterator[str]:
    """Launches whose cache was not in the state that they say, by what was in memory."""
    for name, one in _all_data(evidence):
        part = one.resident_fraction
        if part is None:
            if one.cache in ("cold", "warm"):
                yield f"{name}: the page cache of {one.name} was {one.cache}, and nothing says what was in it"
        elif (one.cache == "cold" and part > _COLD) or (one.cache == "warm" and part < _WARM):
            yield f"{name}: the page cache of {one.name} was {one.cache}, with {part:.0%} of its bytes in memory"


def _renamed(evidence: Evidence) -> Iterator[str]:
    """Launches that name another dataset than their workload reads: a pinned checksum would not be looked for."""
    if not any(rule.checksums for rule in evidence.rules.data.values()):
        return
    for name, record in evidence.named():
        own, found = evidence.as_ran.get(record.mnb.launch.workload), record.mnb.data
        if own is not None and found is not None:
            reads = data_set_of(own.data, record.mnb.launch.arguments)
            if reads is not None and found.name != reads:
                yield f"{name}: it says that it read {found.name}, but {record.mnb.launch.workload} reads {reads}"


def _all_data(evidence: Evidence) -> Iterator[tuple[str, Data]]:
    for name, record in evidence.named():
        if record.mnb.data is not None:
            yield name, record.mnb.data


def _differing(evidence: Evidence) -> Iterator[str]:
    first: dict[tuple[str, float], tuple[str, str | None]] = {}
    for name, one in _all_data(evidence):
        known = first.setdefault((one.name, one.scale), (one.kind, one.checksum))
        if known != (one.kind, one.checksum):
            yield f"{name}: its dataset {one.name} is not the one that other launches read"


def _not_demanded(evidence: Evidence) -> Iterator[str]:
    for name, one in _all_data(evidence):
        rule = evidence.rules.data.get(one.name, evidence.rules.data.get("*"))
        if rule is None:
            continue
        if rule.kind is not None and one.kind != rule.kind:
            yield f"{name}: {one.name} is {kind_word(one.kind)} data, but the rules require {kind_word(rule.kind)} data"
        if rule.scale is not None and one.scale < rule.scale:
            yield f"{name}: {one.name} has scale {one.scale:g}, but the rules require {rule.scale:g}"
        if rule.checksums and (one.checksum or "") not in map(str.lower, rule.checksums):
            yield f"{name}: {one.name} has SHA-256 {(one.checksum or 'none')[:12]}, which is not among those demanded"
        if rule.cache is not None and one.cache != rule.cache:
            yield f"{name}: the page cache of {one.name} was {one.cache}, but the rules require {rule.cache}"


def storage(evidence: Evidence) -> Finding:
    """Data and results were on an accepted kind of storage."""
    refused, found = evidence.rules.storage_refused, evidence.manifest.storage
    if not refused:
        return OFF
    verdict = judged([*_unsaid(evidence), *refused_storage(found.values(), refused)])
    unseen = [one.path for one in _parts(found.values()) if one.filesystem == UNKNOWN]
    return unknown(f"it is unknown where {unseen[0]} is stored") if unseen and verdict.result == "pass" else verdict


def _parts(found: Iterable[Storage]) -> Iterator[Storage]:
    """Storage, what it rests on and what is mounted inside it."""
    for one in found:
        yield one
        yield from _parts((*one.rests_on, *one.inside))


def _unsaid(evidence: Evidence) -> Iterator[str]:
    yield from (
        f"run.json does not say which storage holds the {what}"
        for what in STORED
        if what not in evidence.manifest.storage
    )


_RAM_DISK = re.compile(r"(/dev/)?(zram|ram)\d+")
"""Block devices in memory (`node.storage`)."""


def refused_storage(found: Iterable[Storage], refused: Container[StorageKind]) -> Iterator[str]:
    """Storage of a refused kind, what it rests on, and what is mounted inside it."""
    for one in found:
        memory = one.filesystem in MEMORY or _RAM_DISK.match(one.device or one.source or "")
        if memory and one.kind != "memory":
            yield f"{one.path} is on {one.filesystem} of {one.source}, which is memory, but is recorded as {one.kind}"
        if one.kind in refused:
            yield f"{one.path} is on {one.filesystem} ({one.kind}), which the rules refuse"
        yield from (f"{one.path} rests on {what}" for what in refused_storage(one.rests_on, refused))
        yield from refused_storage(one.inside, refused)


def code(evidence: Evidence) -> Finding:
    """All code of mnb is that of the verifying version, unchanged, and what computes is as it was installed."""
    version, demanded = evidence.manifest.version, evidence.rules.closed
    if not evidence.same_version:
        other = f"made with mnb {version}, this is {evidence.version}; {with_what(evidence)}"
        return judged([other]) if demanded else OFF
    if demanded:
        found = judged([*_foreign_code(evidence), *unproven_code(evidence)])
        bare = uncompared(evidence)
        return unknown(bare) if bare and found.result == "pass" else found
    rooms = other_commit(evidence)
    return (
        unknown(f"another commit of mnb {version}, or changed: {names_of(rooms)}; {with_what(evidence)}")
        if rooms
        else OFF
    )


def _foreign_code(evidence: Evidence) -> Iterator[str]:
    for name, record in evidence.named():
        source = record.mnb.source
        if source.workload != record.mnb.launch.workload:
            yield f"{name}: it states the source of {source.workload}, and ran {record.mnb.launch.workload}"
        if source.workload not in evidence.builtin:
            yield f"{name}: {source.origin} of {source.package} is not a workload of mnb"


def marks(evidence: Evidence) -> Finding:
    """No launch is marked not comparable by its record or the report, or lacks a mark that it should have."""
    if not evidence.rules.marks_refused:
        return OFF
    told = [text for mark, text in _marks_of_the_report(evidence) if not _accepted(evidence, mark)]
    untold = (*_untold_skips(evidence), *_untold(evidence), *untold_load(evidence))
    return judged([*_recorded_marks(evidence), *told, *untold])


def _recorded_marks(evidence: Evidence) -> Iterator[str]:
    superseded = evidence.superseded
    for kept in evidence.records:
        marks_of = () if kept.file in superseded else kept.record.mnb.marks
        yield from (f"{kept.name}: {mark.text}" for mark in marks_of if not _accepted(evidence, mark))


def _accepted(evidence: Evidence, mark: Mark) -> bool:
    accepted = evidence.rules.marks_accepted
    most = accepted.get(mark.kind)
    return mark.kind in accepted and (most is None or (mark.value is not None and mark.value <= most))


def _marks_of_the_report(evidence: Evidence) -> Iterator[tuple[Mark, str]]:
    """Marks that no record has: of the reference traces, and of how the run departed from its profile."""
    recorded = {(record.mnb.label, mark) for _, record in evidence.named() for mark in record.mnb.marks}
    for label, row in evidence.summary.tests.items():
        yield from ((mark, f"{label}: {mark.text}") for mark in row.marks if (label, mark) not in recorded)


def _untold_skips(evidence: Evidence) -> Iterator[str]:
    """Launches whose loss scale skipped too many steps, without the mark that says so."""
    for name, record in evidence.named():
        told = {mark.device for mark in record.mnb.marks if mark.kind == "steps skipped"}
        for slot, rank in zip(record.mnb.launch.slot_ids, record.mnb.ranks, strict=False):
            share = rank.skipped.too_many if rank.skipped else None
            if share is not None and slot not in told:
                mark = Mark(kind="steps skipped", device=slot, value=share, limit=SKIPPED_LIMIT)
                yield f"{name}: {mark.text}, but the record has no such warning"


def _untold(evidence: Evidence) -> Iterator[str]:
    """Marks that follow from what a record says of its surroundings and its process, and that it has not got."""
    for name, record in evidence.named():
        told = {(mark.kind, mark.device) for mark in record.mnb.marks}
        due = (*_due(record), *_files(evidence, record))
        missing = [mark for mark in due if (mark.kind, mark.device) not in told]
        yield from (f"{name}: {mark.text}, but the record has no such warning" for mark in missing)


def _files(evidence: Evidence, record: Record) -> Iterator[Mark]:
    own, lies_on = evidence.as_ran.get(record.mnb.launch.workload), evidence.manifest.storage.get("dataroot")
    if own is not None and own.stores and lies_on is not None and in_memory(lies_on):
        yield Mark(kind="files in memory", what=lies_on.filesystem)


_ROUNDED_S = 1e-3
"""Dates have microseconds, and a sum of many digits rounds."""


def _due(record: Record) -> Iterator[Mark]:
    around, moved_s = record.mnb.surroundings, set_by_s(record.mnb)
    if moved_s is not None and abs(moved_s) > CLOCK_LIMIT_S + _ROUNDED_S:
        yield Mark(kind="clock set", value=round(moved_s, 1), limit=CLOCK_LIMIT_S)
    if around is not msgspec.UNSET and {"before", "after"} <= around.keys():
        yield from marks_of_surroundings(around["before"], around["after"])
    if any(share.io and share.io.method == "readers" for share in record.mnb.isolation.values()):
        yield Mark(kind="I/O share held by readers")
    if any(share.requested.smt_shared for share in record.mnb.isolation.values()):
        yield Mark(kind="siblings shared")
    for slot, share in record.mnb.isolation.items():
        proc = share.proc
        odd = list(handicaps(proc.scheduling)) if proc is not None and proc.scheduling is not None else []
        if odd:
            yield Mark(kind="scheduling", device=slot, what=", ".join(odd))
        if share.tier != "full":
            yield (
                Mark(kind="partly isolated") if share.tier == "partial" else Mark(kind="not isolated", what=share.tier)
            )


_NEARLY_ALL = 0.9
"""Of the parameters: 0.9976 in our convnet in `half_master`, all of them in every other honest launch that we have."""
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Other floating-point types have one byte or less."""


def odd_types(evidence: Evidence) -> Iterator[str]:
    """Launches whose parameters have types that their mode does not make, and whose workload makes none itself."""
    for name, record in evidence.named():
        declared = evidence.declared.get(record.mnb.launch.workload)
        if declared is not None and not declared.own_types:
            yield from (f"{name}: {why}" for why in _odd(record, declared))


def _odd(record: Record, declared: Declared) -> Iterator[str]:
    seen = record.mnb.precision
    traits = TRAITS.get(seen.requested) if seen else None
    found = {name: many for name, many in (seen.dtypes if seen else {}).items() if "float" in name and many}
    if seen is None or traits is None or not found:
        return
    wanted = traits.weights
    try:
        converted = declared.converted(record.mnb.launch.arguments)
    except InputError:  # the rule on arguments reports what is missing
        converted = ()
    own = {name for name in found if name == wanted or name.startswith(converted)}
    narrow = sorted(name for name in found.keys() - own if _BYTES.get(name, 1) < _BYTES[wanted])
    if narrow:
        yield f"{seen.requested} was requested, but parameters are {', '.join(narrow)}"
        return
    part = sum(found[name] for name in own) / sum(found.values())
    if part < _NEARLY_ALL:
        yield f"{seen.requested} was requested, but only {part:.0%} of its parameters are {wanted}"
