"""How wide a line of output may be."""

from __future__ import annotations

import shutil
from typing import TextIO

from milabench_ng.report.render.fitting import UNLIMITED


def output_width(stream: TextIO) -> int:
    """The columns of the terminal behind ``stream``; rich would cut text short to fit what it guesses elsewhere."""
    return shutil.get_terminal_size().columns if stream.isatty() else UNLIMITED
