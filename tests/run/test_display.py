"""What a user reads of a run in a file or a pipe."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from milabench_ng.run.display.lines import PlainLines
from milabench_ng.run.display.wording import said
from milabench_ng.run.events.bus import Sink
from milabench_ng.run.events.run_events import (
    AnyRunEvent,
    BatchBegins,
    BatchProgress,
    LaunchEnds,
    LaunchSlots,
    Note,
    Preparing,
    Stage,
    Stamped,
)
from milabench_ng.worker.requests import DataProgress, Prepared, ReadyDataset

PLACE = ReadyDataset(name="imagenet", kind="twin", scale=1.0, path="/data/ImageNet", checksum=None, files=1, bytes=1)
BATCH = BatchBegins(
    number=2,
    of=20,
    label="standard.vae",
    run=1,
    launches=(
        LaunchSlots(label="standard.vae", job_id="1.0", slots=("0",), role="measured"),
        LaunchSlots(label="standard.vae", job_id="1.1", slots=("1",), role="measured"),
    ),
    takes_s=60.0,
    left_s=60.0,
)
WAITING = BatchProgress(number=2, launches=2, ready=1, working_s=None, items_per_s=(0.0, 0.0))
WORKING = BatchProgress(number=2, launches=2, ready=2, working_s=3.4, items_per_s=(1234.56, 7.0))
GOOD = LaunchEnds(
    batch=2,
    job_id="1.0",
    label="standard.vae",
    role="measured",
    attempt=1,
    file="f.json",
    unit="images",
    perf=1234.567,
    cause=None,
    detail="",
)
BAD = LaunchEnds(
    batch=2,
    job_id="1.1",
    label="standard.vae",
    role="measured",
    attempt=1,
    file="g.json",
    unit="images",
    perf=None,
    cause="oom",
    detail="too much",
)
HEAD = "[3/20] standard.vae, run 1, 2 tenants"


def show(sink: Sink, *events: tuple[float, AnyRunEvent]) -> None:
    """Let it receive events at these seconds."""
    for number, (time_s, event) in enumerate(events):
        sink.receive(Stamped(number=number, utc="", time_s=time_s, event=event))
    sink.close()


def test_an_interrupted_launch_has_not_failed() -> None:
    cut = msgspec.structs.replace(BAD, cause="interrupted", detail="the run was interrupted")
    told = said(cut, BATCH)
    assert told is not None
    assert told.text == f"{HEAD}: J1.1 interrupted: the run was interrupted"


def test_lines_tell_progress_where_nothing_was_told_for_ten_seconds() -> None:
    file = io.StringIO()
    show(
        PlainLines(Console(file=file)),
        (0.0, Stage(text="importing torch and the workloads")),
        (1.0, Note(text="a \x1b[31mnote")),
        (2.0, Preparing(answer=DataProgress(id=1, name="imagenet", done=1000, total=2000))),
        (9.0, Preparing(answer=Prepared(id=1, place=PLACE, generated=True))),
        (9.5, Preparing(answer=Prepared(id=1, place=PLACE, generated=False))),
        (10.0, BATCH),
        (19.9, WAITING),
        (20.0, WAITING),
        (29.9, WORKING),
        (30.0, WORKING),
        (31.0, GOOD),
        (31.0, BAD),
    )
    assert file.getvalue().splitlines() == [
        "importing torch and the workloads ...",
        "a \\x1b[31mnote",
        "dataset imagenet is ready: /data/ImageNet",
        f"{HEAD}: starting",
        f"{HEAD}: 1 of 2 ready",
        f"{HEAD}: 3 s, 1,234.6, 7.0 items/s",
        f"{HEAD}: J1.0 1,234.57 images/s",
        f"{HEAD}: J1.1 FAILED (oom): too much",
    ]


def test_one_launch_is_said_to_have_devices() -> None:
    alone = BatchBegins(
        number=0,
        of=1,
        label="s.scaling.4",
        run=0,
        launches=(LaunchSlots(label="s.scaling.4", job_id="0.3", slots=("0", "1", "2", "3"), role="measured"),),
        takes_s=1.0,
        left_s=1.0,
    )
    told = said(alone, None)
    assert told is not None
    assert told.text == "[1/1] s.scaling.4, run 0, 4 devices: starting"


def test_who_runs_beside_whom_is_said_with_each_ones_unit() -> None:
    batch = BatchBegins(
        number=9,
        of=45,
        label="s.loader_beside_noise",
        run=0,
        launches=(
            LaunchSlots(
                label="s.loader_beside_noise",
                job_id="0.1",
                slots=("1",),
                role="measured",
                unit="images",
                devices=("GPU 1",),
            ),
            LaunchSlots(label="s.noise", job_id="0.0", slots=("0",), role="company", unit="MiB", devices=("GPU 0",)),
        ),
        takes_s=1.0,
        left_s=1.0,
    )
    end = msgspec.structs.replace(GOOD, job_id="0.0", label="s.noise", unit="MiB")
    events = (batch, msgspec.structs.replace(WORKING, items_per_s=(1234.56, 7.0)), end)
    head = "[10/45] s.loader_beside_noise, run 0, GPU 1 next to noise"
    assert [told.text for event in events if (told := said(event, batch))] == [
        f"{head}: starting",
        f"{head}: 3 s, 1,234.6 images/s, 7.0 MiB/s",
        f"{head}: J0.0 noise 1,234.57 MiB/s",
    ]
