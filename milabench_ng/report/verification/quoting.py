"""Quotes of a node's TPM over nonce and ledger head: which machine vouches for them, and what it had booted.

A TPM signs what it is given together with its platform configuration registers (PCRs): firmware, boot loader, kernel,
and what the kernel loaded since (TPM 2.0 Library, Part 2, 10.12.12: TPMS_ATTEST). By tpm2-tools: ``tpm2_quote`` on the
node, ``tpm2_checkquote`` at the buyer's. The files lie beside the ledger, below ``stamps/``:

- ``HEAD.quote`` and ``HEAD.quote.signature``: what was signed, and the signature;
- ``HEAD.quote.key``: the public half of the key (PEM), which the buyer must know by its SHA-256;
- ``HEAD.quote.pcrs``: the values of the PCRs 0 to 10, 32 bytes each;
- ``HEAD.quote.ima``: the kernel's log of all files that it loaded (IMA, in its binary form), where it keeps one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.files import LARGE, read_content
from milabench_ng.records.ledger import Chain, Started
from milabench_ng.records.names import STAMPS, file_digest, write_atomically
from milabench_ng.report.verification.stamping import sound_ledger

PCRS = 11
"""How many PCRs are quoted: 0 to 7 are of firmware and boot, 8 and 9 of the boot loader, 10 of IMA."""

IMA_PCR = 10
_IMA_LOG = Path("/sys/kernel/security/ima/binary_runtime_measurements")
_SECONDS = 120
_SIZE = hashlib.sha256().digest_size
_SELECTED = ",".join(map(str, range(PCRS)))
_BEGIN = b"\xffTCG\x80\x18"
"""TPM_GENERATED and TPM_ST_ATTEST_QUOTE: a restricted key signs nothing else that begins with it."""
_END = b"\0\0\0\1\0\x0b\3\xff\7\0\0\x20"
"""One selection of SHA-256 PCRs, of these eleven, and the length of their digest, which follows."""


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A quote of the ledger's last head, as read."""

    key: str = ""
    """SHA-256 of the file of the key that made it."""
    pcrs: tuple[str, ...] = ()
    """Values of the PCRs from 0 on, in hexadecimal."""
    logged: bool = False
    """Whether there is a log of loaded files, and its PCR follows from it."""
    problem: str = ""
    """Why it does not count."""


def make_quote(folder: Path, key: str) -> Path:
    """Have the TPM quote nonce and ledger head; ``key``: the handle or context file of an attestation key."""
    chain = sound_ledger(folder)
    with tempfile.TemporaryDirectory(prefix="mnb-quote-") as made:
        parts = _parts(Path(made) / chain.head)
        _run("tpm2_readpublic", "-Q", "-c", key, "-f", "pem", "-o", parts["key"])
        wanted: list[str | Path] = [
            "-l",
            f"sha256:{_SELECTED}",
            "-q",
            qualification(chain),
            "-g",
            "sha256",
            "-F",
            "values",
        ]
        signed: list[str | Path] = ["-m", parts["quote"], "-s", parts["signature"], "-o", parts["pcrs"]]
        _run("tpm2_quote", "-Q", "-c", key, *wanted, *signed)
        if _IMA_LOG.exists():
            parts["ima"].write_bytes(_IMA_LOG.read_bytes())  # after the quote: it may be longer, never shorter
        return _kept(folder, [path for path in parts.values() if path.exists()], parts["quote"].name)


def _kept(folder: Path, made: Iterable[Path], name: str) -> Path:
    place = folder / STAMPS
    try:
        place.mkdir(exist_ok=True)
        for path in made:
            write_atomically(place / path.name, path.read_bytes())
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}") from None
    return place / name


def qualification(chain: Chain) -> str:
    """What the TPM signs beside its PCRs: SHA-256 of the run's nonce and of the last head of its ledger."""
    started = next((entry.what for entry in chain.entries if isinstance(entry.what, Started)), None)
    nonce = (started.nonce if started is not None else None) or ""
    return hashlib.sha256(f"{nonce}\n{chain.head}".encode()).hexdigest()


