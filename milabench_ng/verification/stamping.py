"""Time stamps on ledger heads: who saw which head, and when (RFC 3161, or an OpenSSH signature).

A stamp shows that the ledger up to a line existed at a time that is not the node's own. Both kinds are files that
travel: a request leaves the node, an answer comes back. They lie beside the ledger, below ``stamps/``:

- ``HEAD.tsq`` and ``HEAD.tsr``: the request to a time-stamping authority and its reply;
- ``HEAD.txt`` and ``HEAD.txt.sig``: a text with the head and the node's time, and the signature of somebody who has
  compared that time with a clock of his own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, read_content, read_text, require_file, require_folder
from milabench_ng.model.known_files import named
from milabench_ng.model.plain import plain, short
from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.records.ledger import digest
from milabench_ng.records.names import LEDGER, STAMPS, write_atomically
from milabench_ng.records.reading import read_ledger
from milabench_ng.verification.signing import check, fits

NAMESPACE = "mnb-stamp"
MOST_STAMPS = 2_000
"""Of one folder: more than a day of them, one a minute. Each signature takes two programs, some 0.02 s."""
_TEXT = "mnb latest ledger hash {head}\nnode's time {utc}\nSign this only if that time is now.\n"
_ASKED = re.compile(_TEXT.format(head=r"(?P<head>[0-9a-f]{64})", utc=r"(?P<utc>\S+)"))


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """A stamp as read."""

    head: str
    utc: datetime | None = None
    """When the head was seen; None if nobody vouches for that."""
    by: str = ""
    problem: str = ""
    """Why it does not count."""


def _last_line(folder: Path) -> bytes:
    """The line of a folder's ledger that its head is the digest of.

    Raises InputError if there is none, or if the chain is broken.
    """
    if os.path.isfile(folder):
        raise InputError(f"{plain(folder)}: this is {named(folder) or 'a file'}. Give the folder that `mnb jobs` wrote")
    require_folder(folder, "Give the folder that `mnb jobs` wrote")
    if not os.path.isfile(folder / LEDGER):
        raise InputError(f"{folder}: no ledger.jsonl. Give the folder that `mnb jobs` wrote")
    if not os.path.getsize(folder / LEDGER):
        raise InputError(f"{folder}: no launch group has begun, so its ledger.jsonl is empty. Ask again in a minute")
    chain = read_ledger(folder)
    if chain.problems or not chain.entries:
        raise InputError(f"{folder}: {(*chain.problems, 'its ledger.jsonl has no entry: no run has begun in it')[0]}")
    lines = read_content(folder / LEDGER, LARGE, os.O_NOFOLLOW).split(b"\n")  # may have grown
    return next(line for line in lines if digest(line) == chain.head)


def request_stamp(folder: Path) -> tuple[Path, Path]:
    """Write the requests for a stamp on the ledger's head: one for an authority, one to be signed."""
    rfc3161, line = _rfc3161(), _last_line(folder)
    head = digest(line)
    place = folder / STAMPS
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}. Make the folder writable, or use a copy of it") from None
    query, text = place / f"{head}.tsq", place / f"{head}.txt"
    if not text.exists():  # it may be signed already
        _write(text, _TEXT.format(head=head, utc=utc_iso(utc_now())).encode())
    _write(query, rfc3161.make_request(line))
    return query, text


def add_stamp(folder: Path, answer: Path) -> Path:
    """Put an answer beside the request that it belongs to; return where."""
    content = read_content(answer)
    if content.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        asked = sorted((folder / STAMPS).glob("*.txt"))
        target = next((text for text in asked if fits(text.read_bytes(), answer, NAMESPACE)), None)
        if target is None:
            raise InputError(
                f"{answer}: this signature belongs to no request in {folder / STAMPS}. Sign one with -n {NAMESPACE}"
            )
        target = target.with_name(f"{target.name}.sig")
    else:
        head = _stamped(answer, content)
        target = folder / STAMPS / f"{head}.tsr"
        if not target.with_suffix(".tsq").exists():
            raise InputError(
                f"{answer}: this stamp is for {head[:12]}, but there is no such request in {folder / STAMPS}. Make "
                "one with mnb stamp request, and have that one stamped"
            )
    _write(target, content)
    return target


