"""What a user sees of a run on a terminal: computed by hand, and on the screen of a terminal emulator."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

import msgspec
import pyte
import pytest
from rich.console import Console

from milabench_ng.cli.broken_pipe import UNREAD
from milabench_ng.records.ledger import Finished, Interrupted, Recorded
from milabench_ng.records.reading import read_ledger
from milabench_ng.run.display.live_table import ASCII, UNICODE, lines, spark
from milabench_ng.run.display.run_view import REMEMBERED, RunView, seen
from milabench_ng.run.display.terminal import Terminal
from milabench_ng.run.events.run_events import (
    AnyRunEvent,
    BatchBegins,
    BatchProgress,
    Gauges,
    LaunchEnds,
    LaunchSlots,
    LaunchState,
    Note,
    RunBegins,
    Slices,
    Stage,
    Stamped,
)

TENANTS = 8
RUN = RunBegins(
    version="1", run_id="r", session=1, suite="s", batches=20, launches=160, least_s=300.0, settle_s=2.0, window_s=8.0
)
BATCH = BatchBegins(
    number=5,
    of=20,
    label="s.vae",
    run=1,
    launches=tuple(
        LaunchSlots(
            label="s.vae", job_id=f"1.{n}", slots=(str(n),), role="measured", unit="images", devices=(f"GPU {n}",)
        )
        for n in range(TENANTS)
    ),
    takes_s=30.0,
    left_s=125.0,
)
GAUGES = Gauges(utilization_pct=98.4, power_w=611.6, temperature_c=61.0, memory_used_mib=70112.0)


def state(number: int, what: str) -> LaunchState:
    return LaunchState(batch=5, job_id=f"1.{number}", label="s.vae", state=what, pid=1)  # type: ignore[arg-type]


def slices(number: int, count: int) -> Slices:
    return Slices(batch=5, job_id=f"1.{number}", count=count, steps=1, length_s=2.0, wait_s=0.5, slices=(4,))


def progress(working_s: float | None, **gauges: Gauges) -> BatchProgress:
    return BatchProgress(
        number=5,
        launches=TENANTS,
        ready=TENANTS,
        working_s=working_s,
        items_per_s=tuple(1000.0 + number / 2 for number in range(TENANTS)),
        gauges={name.removeprefix("_"): value for name, value in gauges.items()},
    )


def ends(cause: str | None, marks: int, job: str = "1.0") -> LaunchEnds:
    return LaunchEnds(
        batch=5,
        job_id=job,
        label="s.vae",
        role="measured",
        attempt=1,
        file="f.json",
        unit="images",
        perf=None if cause else 12.5,
        cause=cause,  # type: ignore[arg-type]
        detail="too much",
        marks=marks,
    )


def after(*events: AnyRunEvent, time_s: float = 100.0) -> RunView:
    view = RunView()
    for event in events:
        view = seen(view, event, time_s)
    return view


WORKING = (RUN, BATCH, *(state(n, "working") for n in range(TENANTS)))
BUSY = (*WORKING, *(slices(n, 2000 + n) for n in range(TENANTS)), progress(5.0, **{f"_{n}": GAUGES for n in range(8)}))


def test_phases_follow_the_clock_of_the_batch() -> None:
    assert [one.phase for one in after(RUN, BATCH).tenants] == ["waiting"] * TENANTS
    assert after(RUN, BATCH, state(0, "starting")).tenants[0].phase == "starting"
    assert after(*WORKING, progress(1.9)).tenants[0].phase == "settling"
    assert after(*WORKING, progress(2.0)).tenants[0].phase == "window"
    one_full = after(*WORKING, progress(9.0), state(3, "full"))
    assert [one.phase for one in one_full.tenants[2:5]] == ["window", "full", "window"]
    assert after(*WORKING, progress(1.0), state(0, "ended")).tenants[0].phase == "ended"


def test_rates_are_remembered_for_a_minute_and_carried_forward() -> None:
    told = after(*WORKING, *(slices(0, 2 * number) for number in range(REMEMBERED + 3)), progress(60.0), progress(61.0))
    assert told.tenants[0].rates == tuple(float(number) for number in range(3, REMEMBERED + 3))
    assert told.tenants[0].wait_pct == 25.0
    assert told.tenants[1].rates == ()
    assert after(*BUSY, BATCH).tenants[0].rates == (), "another batch is of another test"


def test_the_rate_of_this_moment_is_shown_rather_than_the_last_that_was_told() -> None:
    waits = msgspec.structs.replace(progress(30.0), items_per_s=(12.0,) * TENANTS)
    assert after(*WORKING).tenants[0].rate is None
    assert after(*WORKING, progress(None)).tenants[0].rate is None, "before the common start there is none"
    assert after(*BUSY, waits).tenants[0].rate == 12.0
    assert "12.0" in lines(after(*BUSY, waits), 110.0, 100, 50, UNICODE)[2]


def test_launches_that_failed_or_are_marked_are_counted_over_batches() -> None:
    view = after(RUN, BATCH, ends(None, 0), ends("oom", 2), BATCH, ends("oom", 1, job="1.1"))
    assert lines(view, 100.0, 200, 50, UNICODE)[-1].endswith("2 min 5 s left  2 failed  2 with warnings")
    tried_again = seen(view, ends(None, 0), 100.0)
    assert lines(tried_again, 100.0, 200, 50, UNICODE)[-1].endswith("2 min 5 s left  1 failed  1 with warnings")


@pytest.mark.parametrize(
    ("elapsed_s", "shown"), [(10, "1 min 55 s left"), (30, "1 min 35 s left"), (900, "over 1 min 35 s left")]
)
def test_an_overdue_batch_takes_no_time_from_those_that_follow(elapsed_s: float, shown: str) -> None:
    assert lines(after(*BUSY), 100.0 + elapsed_s, 100, 50, UNICODE)[-1].endswith(f" 5/20  {shown}")
    last = msgspec.structs.replace(BATCH, left_s=30.0)
    assert lines(after(RUN, last), 100.0 + 29.5, 100, 50, UNICODE)[-1].endswith("ending")


def test_the_table_as_it_is_printed() -> None:
    shown = lines(after(*BUSY), 110.0, 100, 50, UNICODE)
    assert shown[0] == "[6/20] s.vae, run 1, 8 tenants"
    assert shown[1] == "device  phase      rate  unit      last minute  wait %  GPU %    W   C     MiB"
    assert shown[2] == "GPU 0   window  1,000.0  images/s  █                25     98  612  61  70,112"
    assert shown[-1] == "batch " + "█" * 10 + "░" * 10 + "  run " + "█" * 5 + "░" * 15 + " 5/20  1 min 55 s left"
    assert len(shown) == 1 + 1 + TENANTS + 1


def test_what_no_device_tells_has_no_column() -> None:
    assert lines(after(*WORKING, slices(0, 2000), progress(5.0)), 100.0, 100, 50, ASCII)[1].split()[-2:] == [
        "wait",
        "%",
    ]


def test_tests_have_a_column_where_a_batch_has_several() -> None:
    other = BATCH.launches[0]
    mixed = BatchBegins(
        number=0,
        of=1,
        label="s.vae",
        run=0,
        launches=(
            other,
            LaunchSlots(label="s.wlm", job_id="0.1", slots=("1", "2"), role="measured", devices=("GPU 1", "GPU 2")),
        ),
        takes_s=1.0,
        left_s=1.0,
    )
    shown = lines(after(RUN, mixed), 100.0, 100, 50, ASCII)
    assert [row.split()[:-1] for row in shown[2:4]] == [
        ["GPU", "0", "s.vae", "waiting", "-"],
        ["GPU", "1", "to", "2", "s.wlm", "waiting", "-"],
    ]


@pytest.mark.parametrize("width", [1, 20, 40, 80, 120, 200])
@pytest.mark.parametrize("height", [1, 5, 24])
def test_no_terminal_is_too_small(width: int, height: int) -> None:
    shown = lines(after(*BUSY), 100.0, width, height, UNICODE)
    assert max(map(len, shown)) <= width
    assert len(shown) <= max(3, height - 1)


def test_the_course_of_rates() -> None:
    assert spark((), UNICODE) == ""
    assert spark((0.0, 0.0), UNICODE) == ""
    assert spark((0.0, 3.5, 7.0), UNICODE) == "▁▅█"  # 3.5 of 7 levels is 3.5, which rounds to the even 4
    assert spark(tuple(float(n // 2) for n in range(30)), ASCII) == "__.---=+++*%%%#"


@dataclass(frozen=True)
class Shown:
    """A command in a terminal."""

    process: subprocess.Popen[bytes]
    screen: pyte.Screen
    ours: io.FileIO
    """Our side of the terminal; closing it hangs up."""
    until: Callable[[Callable[[], bool]], None]
    """Waits for what is on the screen."""


@contextmanager
def terminal(columns: int, rows: int, command: list[str]) -> Iterator[Shown]:
    """A command in a terminal of this size."""
    number, theirs = pty.openpty()
    ours = io.FileIO(number, "r+")
    quiet = termios.tcgetattr(theirs)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, quiet)
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # readline sets them
    environment = {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        start_new_session=True,
    )
    os.close(theirs)

    def until(condition: Callable[[], bool]) -> None:
        while not condition():
            assert select.select([ours], [], [], 120.0)[0], "\n".join(screen.display)
            try:
                stream.feed(ours.read(65536) or b"")
            except OSError:  # EIO: the other side is closed
                assert condition(), "\n".join(screen.display)

    try:
        yield Shown(process, screen, ours, until)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ours.close()


SHOW = """
import sys
sys.path.insert(0, "")
from rich.console import Console
from milabench_ng.run.display.terminal import Terminal
from milabench_ng.run.events.run_events import Stamped
from tests.run.test_live_display import BUSY, NOTE
shown = Terminal(Console(stderr=True))
number = 0
def tell(*events):
    global number
    for event in events:
        number += 1
        shown.receive(Stamped(number=number, utc="", time_s=100.0 + 2 * number, event=event))
