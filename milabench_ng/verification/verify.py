"""Verify a result folder or a bundle: read it, add the demands, apply every rule."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import milabench_ng
from milabench_ng.analysis.baselines.peaks import same_models
from milabench_ng.analysis.scoring.scale import Scale, files_of, scales_of
from milabench_ng.analysis.scoring.weights import WeightsFile, read_weights
from milabench_ng.analysis.summary.folder import decode_summary
from milabench_ng.analysis.summary.marked import count_marks
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_content
from milabench_ng.model.known_twins import read_known
from milabench_ng.model.plan import Plan
from milabench_ng.model.shipped import ShippedKind as ShippedKind
from milabench_ng.model.shipped import find, profile_file
from milabench_ng.model.shipped import names as shipped_names
from milabench_ng.model.sources import package_digests
from milabench_ng.records.folder import Folder
from milabench_ng.records.ledger import Chain
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import LEDGER, MANIFEST, RECORD_NAME, SERIES_NAME, instead_of
from milabench_ng.records.reading import Problem, ReadRecord, problem
from milabench_ng.records.record import Record
from milabench_ng.verification.absurd import computing_from
from milabench_ng.verification.bundle import make_claim
from milabench_ng.verification.checks.registry import judge
from milabench_ng.verification.doubts.registry import raised
from milabench_ng.verification.evidence import Evidence, Pinned
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.folder_files import sha256_of
from milabench_ng.verification.opening import Opened, opened
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.signing import check
from milabench_ng.verification.stamping import read_stamps
from milabench_ng.verification.summary_facts import facts


def verify(
    source: Path,
    rules: Rules,
    *,
    profile: Path | None = None,
    weights: Path | None = None,
    allowed_signers: Path | None = None,
    authorities: Path | None = None,
) -> Verification:
    """Check the result folder or bundle ``source`` against ``rules``.

    ``profile`` and ``weights`` are the buyer's files, in addition to the rules; ``allowed_signers`` is as in
    ssh-keygen(1), ``authorities`` the certificates of those who stamp. Raises InputError if there is nothing to verify.
    """
    with computing_from(source), opened(source) as there:
        return judged(gather(there, rules, profile, weights, allowed_signers, authorities))


def judged(evidence: Evidence) -> Verification:
    """The verification of ``evidence``. Pure."""
    return Verification(
        source=evidence.source,
        rules=evidence.rules.name,
        rulings=judge(evidence),
        doubts=raised(evidence),
        marks=tuple(mark.text for mark in count_marks(evidence.summary.tests)),
        excess="" if evidence.rules.failure_rate is not None else evidence.failures.excess,
        signed=evidence.signer.words,
        facts=facts(evidence),
    )


def gather(
    there: Opened,
    rules: Rules,
    profile: Path | None,
    weights: Path | None,
    allowed_signers: Path | None,
    authorities: Path | None = None,
) -> Evidence:
    """Everything that the rules examine."""
    signer = check(there.packing_bytes, there.signature, allowed_signers)
    if (rules.signed or rules.signed_by) and signer.present and allowed_signers is None:
        raise InputError(
            f"{there.source}: it is signed, the rules require a signature, and no allowed signers are given. "
            "Pass --allowed-signers FILE with the vendors' public keys (ssh-keygen(1), ALLOWED SIGNERS)"
        )
    folder, summary, manifest = there.folder, there.summary, _manifest(there.folder)
    kept, unreadable = possible_records(folder, there.names, manifest.plan)
    read = {one.file for one in (*folder.records, *folder.manifests)}
    asked = files_of(weights, summary)
    ran = hashlib.sha256(manifest.profile.text.encode()).hexdigest()
    scales = _scales(there, asked, summary)
    return Evidence(
        source=folder.source,
        rules=rules,
        packing=there.packing,
        damage=there.damage,
        foreign=there.foreign,
        strays=tuple(name for name in there.foreign if name.endswith(".json") and name not in read),
        signer=signer,
        stamps=read_stamps(there.place, there.names, allowed_signers, authorities, there.source),
        going_on=folder.going_on,
        manifest=manifest,
        profile=Pinned(
            used=ran,
            demanded=demanded(rules.profile, None if profile is None else profile_file(profile), "profiles"),
            shipped=_shipped_sum("profiles", manifest.plan.suite),
        ),
        shipped_profile=next(
            (name for name in shipped_names("profiles") if _shipped_sum("profiles", name) == ran), None
        ),
        weights={
            suite: Pinned(
                used=None if (file := scales.get(suite, Scale()).file) is None else _file_sum(file, "weights"),
                demanded=demanded(
                    rules.suite_weights.get(suite, rules.weights),
                    None if (given := asked.get(suite)) is None else given.path,
                    "weights",
                ),
                shipped=_shipped_sum("weights", suite),
            )
            for suite in dict.fromkeys((*scales, *rules.suite_weights))
        },
        known=_known(summary),
        records=kept,
        series={name: sha256_of(there.place / name) for name in there.names if SERIES_NAME.fullmatch(name)},
        ledger=folder.ledger if LEDGER in there.names else Chain(),
        unreadable=unreadable,
        summary=summary,
        claim=make_claim(summary, scales),
        package=_own_package(),
        known_twins=read_known(),
        builtin=read_builtin(),
        version=milabench_ng.__version__,
    )


def _manifest(folder: Folder) -> Manifest:
    manifest = folder.manifest
    if manifest is None:
        usual = "Only a complete result folder can be verified: give the folder that `mnb jobs` wrote"
        raise InputError(f"{folder.source}: no {MANIFEST} in it. {instead_of(Path(folder.source), usual)}")
    if not manifest.plan.devices or not all(launch.devices for launch in manifest.plan.launches):
        raise InputError(f"{folder.source}: {MANIFEST}: its plan has a launch without a device")
    return manifest


def _scales(there: Opened, asked: Mapping[str, WeightsFile | None], summary: Summary) -> dict[str, Scale]:
    """How the suites are scored: as the bundle says, else by the files ``asked`` for or what is shipped."""
    packed = {suite: read_weights(path, suite) for suite, path in there.weights.items()}
    return scales_of({**asked, **packed}, summary)


def _shipped_sum(kind: ShippedKind, suite: str) -> str | None:
    path = find(kind, suite)
    return None if path is None else sha256_of(path)


def _known(summary: Summary) -> tuple[Summary, ...]:
    """The measured baselines among the shipped ones that are of one of its suites and of the same devices."""
    own = same_models(summary.models.values())
    return tuple(
        one
        for one in _measured_baselines()
        if one.suite in summary.known_suites and own and same_models(one.models.values()) == own
    )


@functools.cache  # tenders and fleets have many folders to verify
def _measured_baselines() -> tuple[Summary, ...]:
    paths = (find("baselines", name) for name in shipped_names("baselines"))
    read = (decode_summary(read_content(path), str(path)) for path in paths if path is not None)
    return tuple(one for one in read if one.provenance.kind == "measured")


@functools.cache
def _own_package() -> dict[str, str]:
    return package_digests(Path(milabench_ng.__file__).parent)


def demanded(pin: Pin | None, given: Path | None, kind: ShippedKind) -> str | None:
    """The SHA-256 that the rules pin, or that of the buyer's file; if both are given, they must agree."""
    own = None if given is None else _file_sum(given, kind)
    if pin is None:
        return own
    shipped = find(kind, pin.name) if pin.name else None
    stated = pin.sha256 or (sha256_of(shipped) if shipped else None)
    if own is not None and stated is not None and own != stated.lower():
        raise InputError(
            f"--{kind.removesuffix('s')} {given}: its SHA-256 is {own[:12]}, but the rules pin {stated[:12]}. Give the "
            "file that they name, or leave it out"
        )
    return stated and stated.lower()


