"""Attacks on bundles: signed ones that were changed, and archives that no bundle is."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from tampering import Tamper, members, repack

from milabench_ng.verification.signing import sign
from milabench_ng.verification.stamping import MOST_STAMPS

BundleTamper = Callable[[Path, Path], None]
"""Changes a bundle; the second path is the folder of the keys."""


def in_bundle(change: Callable[[dict[str, bytes]], None]) -> BundleTamper:
    """Change the files of a bundle, and leave its packing list and its signature as they are."""

    def tamper(bundle: Path, _keys: Path) -> None:
        files = members(bundle)
        change(files)
        repack(bundle, files)

    return tamper


def other_unit(files: dict[str, bytes]) -> None:
    name = next(name for name in files if ".vae.J0.0." in name and name.endswith(".json"))
    files[name] = files[name].replace(b'"unit"', b'"Unit"')


def one_file_less(files: dict[str, bytes]) -> None:
    del files[next(name for name in files if ".vae.J0.0." in name and name.endswith(".json"))]


def more_claimed(files: dict[str, bytes]) -> None:
    """More than the slices give; the sums of the files still fit."""
    listed = json.loads(files["bundle.json"])
    test = next(iter(listed["claim"]["tests"].values()))
    test["perf"] = 2 * test["perf"]
    files["bundle.json"] = msgspec.json.encode(listed)


def unsigned(files: dict[str, bytes]) -> None:
    del files["bundle.json.sig"]


def signed_by(name: str) -> BundleTamper:
    """Somebody else's signature, on the same packing list."""

    def tamper(bundle: Path, keys: Path) -> None:
        files = members(bundle)
        files["bundle.json.sig"] = sign(files["bundle.json"], keys / name)
        repack(bundle, files)

    return tamper


def add(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[[Path], None]:
    """A tamperer that puts one more member into an archive."""

    def tamper(path: Path) -> None:
        made = io.BytesIO(gzip.decompress(path.read_bytes()))
        with tarfile.open(fileobj=made, mode="a") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))
        path.write_bytes(gzip.compress(made.getvalue()))

    return tamper


def with_many_stamps(path: Path) -> None:
    stamps = {f"results/stamps/{place:064x}.txt.sig": b"-" for place in range(MOST_STAMPS + 1)}
    repack(path, members(path) | stamps)


def without_packing_list(path: Path) -> None:
    repack(path, {name: content for name, content in members(path).items() if name != "bundle.json"})


def followed_by(content: bytes) -> Tamper:
    """More bytes after the zipped stream."""
    return lambda path: path.write_bytes(path.read_bytes() + content) and None


def padded_with(content: bytes) -> Tamper:
    """Bytes in the zeros that end an archive."""

    def tamper(path: Path) -> None:
        whole = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(whole[: -len(content)] + content))

    return tamper


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


def later_schema(path: Path) -> None:
    files = members(path)
    files["bundle.json"] = msgspec.json.encode(json.loads(files["bundle.json"]) | {"schema": 99})
    repack(path, files)


BUNDLES: dict[str, tuple[str, BundleTamper, str]] = {
    "file changed in a bundle": ("R1", in_bundle(other_unit), "was changed after it was packed"),
    "file taken out of a bundle": ("R1", in_bundle(one_file_less), "is in the packing list but not in the bundle"),
    "more claimed than measured": ("R3", in_bundle(more_claimed), "perf was claimed as"),
    "packing list changed after signing": (
        "R2",
        in_bundle(more_claimed),
        "none of the allowed signers has signed it",
    ),
    "signature taken away": ("R2", in_bundle(unsigned), "unsigned"),
    "signed by a stranger": ("R2", signed_by("stranger"), "the key of the signature is not in"),
    "signed by another vendor": (
        "R2",
        signed_by("other"),
        "other@example.org signed it, but vendor@example.org is required to",
    ),
}
"""The same for signed bundles; the folder of keys has ``vendor``, ``other`` (allowed, too) and ``stranger``."""

HOSTILE: dict[str, tuple[Tamper, str]] = {
    "way out": (add("../evil.json"), "'../evil.json' is not a file of a bundle"),
    "absolute path": (add("/etc/mnb.json"), "'/etc/mnb.json' is not a file of a bundle"),
    "way out behind the folder": (add("results/../../x.log"), "is not a file of a bundle"),
    "foreign file": (add("results/setup.py"), "'results/setup.py' is not a file of a bundle"),
    "hidden file": (add("results/.run.json.tmp"), "is not a file of a bundle"),
    "name with a newline": (add("results/logs/a\nb.log"), "is not a file of a bundle"),
    "symbolic link": (add("results/logs/a.log", kind=tarfile.SYMTYPE, link="/etc/passwd"), "is not a regular file"),
    "hard link": (add("results/logs/a.log", kind=tarfile.LNKTYPE, link="bundle.json"), "is not a regular file"),
    "device": (add("results/logs/a.log", kind=tarfile.CHRTYPE), "is not a regular file"),
    "pipe": (add("results/logs/a.log", kind=tarfile.FIFOTYPE), "is not a regular file"),
    "folder": (add("results/logs/a.log", kind=tarfile.DIRTYPE), "is not a regular file"),
    "twice": (add("results/run.json"), "'results/run.json' is in it twice"),
    "no packing list": (without_packing_list, "no bundle.json in it"),
    "cut short": (truncated, "not a bundle made by `mnb bundle`"),
    "text after it": (followed_by(b"x"), "there are bytes after its archive"),
    "zeros after it": (followed_by(b"\0" * 512), "there are bytes after its archive"),
    "another file after it": (followed_by(gzip.compress(b"x")), "there are bytes after its archive"),
    "an empty file after it": (followed_by(gzip.compress(b"")), "there are bytes after its archive"),
    "text behind its last member": (padded_with(b"x"), "there are bytes after its archive"),
    "a member behind its end": (padded_with(tarfile.TarInfo("a").tobuf()), "there are bytes after its archive"),
    "not an archive": (lambda path: path.write_text("hello"), "not a bundle made by `mnb bundle`"),
    "thousands of stamps": (with_many_stamps, "stamps/ holds 2001 stamps, at most 2000 are checked"),
    "newer": (later_schema, "bundle schema 99: this is mnb"),
}
"""Archives that no bundle is, and part of the message."""
