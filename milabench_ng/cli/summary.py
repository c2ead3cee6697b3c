"""``mnb summary``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from milabench_ng.analysis.summary.folder import encode_summary
from milabench_ng.cli.options import Force, Output
from milabench_ng.present.render.as_2020 import encode_2020
from milabench_ng.present.writers import open_output
from milabench_ng.verification.opening import load_result


def summary(
    folder: Path,
    *,
    form: Annotated[Literal["mnb", "2020"], Parameter(name="--format")] = "mnb",
    output: Output = None,
    force: Force = False,
) -> int:
    """Print the statistics of a result folder as JSON, a baseline for `mnb report --compare`.

    Exit code: 0, 1 if a launch failed, 2 for bad input.

    Example: mnb summary results -o base.json

    Parameters
    ----------
    folder
        A result folder or a bundle, also of milabench 2020.
    form
        mnb, or 2020 for the fields and items of milabench 2020.
    """
    made = load_result(folder)
    with open_output(output, sys.stdout, force=force) as stream:
        stream.write(encode_summary(made) if form == "mnb" else encode_2020(made))
    return int(made.failures > 0)
