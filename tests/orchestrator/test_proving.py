"""What real runs read of their code and data, and what verification makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench_ng.errors import InputError
from milabench_ng.orchestrator.events.run_events import AnyRunEvent, LaunchEnds
from milabench_ng.records.ledger import CodeSeen, DataSeen
from milabench_ng.report.verification.rules import Rules
from milabench_ng.report.verification.verify import verify
from milabench_ng.sources import package_digests
from tests.orchestrator.conftest import Act, Finished, Runner

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
    assert any("after the work" in note and "prove nothing" in note for note in finished.notes)
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
        "imagenet was not compared with its checksum (--trust-data)"
    ]
    assert reasons(finished.folder, "R19") == ()
