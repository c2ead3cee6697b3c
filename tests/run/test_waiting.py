"""Waits that end, whatever becomes of what is waited for: processes, pipes and drivers of these tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milabench_ng.fence.kernel.processes import Family, identify
from milabench_ng.fence.killing import send
from milabench_ng.model.events import Entered, Loss, Slice, encode
from milabench_ng.node.drivers.nvml import driver as nvml_driver
from milabench_ng.node.drivers.nvml.session import Session
from milabench_ng.node.drivers.opening import Drivers
from milabench_ng.node.gpus import Gpu
from milabench_ng.run import batches
from milabench_ng.run.events.run_events import AnyRunEvent, BatchBegins
from milabench_ng.run.execution import node_reader, sampling
from milabench_ng.run.execution.node_reader import NodeReader
from milabench_ng.run.execution.sampling import Sampler
from milabench_ng.run.execution.scratch import make_locked, remove_dead
from milabench_ng.run.execution.stacks import STACKS, dump_stacks
from milabench_ng.run.execution.starting import MachineryError
from milabench_ng.run.execution.tenant import Tenant
from milabench_ng.run.execution.waiting import told
from milabench_ng.run.planning.planned_run import huge_pages
from milabench_ng.telemetry.messages import Watch
from tests.run.conftest import Runner

GPU = Gpu(index=0, uuid="GPU-0", name="a", pci_bus_id="0000:00:00.0", numa_node=None, memory_bytes=1)


class HungDriver:
    """A module like pynvml whose every call waits for ever."""

    NVMLError = OSError

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *_: threading.Event().wait()


def test_a_driver_that_hangs_costs_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_reader, "ANSWER_S", 0.2)
    monkeypatch.setattr(nvml_driver, "XidEvents", lambda *_: SimpleNamespace(drain=threading.Event().wait))

    async def read() -> None:
        reader = NodeReader(Drivers(nvml_driver.Nvml(Session(HungDriver()))), (GPU,))
        seen = await reader.conditions(())
        assert (seen.gpus, list(seen.errors)) == ({}, ["driver"])
        assert "is not queried again" in seen.errors["driver"]
        threads = threading.active_count()
        assert await reader.xids() == {}
        assert threading.active_count() == threads

    asyncio.run(read())


def test_a_signal_ends_a_step_that_takes_a_minute(run_profile: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(batches, "_page_cache", lambda *_: over.wait(600))

    def interrupt(event: AnyRunEvent) -> None:
        if isinstance(event, BatchBegins):
            os.kill(os.getpid(), signal.SIGTERM)

    finished = run_profile({"toy_reg": {"workload": "toy_reg"}}, interrupt, tenants=1)
    over.set()
    assert finished.outcome.interrupted
    assert not finished.records
    assert any("interrupted (SIGTERM)" in note for note in finished.notes)


def test_a_stopped_sampler_holds_up_neither_an_order_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "CLOSE_S", 0.1)

    async def stop() -> str:
        sampler = Sampler({}, ())
        os.kill(sampler.pid, signal.SIGSTOP)
        while not sampler.problem:
            sampler.tell(Watch(key="0" * 4000))
        await sampler.close()
        return sampler.problem

    assert asyncio.run(stop()) == "the sampler takes no orders"


def tenant_of(pipe: int) -> Any:
    """A launch whose worker writes into a pipe."""
    launch = SimpleNamespace(slot_ids=("0",))
    tenant = Tenant(launch, SimpleNamespace(seats=(None,)), {}, None)  # type: ignore[arg-type]
    tenant._events = pipe
    return tenant


def test_one_turn_hears_one_chunk_and_only_a_slice_is_a_sign_of_life() -> None:
    async def hear() -> None:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        tenant = tenant_of(reading)
        tenant.heard_s = 0.0
        line = encode(Loss(rank=0, step=1, value=1.0))
        for _ in range(60_000 // len(line)):
            os.write(writing, line)
        assert not tenant._receive()
        assert tenant.heard_s == 0.0
        os.write(writing, encode(Slice(rank=0, start_s=1.0, length_s=0.5, count=1, steps=1, wait_s=0.0)))
        tenant.drain()
        assert tenant.heard_s > 0.0
        os.close(writing)

    asyncio.run(hear())


def test_a_rank_enters_once() -> None:
    async def hear() -> str:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        tenant = tenant_of(reading)
        tenant._on_entered = lambda *_: None
        for _ in range(2):
            os.write(writing, encode(Entered(rank=0, pid=os.getpid(), torch_threads=1)))
        tenant.drain()
        os.close(writing)
        return tenant.broken_protocol

    assert asyncio.run(hear()) == "the worker wrote something that is no event: rank 0 has entered already"


def test_a_tenant_that_was_never_started_can_be_abandoned() -> None:
    async def abandon() -> None:
        tenant = tenant_of(-1)
        tenant.abandon()
        assert tenant.ended.result() is None

    asyncio.run(abandon())


def test_stacks_are_bounded_in_number(tmp_path: Path) -> None:
    program = "import faulthandler as f, signal as s; f.register(s.SIGUSR1, file=1); print(flush=True); s.pause()"
    with (tmp_path / "log").open("wb") as log:
        one = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert one.stdout
        one.stdout.readline()
        process = identify(one.pid)
        assert process
        asyncio.run(dump_stacks([one.pid] * 300, Family(process), log.fileno()))
    one.kill()
    one.wait()
    text = (tmp_path / "log").read_text()
    assert text.count("stacks of process") == STACKS
    assert f"and {300 - STACKS} more processes" in text


def test_only_what_is_still_a_member_is_killed() -> None:
    ours, others = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    proof = SimpleNamespace(proved=lambda _: {ours.pid})  # the second pid was given to somebody else in between
    assert send(signal.SIGKILL, [ours.pid, others.pid], proof) == {ours.pid}
    assert ours.wait() == -signal.SIGKILL
    assert others.poll() is None
    others.kill()
    others.wait()


def test_a_scratch_folder_is_never_taken_from_a_run_that_begins(tmp_path: Path) -> None:
    """Runs begin and clean at the same time; whoever has made its folder has it."""
    over = threading.Event()

    def clean() -> None:
        while not over.is_set():
            for left in tmp_path.iterdir():
                try:
                    remove_dead(left)
                except OSError:
                    continue

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    locks = []
    for number in range(300):
        locks.append(make_locked(tmp_path / str(number)))
        assert (tmp_path / str(number)).is_dir()
    over.set()
    cleaner.join()
    assert len(list(tmp_path.iterdir())) == 300
    for lock in locks:
        os.close(lock)


def test_huge_pages_that_no_limit_counts_are_named() -> None:
    assert huge_pages({"HugePages_Total": 0, "Hugepagesize": 2 << 20}) == ()
    [note] = huge_pages({"HugePages_Total": 512, "Hugepagesize": 2 << 20})
    assert note.startswith("512 huge pages (1.0 GiB) are reserved")


def test_a_launch_that_can_never_be_started_ends_the_session() -> None:
    """Each failed fork is tried again; all of them would be for ever."""
    failure = SimpleNamespace(cause="harness_error", detail="no process can be forked")
    record: Any = SimpleNamespace(job_id="0.0", mnb=SimpleNamespace(label="s.a", failure=failure))
    other: Any = SimpleNamespace(job_id="0.1", mnb=SimpleNamespace(label="s.a", failure=None))
    unable: Counter[str] = Counter()
    for _ in range(3):
        batches.check_harness([record, other], unable)
    with pytest.raises(MachineryError, match=r"s.a J0.0: no process can be forked, 4 times. Continue with mnb resume"):
        batches.check_harness([record, other], unable)


def test_a_group_of_failed_tasks_is_told_in_one_line() -> None:
    inner = ExceptionGroup("inner", [OSError("no device"), ValueError("odd")])
    assert told(ExceptionGroup("outer", [inner, OSError("no device")])) == "OSError: no device; ValueError: odd"
