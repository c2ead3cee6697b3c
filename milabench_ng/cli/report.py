"""``mnb report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.cli.options import Html, Output, Switch, WeightsOption
from milabench_ng.report.report import make_report
from milabench_ng.report.scoring.cost import PricePer
from milabench_ng.report.writers import Form, open_output, write_page, write_report, write_tables
from milabench_ng.units import parse_share


def report(
    folder: Path,
    *,
    weights: WeightsOption = None,
    compare: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=())] = (),
    margin: str = "2%",
    compare_gpus: Switch = False,
    rules: str | None = None,
    price: float | None = None,
    price_per: PricePer = "node",
    penalize_variance: bool = True,
    form: Annotated[Form, Parameter(name="--format")] = "table",
    tables: Path | None = None,
    html: Html = None,
    output: Output = None,
) -> int:
    """Print the table, the score and what it is worth, of a result folder (also while the run goes on) or a summary.

    Exit code: 0, or 1 if a launch failed, the score is invalid or a rule is broken, or 2 for bad input.

    Example: mnb report results --compare baselines/v100.json --price 15000

    Parameters
    ----------
    folder
        A result folder, or a summary file (of the 2020 tool as well).
    compare
        Baselines, one or several: summary files, result folders, or names of shipped ones (v100, rtx8000).
    margin
        The difference that does not matter: equivalent, better and worse are ratios whose interval lies inside or
        outside of 1 +- this.
    compare_gpus
        Print the tests by device, relative to the best device: mean, min and max over the launches.
    rules
        Begin with the verdict of these rules (docs/run-rules.md): a JSON file, or a shipped one's name (procurement).
    price
        Price in dollars; RPP is this over the score.
    price_per
        What the price is for: the node, or one of its GPUs.
    penalize_variance
        Charge each test for the spread of its launches.
    form
        How to print: table, json, csv or markdown.
    tables
        Write every table as a CSV file into this folder as well.
    """
    made = make_report(
        folder,
        weights=weights,
        compare_to=compare,
        price=price,
        price_per=price_per,
        penalize_variance=penalize_variance,
        margin=parse_share(margin, "--margin"),
        compare_gpus=compare_gpus,
        rules=rules,
    )
    if tables is not None:
        write_tables(made, tables)
    if html is not None:
        write_page(made, folder, html)
    with open_output(output, sys.stdout) as stream:
        write_report(made, form, stream)
    return made.exit_code
