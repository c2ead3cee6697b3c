"""``mnb jobs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.cli.executing import execute
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.planned import show_plan


def jobs(
    profile: Path,
    /,
    *flags: str,
    name: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    repeat: int = 1,
    weights: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    node: NodeOptions = NodeOptions(),  # noqa: B008  # frozen
) -> int:
    """Run a profile: the main job. Ends with the report and the folder that it wrote.

    Exit code: 0, 1 if a launch failed, 2 for bad input, 3 if the isolation that was required cannot be had, 130 if
    interrupted.

    Example: mnb jobs profiles/standard.json --repeat 10

    Parameters
    ----------
    profile
        A JSON file of tests (those of 2020 are converted), or the name of a shipped one: standard, quick.
    flags
        Options for the workloads, after "--": mnb jobs profiles/quick.json --name vae -- --batch-size 64
    name
        Only this test; may be given several times.
    repeat
        Runs of every test.
    weights
        A JSON file of weights by test for the report at the end; without it the shipped one of the suite is taken.
    dry_run
        Print the plan, the shares and the estimated duration, and run nothing.
    """
    request = node.profile_request(profile, names=name, repeat=repeat, flags=flags)
    return show_plan(request) if dry_run else execute(request, weights)
