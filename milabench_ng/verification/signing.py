"""Signatures by OpenSSH: ``ssh-keygen -Y sign`` and ``-Y verify`` (PROTOCOL.sshsig of OpenSSH 8.0 and newer).

A signature proves that the holder of a key has seen these bytes. It does not prove what happened on the node.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_content, require_file
from milabench_ng.model.plain import plain, quoted, short

NAMESPACE = "mnb"
_SECONDS = 60
_FORM = 'lines such as: vendor@example.org namespaces="mnb" ssh-ed25519 AAAA...'
_NAME_AND_KEY = re.compile(rb"^[ \t]*[^#\s].*[ \t](ssh|ecdsa|sk)-\S+[ \t]+AAAA", re.MULTILINE)
"""Keys in base64 begin so: with the length of their type."""


class Signer(msgspec.Struct, frozen=True, kw_only=True):
    """Who signed, as far as is known."""

    present: bool
    """Whether there is a signature."""
    principals: tuple[str, ...] = ()
    """The names of the allowed signer that made it; empty if none of them did, or if no check was requested."""
    problem: str | None = None
    """Why the signature does not count."""
    asked: bool = False
    """Whether the buyer said who may sign."""

    @property
    def principal(self) -> str | None:
        """The first of its names."""
        return self.principals[0] if self.principals else None

    @property
    def words(self) -> str:
        """Whether anybody vouches for the files."""
        if self.principal is not None:
            return f"signed by {short(self.principal)}"
        unknown = "not by an allowed signer" if self.asked else "signer not checked"
        return f"signed, {unknown}" if self.present else "unsigned"


def sign(content: bytes, key: Path) -> bytes:
    """The signature of ``content`` with the private key in ``key`` (or a public one, if the agent holds the private
    one)."""
    require_key(key)
    done = _ssh_keygen(["-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key)], content)
    if b"passphrase" in done.stderr:
        raise InputError(
            f"--sign {plain(key)}: its passphrase is missing or wrong. Load the key into your ssh-agent "
            f"and run this again: ssh-add {quoted(key)}"
        )
    private = _private(key)
    whose = "its" if private == key else f"its private key is {plain(private)}, whose"
    if b"UNPROTECTED PRIVATE KEY" in done.stderr:
        raise InputError(
            f"--sign {plain(key)}: {whose} permissions are too open ({private.stat().st_mode & 0o777:04o}), "
            f"so ssh-keygen ignores it. Run this, then sign again: chmod 600 {quoted(private)}"
        )
    if done.returncode != 0 and not os.access(private, os.R_OK):
        mine = private.stat().st_uid == os.geteuid()
        advice = f"Run this, then sign again: chmod 600 {quoted(private)}" if mine else "Sign as the user who owns it"
        raise InputError(f"--sign {plain(key)}: {whose} permissions do not let you read it. {advice}")
    if done.returncode != 0 and not read_content(private).startswith(b"-----BEGIN"):
        raise InputError(f"--sign {plain(key)}: not a private key. Make one with ssh-keygen -t ed25519 -f KEY")
    if done.returncode != 0:
        raise InputError(f"--sign {plain(key)}: ssh-keygen does not sign with it: {_message(done)}")
    return done.stdout


def _private(key: Path) -> Path:
    """The file that ssh-keygen signs with: of a public key, the private one next to it, if it is there."""
    private = key.with_suffix("")
    return private if key.suffix == ".pub" and os.path.exists(private) else key


def require_key(key: Path) -> None:
    """Raise InputError if there is no key to sign with."""
    require_file(key, "Make a key with ssh-keygen -t ed25519", "--sign")


def make_key(file: Path, name: str) -> str:
    """Make a key pair without a passphrase, the private one in ``file``; returns the public one."""
    done = _ssh_keygen(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(file)], b"")
    if done.returncode != 0:
        raise InputError(f"ssh-keygen makes no key in {file}: {_message(done)}")
    return file.with_name(f"{file.name}.pub").read_text().strip()


def require_signers(allowed: Path) -> None:
    """Raise InputError if the file ``allowed`` cannot be one of allowed signers. Whom it allows, ssh-keygen decides."""
    require_file(allowed, "It should hold the vendors' public keys", "--allowed-signers")
    content = read_content(allowed)
    if content.startswith(codecs.BOM_UTF8):
        raise InputError(f"--allowed-signers {plain(allowed)}: it begins with a byte order mark. Save it without one")
    if not _NAME_AND_KEY.search(content):
        raise InputError(f"--allowed-signers {plain(allowed)}: no line has a name and a key. Expected {_FORM}")


def check(content: bytes, signature: bytes | None, allowed: Path | None, namespace: str = NAMESPACE) -> Signer:
    """Check that ``content`` is signed by a signer in the file ``allowed`` (ssh-keygen(1), ALLOWED SIGNERS).

    Only ssh-keygen reads that file. It looks no further than the first line with a key, which may be meant for another
    purpose: so each line is shown to it alone.
    """
    if allowed is not None:
        require_signers(allowed)
    if signature is None:
        return Signer(present=False, problem="unsigned", asked=allowed is not None)
    if allowed is None:
        return Signer(present=True, problem="signed, but --allowed-signers FILE was not given")
    with tempfile.NamedTemporaryFile(prefix="mnb-signature-") as file:
        file.write(signature)
        file.flush()
        found = _ssh_keygen(["-Y", "find-principals", "-s", file.name, "-f", str(allowed)], b"")
        if found.returncode != 0:
            problem = f"the key of the signature is not in {plain(allowed)}{_why(found)}"
            return Signer(present=True, asked=True, problem=problem)
        names = _principals(file.name, read_content(allowed).splitlines(keepends=True))
        command = ["-Y", "verify", "-n", namespace, "-s", file.name, "-f", str(allowed), "-I"]
        verified = {name: _ssh_keygen([*command, name], content) for name in names}
    may = tuple(name for name, done in verified.items() if done.returncode == 0)
    if not may:
        problem = f"none of the allowed signers has signed it{''.join(map(_why, verified.values()))}"
        return Signer(present=True, asked=True, problem=problem)
    return Signer(present=True, asked=True, principals=may)


def _principals(signature: str, lines: Iterable[bytes]) -> tuple[str, ...]:
    """The names that the lines of a file of allowed signers give to the key of a signature."""
    found = [_ssh_keygen(["-Y", "find-principals", "-s", signature, "-f", "/dev/stdin"], line) for line in lines]
    names = [
        name for done in found if done.returncode == 0 for name in done.stdout.decode(errors="replace").splitlines()
    ]
    return tuple(dict.fromkeys(names))


def fits(content: bytes, signature: Path, namespace: str) -> bool:
    """Whether the signature in a file is one of ``content``, by whomever."""
    return _ssh_keygen(["-Y", "check-novalidate", "-n", namespace, "-s", str(signature)], content).returncode == 0


def why_unsigned() -> str:
    """Why nothing can be signed or checked here; empty if it can."""
    if shutil.which("ssh-keygen"):
        return ""
    return "ssh-keygen is not installed. Signatures need OpenSSH 8.0 or newer (openssh-client)"


def _ssh_keygen(arguments: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    if why := why_unsigned():
        raise InputError(why)
    command = ["ssh-keygen", *arguments]
    try:
        return subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"ssh-keygen gave no answer within {_SECONDS} s. Does the key need a passphrase?") from None


def _why(done: subprocess.CompletedProcess[bytes]) -> str:
    """What ssh-keygen says first, such as that a key has expired; empty if it only finds none."""
    lines = done.stderr.decode(errors="replace").splitlines()
    return "".join(f": {plain(line)}" for line in lines[:1] if line != "No principal matched.")


def _message(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stderr or done.stdout).decode(errors="replace").strip()
    return text.splitlines()[-1] if text else f"exit status {done.returncode}"
