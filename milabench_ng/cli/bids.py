"""``mnb bids``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.cli.options import Force, Html, Output
from milabench_ng.report.procurement.offers import compare_bids
from milabench_ng.report.writers import Form, open_output, write_tender, write_tender_page


def bids(
    file: Path,
    *,
    form: Annotated[Form, Parameter(name="--format")] = "table",
    html: Html = None,
    output: Output = None,
    force: Force = False,
) -> int:
    """Rank bids by what a reference node's worth of throughput costs with each, with intervals.

    Exit code: 0, or 1 if a bid has no valid score or fails too often, or 2 for bad input.

    Example: mnb bids bids.json

    Parameters
    ----------
    file
        A JSON file: the reference, the bids (results and price of a node), assumptions. Paths are relative to it.
    form
        Output format: table, json, csv or markdown.
    """
    made = compare_bids(file)
    if html is not None:
        write_tender_page(made, html, force=force)
    with open_output(output, sys.stdout, force=force) as stream:
        write_tender(made, form, stream)
    return made.exit_code
