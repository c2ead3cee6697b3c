"""The pictures of the README, made of what the project ships. ``scripts/screenshots --docs`` writes them."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from pages import ROOT
from rich.console import Console
from rich.text import Text

IMAGES = ROOT / "docs" / "images"
BUNDLE = ROOT / "baselines" / "bundles" / "standard-2xH200-20261122.tar.gz"
COMPARISON = ("baselines/h200.json", "--compare", "v100", "--price", "15000")
COLUMNS = 126
_FRAME = """\
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


def mnb(folder: Path, *arguments: str) -> str:
    """What a command prints in a terminal with colours."""
    environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    environ |= {"PYTHONPATH": str(ROOT), "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    command = [sys.executable, "-m", "milabench_ng", *arguments]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def terminal() -> str:
    """`mnb report` of the shipped bundle, in a terminal of `COLUMNS` columns."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(BUNDLE) as archive:
            archive.extractall(folder, filter="data")
        printed = mnb(Path(folder), "report", "results")
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("$ mnb report results\n" + printed.rstrip()))
    return console.export_svg(title="mnb report", code_format=_FRAME)


def report(picture: Path) -> None:
    """The first two charts of the HTML report on the shipped baseline."""
    sys.path.insert(0, str(ROOT / "tests" / "report"))
    from browser import Browser  # needs Chromium

    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder) / "report.html"
        mnb(ROOT, "report", *COMPARISON, "--html", str(page))
        browser.look(1100, 2600)
        browser.open(page)
        charts = "[...document.querySelectorAll('figure.chart')].slice(0, 2)"
        browser.until(f"{charts}.every((one) => one.querySelector('.main-svg'))")
        edges = f"{charts}.map((one) => one.getBoundingClientRect())"
        left, top, right, bottom = browser.evaluate(
            f"(([one, two]) => [one.left, one.top, one.right, two.bottom])({edges})"
        )
        margin = 12
        clip = {"x": left - margin, "y": top - margin, "scale": 1}
        clip |= {"width": right - left + 2 * margin, "height": bottom - top + 2 * margin}
        taken = browser.send("Page.captureScreenshot", format="png", clip=clip)
        assert browser.complaints() == []
    picture.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "terminal.svg").write_text(terminal())
    report(IMAGES / "report.png")
