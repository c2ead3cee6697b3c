"""The picture of the live display: a real run on a terminal emulator. ``scripts/screenshots --live`` makes it."""

from __future__ import annotations

import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fcntl import ioctl
from io import StringIO
from itertools import groupby
from pathlib import Path
from termios import TIOCSWINSZ

import pyte
from pages import ROOT
from pictures import FRAME, IMAGES
from rich.console import Console
from rich.text import Text

COMMAND = ("jobs", "smoke", "--name", "vae", "--window", "30")
COLUMNS, ROWS = 100, 16
PICTURE = IMAGES / "live.svg"
_COURSE = re.compile(r" window .*[▁▂▃▄▅▆▇█]{12}")


def at_work(screen: pyte.Screen) -> bool:
    """Whether every tenant has been measured for a while."""
    rows = [row for row in screen.display if row.startswith("CPU")]
    return bool(rows) and all(_COURSE.search(row) for row in rows)


def recorded(command: list[str], seen: Callable[[pyte.Screen], bool]) -> bytes:
    """What the command writes to a terminal until the screen is as wanted; then it gets Ctrl-C."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream, written = pyte.ByteStream(screen), b""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NO_COLOR"))}
    environ |= {"TERM": "xterm-256color"}
    run = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while not seen(screen):
            try:
                part = terminal.read(1 << 16)
            except OSError:
                sys.exit("\n".join(("the run ended too early:", *screen.display)))
            stream.feed(part)
            written += part
        run.send_signal(signal.SIGINT)
        try:
            while terminal.read(1 << 16):
                pass
        except OSError:  # nobody has the terminal open any more, which Linux tells as EIO
            run.wait()
    return written


def shown(written: bytes) -> Text:
    """What such a terminal shows after these bytes, with its colours, without empty rows at the end."""
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(written)
    rows = []
    for place in range(ROWS):
        cells = [screen.buffer[place][column] for column in range(COLUMNS)]
        rows.append(
            Text.assemble(*(("".join(cell.data for cell in of), style) for style, of in groupby(cells, _style)))
        )
        rows[-1].rstrip()
    while rows and not rows[-1]:
        rows.pop()
    return Text("\n").join(rows)


def _style(cell: pyte.screens.Char) -> str:
    colour = {"default": "", "brown": "yellow"}.get(cell.fg, cell.fg)
    return f"{'bold ' if cell.bold else ''}{colour}".strip()


def picture(written: bytes) -> str:
    """The screen after these bytes, as SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(f"$ {' '.join(('mnb', *COMMAND))}\n", shown(written)))
    return console.export_svg(title="mnb jobs", code_format=FRAME, unique_id="live")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = str(Path(folder) / "results")
        PICTURE.write_text(picture(recorded([sys.executable, "-m", "milabench_ng", *COMMAND, "-o", results], at_work)))
