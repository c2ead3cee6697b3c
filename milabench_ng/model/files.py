"""Untrusted files: reading every JSON file, and making files in folders that others can write to.

A file is read only if it is regular and not too large, and its JSON only if it is unambiguous: UTF-8 (RFC 8259), no
duplicate keys in an object, only finite numbers, whole ones of at most 64 bits, no deep nesting. Errors are InputErrors
with file and place.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.json_mistakes import mistake
from milabench_ng.model.plain import plain, quoted, short
from milabench_ng.model.similar import did_you_mean, meant_or_all
from milabench_ng.model.units import MIB
from milabench_ng.model.words_at import form_at, keys_at, words_at

SMALL = 4 * MIB
"""Largest profile, file of weights or manifest of a dataset, in bytes."""
RECORD = 20 * MIB
"""Largest record that a reader decodes, in bytes: a day of slices. Decoded, it may take twenty times as much."""
LARGE = 64 * MIB
"""Largest summary, ledger or manifest of a run, in bytes."""
GZIP = b"\x1f\x8b"
"""How a compressed file begins, as a bundle is (RFC 1952)."""
_A_BLOCK = 4096
"""The least that a file takes of a disk."""
DEEPEST = 64
"""Deepest nesting of objects and lists."""

Numbers = Literal["finite", "any"]
"""``any``: also ``NaN`` and ``Infinity``, which are not JSON, and which records of 2020 hold."""

T = TypeVar("T")

_NESTS = (dict, list)
_WHOLE = range(-(2**63), 2**64)
"""Of 64 bits, signed or not, as the kernel counts. Larger ones are no counts, and fit into no float."""
_DIGITS = bytes(ord("0") if byte in b"0123456789" else byte if byte in b"." else ord(" ") for byte in range(256))
"""For `bytes.translate`: digits become zeros, what is neither a digit nor a point a blank."""
_LONG = b" " + b"0" * 19
"""Where such a number may begin: rarely in what mnb writes, whose digits in a row are those behind a point."""
_RIGHT_FILE = "Is it the right file? mnb schema describes the files that mnb reads"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SAID = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^Object contains unknown field `(.*)`$", r"unknown key '\1'"),
        (r"^Object missing required field `(.*)`$", r"the key '\1' is missing"),
        (r"^Expected ", "expected "),
        (r"^Invalid enum value ", "unknown word "),
        (r"\bint\b(?=[^`]*`)", "a whole number"),
        (r"\bfloat\b(?=[^`]*`)", "a number"),
        (r"\bstr\b(?=[^`]*`)", "text"),
        (r"\bbool\b(?=[^`]*`)", "true or false"),
        (r"\barray\b(?=[^`]*`)", "a list"),
        (r"\bobject\b(?=[^`]*`)", "an object"),
        (r"\s*\|\s*(?=[^`]*`)", " or "),
        (r"` >= ", "` of at least "),
        (r"` <= ", "` of at most "),
        (r"` > ", "` above "),
        (r"` < ", "` below "),
        (r" of length >= 1$", " that is not empty"),
        (r"(` of at most 1)\.0$", r"\1 (80% is 0.8)"),
        (r"(?<=\d)\.0$", ""),
        ("`", ""),
        (r"(?<=number)(.*, got text)$", r"\1 (write it without quotes)"),
    )
)
"""Messages of msgspec, in words of those who write such files."""
_WRONG_KEY = re.compile(r"Object contains unknown field `(.*)`$")
_WRONG_FORM = re.compile(r"text matching regex .*", re.DOTALL)
_WRONG_WORD = re.compile(r"Invalid enum value '(.*)'$")
_EXPONENT = re.compile(r"(?<=[<>=] )[\d.]+e[-+]?\d+")
"""A bound as msgspec writes very small and very large ones."""
_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def read_json(path: Path, largest: int = SMALL) -> Any:
    """The value of the JSON file ``path`` of at most ``largest`` bytes."""
    return parse_json(read_content(path, largest), str(path))


def read_text(path: Path) -> str:
    """The text of the file ``path`` of at most ``SMALL`` bytes."""
    return decode_text(read_content(path), str(path))


def read_content(path: Path, largest: int = SMALL, flags: int = 0) -> bytes:
    """The bytes of a regular file of text of at most ``largest`` bytes; see `read_bytes`."""
    content = read_bytes(path, largest, flags)
    if content.startswith(GZIP):
        unpacked = f"tar -xzf {quoted(path)}"
        refuse(
            path, f"compressed, like a bundle, which mnb report and mnb verify read. To use a file in it: {unpacked}"
        )
    return content


def read_bytes(path: Path, largest: int, flags: int = 0) -> bytes:
    """The bytes of a regular file of at most ``largest`` bytes; ``flags`` for open(2), such as ``O_NOFOLLOW``.

    Never waits for a pipe and never reads a device.
    """
    try:
        # A FIFO would block open(2), a terminal could become ours.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | flags)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                refuse(path, f"{_kind(found.st_mode)}, not a file. Name a file")
            content = file.read(largest + 1)
    except IsADirectoryError:
        refuse(path, "a folder, not a file. Name a file")
    except FileNotFoundError:
        refuse(path, absent(path))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        refuse(path, getattr(error, "strerror", None) or str(error))
    if len(content) > largest:
        refuse(path, f"larger than the {largest // MIB} MiB that such a file may have. Is it the right file?")
    return content


def parse_json(content: bytes, source: str, numbers: Numbers = "finite") -> Any:
    """The value of a JSON text; ``source`` is the file's name, for errors."""
    text = decode_text(content, source)
    if not text.strip():
        refuse(source, f"the file is empty. {_RIGHT_FILE}")
    refuse_large_numbers(content, source)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            left = dict(made)
            twice = next(key for key, _ in pairs if left.pop(key, left) is left)
            refuse(source, f"{short(repr(twice))} appears twice in the same object. Remove one")
        return made

    def constant(word: str) -> NoReturn:
        refuse(source, f"not JSON: {word} is not a JSON number")

    def finite(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            refuse(source, f"the number {short(digits)} is too large")
        return value

    hooks: dict[str, Any] = {} if numbers == "any" else {"parse_constant": constant, "parse_float": finite}
    try:
        value = json.loads(text, object_pairs_hook=unique, **hooks)
    except json.JSONDecodeError as error:
        if source.endswith(".jsonl"):
            refuse(source, "a JSON value in each line, as in a ledger, not one. Give the folder that it is in")
        other = "" if error.pos else f". {_RIGHT_FILE}"
        refuse(source, f"not JSON: {mistake(error)} (line {error.lineno}, column {error.colno}){other}")
    except RecursionError:
        refuse(source, f"nested too deeply (more than {DEEPEST} levels)")
    if _depth(value) > DEEPEST:
        refuse(source, f"nested too deeply (more than {DEEPEST} levels)")
    if _SURROGATE.search(text):
        _require_characters(value, source)
    return value


def refuse_large_numbers(content: bytes, source: str) -> None:
    """Raise an InputError for a JSON text with a whole number of more than 64 bits; other errors are the decoder's."""

    def whole(digits: str) -> int:
        if len(digits) > 20 or int(digits) not in _WHOLE:
            shown = digits if len(digits) <= 20 else f"{digits[:20]}..."
            refuse(source, f"the whole number {shown} has more than 64 bits")
        return int(digits)

    if _LONG in b" " + content.translate(_DIGITS):
        with suppress(ValueError, RecursionError):
            json.loads(content, parse_int=whole)


def convert_json(value: Any, kind: type[T], source: str, advice: str = "") -> T:
    """Convert ``value`` of `parse_json` to ``kind``; ``advice`` says what to do if that fails."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        form = _form(str(error), kind)
        said = _WRONG_FORM.sub(form, in_words(error)) if form else in_words(error)
        refuse(source, f"{said}{_meant(str(error), kind)}{advice and '. '}{advice[:1].upper()}{advice[1:]}")


def _meant(error: str, kind: type) -> str:
    """What may stand where a key or a word of ``kind`` is wrong."""
    what, _, place = error.partition(" - at `")
    if found := _WRONG_KEY.match(what):
        return did_you_mean(found[1], keys_at(kind, place.rstrip("`")))
    found = _WRONG_WORD.match(what)
    return meant_or_all(found[1], words_at(kind, place.rstrip("`"))) if found else ""


def _form(error: str, kind: type) -> str:
    """What a text of ``kind`` that does not match its pattern should look like; empty if nothing says so."""
    return form_at(kind, error.partition(" - at `")[2].rstrip("`"))


def in_words(error: msgspec.ValidationError) -> str:
    """What a JSON value has wrong, as a user would say it: ``price: expected a number of at least 0."""
    what, _, place = str(error).partition(" - at `")
    what = _EXPONENT.sub(lambda bound: f"{Decimal(bound[0]):,f}", what)
    for pattern, words in _SAID:
        what = pattern.sub(words, what)
    key = place.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")
    return short(f"{key}: {what}" if key else what)


def decode_text(content: bytes, source: str) -> str:
    """UTF-8 text without a byte order mark."""
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            refuse(source, f"begins with the byte order mark of {encoding}. Save it as UTF-8 without one")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        refuse(source, f"not a JSON file: not UTF-8 text ({error.reason} at byte {error.start}). {_RIGHT_FILE}")


def refuse(source: Path | str, reason: str) -> NoReturn:
    """Raise an InputError about a file."""
    raise InputError(f"{short(source)}: {reason}") from None


def _depth(value: Any) -> int:
    """Nesting depth of lists and objects, counted as far as it matters."""
    depth, level = 0, [value] if isinstance(value, _NESTS) else []
    while level and depth <= DEEPEST:
        depth += 1
        insides = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for inside in insides for child in inside if isinstance(child, _NESTS)]
    return depth


def _require_characters(value: Any, source: str) -> None:
    """``"\\ud83d"`` alone is half of a character, which cannot be printed or written."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        refuse(source, "a string holds half of a surrogate pair, which is no character")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def absent(path: Path) -> str:
    """Which part of ``path`` there is not, and what it may have been meant to be."""
    missing = next((place for place in (*reversed(path.parents), path) if not os.path.lexists(place)), None)
    if missing is None:
        return "a link to nothing"
    if missing == path:
        return f"no such file{meant_beside(path)}"
    packed = missing.with_name(f"{missing.name}.tar.gz")
    instead = f". Unpack it: tar -xzf {quoted(packed)}" if os.path.isfile(packed) else meant_beside(missing)
    return f"the folder {plain(missing)} does not exist{instead}"


def meant_beside(path: Path) -> str:
    """What may have been meant by a name that there is not, of what lies in its folder: its packed form comes first."""
    with suppress(OSError):
        there = [plain(name) for name in os.listdir(path.parent)]
        packed = [name for name in there if name == f"{path.name}.tar.gz"]
        alike = [name for name in there if did_you_mean(path.stem, [Path(name).stem])]  # all end in .json
        return did_you_mean(path.name, packed or alike)
    return ""


def require_file(path: Path, advice: str, option: str = "") -> None:
    """Raise an InputError if ``path`` is no file: with the ``option`` that named it, what is there, and what to do."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        why = absent(path)
    except OSError as error:
        why = error.strerror or str(error)
    else:
        why = "" if stat.S_ISREG(mode) else f"{_kind(mode)}, not a file"
    if why:
        gap = "" if not option or option.endswith("=") else " "
        refuse(f"{option}{gap}{plain(path)}", f"{why}. {advice}")


def require_folder(path: Path, advice: str) -> None:
    """Raise an InputError if ``path`` is no folder: what is there, or was meant, and what to do."""
    if not os.path.isdir(path):  # which no name makes raise
        there = os.path.exists(path)
        refuse(path, f"{'a file, not a folder' if there else f'no such folder{meant_beside(path)}'}. {advice}")


def nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if os.path.exists(place))


def why_unwritable(folder: Path, size: int = _A_BLOCK) -> str:
    """Why no file of ``size`` bytes can be made in ``folder``, such as a full disk; empty if one can.

    Leaves nothing there.
    """
    import tempfile  # takes 10 ms of every command that writes nothing

    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except FileNotFoundError:
        return "it takes no files" if folder.is_dir() else "No such file or directory"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def allowed_size(size: int) -> int:
    """``size``, or the most bytes that this process may have in a file."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return size if limit == resource.RLIM_INFINITY else min(size, limit)


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """A descriptor of the folder ``path``, not a symbolic link: names are looked up in it and nowhere else."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def open_to_write(name: str, folder: int, flags: int) -> int:
    """A descriptor of the file ``name`` in ``folder``, created if missing; never through a symbolic link.

    The owner of a result folder may put links there, and this process may be root's. A new file gets the mode that the
    user's umask leaves.
    """
    flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o666, dir_fd=folder)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``; after a partial write, writing the rest raises the reason."""
    while content:
        content = content[os.write(descriptor, content) :]


def no_current_folder() -> str:
    """Why this process has no current folder, as one that was deleted; empty if it has one.

    Libraries that workers import look for it; oneMKL ends the process if there is none.
    """
    try:
        os.getcwd()
    except OSError as error:
        return f"the current folder was deleted ({error.strerror}). Start mnb in another folder"
    return ""


def is_held(path: Path, flags: int = 0) -> bool:
    """Whether a living process holds ``path`` by `is_locked`; False where that cannot be seen.

    No end, not even SIGKILL, leaves a file that looks held; nor does a copy.
    """
    try:
        return is_locked(path, os.O_NONBLOCK | flags)
    except OSError:  # it may not be opened, or the file system has no locks
        return False


def is_locked(path: Path, flags: int = 0) -> bool:
    """Whether another process has an exclusive flock(2) on ``path``; False if there is no such file.

    Raises OSError if that cannot be seen.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