def _file_sum(path: Path, kind: ShippedKind) -> str:
    try:
        return sha256_of(path)
    except InputError as error:
        raise InputError(f"{kind} {error}") from None


_SHORTEST_S = 0.1
"""Slices that are asked to be shorter are counted as if they were so long."""
_MORE_SLICES = 1_000
"""For the steps after a stop, and for an orchestrator that stood still."""


def possible_records(
    folder: Folder, names: Iterable[str], plan: Plan
) -> tuple[tuple[ReadRecord, ...], tuple[Problem, ...]]:
    """The records among the files ``names`` that a run of ``plan`` can have made, and why the others are none."""
    read = {one.file: one for one in (*folder.problems, *folder.records)}
    longest_s = longest(plan)
    kept: list[ReadRecord] = []
    unreadable: list[Problem] = []
    for name in filter(RECORD_NAME.fullmatch, names):
        match read.get(name):
            case ReadRecord() as found:
                why = impossible(found.record, longest_s)
                if not why:
                    kept.append(found)
                    continue
                unreadable.append(problem(name, f"not a readable record: {why}"))
            case Problem() as found:
                unreadable.append(found)
            case _:
                unreadable.append(problem(name, "not a record of this mnb"))
    return tuple(kept), tuple(unreadable)


def longest(plan: Plan) -> float | None:
    """The largest ``max_seconds`` of its launches, at which a batch is stopped; None if one has none."""
    found = [launch.arguments.get("max_seconds") for launch in plan.launches]
    known = [float(one) for one in found if isinstance(one, int | float)]
    return max(known) if known and len(known) == len(found) else None


def impossible(record: Record, longest_s: float | None) -> str:
    """Why no run has made it: no devices, or more than twice the slices that fit into ``longest_s``; else empty."""
    if not record.mnb.launch.devices or not record.mnb.devices:
        return "its launch has no device"
    asked = record.mnb.launch.arguments.get("sample_duration")
    if longest_s is None or not isinstance(asked, int | float):
        return ""
    least_s = max(float(asked), _SHORTEST_S)
    most = 2 * longest_s / least_s + _MORE_SLICES
    for rank in record.mnb.ranks:
        if len(rank.slices) > most:
            possible = f"{longest_s:g} s, its max_seconds, have at most {longest_s / least_s:.0f} of {least_s:g} s"
            return f"rank {rank.rank} has {len(rank.slices):,} slices; {possible}"
    return ""
