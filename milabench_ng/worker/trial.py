"""Tries what other packages offer in a process of its own: whatever their import does, it ends nothing else."""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Callable
from typing import TypeVar

import msgspec
import psutil

from milabench_ng.errors import InputError, MnbError
from milabench_ng.fence.entry import adopt_orphans, die_with
from milabench_ng.fence.kernel.processes import below_us
from milabench_ng.fence.killing import send
from milabench_ng.units import GIB, format_bytes

T = TypeVar("T")

LIMIT_S = 120.0
"""How long an import may take."""
GRACE_S = 2.0
"""How long a process that it starts may outlive it."""
DATA_BYTES = 4 * GIB
"""What it may allocate (RLIMIT_DATA), with what torch has."""


class Told(msgspec.Struct, frozen=True):
    """What a trial led to: a value, or what is wrong."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    wrong: str = ""


def tried(what: str, work: Callable[[], T], kind: type[T]) -> T:
    """The value of ``work``, which imports ``what``, made in another process.

    Raises InputError if the import raises, ends or hangs, takes too much memory, or leaves a process behind.
    """
    answer = os.memfd_create("mnb-trial")
    os.waitpid(_fork(lambda: _keep(what, work, answer)), 0)
    with open(answer, "rb") as file:
        file.seek(0)
        told = msgspec.json.decode(file.read(), type=Told)
    if told.wrong:
        raise InputError(told.wrong)
    return msgspec.json.decode(told.value, type=kind)


def _keep(what: str, work: Callable[[], object], answer: int) -> None:
    """Have ``work`` done by a child, and judge how it ends. What it leaves behind is adopted and ended."""
    adopt_orphans()
    pid = _fork(lambda: _tell(answer, _told(what, work)))
    ended, _, _ = select.select([os.pidfd_open(pid)], [], [], LIMIT_S)
    wrong = "" if ended else f"is not imported within {LIMIT_S:g} s"
    if ended:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if not os.fstat(answer).st_size:
            how = f"status {status}" if status >= 0 else signal.Signals(-status).name
            wrong = f"ends the process that imports it ({how})"
        _, left = psutil.wait_procs(_descendants(), GRACE_S)
        if left:
            wrong = wrong or f"leaves a process behind when it is imported ({left[0].name()})"
    if wrong:
        _tell(answer, Told(wrong=f"{what} {wrong}"))
    send(signal.SIGKILL, [one.pid for one in _descendants()], below_us())
    psutil.wait_procs(_descendants(), GRACE_S)


def _told(what: str, work: Callable[[], object]) -> Told:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES if hard < 0 else min(DATA_BYTES, hard), hard))
    try:
        return Told(msgspec.Raw(msgspec.json.encode(work())))
    except MnbError as error:
        return Told(wrong=str(error))
    except MemoryError:
        return Told(wrong=f"{what} takes more than {format_bytes(DATA_BYTES)} of memory when it is imported")
    except Exception as error:  # noqa: BLE001  # whatever the import of a foreign module raises
        return Told(wrong=f"{what} cannot be imported: {type(error).__name__}: {error}")


def _tell(answer: int, told: Told) -> None:
    os.ftruncate(answer, 0)
    os.pwrite(answer, msgspec.json.encode(told), 0)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


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
