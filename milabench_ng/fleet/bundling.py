"""Bundles of fleets: manifest, ledger and what every node sent in one file, with the checksum of each.

The packed folders of nodes stay packed in it, so that it is written and opened in about the time that a copy takes.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from milabench_ng import __version__
from milabench_ng.fleet.folder import NODES, PACKED, FleetFolder, NodeSession, is_fleet, own_names
from milabench_ng.fleet.ledger import FLEET_LEDGER
from milabench_ng.fleet.network.meetings import MEETINGS, NETWORK
from milabench_ng.fleet.nodes import NODE, SESSION
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, short
from milabench_ng.records.names import FLEET_MANIFEST, FLEET_PACKING_LIST, give_name, sync_folder, temporary_name
from milabench_ng.records.origin import newer
from milabench_ng.verification.bundle import FileSum, Written, bundle_target, damage, listed, sum_of, write_archive
from milabench_ng.verification.folder_files import result_files, sha256_of
from milabench_ng.verification.opening import decode_packing, first_name, unpacked

FLEET_BUNDLE_SCHEMA = 1
SIGNATURE = f"{FLEET_PACKING_LIST}.sig"
OF_NETWORK = tuple(f"{NETWORK}/{name}.jsonl" for name in MEETINGS)
_OF_NODE = re.compile(rf"{NODES}/(?P<node>[^/]+)/(?P<session>[^/.]+)(\.tar\.gz|\.log|\.summary\.json)")


class FleetPackingList(msgspec.Struct, frozen=True, kw_only=True):
    """What the bundle of a fleet contains. The signature is over this."""

    schema: int = FLEET_BUNDLE_SCHEMA
    job_id: None = None
    version: str
    fleet_id: str
    files: dict[str, FileSum]


class OpenedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet that was read, and what came with it."""

    source: str
    """What the user calls it."""
    fleet: FleetFolder
    packing_bytes: bytes = b""
    """Empty for a plain folder."""
    signature: bytes | None = None
    damage: tuple[str, ...] = ()
    """What of a bundle is not as it was packed."""


def pack_fleet(folder: Path, output: Path | None, key: Path | None = None, *, force: bool = False) -> Written:
    """Pack a fleet folder into ``output`` (default: ``FOLDER.bundle.tar.gz``, next to it), signed with ``key``."""
    fleet = FleetFolder.read(folder)
    if fleet.going_on:
        raise InputError(f"{folder}: another mnb works on this fleet. Pack it when it has ended")
    target = bundle_target(folder, output, force=force)
    with tempfile.TemporaryDirectory(prefix=".pack-", dir=folder) as room:
        sources = {name: folder / name for name in (FLEET_MANIFEST, FLEET_LEDGER, *OF_NETWORK)}
        for session in fleet.sessions:
            sources |= _sources(session, Path(room))
        sources = {name: path for name, path in sources.items() if path.is_file() and not path.is_symlink()}
        files = {name: sum_of(path) for name, path in sorted(sources.items())}
        packing = FleetPackingList(version=__version__, fleet_id=fleet.manifest.fleet_id, files=files)
        _write(target, listed(packing, FLEET_PACKING_LIST, key), dict(sorted(sources.items())))
    return Written(
        path=target,
        sha256=sha256_of(target),
        files=len(files),
        bytes=sum(one.bytes for one in files.values()),
        left_out=tuple(f"{NODES}/{name}" for name in fleet.strangers),
        signed=key is not None,
    )


def is_fleet_source(path: Path) -> bool:
    if os.path.isfile(path):  # a pipe would be waited for
        return first_name(path) == FLEET_PACKING_LIST
    return is_fleet(path)


@contextmanager
def opened_fleet(source: Path) -> Iterator[OpenedFleet]:
    """Yield the fleet folder ``source``, or that of the bundle ``source``, unpacked until the context ends."""
    if os.path.isdir(source):
        yield OpenedFleet(source=plain(source), fleet=FleetFolder.read(source))
        return
    with unpacked(source, _belonging) as root:
        content = (root / FLEET_PACKING_LIST).read_bytes()
        packing = decode_packing(content, FleetPackingList, f"{source}: {FLEET_PACKING_LIST}")
        if packing.schema > FLEET_BUNDLE_SCHEMA:
            raise InputError(f"{source}: {newer('fleet bundle', packing.schema, FLEET_BUNDLE_SCHEMA)}")
        there = (path for path in root.rglob("*") if path.is_file())
        names = {path.relative_to(root).as_posix(): path for path in there}
        sums = {name: sum_of(path) for name, path in names.items() if name not in (FLEET_PACKING_LIST, SIGNATURE)}
        yield OpenedFleet(
            source=plain(source),
            fleet=FleetFolder.read(root),
            packing_bytes=content,
            signature=names[SIGNATURE].read_bytes() if SIGNATURE in names else None,
            damage=tuple(damage(packing.files, sums)),
        )


def _sources(session: NodeSession, room: Path) -> dict[str, Path]:
    """The files of a session by their names in the bundle; a plain folder is packed in ``room`` first."""
    log, summary, ledger = own_names(session.session)
    beside = {name: session.path.with_name(name) for name in (log, summary)}
    packed = session.path
    if not packed.name.endswith(PACKED):
        names, _ = result_files(session.path)
        inside = {f"{session.session}/{name}": session.path / name for name in names}
        first = {name: path for name, path in beside.items() if path.is_file() and not path.is_symlink()}
        first |= {ledger: inside[ledger]} if ledger in inside else {}
        packed = room / f"{session.node}-{session.session}{PACKED}"
        with packed.open("wb") as file:
            write_archive(file, {}, first | inside)
    named = {f"{session.session}{PACKED}": packed, **beside}
    return {f"{NODES}/{session.node}/{name}": path for name, path in named.items()}


def _write(target: Path, own: Mapping[str, bytes], sources: Mapping[str, Path]) -> None:
    """Whole or not at all."""
    target = Path(os.path.realpath(target))
    try:
        with temporary_name(target).open("wb") as file:
            write_archive(file, own, sources, level=0)  # nearly all of it is packed already
            file.flush()
            os.fsync(file.fileno())
        give_name(target)
        sync_folder(target.parent)
    except OSError as error:
        temporary_name(target).unlink(missing_ok=True)
        raise InputError(f"--output {short(target)}: {error.strerror}. Name another file") from None


def _belonging(first: str) -> Callable[[str], bool]:
    """Which names belong in a bundle that begins with ``first``."""
    return _is_member if first == FLEET_PACKING_LIST else lambda _: False


def _is_member(name: str) -> bool:
    if name in (FLEET_PACKING_LIST, SIGNATURE, FLEET_MANIFEST, FLEET_LEDGER, *OF_NETWORK):
        return True
    found = _OF_NODE.fullmatch(name)
    return found is not None and bool(re.fullmatch(NODE, found["node"]) and re.fullmatch(SESSION, found["session"]))
