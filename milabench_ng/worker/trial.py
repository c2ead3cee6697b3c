"""Tries what other packages offer in a process of its own: whatever their import does, it ends nothing else."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import msgspec

from milabench_ng.fence.entry import adopt_orphans, die_with
from milabench_ng.fence.kernel.processes import below_us, read_table
from milabench_ng.fence.killing import send
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.plain import encodable, whole_json
from milabench_ng.model.units import GIB, format_bytes
from milabench_ng.worker.causes import text_of

T = TypeVar("T")

LIMIT_S = 120.0
"""How long an import may take."""
GRACE_S = 2.0
"""How long a process that it starts may outlive it."""
PAUSE_S = 0.02
"""Between two looks at them."""
DATA_BYTES = 4 * GIB
"""What it may allocate (RLIMIT_DATA), with what torch has."""


class Told(msgspec.Struct, frozen=True):
    """What a trial led to: a value, or what is wrong."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    wrong: str = ""


def tried(what: str, work: Callable[[], T], kind: type[T]) -> T:
    """The value of ``work``, which imports ``what``, made in another process.

    Raises InputError if the import raises, ends its process or the one that watches it, hangs, takes too much memory,
    or leaves a process behind.
    """
    answer = os.memfd_create("mnb-trial")
    _, status = os.waitpid(_fork(lambda: _keep(what, work, answer)), 0)
    with open(answer, "rb") as file:
        file.seek(0)
        content = file.read()
    if status:
        raise InputError(f"{what} cannot be tried: the process that watches its import ended ({_how(status)})")
    told = msgspec.json.decode(content, type=Told)
    if told.wrong:
        raise InputError(told.wrong)
    return msgspec.json.decode(told.value, type=kind)


def _keep(what: str, work: Callable[[], object], answer: int) -> None:
    """Have ``work`` done by a child, and judge how it ends. What it leaves behind is adopted and ended."""
    adopt_orphans()
    pid = _fork(lambda: _tell(answer, _told(what, work)))
    ended, _, _ = select.select([os.pidfd_open(pid)], [], [], LIMIT_S)
    wrong = "" if ended else f"did not finish importing within {LIMIT_S:g} s"
    if ended:
        _, status = os.waitpid(pid, 0)
        if not os.fstat(answer).st_size:
            wrong = f"ends the process that imports it ({_how(status)})"
        *_, left = _living()
        if left:
            wrong = wrong or f"leaves a process behind when it is imported ({next(iter(left.values()))})"
    for left in _living():  # before anything is told, since they could write it too
        send(signal.SIGKILL, left, below_us())
    if wrong:
        _tell(answer, Told(wrong=f"{what} {wrong}"))


def _how(status: int) -> str:
    """How a process ended that had this status of waitpid(2)."""
    code = os.waitstatus_to_exitcode(status)
    return f"status {code}" if code >= 0 else signal.Signals(-code).name


def _told(what: str, work: Callable[[], object]) -> Told:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES if hard < 0 else min(DATA_BYTES, hard), hard))
    try:
        return Told(msgspec.Raw(whole_json(work())))
    except MnbError as error:
        return Told(wrong=str(error))
    except MemoryError:
        return Told(wrong=f"{what} takes more than {format_bytes(DATA_BYTES)} of memory when it is imported")
    except Exception as error:  # noqa: BLE001  # whatever the import of a foreign module raises
        return Told(wrong=f"{what} cannot be imported: {type(error).__name__}: {text_of(error)}")


def _tell(answer: int, told: Told) -> None:
    os.ftruncate(answer, 0)
    os.pwrite(answer, msgspec.json.encode(Told(told.value, encodable(told.wrong))), 0)


def _living() -> Iterator[dict[int, str]]:
    """The processes below this one with their names, again and again until none is left or `GRACE_S` have passed."""
    end_s = time.monotonic() + GRACE_S
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        table = read_table()
        found = {one.pid: table[one.pid].name for one in below_us().members(table) if not table[one.pid].ended}
        yield found
        if not found or time.monotonic() > end_s:
            return
        time.sleep(PAUSE_S)


def _fork(work: Callable[[], None]) -> int:
    """The pid of a child that does this, dies with its parent, and never returns."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        die_with(parent)
        work()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(status)
