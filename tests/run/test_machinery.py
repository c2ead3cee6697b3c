"""Faults of what surrounds the tenants: worker server, sampler, watchdog. Provoked for real."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.fence.probing.probe import probe
from milabench_ng.model.errors import MnbError
from milabench_ng.records.ledger import Recorded
from milabench_ng.run.events.run_events import AnyRunEvent, BatchBegins, LaunchState
from milabench_ng.run.execution import worker_server
from milabench_ng.run.execution.announcing import Announcer
from milabench_ng.run.execution.batch import BatchRunner
from milabench_ng.run.execution.environment import worker_environment
from milabench_ng.run.execution.starting import MachineryError
from milabench_ng.run.execution.worker_server import WorkerServer
from tests.run.conftest import AT_WORK, BROKEN, STEADY, Act, Finished, Runner, needs_two_cpus
from tests.run.processes import helper
from tests.run.small_disks import fill, small_disk

SERVER, SAMPLER = "milabench_ng.worker.server", "milabench_ng.telemetry.sampler"

long = pytest.mark.skipif("MNB_TEST_FAULTS" not in os.environ, reason="many seconds: scripts/fault-matrix")


def once(kind: type[AnyRunEvent], act: Act, **fields: object) -> Act:
    """Do something at the first event of a kind with these fields."""
    done: list[AnyRunEvent] = []

    def look(event: AnyRunEvent) -> None:
        if not done and isinstance(event, kind) and all(getattr(event, name) == fields[name] for name in fields):
            done.append(event)
            act(event)

    return look


def send(number: signal.Signals, module: str) -> Act:
    """Signal the run's helper."""
    return lambda _: os.kill(helper(module, os.getpid()), number)


def causes(finished: Finished) -> list[str | None]:
    """Of all attempts, in the order of the ledger."""
    return [event.cause for event in finished.events if isinstance(event, Recorded)]


def details(finished: Finished) -> set[str]:
    """Of what failed."""
    return {record.mnb.failure.detail for record in finished.records if record.mnb.failure}


