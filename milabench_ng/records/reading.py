"""Reading the files of untrusted result folders.

Records of the 2020 ``milarun`` tool are read as well. They have no ``mnb`` part and may hold ``NaN`` and ``Infinity``,
which are not JSON. A file that cannot be read is a `Problem` with a name and a reason, never an exception.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import (
    LARGE,
    RECORD,
    convert_json,
    in_words,
    is_held,
    parse_json,
    read_content,
    refuse,
    refuse_large_numbers,
)
from milabench_ng.model.plain import plain, short
from milabench_ng.model.units import MIB
from milabench_ng.records.ledger import Chain, check_chain
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import LEDGER, MANIFEST, RECORD_NAME, file_digest
from milabench_ng.records.origin import RECORD_SCHEMA, RUN_SCHEMA, require_schema, written_by
from milabench_ng.records.record import Record
from milabench_ng.records.record_2020 import Record2020


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A file that should be a record (or the manifest) and is not; its name says which launch it belongs to."""

    file: str
    reason: str
    test: str | None = None
    job_id: str | None = None


class ReadRecord(msgspec.Struct, frozen=True):
    """A record with the name of its file, relative to the folder, and the file's SHA-256."""

    file: str
    sha256: str
    record: Record

    @property
    def name(self) -> str:
        """Its name in reasons: ``standard.vae J0.1``."""
        return f"{self.record.mnb.label} J{self.record.job_id}"


class Read2020(msgspec.Struct, frozen=True):
    """A record of 2020 and the name of its file."""

    file: str
    record: Record2020


class ReadManifest(msgspec.Struct, frozen=True):
    """A manifest and the name of its file."""

    file: str
    manifest: Manifest


class _Ours(msgspec.Struct, frozen=True):
    """Our part of a record, only its schema."""

    schema: Any = None


class _Kind(msgspec.Struct, frozen=True):
    """What distinguishes a record from the other JSON files of a folder."""

    schema: Any = None
    """Of a manifest."""
    job_id: Any = None
    sub_job: Any = None
    run_id: Any = None
    plan: msgspec.Raw = msgspec.Raw(b"")
    mnb: _Ours | list[Any] | str | float | bool | None = None


_kind = msgspec.json.Decoder(_Kind)
_record = msgspec.json.Decoder(Record)

Found = ReadRecord | Read2020 | ReadManifest | Problem

MOST_DECODED = 256 * MIB
"""Of one record, by `decoded_size`: five times what a day of slices takes."""


def record_content(path: Path) -> bytes:
    """The bytes of an untrusted record. Raises InputError for a link, and for what is too large, also if decoded."""
    content = read_content(path, RECORD, os.O_NOFOLLOW)
    if decoded_size(content) > MOST_DECODED:
        most = f"{MOST_DECODED // MIB} MiB of memory"
        refuse(path, f"it would take more than {most}, more than any record of mnb. Was it changed?")
    return content


def decoded_size(content: bytes) -> int:
    """The most bytes of memory that a JSON text takes decoded, by its marks; ``[],`` takes twenty times its length."""
    inside = sum(map(content.count, (b"[", b"{", b":")))
    return 144 * inside + 32 * content.count(b",")


def read_record(content: bytes, name: str) -> Found | None:
    """What a file with this content is; None for JSON that is neither a record nor a manifest. ``name``: the file's.

    If a key occurs twice, the last value counts, as everywhere in records of 2020.
    """
    if not content:
        return problem(name, "the file is empty")
    kind = "manifest" if os.path.basename(name) == MANIFEST else "record"
    try:
        return _decode(content, name)
    except InputError as error:
        return problem(name, f"not a readable {kind}: {_reason(error)}")
    except msgspec.ValidationError as error:
        return problem(name, f"not a readable {kind}: {in_words(error)}; {_made_by(content)}")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return problem(name, f"not a readable {kind}: {error}")


def _made_by(content: bytes) -> str:
    """Which version made a record or manifest that is not whole."""
    try:
        raw = msgspec.json.decode(content)
    except msgspec.DecodeError:  # of 2020, with NaN
        raw = None
    ours = raw.get("mnb") if isinstance(raw, dict) else None
    return written_by(ours, RECORD_SCHEMA) if ours is not None else written_by(raw, RUN_SCHEMA)


def to_manifest(raw: Any, source: str, unfit: str) -> Manifest:
    """The manifest in parsed JSON. Raises InputError for another schema, naming ``source``, or saying ``unfit``."""
    if isinstance(raw, dict):
        require_schema(raw.get("schema"), "manifest", RUN_SCHEMA, source)
    return convert_json(raw, Manifest, unfit, written_by(raw, RUN_SCHEMA))


def read_ledger(folder: Path) -> Chain:
    """The untrusted ledger of a result folder; what breaks its chain is in ``problems``. Empty if there is none."""
    path = folder / LEDGER
    if not os.path.lexists(path):
        return Chain()
    try:
        content = read_content(path, LARGE, os.O_NOFOLLOW)
    except InputError as error:
        return Chain(problems=(why_no_file(path, error),))
    return check_chain(content) if content else Chain(problems=("it is empty",))


def is_going_on(folder: Path) -> bool:
    """Whether the run that writes into ``folder`` is still active: its orchestrator holds the manifest."""
    return is_held(folder / MANIFEST)


def why_no_file(path: str | Path, error: InputError) -> str:
    return "a symbolic link, not a file" if os.path.islink(path) else _reason(error)


def _reason(error: InputError) -> str:
    """The reason without the file's name, which the `Problem` has."""
    return str(error).partition(": ")[2]


def _decode(content: bytes, name: str) -> Found | None:
    refuse_large_numbers(content, name)
    try:
        kind, raw = _kind.decode(content), None
    except msgspec.ValidationError:  # JSON, but not an object
        kind, raw = _Kind(), None
    except msgspec.DecodeError:
        raw = parse_json(content, name, numbers="any")  # reports other errors
        kind = msgspec.convert(raw, _Kind) if isinstance(raw, dict) else _Kind()
    if kind.job_id is None:
        if kind.run_id is not None and kind.plan:
            require_schema(kind.schema, "manifest", RUN_SCHEMA, name)
            return ReadManifest(name, msgspec.json.decode(content, type=Manifest))
        return problem(name, "it holds no job_id") if RECORD_NAME.fullmatch(os.path.basename(name)) else None
    if kind.sub_job:
        return None
    if isinstance(kind.mnb, _Ours):
        require_schema(kind.mnb.schema, "record", RECORD_SCHEMA, name)
    if kind.mnb is None:
        return Read2020(name, msgspec.convert(msgspec.json.decode(content) if raw is None else raw, Record2020))
    return ReadRecord(name, file_digest(content), _record.decode(content))


def problem(name: str, reason: str) -> Problem:
    """What is wrong with the file ``name``, and which launch it belongs to, if it is named like a record."""
    match = RECORD_NAME.fullmatch(os.path.basename(name))
    return Problem(
        file=plain(name),
        reason=short(reason),
        test=match["test"] if match else None,
        job_id=match["job_id"] if match else None,
    )