def read_quote(folder: Path, names: Collection[str], chain: Chain) -> Quote | None:
    """The quote of the last head of ``chain``, checked; None if it is not among the files ``names`` of the folder.

    Quotes of earlier heads say nothing of what came later, and are not read.
    """
    name = f"{STAMPS}/{chain.head}.quote"
    if name not in names:
        return None
    try:
        return _read(_parts(folder / STAMPS / chain.head), qualification(chain))
    except InputError as error:  # its files are the bidder's
        return Quote(problem=str(error))


def _read(parts: Mapping[str, Path], signed: str) -> Quote:
    """The quote, with a problem unless its key signed ``signed``. Raises InputError if a file cannot be read."""
    missing = [parts[name].name for name in ("signature", "key", "pcrs") if not parts[name].is_file()]
    if missing:
        return Quote(problem=f"{missing[0]} is missing")
    values, message = read_content(parts["pcrs"]), read_content(parts["quote"])
    if len(values) != PCRS * _SIZE or not message.startswith(_BEGIN):
        return Quote(problem="it is no quote of the PCRs 0 to 10")
    if not message.endswith(_END + hashlib.sha256(values).digest()):
        return Quote(problem="the values of its PCRs are not those that were quoted")
    asked: list[str | Path] = ["-g", "sha256", "-q", signed]
    files: list[str | Path] = ["-u", parts["key"], "-m", parts["quote"], "-s", parts["signature"]]
    try:
        _run("tpm2_checkquote", "-Q", *files, *asked)
    except _RefusedError as error:
        return Quote(problem=f"the key beside it did not sign it, for this nonce and head: {error}")
    found = tuple(values[at : at + _SIZE] for at in range(0, len(values), _SIZE))
    logged = parts["ima"].is_file()
    if logged and found[IMA_PCR] not in extended(read_content(parts["ima"], LARGE)):
        return Quote(problem=f"its PCR {IMA_PCR} does not follow from the log of what was loaded")
    key = file_digest(read_content(parts["key"]))
    return Quote(key=key, pcrs=tuple(value.hex() for value in found), logged=logged)


def extended(log: bytes) -> Iterator[bytes]:
    """The values of PCR 10 (SHA-256) after each entry of a binary IMA log, as far as it is one.

    An entry (``Documentation/security/IMA-templates``): number of the PCR, SHA-1 of the template, length and text of
    its name, length and bytes of its data; numbers have 4 bytes, little-endian. A violation (SHA-1 of zeros) extends
    by ones.
    """
    value, at = bytes(_SIZE), 0
    while at + 32 <= len(log):
        name = at + 28 + _number(log, at + 24)
        end = name + 4 + _number(log, name)
        if _number(log, at) == IMA_PCR:
            digest = hashlib.sha256(log[name + 4 : end]).digest() if any(log[at + 4 : at + 24]) else b"\xff" * _SIZE
            value = hashlib.sha256(value + digest).digest()
            yield value
        at = end


def _number(log: bytes, at: int) -> int:
    return int.from_bytes(log[at : at + 4], "little")


def _parts(base: Path) -> dict[str, Path]:
    named = {name: base.with_name(f"{base.name}.quote.{name}") for name in ("signature", "key", "pcrs", "ima")}
    return {"quote": base.with_name(f"{base.name}.quote"), **named}


class _RefusedError(InputError):
    """A program of tpm2-tools says no."""


def _run(program: str, *arguments: str | Path) -> None:
    found = shutil.which(program)
    if found is None:
        raise InputError(f"{program} is not installed; quotes of a TPM need tpm2-tools 5 or newer")
    try:
        done = subprocess.run(
            [found, *map(str, arguments)], capture_output=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{program}: {error}") from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise _RefusedError(f"{program}: {said[0] if said else f'exit status {done.returncode}'}")
