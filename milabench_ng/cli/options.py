"""Options that mean the same in several commands, declared once: what they take, what they are called, what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

Switch = Annotated[bool, Parameter(negative=())]
"""A flag that can be set and not unset."""
Several = Annotated[tuple[str, ...], Parameter(negative=())]
"""May be repeated."""

Output = Annotated[Path | None, Parameter(name=["--output", "-o"], help="Write to this file instead of the terminal.")]
Force = Annotated[bool, Parameter(negative=(), help="Replace files that exist. Evidence is never replaced.")]
Html = Annotated[Path | None, Parameter(help="Write one HTML file with charts as well, which opens offline anywhere.")]
TableOrJson = Annotated[Literal["table", "json"], Parameter(name="--format", help="How to print: table or json.")]
WeightsOption = Annotated[
    Path | None,
    Parameter(help="A JSON file of weights by test; without it the shipped one of the suite is taken."),
]

GpusOption = Annotated[
    str,
    Parameter(
        help="GPUs to use, by index or UUID, separated by commas (default: those of CUDA_VISIBLE_DEVICES, of which an "
        "empty\none means none; all where it is not set)."
    ),
]
RamTotal = Annotated[
    str | None,
    Parameter(
        help="RAM to divide among the tenants, such as 512GiB: for virtual machines whose MemTotal grows with use."
    ),
]
CgroupParent = Annotated[
    str | None, Parameter(help="Make the groups below this cgroup instead of the hierarchy's root.")
]
DataRoot = Annotated[
    Path | None,
    Parameter(
        name=["--dataroot", "-d"], help="Folder of the data sets (default: $MNB_DATAROOT, else ~/.cache/milabench_ng)."
    ),
]
