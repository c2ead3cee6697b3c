"""The pictures of the README, made of what the project ships. ``scripts/screenshots --docs`` writes them."""

from __future__ import annotations

import base64
import io
import os
import pty
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pages import ROOT
from rich.console import Console
from rich.text import Text

IMAGES = ROOT / "docs" / "images"
BUNDLE = ROOT / "baselines" / "bundles" / "standard-rest-2xH200-20261122.tar.gz"
COMMAND = ("report", "results", "--compare", "v100", "--price", "15000")
TERMINALS = {"terminal.svg": 120, "terminal-80.svg": 80}
"""The pictures of the terminal report, with their columns."""
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
    font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
    font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""rich's own frame loads a font from the network."""


def mnb(folder: Path, *arguments: str, columns: int) -> str:
    """What a command prints on a terminal with colours."""
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environ |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(columns)}
    command = [sys.executable, "-m", "milabench_ng", *arguments]
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb") as screen:
        started = subprocess.Popen(command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        printed = b"".join(_parts(screen.fileno()))
    assert started.wait(120) == 0, printed.decode()
    return printed.decode().replace("\r\n", "\n")


def _parts(descriptor: int) -> Iterator[bytes]:
    """What is written until nobody has the terminal open any more, which Linux tells as EIO."""
    with suppress(OSError):
        while part := os.read(descriptor, 1 << 16):
            yield part


def unpacked(folder: Path) -> Path:
    """The shipped bundle's results, in ``folder / "results"``."""
    with tarfile.open(BUNDLE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def terminal(columns: int) -> str:
    """`mnb report` of the shipped bundle on a terminal: the first screen and the table of tests."""
    with tempfile.TemporaryDirectory() as folder:
        printed = mnb(unpacked(Path(folder)), *COMMAND, columns=columns)
    shown = printed[: printed.index("differences from")].rpartition("\n\n")[0]
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(f"$ {' '.join(('mnb', *COMMAND))}\n{shown.rstrip()}"))
    return console.export_svg(title="mnb report", code_format=FRAME)


def report(picture: Path) -> None:
    """The first screen and the first chart of the HTML report on the shipped bundle."""
    sys.path.insert(0, str(ROOT / "tests" / "report"))
    from browser import Browser  # needs Chromium

    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder) / "report.html"
        mnb(unpacked(Path(folder)), *COMMAND, "--html", str(page), columns=120)
        browser.look(1100, 1600)
        browser.open(page)
        bottom = browser.evaluate("document.querySelector('figure.chart').getBoundingClientRect().bottom")
        clip = {"x": 0, "y": 0, "width": 1100, "height": bottom + 12, "scale": 1}
        taken = browser.send("Page.captureScreenshot", format="png", clip=clip)
        assert browser.complaints() == []
    picture.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for name, columns in TERMINALS.items():
        (IMAGES / name).write_text(terminal(columns))
    report(IMAGES / "report.png")
