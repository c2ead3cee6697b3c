"""Resumes a run where an earlier session ended: same plan, same node, same software, same isolation."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from milabench_ng import __version__
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, in_words, parse_json, read_content, refuse
from milabench_ng.model.known_files import named
from milabench_ng.model.plain import names_of, plain, quoted
from milabench_ng.model.plan import Plan, hardware
from milabench_ng.model.units import counted
from milabench_ng.node.inventory import Cpus
from milabench_ng.records.isolation import Share
from milabench_ng.records.ledger import AnyLedgerEvent, Recorded, Sampled, Torn, check_chain, unlisted
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import (
    FLEET_MANIFEST,
    LEDGER,
    LOG_NAME,
    ResultFolder,
    file_digest,
    give_name,
    instead_of,
    sync_folder,
    temporary_name,
    whole_content,
    write_atomically,
)
from milabench_ng.records.reading import to_manifest
from milabench_ng.records.spool_folder import continued
from milabench_ng.run.persistence.result_writer import ResultWriter
from milabench_ng.run.persistence.spooling import forget, spooled
from milabench_ng.run.planning.request import RunRequest

DifferenceKind = Literal["node", "software", "isolation"]
"""What may differ between two sessions if the user accepts it. The plan may not."""
MEMORY_TOLERANCE = 0.01
"""A kernel reports a little more or less RAM after a reboot."""


class SessionDifference(msgspec.Struct, frozen=True):
    """A difference from the first session."""

    kind: DifferenceKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a result folder. Raises InputError if there is none that can be resumed."""
    if os.path.isfile(folder):
        refuse(folder, f"this is {named(folder) or 'a file'}. Name the folder of a run")
    if os.path.isfile(folder / FLEET_MANIFEST):
        raise InputError(f"{folder}: a fleet. Go on with it: mnb fleet resume {quoted(folder)}")
    path = ResultFolder(folder).manifest
    try:
        raw = parse_json(read_content(path, LARGE, os.O_NOFOLLOW), str(path))
    except InputError as error:
        raise InputError(f"{error}. {instead_of(folder, 'Name the folder of a run')}") from None
    unfit = f"{folder}: cannot be resumed: {path.name} is not a valid manifest"
    manifest = to_manifest(raw, str(path), unfit)
    if not manifest.request:
        raise InputError(f"{folder}: made by mnb {manifest.version}: it cannot be resumed. Start a new run")
    return manifest


