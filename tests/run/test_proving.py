"""What real runs read of their code and data, and what verification makes of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.sources import package_digests
from milabench_ng.node.edge import Edge
from milabench_ng.records.ledger import CodeSeen, DataSeen
from milabench_ng.records.proof import CodeProof, WheelCheck
from milabench_ng.run import proving
from milabench_ng.run.events.run_events import AnyRunEvent, LaunchEnds
from milabench_ng.run.execution.libraries import LOOKED_AT
from milabench_ng.run.proving import checked_out
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify
from tests.run.conftest import Act, Finished, Runner

PACKAGE = Path(__file__).parents[2] / "milabench_ng"
LOADS = {"loads": {"workload": "loader", "data_scale": 0.0005, "arguments": {"batch_size": 4, "workers": 1}}}


def reasons(folder: Path, rule: str) -> tuple[str, ...]:
    return next(one.reasons for one in verify(folder, Rules()).rulings if one.id == rule)


def picture(root: Path) -> Path:
    return min(root.rglob("train/*/*.*"))


def edges(finished: Finished, kind: type[CodeSeen | DataSeen]) -> list[str]:
    return [event.edge for event in finished.events if isinstance(event, kind)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data root of these tests alone."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def honest(run_profile: Runner, root: Path) -> Finished:
    return run_profile(LOADS, tenants=1, dataroot=root)


def test_an_honest_run_says_what_it_ran_and_read(honest: Finished) -> None:
    assert edges(honest, CodeSeen) == edges(honest, DataSeen) == ["before", "after"]
    before, after = (event.code for event in honest.events if isinstance(event, CodeSeen))
    assert before.package == after.package == package_digests(PACKAGE)
    assert (before.elsewhere, after.elsewhere, before.wheels) == ((), (), {})
    assert [wheel.differing for wheel in after.wheels.values() if wheel] == [()]
    (checksum,) = {event.data.checksum for event in honest.events if isinstance(event, DataSeen)}
    assert honest.records[0].mnb.data is not None
    assert honest.records[0].mnb.data.checksum == checksum
    assert any("before the work: imagenet" in note for note in honest.notes)
    assert reasons(honest.folder, "R19") == ()


def test_a_changed_library_is_told_before_the_work_and_proves_nothing() -> None:
    wheel = WheelCheck(version="2.0", folder="/site", sha256="0" * 64, files=1, differing=("/site/torch/x.py",))
    seen = CodeProof(
        package={}, elsewhere=(), wheels={"torch": wheel}, base="/usr", prefix="/usr", folder="/x", seconds=1.0
    )
    asked: list[object] = []
    told: list[str] = []

    class Server:
        async def ready(self) -> None: ...

        async def inspect(self, _: object, largest: object) -> CodeProof:
            asked.append(largest)
            return seen

    def events(edge: Edge) -> Any:
        return asyncio.run(proving.prove(edge, SimpleNamespace(trust_data=True), (), Server(), told.append))  # type: ignore[arg-type]

    (before,), (after,) = events("before"), events("after")
    assert (before.code.wheels, after.code.wheels) == ({}, {"torch": wheel})
    assert asked == [LOOKED_AT, None]
    changed = [text for text in told if text.startswith("torch 2.0 was changed after installation (/site/torch/x.py)")]
    assert len(changed) == 2


def git(place: Path, *arguments: str) -> str:
    """What git says, whatever this user's configuration."""
    own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *own, "-C", str(place), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def committed(place: Path, subject: str) -> str:
    """The commit of a new repository."""
    git(place.parent, "init", place.name)
    git(place, "commit", "--allow-empty", "-m", subject)
    return git(place, "rev-parse", "HEAD")


def test_a_checkout_names_its_commit_and_an_installation_none(tmp_path: Path) -> None:
    assert checked_out(tmp_path) is None
    commit = committed(tmp_path / "own", "first")
    assert checked_out(tmp_path / "own") == commit
    git(tmp_path / "own", "worktree", "add", str(tmp_path / "beside"))
    assert checked_out(tmp_path / "beside") == commit


