"""Files that are none, too large, or lead elsewhere: a message and exit code 2, or one failed launch among others."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args

import make_records
import pytest
import tampering
from make_records import PER_GPU

from milabench_ng.cli import call
from milabench_ng.model import files
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import DEEPEST, SMALL, parse_json, read_content, read_json
from milabench_ng.model.plain import plain, plain_json, plain_lines, printed_json, short
from milabench_ng.model.shipped import find, names
from milabench_ng.present.writers import Form, write_report
from milabench_ng.records.names import write_atomically
from milabench_ng.records.reading import read_ledger
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)  # a sparse file of 3 GiB


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "directory": (Path.mkdir, "a folder, not a file"),
    "pipe": (_fifo, "a pipe, not a file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device, not a file"),
    "huge": (_huge, "larger than the"),
    "loop": (lambda path: path.symlink_to(path), "symbolic link"),
    "nowhere": (lambda path: path.symlink_to(path.with_name("none")), "a link to nothing"),
    "utf16": (lambda path: path.write_bytes('{"a": 1}'.encode("utf-16")), "byte order mark of UTF-16"),
    "bom": (lambda path: path.write_bytes(b"\xef\xbb\xbf{}"), "byte order mark of UTF-8"),
    "latin1": (lambda path: path.write_bytes('{"é": 1}'.encode("latin-1")), "not UTF-8 text (.* at byte 2)"),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_json_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    make, message = NO_FILES[kind]
    path = tmp_path / "x.json"
    make(path)
    with pytest.raises(InputError, match=f"x.json: .*{message.replace('(', '[(]').replace(')', '[)]')}"):
        read_json(path)


@pytest.mark.parametrize("kind", ["pipe", "huge", "loop"])
@pytest.mark.parametrize("words", [["report"], ["summary"], ["rerun"], ["list"], ["jobs", "--dry-run"], ["prepare"]])
def test_no_command_is_stopped_by_such_a_file(
    tmp_path: Path, kind: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    NO_FILES[kind][0](tmp_path / "x.json")
    before = sorted(tmp_path.iterdir())
    assert call([words[0], "x.json", *words[1:]]) == 2
    assert capsys.readouterr().err.startswith("mnb: x.json: ")
    assert sorted(tmp_path.iterdir()) == before  # no result folder was made


@pytest.mark.parametrize("kind", NO_FILES)
def test_in_a_result_folder_it_is_one_failed_launch(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_records.write_run(tmp_path, make_records.plan("standard", {"vae": PER_GPU}, 2, 1))
    record = sorted(tmp_path.glob("standard.vae.J0.1.*"))[0]
    record.unlink()
    NO_FILES[kind][0](record)
    report = make_report(tmp_path)
    row = report.summary.tests["standard.vae"]
    assert (row.n, row.failures, list(row.launches)) == (2, 1, ["0.0"])
    assert [(failed.job_id, failed.cause) for failed in row.failed] == [("0.1", "unreadable")]
    assert call(["report", str(tmp_path)]) == 1
    assert "unreadable" in capsys.readouterr().out


def refused(*_: object) -> NoReturn:
    """Root may read everything."""
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("command", ["report", "verify", "bundle", "accept"])
def test_of_a_folder_that_may_not_be_read_nothing_is_reported(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("run", "other"):
        make_records.write_run(tmp_path / name, make_records.plan("standard", {"vae": PER_GPU}, 2, 1))
    monkeypatch.setattr(os, "scandir", refused)
    assert call([command, str(tmp_path / "run"), *([str(tmp_path / "other")] if command == "accept" else [])]) == 2
    assert f"{tmp_path / 'run'}: Permission denied\n" in capsys.readouterr().err


def test_a_record_that_may_not_be_read_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_records.write_run(tmp_path / "run", make_records.plan("standard", {"vae": PER_GPU}, 2, 1))
    monkeypatch.setattr(hashlib, "file_digest", refused)
    assert call(["bundle", str(tmp_path / "run"), "-o", str(tmp_path / "out.tar.gz")]) == 2
    assert "Permission denied" in capsys.readouterr().err
    assert not list(tmp_path.glob("out*"))


def test_a_link_in_a_result_folder_is_not_followed(tmp_path: Path) -> None:
    folder, secret = tmp_path / "run", tmp_path / "secret.json"
    make_records.write_run(folder, make_records.plan("standard", {"vae": PER_GPU}, 2, 1))
    record = sorted(folder.glob("standard.vae.J0.1.*"))[0]
    record.rename(secret)
    record.symlink_to(secret)
    (failed,) = make_report(folder).summary.tests["standard.vae"].failed
    assert failed.detail == "a symbolic link, not a file"


def test_a_thousand_folders_in_each_other(tmp_path: Path) -> None:
    make_records.write_run(tmp_path, make_records.plan("standard", {"vae": PER_GPU}, 1, 1))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    try:
        assert make_report(tmp_path).summary.tests["standard.vae"].n == 1
    finally:  # pytest's own cleaning would recurse too deep
        for _ in range(1499):
            (tmp_path / "d" / "d").rename(tmp_path / "inner")
            (tmp_path / "d").rmdir()
            (tmp_path / "inner").rename(tmp_path / "d")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "'c' appears twice in the same object"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1e999}', "the number 1e999 is too large"),
        (b'["\\ud83d"]', "half of a surrogate pair"),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1" + b"0" * 5000 + b"]", "the whole number 10000000000000000000... has more than 64 bits"),
        (b"1" + b"0" * 400, "the whole number 10000000000000000000... has more than 64 bits"),
        (b'{"a":18446744073709551616}', "the whole number 18446744073709551616 has more than 64 bits"),
        (b'{"a": -9223372036854775809}', "the whole number -9223372036854775809 has more than 64 bits"),
        (b'{"a":\n tru}', r"line 2, column 2"),
        (b'{"a": "\xff"}', "not UTF-8 text .* at byte 7"),
        (b"", "the file is empty"),
    ],
)
def test_json_says_one_thing_or_is_refused_with_its_place(content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=f"^x.json: .*{message}"):
        parse_json(content, "x.json")


def test_what_json_may_say() -> None:
    assert parse_json(b"[" * DEEPEST + b"]" * DEEPEST, "x")
    assert parse_json('{"ü": ["\\ud83d\\ude00", 1e308]}'.encode(), "x") == {"ü": ["\N{GRINNING FACE}", 1e308]}
    assert parse_json(b"[-9223372036854775808, 18446744073709551615, 0.00012345678901234567]", "x")[1] == 2**64 - 1
    assert parse_json(b'["10000000000000000000000"]', "x") == ["10000000000000000000000"]
    assert parse_json(b"[NaN, 1e999]", "x", numbers="any")[1] == float("inf")


@pytest.mark.parametrize(
    "path",
    [
        *("mnb launch arguments batch_size", "mnb precision dtypes float32", "mnb isolation 0 requested memory_bytes"),
        *("mnb isolation 0 usage cpu_usec", "mnb conditions before host pages_swapped_in", "job arguments batch_size"),
        *("mnb conditions after host oom_kills", "mnb surroundings after cpus"),
    ],
)
def test_a_record_with_a_number_beyond_64_bits_is_unreadable(tmp_path: Path, path: str) -> None:
    tampering.write_honest(tmp_path)
    *parts, last = path.split()

    def change(content: dict[str, Any]) -> None:
        for part in parts:
            content = content.setdefault(part, {})
        content[last] = 987654321  # msgspec encodes no larger ones

    record = next(tmp_path.glob("standard.vae.J0.0.*"))
    tampering.rewrite(record, change)
    record.write_text(record.read_text().replace("987654321", f"1{'0' * 400}"))
    report = make_report(tmp_path)
    assert [failed.cause for failed in report.summary.tests["standard.vae"].failed] == ["unreadable"]
    for form in get_args(Form):
        write_report(report, form, io.StringIO())
    reasons = [reason for ruling in verify(tmp_path, Rules()).having("fail") for reason in ruling.reasons]
    assert any("the whole number 10000000000000000000... has more than 64 bits" in reason for reason in reasons)


def test_a_manifest_or_a_ledger_with_such_a_number(tmp_path: Path) -> None:
    tampering.write_honest(tmp_path)
    ledger = tmp_path / "ledger.jsonl"
    lines = ledger.read_text()
    ledger.write_text(re.sub('"launches":[0-9]+', f'"launches":1{"0" * 400}', lines, count=1))
    assert "has more than 64 bits" in read_ledger(tmp_path).problems[0]
    ledger.write_text(lines)
    run = tmp_path / "run.json"
    run.write_text(re.sub('"memory_bytes": ?[0-9]+', f'"memory_bytes": 1{"0" * 400}', run.read_text(), count=1))
    for read in (lambda: make_report(tmp_path), lambda: verify(tmp_path, Rules())):
        with pytest.raises(InputError, match=r"run\.json: .*has more than 64 bits"):
            read()


def test_the_limit_is_that_of_the_bytes_read_and_not_of_what_stat_says(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * SMALL)
    assert len(read_content(tmp_path / "x")) == SMALL
    with (tmp_path / "x").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InputError, match="larger than the 4 MiB"):
        read_content(tmp_path / "x")
    assert read_content(Path("/proc/self/status"))  # stat says 0 bytes


def test_nothing_that_steers_a_terminal_is_left() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    kinds = {unicodedata.category(character) for character in plain(every)}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp"}
    assert plain("a\n\x1b[31m\x9b\u202e") == "a\\n\\x1b[31m\\x9b\\u202e"
    assert plain_lines("a\n\x1b") == "a\n\\x1b"
    assert plain_json('"\x9b\u2028"\n') == '"\\u009b\\u2028"\n'
    assert printed_json({"a": "\x9b"}) == '{\n "a": "\\u009b"\n}\n'
    assert short("x" * 1000) == "x" * 300 + "..."
    assert plain("Müller 漢字 – ²") == "Müller 漢字 – ²"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\u0430cme", r"\u0430cme"),
        ("va\u0435_infer of \u0391CME", r"va\u0435_infer of \u0391CME"),
        ("\uff41cme K\u212a", r"\uff41cme K\u212a"),
        ("\u0430\u0441\u043c\u0435 und Müller", "\u0430\u0441\u043c\u0435 und Müller"),
        ("Łódź 5 µs GPUサーバー 1º", "Łódź 5 µs GPUサーバー 1º"),
        ("\ua4eeCME \U0001d68acme", r"\ua4eeCME \U0001d68acme"),  # Lisu, and a letter of mathematics
        ("a\u034fc\xadm\ufe0fe", r"a\u034fc\xadm\ufe0fe"),
        ("k\u03a9 \u03bcs", "k\u03a9 \u03bcs"),
    ],
)
def test_letters_that_look_latin_are_escaped_in_latin_words(name: str, shown: str) -> None:
    assert plain(name) == short(name) == plain(plain(name)) == shown
    assert json.loads(printed_json(name)) == name


def test_files_shipped_are_found_by_name_and_by_no_path() -> None:
    found = find("weights", "standard")
    assert found.name == "standard.json"
    assert {"v100", "rtx8000"} <= {*names("baselines")}
    for name in ("nothing", "../weights/standard", "x" * 300, "", ".", "a\0b", "/etc/passwd"):
        assert name not in names("weights")
        assert find("weights", name) is None


def test_writing_follows_no_link(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "out"
    secret.write_text("kept")
    folder.mkdir()
    (folder / "r.json").symlink_to(secret)
    (folder / ".r.json.tmp").symlink_to(secret)
    write_atomically(folder / "r.json", b"{}")
    assert (secret.read_text(), (folder / "r.json").read_bytes()) == ("kept", b"{}")
    assert not (folder / "r.json").is_symlink()
    assert [path.name for path in folder.iterdir()] == ["r.json"]
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="link"):
        write_atomically(tmp_path / "link" / "r.json", b"no")
    with files.opened_folder(folder) as descriptor:
        (folder / "a.log").symlink_to(secret)
        with pytest.raises(OSError, match="symbolic links"):
            files.open_to_write("a.log", descriptor, os.O_APPEND)


def test_new_files_have_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    for mask in (0o022, 0o077, 0o027):
        before = os.umask(mask)
        try:
            write_atomically(tmp_path / f"{mask}.json", b"{}")
        finally:
            os.umask(before)
        assert (tmp_path / f"{mask}.json").stat().st_mode & 0o777 == 0o666 & ~mask
