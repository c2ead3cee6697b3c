"""A command whose reader goes away (``mnb report FOLDER | head -3``) ends quietly, as SIGPIPE ends other programs.

The signal itself stays ignored, as Python sets it: otherwise any broken pipe, even a worker's, would end a run.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from collections.abc import Callable

UNWRITTEN = 2
"""Standard output is a file on a full disk."""
UNREAD = 128 + signal.SIGPIPE
"""The status that a shell reports for a program killed by SIGPIPE."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Remarks(io.TextIOWrapper):
    """Standard error: on a full disk it loses what it is told from then on, and ends no command."""

    def write(self, text: str, /) -> int:
        """Says that it wrote all of ``text``."""
        try:
            return super().write(text)
        except OSError as error:
            self._forget(error)
            return len(text)

    def flush(self) -> None:
        """Also asked for by the interpreter at its end, whose exit code a failure would replace."""
        try:
            super().flush()
        except OSError as error:
            self._forget(error)

    def _forget(self, error: OSError) -> None:
        if error.errno not in _FULL:
            raise error
        _to_null(self.fileno())


def until_unread(command: Callable[[], int]) -> int:
    """Run the command and flush what it printed; return its exit code, `UNREAD` or `UNWRITTEN`.

    Any other broken pipe is a bug, and its exception propagates.
    """
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        if not _silence():
            raise
    except OSError as error:
        if error.errno == errno.EIO and _silence():  # the terminal is gone
            return UNREAD
        if not _stuck(error):
            raise
        print(f"mnb: standard output: {error.strerror}. The output is incomplete", file=sys.stderr)
        return UNWRITTEN
    except SystemExit as ended:  # rich raises it, with standard output silenced already
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _silence()
    else:
        return code
    return UNREAD


def _stuck(error: OSError) -> bool:
    """Whether it is standard output that cannot be written: not one more line of it can.

    Then it is pointed at /dev/null, as the interpreter flushes once more.
    """
    if error.errno not in _FULL:
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        _to_null(sys.stdout.fileno())
        return True
    return False


def _to_null(descriptor: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _silence() -> bool:
    """Point standard streams without a reader, or of a closed terminal, at /dev/null, as they are flushed once more.

    Returns whether there are any.
    """
    streams = (stream.fileno() for stream in (sys.stdout, sys.stderr))
    unread = [descriptor for descriptor in streams if _is_unread(descriptor)]
    for descriptor in unread:
        _to_null(descriptor)
    return bool(unread)


def _is_unread(descriptor: int) -> bool:
    """Whether it is a pipe or socket without a reader, or a closed terminal: poll(2) reports POLLERR or POLLHUP."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
