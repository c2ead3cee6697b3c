"""The sampler process, for real: orders in, samples out, and every way in which it ends."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from milabench_ng.telemetry.messages import AnyReport, Dropped, Sample, Supported, Watch, encode
from milabench_ng.telemetry.sampler import ReportWriter, next_tick, portions
from milabench_ng.worker.requests import python_command

F_SETPIPE_SZ = 1031
END_S = 10
COMMAND = python_command({}, "milabench_ng.telemetry.sampler", "--interval", "0.02")


def start(stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(COMMAND, stdin=stdin, stdout=subprocess.PIPE)


@pytest.fixture
def sampler() -> Iterator[subprocess.Popen[bytes]]:
    process = start()
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def decode_report(line: bytes) -> AnyReport:
    report: AnyReport = msgspec.json.decode(line, type=AnyReport)
    return report


def next_report(process: subprocess.Popen[bytes]) -> AnyReport:
    assert process.stdout is not None
    return decode_report(process.stdout.readline())


def next_sample(process: subprocess.Popen[bytes], source: str) -> Sample:
    """The next sample of a source; the test's time limit is the only clock."""
    while True:
        report = next_report(process)
        if isinstance(report, Sample) and report.source == source:
            return report


def tell(process: subprocess.Popen[bytes], *orders: Watch) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(encode(order) for order in orders))
    process.stdin.flush()


@pytest.mark.timeout(20)
def test_a_session(sampler: subprocess.Popen[bytes], tmp_path: Path) -> None:
    supported = next_report(sampler)
    assert isinstance(supported, Supported)
    assert (supported.interval_s, supported.keys["host"], supported.keys["tenant"]) == (0.02, ("node",), ())
    assert supported.keys["gpu"] or supported.notes

    stat = tmp_path / "memory.stat"
    stat.write_text("anon 1048576\nfile 0\nshmem 0\n")
    tell(sampler, Watch(key="0.1", memory_stat=str(stat)), Watch(key="gone", memory_stat=str(tmp_path / "x")))
    first = next_sample(sampler, "tenant")
    assert (first.key, first.values) == ("0.1", {"anon_mib": 1.0, "shmem_mib": 0.0, "file_mib": 0.0})

    host = [next_sample(sampler, "host") for _ in range(3)]
    assert host[0].time_s < host[1].time_s < host[2].time_s
    assert {"memory_available_mib", "load_1min"} <= host[2].values.keys()

    tell(sampler, Watch(key="0.2", memory_stat=str(stat)))
    while next_sample(sampler, "tenant").key != "0.2":
        pass
    assert {next_sample(sampler, "tenant").key for _ in range(2)} == {"0.1", "0.2"}

    assert sampler.stdin is not None
    sampler.stdin.close()
    assert sampler.wait(END_S) == 0


@pytest.mark.timeout(20)
def test_it_lives_through_ctrl_c_and_ends_on_sigterm(sampler: subprocess.Popen[bytes]) -> None:
    next_sample(sampler, "host")
    sampler.send_signal(signal.SIGINT)
    for _ in range(3):
        next_sample(sampler, "host")
    sampler.terminate()
    assert sampler.wait(END_S) == 0


@pytest.mark.timeout(20)
def test_a_sigterm_while_the_interpreter_ends_leaves_no_traceback() -> None:
    code = (
        "import atexit, os, signal; from milabench_ng.telemetry.sampler import end_with_parent; end_with_parent();"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.timeout(20)
def test_it_ends_when_nobody_reads_any_more(sampler: subprocess.Popen[bytes]) -> None:
    next_sample(sampler, "host")
    assert sampler.stdout is not None
    sampler.stdout.close()
    assert sampler.wait(END_S) == 0


@pytest.mark.timeout(20)
def test_it_dies_with_its_parent_even_while_its_stdin_stays_open() -> None:
    """The parent is killed; the test holds both ends of stdin, so that only the death of the parent can end it."""
    orders, told = os.pipe()
    script = f"import subprocess, time; subprocess.Popen({COMMAND!r}, stdin=0); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=orders, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert isinstance(decode_report(parent.stdout.readline()), Supported)
    parent.kill()
    parent.wait()
    # Ends only when the sampler, the other one that has this pipe, is gone.
    parent.stdout.read()
    parent.stdout.close()
    os.close(orders)
    os.close(told)


def test_a_full_pipe_drops_samples_and_says_how_many() -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, F_SETPIPE_SZ, 8192)
    writer = ReportWriter(writing)
    for number in range(100):
        writer.write([Sample(time_s=float(number), source="host", key="node", values={"load_1min": 1.0, "x": 2.0})])
    come = [decode_report(line) for line in os.read(reading, 1 << 16).splitlines()]
    assert 0 < len(come) < 100
    assert [report.time_s for report in come] == [float(number) for number in range(len(come))]

    writer.write([Sample(time_s=100.0, source="host", key="node", values={})])
    told = [decode_report(line) for line in os.read(reading, 1 << 16).splitlines()]
    assert told[0] == Dropped(time_s=100.0, since_s=float(len(come)), count=100 - len(come))
    assert told[1:] == [Sample(time_s=100.0, source="host", key="node", values={})]
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("due", "now", "tick"), [(10.0, 10.1, 10.5), (10.0, 10.4, 10.5), (10.0, 11.2, 11.5), (10.0, 9.9, 10.5)]
)
def test_a_late_read_skips_ticks_and_does_not_shift_them(due: float, now: float, tick: float) -> None:
    assert next_tick(due, now, 0.5) == pytest.approx(tick)


def test_it_starts_without_torch_numpy_and_rich() -> None:
    script = (
        "import sys, milabench_ng.telemetry.sampler;"
        "heavy = {'torch', 'numpy', 'rich', 'cyclopts'} & sys.modules.keys(); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_reports_of_a_moment_share_writes_that_a_pipe_always_takes_whole() -> None:
    values = {f"value_{number}": 1.0 for number in range(40)}
    reports = [Sample(time_s=float(number), source="gpu", key="GPU-0", values=values) for number in range(20)]
    shared = list(portions(reports))
    assert 1 < len(shared) < len(reports)
    assert all(len(b"".join(lines)) <= select.PIPE_BUF for _, lines in shared)
    assert [decode_report(line) for _, lines in shared for line in lines] == reports
    assert [time_s for time_s, _ in shared] == [decode_report(lines[0]).time_s for _, lines in shared]
    assert list(portions([])) == []


def test_what_a_library_prints_is_not_among_the_reports() -> None:
    source = (
        "import os; from milabench_ng.telemetry.sampler import own_stdout; reports = own_stdout();"
        "os.write(1, b'noise'); print('more', flush=True); os.write(reports, b'a report')"
    )
    said = subprocess.run([sys.executable, "-c", source], capture_output=True, check=True)
    assert (said.stdout, said.stderr) == (b"a report", b"noisemore\n")
