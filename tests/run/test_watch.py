"""`mnb watch`: what it reads of a run that goes on, shows again, and keeps up to date for browsers and Prometheus."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from milabench_ng.cli import call
from milabench_ng.records.names import EVENTS, MANIFEST
from milabench_ng.run.events.event_file import LONGEST_PAUSE_S, EventFile, last_session, replayed
from milabench_ng.run.events.run_events import AnyRunEvent, RunEnds, Stamped
from tests.run.test_live_display import BATCH, BUSY, RUN, at_work, ends, rows_of, slices, state, terminal

END = RunEnds(missing=0, failed=1, interrupted=False)


def stamped(events: Sequence[AnyRunEvent], start_s: float = 100.0) -> list[Stamped]:
    """One a second."""
    return [
        Stamped(number=n, utc="2026-11-26T03:00:00Z", time_s=start_s + n, event=event) for n, event in enumerate(events)
    ]


def write(folder: Path, events: Sequence[AnyRunEvent]) -> Path:
    with (folder / EVENTS).open("ab") as file:
        file.writelines(msgspec.json.encode(one) + b"\n" for one in stamped(events))
    return folder


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A run with a batch that ended by itself."""
    return write(tmp_path, (*BUSY, ends("oom", 1), END))


def metrics(file: Path) -> dict[tuple[str, str], float]:
    """By name and device."""
    return {
        (sample.name, sample.labels.get("device", "")): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def test_lines_are_read_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    assert file.read() == ()
    write(tmp_path, (RUN,))
    with (tmp_path / EVENTS).open("ab") as growing:
        growing.write(b'{"number": 1, "ut')
    assert [one.event for one in file.read()] == [RUN]
    assert file.read() == ()
    whole = (tmp_path / EVENTS).read_bytes().rpartition(b"\n")[0] + b"\n"
    (tmp_path / EVENTS).write_bytes(whole)  # as a run that is resumed does
    write(tmp_path, (BATCH,))
    assert [one.event for one in file.read()] == [BATCH]


def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    """Until its orchestrator gives up the lock on the manifest, and what it wrote last is read, too."""
    steps = [(RUN,), (BATCH,), (END,)]
    with (tmp_path / MANIFEST).open("wb") as manifest:
        fcntl.flock(manifest, fcntl.LOCK_EX)

        def rest(_: float) -> None:
            write(tmp_path, steps.pop(0))
            if not steps:
                fcntl.flock(manifest, fcntl.LOCK_UN)

        assert [one.event for one in EventFile(tmp_path).follow(rest)] == [RUN, BATCH, END]


@pytest.mark.timeout(60)
def test_where_no_run_is_nothing_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["watch", str(tmp_path)]) == 2
    assert "no run is active here, and none has left events. Start mnb jobs" in capsys.readouterr().err
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / MANIFEST).touch()
    assert call(["watch", str(tmp_path)]) == 2
    assert f"Name a run in it: {tmp_path / 'first'}" in capsys.readouterr().err
    assert list(EventFile(tmp_path).follow()) == []


def test_a_replay_keeps_the_time_between_events() -> None:
    pauses: list[float] = []
    first, second = stamped((RUN, BATCH)), stamped((RUN, END), start_s=20.0)
    late = [msgspec.structs.replace(second[1], time_s=9e9)]
    assert list(replayed([*first, second[0], *late], 4.0, pauses.append)) == [*first, second[0], *late]
    assert pauses == [0.25, LONGEST_PAUSE_S], "neither a restart of the node nor a night is waited for"
    assert last_session([*first, *second]) == second
    assert last_session(first[1:]) == ()


def test_how_a_session_ended_and_what_to_do_next(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["watch", str(ended)]) == 0
    assert capsys.readouterr().out == f"the run has ended, 1 failed; results: mnb report {ended}\n"
    write(ended, (RUN, BATCH, RunEnds(missing=3, failed=0, interrupted=True)))
    assert call(["watch", str(ended)]) == 0
    assert "was interrupted, 3 launches left; to go on: mnb resume" in capsys.readouterr().out
    waits = RunEnds(missing=3, failed=0, interrupted=False, continues_utc="2026-11-27T03:08:15Z")
    write(ended, (RUN, BATCH, waits))
    assert call(["watch", str(ended), "--speed", "1000"]) == 0
    assert "the next one begins by itself at 2026-11-27 03:08 UTC" in capsys.readouterr().out
    write(ended, (RUN, BATCH))
    assert call(["watch", str(ended)]) == 1
    assert "the session was killed" in capsys.readouterr().out


