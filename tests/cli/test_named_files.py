"""The files that a command line names are looked at before a command begins: here, what it reads would be refused too,
but only by the command itself."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from cyclopts import App

from milabench_ng.cli import app, call
from milabench_ng.cli.named_files import Reads, Writes
from milabench_ng.model.shipped import bundle_file, find, profile_file
from milabench_ng.verification.rules_file import load_rules

READ_LATER = "nothing-here"
"""No command finds it: all look at their other files before."""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP8 acme"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "folder").mkdir()
    (tmp_path / "key.pub").write_text(KEY)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


@pytest.mark.parametrize("option", ["--output", "--html"])
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("old.txt", "the file exists. Name another one, or pass --force"),
        ("folder", "this is a folder. Name a file"),
        ("run.json", "files of a run are never overwritten. Name another file"),
        ("no/x.txt", "the folder no does not exist. Create it, or name another file"),
        ("/proc/x.txt", "/proc is not writable (it takes no files). Name another file"),
    ],
)
@pytest.mark.parametrize("command", ["report", "bids"])
@pytest.mark.usefixtures("place")
def test_a_file_that_cannot_be_written(
    command: str, option: str, target: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([command, READ_LATER, option, target]) == 2
    assert capsys.readouterr().err == f"mnb: {option} {target}: {why}\n"


@pytest.mark.parametrize("command", [["summary"], ["baseline", "build"], ["verify"], ["bundle"]])
def test_each_command_that_writes_a_file(command: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*command, READ_LATER, "-o", "old.txt"]) == 2
    assert capsys.readouterr().err == "mnb: --output old.txt: the file exists. Name another one, or pass --force\n"
    assert call([*command, READ_LATER, "-o", "old.txt", "--force"]) == 2
    assert READ_LATER in capsys.readouterr().err
    assert (place / "old.txt").read_text() == "old"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--weights", "no.json"], "--weights no.json: no such file. It should hold weights by test, in JSON"),
        (["--rules", "no.json"], "--rules no.json: no such file. Shipped rules: procurement"),
        (["--rules", "procurment"], "--rules procurment: no such file (did you mean 'procurement'?)"),
        (["--allowed-signers", "no.txt"], "--allowed-signers no.txt: no such file. It should hold the vendors'"),
        (["--allowed-signers", "empty.txt"], "--allowed-signers empty.txt: no line has a name and a key. Expected"),
        (["--allowed-signers", "key.pub"], "--allowed-signers key.pub: no line has a name and a key. Expected lines"),
        (["--tsa-certs", "no.pem"], "--tsa-certs no.pem: no such file. It should hold certificates (PEM)"),
        (["--tsa-certs", "folder"], "--tsa-certs folder: a folder, not a file. It should hold certificates (PEM)"),
    ],
)
@pytest.mark.parametrize("command", [["report"], ["verify"], ["accept", "v100"]])
@pytest.mark.usefixtures("place")
def test_a_file_that_cannot_be_meant(
    command: list[str], asked: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*command, str(bundle_file("standard-2xH200-20261122")), *asked]) == 2
    assert capsys.readouterr().err.startswith(f"mnb: {why}")


def test_signers_are_a_name_and_a_key_in_any_of_their_forms(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (f"acme@example.org {KEY}", f'# vendors\n"a b" namespaces="mnb" {KEY}', f"*@acme cert-authority {KEY}"):
        (place / "signers.txt").write_text(line)
        assert call(["verify", READ_LATER, "--allowed-signers", "signers.txt"]) == 2
        assert capsys.readouterr().err.startswith(f"mnb: {READ_LATER}: ")


@pytest.mark.usefixtures("place")
def test_results_to_compare_with(capsys: pytest.CaptureFixture[str]) -> None:
    for command, option in (
        (["report", READ_LATER, "--compare", "v1000"], "--compare "),
        (["accept", READ_LATER, "v1000"], ""),
        (["check", "--baseline", "v1000"], "--baseline "),
    ):
        assert call(command) == 2
        said = capsys.readouterr().err
        first = READ_LATER if command[0] == "accept" else "v1000"
        assert said.startswith(f"mnb: {option}{first}: no such file or folder, and no shipped baseline has that name")


@pytest.mark.usefixtures("place")
def test_two_outputs_are_two_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", READ_LATER, "--html", "new", "-o", "./new"]) == 2
    assert capsys.readouterr().err == "mnb: --html new --output new: the same file. Name two files\n"


def test_tables_go_into_a_folder(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", READ_LATER, "--tables", "old.txt"]) == 2
    assert capsys.readouterr().err == ("mnb: --tables old.txt: this is not a folder. Name another one\n")
    assert call(["report", READ_LATER, "--tables", "new/tables"]) == 2
    assert READ_LATER in capsys.readouterr().err
    assert not (place / "new").exists()


def test_a_full_disk(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    before = sorted(os.listdir(place))
    for command in (["report", READ_LATER, "-o", "new"], ["jobs", "quick", "-o", "new"]):
        assert call(command) == 2
        said = capsys.readouterr().err
        assert f"new: {place} is not writable (No space left on device). Name another f" in said
    assert sorted(os.listdir(place)) == before


OF_FILES = {"output", "html", "tables", "weights", "rules", "allowed_signers", "tsa_certs", "groups", "sign"}


def test_results_that_bear_the_name_of_a_shipped_file_do_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "standard").mkdir()
    assert profile_file(Path("standard")) == find("profiles", "standard")
    assert load_rules("standard").name == "standard"


OF_RUNS = {"jobs", "run", "rerun", "check", "watch", "fleet"}
"""Their output is a result folder, or a page that is written again and again."""


def commands(parent: App, chain: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    """All commands below an app, with their names."""
    for name in parent:
        if name.startswith("-"):
            continue
        command = parent[name]
        if command.default_command is None:
            yield from commands(command, (*chain, name))
        else:
            yield (*chain, name), command.default_command


def test_every_command_says_which_files_it_names() -> None:
    for chain, function in commands(app):
        if chain[0] in OF_RUNS or not function.__module__.startswith("milabench_ng."):
            continue
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            if name in OF_FILES:
                assert any(isinstance(one, Reads | Writes) for one in get_args(parameter.annotation)), (chain, name)
