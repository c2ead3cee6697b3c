"""What Ctrl-C and SIGTERM do while no run heeds them: the command says in one line which it was, and ends.

The first thing that ``mnb`` imports, so it imports next to nothing.
"""

from __future__ import annotations

import os
import signal

ENDING = (signal.SIGINT, signal.SIGTERM)


def heed(handler: signal._HANDLER) -> None:
    """Install a handler, except for signals that were ignored when the process began, as a shell does with ``&``."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def hear() -> None:
    """Restore default signal handling that the parent process changed: blocked signals, ignored SIGTERM and SIGCHLD.

    Others stay ignored: a shell (``&``) and nohup(1) have that done on purpose.
    """
    for number in (signal.SIGTERM, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    heed(end_at_once)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what has waited comes now


def end_at_once(number: int, *_: object) -> None:
    """The handler where nothing is to be cleaned up: an exception could get lost in the middle of an import."""
    _tell(number)
    os._exit(exit_code(number))


def end(number: int, *_: object) -> None:
    """The handler in commands: files are closed and removed on the way out. A second signal ends at once.

    KeyboardInterrupt would not do: once it has passed through ``exec``, Python ends by SIGINT, whatever the exit code.
    """
    heed(end_at_once)
    _tell(number)
    raise SystemExit(exit_code(number))


def exit_code(number: int) -> int:
    """The status that a shell reports for a program that a signal ended."""
    return 128 + number


def interrupted_by(number: int) -> str:
    """What the user is told."""
    return f"interrupted ({signal.Signals(number).name})"


def _tell(number: int) -> None:
    try:
        os.write(2, f"mnb: {interrupted_by(number)}\n".encode())
    except OSError:  # a closed terminal
        return