def resumed_request(
    folder: Path, profile_text: str | None, accept: Collection[DifferenceKind] = (), **given: object
) -> RunRequest:
    """The first session's request, updated with what is ``given`` now. ``profile_text``: must be the same if not None.

    Raises InputError for a folder of another version, unless ``accept`` has the software; nothing is touched yet.
    """
    manifest = read_manifest(folder)
    if manifest.version != __version__ and "software" not in accept:
        raise InputError(
            f"{folder}: made by mnb {manifest.version}, but this is mnb {__version__}. Resume with that "
            "version, start a new run, or accept and record the difference: --accept-difference software"
        )
    if profile_text is not None and profile_text != manifest.profile.text:
        raise InputError(
            f"{folder}: the profile differs from {manifest.profile.file} at the start of the run. Leave out "
            "the profile, or start a new run"
        )
    profile = msgspec.structs.replace(manifest.stated_profile(), source=manifest.profile.file)
    asked = {**manifest.request, "profile": profile, "outdir": folder.absolute()}
    try:
        request = msgspec.convert(asked, RunRequest, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise InputError(f"{folder}: run.json: request: {in_words(error)}. Was the file changed?") from None
    return msgspec.structs.replace(request, resume=True, accept=tuple(accept), **given)


def _decode_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    raise TypeError(f"{value!r} is no {kind.__name__}")


def open_writer(folder: ResultFolder, spool: Path | None, tell: Callable[[str], None] = lambda _: None) -> ResultWriter:
    """Open an existing folder for writing: check the ledger, remove an incomplete line, give records their names.

    What a ``spool`` holds of this run is brought back.

    Raises InputError if another process writes, the chain is broken, or its end is missing.
    """
    content = read_content(folder.ledger, LARGE, os.O_NOFOLLOW) if os.path.lexists(folder.ledger) else b""
    chain = check_chain(content)
    if chain.problems:
        raise InputError(f"{folder.ledger}: {chain.problems[0]}. The folder was changed. Start a new run")
    found = spooled(spool) if spool is not None else {}
    writer = ResultWriter(folder, content.removesuffix(chain.torn), chain, None if spool and spool.is_file() else spool)
    writer.tell = tell
    try:
        if chain.torn:
            os.truncate(folder.ledger, len(content) - len(chain.torn))
        if spool is not None and found:
            _fetch(writer, spool, found)  # first: what was spooled goes on where the whole lines end
        if chain.torn:
            writer.keep((), Torn(text=chain.torn.decode(errors="replace")))
        give_names(folder, writer.chain.events)
        if cut := unlisted(os.listdir(folder.path), writer.chain.events):
            raise InputError(
                f"{folder.ledger}: has no line for {counted(len(cut), 'record')} in the folder, such as "
                f"{plain(cut[0])}, so attempts cannot be counted. Restore it, or start a new run in another folder"
            )
    except BaseException:
        writer.close()
        raise
    for event in writer.chain.events:
        if isinstance(event, Recorded):
            writer.trust(event)
    return writer


def _fetch(writer: ResultWriter, spool: Path, found: Mapping[str, bytes]) -> None:
    """Fetch what an earlier session left in ``spool``, if it belongs to this run's ledger."""
    lines, chain = continued(writer.folder.ledger.read_bytes(), found.get(LEDGER, b""))
    if chain.problems or chain.torn:
        raise InputError(
            f"--spool {spool}: this spool belongs to another run, or to an earlier state of {writer.folder.path}. "
            "Name the spool of its last session, or an empty folder"
        )
    sums = {event.file: event.sha256 for event in chain.events if isinstance(event, Recorded | Sampled)}
    ours = {name: one for name, one in found.items() if sums.get(name) == file_digest(one) or LOG_NAME.fullmatch(name)}
    try:
        for name, one in ours.items():
            (writer.folder.path / name).parent.mkdir(exist_ok=True)
            write_atomically(writer.folder.path / name, one)
        writer.adopt(lines, chain)
    except OSError as error:
        raise InputError(
            f"{writer.folder.path}: {error.strerror}, so {spool} was not brought back and stays as it is. Free some "
            "space, and run this again"
        ) from None
    forget(spool, (*ours, LEDGER))
    if lines:
        writer.tell(f"{plain(spool)}: {counted(len(ours) + 1, 'file')} brought back")


def give_names(folder: ResultFolder, events: Collection[AnyLedgerEvent]) -> None:
    """Finish what a crash interrupted: name the files that the ledger knows, delete other temporary files."""
    for event in events:
        if not isinstance(event, Recorded | Sampled):
            continue
        path = folder.path / event.file
        if not path.exists() and whole_content(temporary_name(path), event.sha256) is not None:
            give_name(path)
    for left in (*folder.path.glob(".*.tmp"), *folder.path.glob("*/.*.tmp")):
        left.unlink()
    sync_folder(folder.path)


def check_same(then: Manifest, now: Manifest, accept: Collection[DifferenceKind]) -> tuple[SessionDifference, ...]:
    """Return the differences from the first session. Raises InputError for one that is not accepted.

    Other kinds or numbers of devices cannot be: every launch group takes all of them.
    """
    if _kinds(then.plan) != _kinds(now.plan):
        needed = hardware(then.plan.devices)
        raise InputError(
            f"cannot resume: this run uses {needed} on {plain(then.inventory.hostname)}, but here, on "
            f"{plain(now.inventory.hostname)}, it would use {hardware(now.plan.devices)}. Resume it on a node with "
            f"{needed}, or start a new run"
        )
    found = tuple(differences(then, now))
    refused = [difference for difference in found if difference.kind not in accept]
    if refused:
        kinds = " ".join(f"--accept-difference {kind}" for kind in dict.fromkeys(one.kind for one in refused))
        listed = "; ".join(map(str, refused))
        raise InputError(f"cannot resume: {listed}. Undo this, or accept and record it: {kinds}")
    return found


def check_plan(then: Plan, now: Plan) -> None:
    """Raise InputError if something else would run than in the first session. No difference is accepted."""
    if then.sha256 != now.sha256:
        told = tuple(_changes(then, now)) or ("its launches have another order",)
        raise InputError(f"cannot resume: other work would run: {names_of(told, 3)}. Start a new run")


def _kinds(plan: Plan) -> tuple[tuple[int, str], ...]:
    return tuple((device.index, device.kind) for device in plan.devices)


def _changes(then: Plan, now: Plan) -> Iterator[str]:
    before, after = ({launch.label: launch.arguments for launch in plan.launches} for plan in (then, now))
    for label in before.keys() - after.keys():
        yield _unplanned(label, "is not planned here", now)
    for label in after.keys() - before.keys():
        yield _unplanned(label, "was not planned", then)
    for label in before.keys() & after.keys():
        for option in before[label].keys() | after[label].keys():
            was, now_is = before[label].get(option), after[label].get(option)
            if was != now_is:
                yield f"{label}: {option} was {was} and is {now_is}"


def _unplanned(label: str, what: str, plan: Plan) -> str:
    why = plan.not_planned.get(label)
    return f"{label} {what}: {why}" if why else f"{label} {what}"


def differences(then: Manifest, now: Manifest) -> Iterator[SessionDifference]:
    """All differences between the sessions. Pure."""
    pairs = (
        ("hostname", then.inventory.hostname, now.inventory.hostname),
        ("CPUs", _cpus(then.inventory.cpus), _cpus(now.inventory.cpus)),
        ("devices", _devices(then.plan), _devices(now.plan)),
    )
    for name, before, after in pairs:
        if before != after:
            yield SessionDifference("node", f"{name} was {before} and is {after}")
    versions = {"mnb": then.version, **then.software}, {"mnb": now.version, **now.software}
    for name in sorted(versions[0].keys() | versions[1].keys()):
        before_version, after_version = versions[0].get(name, "absent"), versions[1].get(name, "absent")
        if before_version != after_version:
            yield SessionDifference("software", f"{name} was {before_version} and is {after_version}")
    for name, old, new in (
        ("driver", then.inventory.driver, now.inventory.driver),
        ("kernel", then.inventory.kernel, now.inventory.kernel),
    ):
        if old != new:
            yield SessionDifference("software", f"{name} was {old} and is {new}")
    for workload in sorted(then.declared.keys() | now.declared.keys()):
        if then.declared.get(workload) != now.declared.get(workload):
            yield SessionDifference("software", f"the declaration of workload {workload} has changed")
    fences = (then.fence.tier, then.fence.backend), (now.fence.tier, now.fence.backend)
    if fences[0] != fences[1]:
        yield SessionDifference("isolation", f"isolation was {' by '.join(fences[0])} and is {' by '.join(fences[1])}")
    for slot in then.shares.keys() & now.shares.keys():
        if not _alike(then.shares[slot], now.shares[slot]):
            yield SessionDifference("isolation", f"the allocation of device {slot} differs")


def _cpus(cpus: Cpus) -> str:
    nodes = counted(cpus.numa_nodes, "NUMA node")
    return f"{cpus.sockets} x {cpus.model} ({counted(cpus.cores, 'core')}, {counted(cpus.threads, 'thread')}, {nodes})"


def _devices(plan: Plan) -> str:
    told = (f"{device.index} on NUMA node {device.numa_node}: {device.uuid}" for device in plan.devices if device.uuid)
    return f"{hardware(plan.devices)} ({', '.join(told)})" if plan.devices[0].uuid else hardware(plan.devices)


def _alike(one: Share, other: Share) -> bool:
    close = abs(one.memory_bytes - other.memory_bytes) <= MEMORY_TOLERANCE * one.memory_bytes
    return close and (one.cpus, one.mems, one.cache) == (other.cpus, other.mems, other.cache)