@pytest.fixture
def run_own(run_profile: Runner) -> Runner:
    """Run a profile with a worker server of its own: it will be lost."""
    return functools.partial(run_profile, own_server=True)


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGKILL, "at work"),
        pytest.param(signal.SIGSTOP, "at work", marks=long),
        pytest.param(signal.SIGSTOP, "before the batch", marks=long),
    ],
)
def test_a_lost_worker_server_is_named_and_replaced(
    run_own: Runner, monkeypatch: pytest.MonkeyPatch, moment: str, number: signal.Signals
) -> None:
    monkeypatch.setattr(worker_server, "SPAWN_S", 2.0)
    lose = send(number, SERVER)
    act = once(LaunchState, lose, state="working") if moment == "at work" else once(BatchBegins, lose)
    finished = run_own(STEADY, act, start="warm", tenants=1)
    assert causes(finished) == ["harness_error", None]
    why = "was killed by SIGKILL" if number == signal.SIGKILL else "2 s"
    assert all("the worker server" in detail and why in detail for detail in details(finished))
    assert [note for note in finished.notes if note.startswith("the worker server") and "restarted" in note]
    edges = sorted(
        (around.time_s, around.machinery_cpu_s)
        for record in finished.records
        for around in record.mnb.surroundings.values()
    )
    used = [cpu_s for _, cpu_s in edges]
    assert used == sorted(used), "a counter that falls breaks R27, for a run that is honest"


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_a_current_folder_that_is_deleted_meanwhile_is_named(
    run_profile: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """By what has to be started in it: every cold worker, and a server that replaces another."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)

    def delete(event: AnyRunEvent) -> None:
        place.rmdir()
        if start == "warm":
            send(signal.SIGKILL, SERVER)(event)

    with pytest.raises(MnbError, match="the current folder was deleted"):
        run_profile(STEADY, once(BatchBegins, delete), own_server=start == "warm", start=start, tenants=1)


def stop_when_there(server: WorkerServer) -> None:
    """Stop a server that begins."""

    def stop() -> None:
        while not server.pids:
            time.sleep(0.01)
        os.kill(server.pids[0], signal.SIGSTOP)

    threading.Thread(target=stop, daemon=True).start()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a server gives up after a second."""
    monkeypatch.setattr(worker_server, "SPAWN_S", 1.0)
    monkeypatch.setattr(worker_server, "CHECK_S", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_is_stopped_while_it_imports_is_named() -> None:
    async def begin() -> None:
        server = WorkerServer(worker_environment(os.environ, {}, ())[0])
        stop_when_there(server)
        try:
            async with asyncio.timeout(120):
                await server._begin()
        finally:
            await server.close()

    with pytest.raises(MachineryError, match=r"did not continue within 1 s: process \d+ is stopped .*importing torch"):
        asyncio.run(begin())


@pytest.mark.usefixtures("impatient")
def test_a_helper_of_the_server_that_is_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that imports a workload, or reads data."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "stops_itself.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")

    async def ask() -> None:
        server = await WorkerServer.launch(worker_environment(os.environ, {}, ())[0])
        try:
            async with asyncio.timeout(120):
                await server.describe(("stops_itself:work",))
        finally:
            await server.close()

    with pytest.raises(MachineryError, match=r"did not continue within 1 s: process \d+ is stopped"):
        asyncio.run(ask())


@long
def test_a_server_that_dies_every_time_ends_the_session_at_last(run_own: Runner) -> None:
    def kill(event: AnyRunEvent) -> None:
        if isinstance(event, LaunchState) and event.state == "working":
            os.kill(helper(SERVER, os.getpid()), signal.SIGKILL)

    with pytest.raises(MnbError, match=r"was killed by SIGKILL.* 4 times"):
        run_own(STEADY, kill, start="warm", tenants=1)


@long
def test_a_signal_ends_a_run_whose_server_is_stopped(run_own: Runner) -> None:
    def stop(event: AnyRunEvent) -> None:
        send(signal.SIGSTOP, SERVER)(event)
        os.kill(os.getpid(), signal.SIGINT)

    finished = run_own(STEADY, once(BatchBegins, stop), start="warm")
    assert finished.outcome.interrupted
    assert set(causes(finished)) <= {"interrupted"}


@pytest.fixture
def narrow() -> Iterator[Path]:
    """A group that holds processes and allows no further one."""
    parent = next((Path(one) for one in probe().parents if Path(one, "pids.max").exists() or "pids" in one), None)
    place = Path(parent or "/", f"mnb-test-{os.getpid()}")
    try:
        place.mkdir()
    except OSError:
        pytest.skip("needs root and the pids controller")
    if not (place / "pids.max").exists():
        place.rmdir()
        pytest.skip("needs the pids controller")
    yield place
    with contextlib.suppress(OSError):
        place.rmdir()


@long
@pytest.mark.root
def test_a_failed_fork_is_named_and_tried_again(run_own: Runner, narrow: Path) -> None:
    begun: list[int] = []

    def limit(event: AnyRunEvent) -> None:
        if isinstance(event, BatchBegins):
            begun.append(event.number)
            (narrow / "cgroup.procs").write_text(str(helper(SERVER, os.getpid())))
            (narrow / "pids.max").write_text("0" if len(begun) == 1 else "max")

    finished = run_own(STEADY, limit, start="warm", tenants=1)
    assert causes(finished) == ["harness_error", None]
    assert details(finished) == {"the worker server cannot fork: Resource temporarily unavailable"}


@long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_sampler_is_a_mark_and_no_more(run_profile: Runner, number: signal.Signals) -> None:
    finished = run_profile(STEADY, once(BatchBegins, send(number, SAMPLER)), tenants=1, repeat=2)
    assert causes(finished) == [None, None]
    said = [mark.text for mark in finished.records[-1].mnb.marks if mark.kind == "telemetry missing"]
    assert said == [
        "no telemetry: the sampler has ended"
        if number == signal.SIGKILL
        else "no telemetry: no sample in the averaging window"
    ]


def test_a_watchdog_that_fails_ends_the_batch_with_its_records(
    run_profile: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Announcer, now: float, start_s: float | None) -> None:  # noqa: ARG001
        if start_s is not None:
            raise RuntimeError("the planned accident")

    monkeypatch.setattr(Announcer, "look", fail)
    with pytest.raises(MnbError, match=r"Its records are written:(.|\n)*the planned accident"):
        run_profile(STEADY, tenants=1, outdir=tmp_path / "results")
    [record] = (tmp_path / "results").glob("*.FAIL.*.json")
    assert "the planned accident" in record.read_text()


@long
def test_a_callback_that_fails_ends_the_batch_with_its_records(
    run_profile: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the planned accident")

    monkeypatch.setattr(BatchRunner, "_verify", fail)
    with pytest.raises(MnbError, match=r"Its records are written:(.|\n)*the planned accident"):
        run_profile(STEADY, tenants=1, outdir=tmp_path / "results")
    assert len(list((tmp_path / "results").glob("*.FAIL.*.json"))) == 1


@pytest.mark.root
def test_a_full_disk_does_not_spare_a_hung_worker(run_profile: Runner, tmp_path: Path) -> None:
    hung = {"hangs": {"workload": f"{BROKEN}:never_ready", "limits": {"ready": 3}}}
    with small_disk(tmp_path, "256k") as disk:

        def act(event: AnyRunEvent) -> None:
            if isinstance(event, LaunchState) and event.state == "starting":
                fill(disk)
            if isinstance(event, LaunchState) and event.state == "ended":
                (disk / "hog").unlink()

        finished = run_profile(hung, act, tenants=1, outdir=disk / "results")
        log = finished.log("hangs")
    assert causes(finished) == ["timeout"]
    assert "its stacks" not in log, "there was no room for them"


@long
@needs_two_cpus
@pytest.mark.root
def test_a_group_that_vanishes_costs_its_own_launch(run_profile: Runner) -> None:
    parents = probe().parents
    if not parents:
        pytest.skip("needs root and groups")
    groups: list[Path] = []

    def vanish(event: AnyRunEvent) -> None:
        assert isinstance(event, LaunchState)
        groups.extend(path for parent in parents for path in Path(parent).glob("mnb/*/b0-d0"))
        for group in groups:
            for pid in (group / "cgroup.procs").read_text().split():
                Path(*group.parts[: group.parts.index("mnb")], "cgroup.procs").write_text(pid)
            group.rmdir()

    act = once(LaunchState, vanish, state="working", job_id="0.0")
    finished = run_profile(STEADY, act, rule=AT_WORK)
    lost, neighbour = finished.records
    assert lost.mnb.failure is not None
    assert (lost.mnb.failure.cause, neighbour.success) == ("isolation_lost", True)
    assert re.search(r"is no longer readable|is in group / of", lost.mnb.failure.detail)


@long
def test_the_user_may_close_or_fill_standard_error(tmp_path: Path) -> None:
    words = ["run", "toy_reg", "-o", "toy.json", "--window", "0.5", "--tenants", "1"]
    root = str(Path(__file__).parents[2])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "milabench_ng", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": root},
            stderr=full,
            check=False,
        )
    assert done.returncode == 0
    assert (tmp_path / "toy.json").exists()