def test_a_replay_prints_what_the_run_printed(ended: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["watch", str(ended), "--speed", "1e6"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "[6/20] s.vae, run 1, 8 tenants: J1.0 FAILED (oom): too much",
        f"the run has ended, 1 failed; results: mnb report {ended}",
    ]


def test_what_prometheus_is_told(ended: Path, tmp_path: Path) -> None:
    file = tmp_path / "mnb.prom"
    (ended / EVENTS).unlink()
    write(ended, (*BUSY, slices(0, 1000), ends("oom", 1)))
    assert call(["watch", str(ended), "--speed", "1e6", "--prometheus", str(file)]) == 1, "it was killed"
    found = metrics(file)
    assert found["mnb_tenant_items_total", "GPU 0"] == 3000.0
    assert found["mnb_tenant_work_seconds_total", "GPU 0"] == 4.0
    assert found["mnb_tenant_wait_seconds_total", "GPU 1"] == 0.5
    assert found["mnb_run_launch_groups", ""] == 20.0
    assert found["mnb_run_launches_failed", ""] == 1.0
    assert found["mnb_run_in_progress", ""] == 0.0


def test_a_run_that_ended_before_is_told_as_done(ended: Path, tmp_path: Path) -> None:
    file = tmp_path / "mnb.prom"
    assert call(["watch", str(ended), "--prometheus", str(file)]) == 0
    assert metrics(file)["mnb_run_launch_groups_done", ""] == metrics(file)["mnb_run_launch_groups", ""] == 20.0


def test_gauges_have_base_units_and_end_with_the_session(tmp_path: Path) -> None:
    from milabench_ng.run.display.prometheus import PrometheusText
    from milabench_ng.run.display.run_view import RunView

    file = tmp_path / "mnb.prom"
    sink = PrometheusText(file, RunView())
    for one in stamped(BUSY, start_s=0.0):
        sink.receive(msgspec.structs.replace(one, time_s=10.0 * one.number))
    found = metrics(file)
    assert found["mnb_device_utilization_ratio", "GPU 7"] == pytest.approx(0.984)
    assert found["mnb_device_memory_used_bytes", "GPU 0"] == 70112 * 2**20
    assert found["mnb_device_power_watts", "GPU 3"] == 611.6
    assert found["mnb_run_in_progress", ""] == 1.0
    assert found["mnb_run_launch_groups_done", ""] == 5.0
    sink.receive(stamped((END,), start_s=1e3)[0])
    assert metrics(file)["mnb_run_launch_groups_done", ""] == 20.0
    assert ("mnb_device_power_watts", "GPU 3") not in metrics(file)
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    checked = subprocess.run([promtool, "check", "metrics"], input=file.read_bytes(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


def test_the_page_reloads_itself_until_the_end(ended: Path, tmp_path: Path) -> None:
    page = tmp_path / "live.html"
    assert call(["watch", str(ended), "--speed", "1e6", "--html", str(page)]) == 0
    over = page.read_text()
    assert "refresh" not in over
    assert "J1.0 FAILED (oom): too much" in over
    (ended / EVENTS).unlink()
    write(ended, (*BUSY, state(0, "full"), BUSY[-1]))
    assert call(["watch", str(ended), "--speed", "1e6", "--html", str(page)]) == 1
    going_on = page.read_text()
    assert 'content="2"' in going_on
    assert "1,000.0" in going_on


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("nowhere",), "no such folder. Name the result folder of a run"),
        ((".", "--speed", "0"), "--speed: expected a number above 0, got '0'. Try --speed 60"),
        ((".", "--prometheus", "metrics.txt"), "node_exporter reads only names in .prom. Try mnb.prom"),
        ((".", "--html", "run.json"), "files of a run are never overwritten"),
        ((".", "--html", "none/page.html"), "--html none/page.html: the folder none does not exist. Create it"),
    ],
)
def test_mistakes_are_told_at_once(
    options: tuple[str, ...],
    why: str,
    ended: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ended)
    (ended / MANIFEST).touch()
    assert call(["watch", *options]) == 2
    assert why in capsys.readouterr().err


def test_other_lines_than_events_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / EVENTS).write_bytes(b"{}\n")
    assert call(["watch", str(tmp_path)]) == 2
    assert "not the events of a run" in capsys.readouterr().err


def test_a_run_is_watched_from_another_terminal(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with (
        at_work(results) as run,
        terminal(120, 20, [sys.executable, "-m", "milabench_ng", "watch", str(results)]) as other,
    ):
        other.until(lambda: any("window" in row and "samples/s" in row for row in rows_of(other.screen)))
        run.ours.write(b"\x03")
        run.until(lambda: any(row.startswith("details ") for row in rows_of(run.screen)))
        other.until(lambda: any("the session was interrupted, " in row for row in rows_of(other.screen)))
        assert other.process.wait(60) == 0
        assert not other.screen.cursor.hidden