tell(*BUSY, NOTE)
for line in sys.stdin:
    if line.startswith("end"):
        break
    tell(BUSY[-1])
shown.close()
print("over")
"""
NOTE = Note(text="a note that stays")


def rows_of(screen: pyte.Screen) -> list[str]:
    return [row.rstrip() for row in screen.display if row.strip()]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_on_the_screen_of_a_terminal(columns: int) -> None:
    with terminal(columns, 24, [sys.executable, "-c", SHOW]) as shown:
        screen, ours, until = shown.screen, shown.ours, shown.until
        until(lambda: "a note that stays" in rows_of(screen) and rows_of(screen)[-1].startswith("batch"))
        expected = lines(after(*BUSY), 100.0, columns, 24, UNICODE)
        assert rows_of(screen)[-len(expected) : -1] == expected[:-1]
        assert screen.cursor.hidden
        ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        screen.resize(24, 40)
        ours.write(b"again\n")
        narrow = lines(after(*BUSY), 100.0, 40, 24, UNICODE)
        until(lambda: narrow[1] in rows_of(screen))
        ours.write(b"end\n")
        until(lambda: "over" in rows_of(screen))
        assert not screen.cursor.hidden
        assert narrow[1] not in rows_of(screen), "the display is gone"


def test_a_terminal_without_unicode_gets_other_characters() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown = Terminal(Console(file=file, force_terminal=True, width=100, height=30, color_system=None))
    events = (Stage(text="importing"), *BUSY)
    for number, event in enumerate(events):
        shown.receive(Stamped(number=number, utc="", time_s=2.0 * number, event=event))
    shown.close()
    file.flush()
    assert "batch ##########.........." in file.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]


TOY = ("jobs", "quick", "--name", "toy_reg", "--window", "60", "--tenants", "1", "-o")


@contextmanager
def at_work(results: Path) -> Iterator[Shown]:
    """A run in a terminal, in the middle of its window."""
    with terminal(100, 30, [sys.executable, "-m", "milabench_ng", *TOY, str(results)]) as shown:
        shown.until(lambda: any("window" in row and "samples/s" in row for row in rows_of(shown.screen)))
        yield shown


def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with at_work(tmp_path / "results") as shown:
        shown.ours.write(b"\x03")
        shown.until(lambda: any(row.startswith("details ") for row in rows_of(shown.screen)))
        assert not shown.screen.cursor.hidden
        assert not any(row.startswith("batch ") for row in rows_of(shown.screen))


def test_a_terminal_that_hangs_up_ends_the_run(tmp_path: Path) -> None:
    """What cannot be told on a closed terminal is not told, and all else is done."""
    with at_work(tmp_path / "results") as shown:
        shown.ours.close()
        assert shown.process.wait(120) == UNREAD
    events = read_ledger(tmp_path / "results").events
    assert [event.cause for event in events if isinstance(event, Recorded)] == ["interrupted"]
    assert any(isinstance(event, Interrupted) for event in events)
    assert isinstance(events[-1], Finished)