def _stamped(answer: Path, content: bytes) -> str:
    """The head that an authority's reply stamps, unchecked."""
    rfc3161 = _rfc3161()
    try:
        return str(rfc3161.read_reply(content)[0])
    except rfc3161.UnfitReplyError as error:
        unfit = "neither a signature by ssh-keygen nor a granted timestamp (RFC 3161)"
        raise InputError(f"{answer}: {unfit}: {short(error)}") from None


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def read_stamps(
    folder: Path, names: Iterable[str], allowed: Path | None, authorities: Path | None, source: str = ""
) -> tuple[Stamp, ...]:
    """The answers among the files ``names`` of a result folder, checked.

    ``allowed``: who may sign, as in ssh-keygen(1); ``authorities``: certificates of time-stamping authorities (PEM);
    ``source``: what the user calls the folder, where that is not its path. Raises InputError for more than MOST_STAMPS.
    """
    if authorities is not None:
        require_file(authorities, "It should hold certificates (PEM)", "--tsa-certs")
    below = [folder / name for name in names if name.startswith(f"{STAMPS}/")]
    answers = [path for path in below if path.suffix in (".tsr", ".sig")]
    if len(answers) > MOST_STAMPS:
        said = f"{STAMPS}/ holds {len(answers)} stamps, at most {MOST_STAMPS} are checked"
        least = "keep those soon after the start, the last record of each run and the end"
        raise InputError(f"{source or plain(folder)}: {said}: {least}")
    return tuple(
        _of_authority(path, authorities) if path.suffix == ".tsr" else _of_signer(path, allowed) for path in answers
    )


def _of_authority(path: Path, authorities: Path | None) -> Stamp:
    head = path.stem
    if authorities is None:
        return Stamp(head=head, problem="the certificate of its authority was not given (--tsa-certs)")
    rfc3161 = _rfc3161()
    try:
        known = rfc3161.read_certificates(read_content(authorities))
    except ValueError as error:
        raise InputError(f"--tsa-certs {authorities}: no certificates (PEM): {short(error)}") from None
    try:
        utc = rfc3161.check_reply(read_content(path), head, known)
    except rfc3161.UnfitReplyError as error:
        return Stamp(head=head, problem=f"no authority in {authorities} made it: {short(error)}")
    return Stamp(head=head, utc=utc, by="a time-stamping authority")


def _of_signer(path: Path, allowed: Path | None) -> Stamp:
    head = path.name.partition(".")[0]
    asked = path.with_suffix("")
    found = _ASKED.fullmatch(read_text(asked)) if asked.is_file() else None
    if found is None or found["head"] != head:
        return Stamp(head=head, problem="the signed text is not a request for a stamp")
    if allowed is None:
        return Stamp(head=head, problem="--allowed-signers FILE was not given")
    if not fits(asked.read_bytes(), path, NAMESPACE):
        return Stamp(head=head, problem="the signature does not match its text")
    signer = check(asked.read_bytes(), read_content(path), allowed, NAMESPACE)
    if signer.principal is None:
        return Stamp(head=head, problem=signer.problem or "unsigned")
    try:
        stated = datetime.fromisoformat(found["utc"])
        if stated.tzinfo is None:
            return Stamp(head=head, problem="its date has no time zone")
        return Stamp(head=head, utc=stated.astimezone(UTC), by=signer.principal)
    except (ValueError, OverflowError):  # the latter for the first and the last day that there is
        return Stamp(head=head, problem="its text has no date")


def _rfc3161() -> ModuleType:
    try:
        return import_module("milabench_ng.verification.authority")
    except ModuleNotFoundError as error:
        missing = f"the package {error.name} is not installed"
        raise InputError(f'timestamps by an authority: {missing}. Run: pip install "milabench_ng[stamps]"') from None