def test_no_variable_and_no_other_repository_leads_git_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    commit, _ = committed(own, "own"), committed(other, "other")
    for name, value in (("DIR", other / ".git"), ("COMMON_DIR", other / ".git"), ("WORK_TREE", other)):
        monkeypatch.setenv(f"GIT_{name}", str(value))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "none"))
    assert checked_out(own) == commit
    (own / "inside" / ".git").mkdir(parents=True)
    with pytest.raises(MnbError, match="not a git repository"):
        checked_out(own / "inside")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_checkout_of_somebody_else_names_its_commit_too(tmp_path: Path) -> None:
    commit = committed(tmp_path / "own", "first")
    for path in (tmp_path / "own", *(tmp_path / "own").rglob("*")):
        os.chown(path, 65534, 65534)
    assert checked_out(tmp_path / "own") == commit


@pytest.mark.parametrize(
    ("program", "said"),
    [("echo nothing", "git: exit status 0"), ("echo >&2 broken; exit 3", "git: broken"), ("sleep 600", "timed out")],
)
def test_a_git_that_does_not_tell_says_why(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "git").write_text(f"#!/bin/sh\nexec /bin/sh -c '{program.replace('sleep', 'exec sleep')}'\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(proving, "GIT_S", 0.1 if "sleep" in program else 60.0)
    with pytest.raises(MnbError, match=said):
        checked_out(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(MnbError, match="git is not installed"):
        checked_out(tmp_path)


@pytest.mark.slow  # starts git in a thread, where nothing tells the quick tests to skip it
def test_a_run_says_why_its_commit_is_unknown_and_waits_for_no_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    (tmp_path / ".git").mkdir()
    assert asyncio.run(proving.known_commit(tmp_path, told.append)) is None
    hangs = threading.Event()
    monkeypatch.setattr(proving, "GIT_S", 0.01)
    monkeypatch.setattr(proving, "checked_out", lambda _: hangs.wait(600))
    assert asyncio.run(proving.known_commit(tmp_path, told.append)) is None
    hangs.set()
    first, second = (one.removeprefix(f"the commit of the checkout in {tmp_path} is unknown: ") for one in told)
    assert (first.startswith("git: fatal: not a git repository"), second) == (True, "git hangs")


def test_data_that_is_damaged_is_not_begun_with(
    honest: Finished, run_profile: Runner, root: Path, tmp_path: Path
) -> None:
    assert honest.outcome.failed == 0
    victim = picture(root)
    content = victim.read_bytes()
    victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=rf"differs from its checksum: .*{victim.name}"):
        run_profile(LOADS, tenants=1, dataroot=root, outdir=tmp_path / "results")
    assert not (tmp_path / "results" / "run.json").exists()
    victim.write_bytes(content)


def spoil(root: Path) -> Act:
    """Change a picture once the launch is over."""

    def act(event: AnyRunEvent) -> None:
        if isinstance(event, LaunchEnds):
            with picture(root).open("ab") as file:
                file.write(b"!")

    return act


def test_data_that_changes_during_the_work_is_told_and_found(run_profile: Runner, tmp_path: Path) -> None:
    finished = run_profile(LOADS, spoil(tmp_path), tenants=1, dataroot=tmp_path)
    assert any("after the work" in note and "cannot be verified" in note for note in finished.notes)
    assert finished.outcome.failed == 0
    found = "\n".join(reasons(finished.folder, "R19"))
    assert "imagenet was damaged after the work" in found
    assert "files of imagenet were changed during the work" in found


def test_trusted_data_is_not_read_and_marked(honest: Finished, run_profile: Runner, root: Path) -> None:
    assert honest.outcome.failed == 0
    finished = run_profile(LOADS, tenants=1, dataroot=root, trust_data=True)
    assert edges(finished, CodeSeen) == ["before", "after"]
    assert edges(finished, DataSeen) == []
    assert [mark.text for mark in finished.records[0].mnb.marks if mark.kind == "data not read again"] == [
        "imagenet was not checked against its checksum (--skip-data-check)"
    ]
    assert reasons(finished.folder, "R19") == ()
