"""A warm worker: a fork of the worker server that enters its fence before anything else."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from types import SimpleNamespace
from typing import NoReturn

from milabench_ng.fence.entry import EXIT_REFUSED, EntryError, confine, enter, refusal
from milabench_ng.worker import session
from milabench_ng.worker.requests import Task


def run(task: Task, server_pid: int, commands: int, events: int, log: int) -> NoReturn:
    """Run ``task`` in this fork of ``server_pid``, which ends with the task's exit status."""
    status = 1
    os.dup2(log, 2)
    try:
        spawned = time.monotonic()
        entry = SimpleNamespace(**task.seats[0].entry)
        enter(entry, server_pid)
        if len(task.seats) == 1:  # of several, each rank is confined once it is in its own group
            confine(entry)
        commands, events = keep_only(commands, events, log)
        os.environ.clear()
        os.environ.update(task.environment)
        tempfile.tempdir = None  # the server chose it from its own environment
        status = session.run(task, commands, events, {"spawn": spawned - task.requested_s}, spawned)
    except EntryError as error:
        print(f"mnb: {refusal(error)}", file=sys.stderr)
        status = EXIT_REFUSED
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # the last line of defence before os._exit, which would swallow it
        traceback.print_exc()
    finally:
        session.leave(status)


def keep_only(commands: int, events: int, log: int) -> tuple[int, int]:
    """Descriptors 0 (nothing), 1 and 2 (the log), 3 (commands), 4 (events); every other one is closed."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    kept = [os.dup(descriptor) for descriptor in (nothing, log, log, commands, events)]
    high = [os.dup2(descriptor, 100 + place, inheritable=False) for place, descriptor in enumerate(kept)]
    for place, descriptor in enumerate(high):
        os.dup2(descriptor, place, inheritable=place < 3)
    os.closerange(5, 1 << 16)
    return 3, 4
