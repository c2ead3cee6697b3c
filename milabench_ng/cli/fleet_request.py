"""What the commands of `mnb fleet` that start something are given, found to be valid before any node is reached."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from milabench_ng.fleet.manifest import MOST_RETESTS
from milabench_ng.fleet.rendering.slurm_script import slurm_script
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text
from milabench_ng.model.plain import plain, short
from milabench_ng.model.profile import AnyProfile, parse_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import parse_seconds
from milabench_ng.records.window import MEASURED_BY

FleetOutput = Annotated[Path, Parameter(name=["--output", "-o"], help="The fleet folder, which must be new.")]
OWN_OUTPUT = "the fleet decides where nodes write. Leave {} out of --jobs"

JobsOption = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,
        help="Options of `mnb jobs` for every node, as one word, such as '--repeat 3 --isolation full'.",
    ),
]
MnbOption = Annotated[
    str | None,
    Parameter(help="The command that starts mnb on the nodes. Default: this one, by its path."),
]
NodeFolder = Annotated[
    str, Parameter(help="Folder on each node's own disk that holds its results until they are collected.")
]


class FleetRequest:
    """What a fleet is to run, found to be valid before any node is reached."""

    def __init__(
        self,
        profile: Path,
        output: Path,
        jobs: str,
        mnb: str | None,
        node_folder: str,
        retests: int,
        common_start: str | None,
        burn_in: str | None,
    ) -> None:
        self.file = profile_file(profile)
        self.text = read_text(self.file)
        parsed = parse_profile(self.file.stem, self.text, plain(self.file))
        if not 0 <= retests <= MOST_RETESTS:
            raise InputError(f"--retests: expected 0 to {MOST_RETESTS}, got {retests}")
        self.retests = retests
        self.common_start_s = parse_seconds(common_start, "--common-start") if common_start else 0.0
        self.burn_in_s = parse_seconds(burn_in, "--for") if burn_in else 0.0
        self.arguments = words(jobs, "--jobs")
        given = given_to_jobs(self.file, self.arguments)
        if burn_in:
            self.arguments += ("--repeat", str(_repeats(given, parsed, self.burn_in_s)), "--budget", burn_in)
        self.output = output.absolute()
        options = {
            "--jobs": jobs,
            "--mnb": mnb,
            "--retests": "" if retests == 3 else str(retests),
            "--common-start": common_start,
            "--for": burn_in,
            "--node-folder": "" if node_folder == "/var/tmp" else node_folder,
        }
        self.options = tuple(f"{name}={value}" for name, value in options.items() if value)


def script_of(asked: FleetRequest, nodes: int | None, options: tuple[str, ...]) -> str:
    if nodes is None or nodes < 1:
        raise InputError("--launcher slurm: say how many nodes to ask for. Try --nodes 16")
    given = ("--", *options) if options else ()  # to be recorded, for a resume
    words = (str(asked.file.absolute()), "--launcher=slurm", f"--output={asked.output}", *asked.options, *given)
    return slurm_script(nodes, (*own_command(), "fleet", "run", *words), options, f"{asked.output}-%j.log")


def given_to_jobs(profile: Path, words: Sequence[str]) -> Mapping[str, Any]:
    """The options of --jobs by name. Raises what `mnb jobs` would, and InputError for those that the fleet decides."""
    from milabench_ng.cli import app

    _, bound, _ = app.parse_args(["jobs", str(profile), *words], exit_on_error=False, print_error=False)
    given = bound.arguments
    for name in ("resume", "dry_run"):
        if given.get(name):
            raise InputError(OWN_OUTPUT.format(f"--{name.replace('_', '-')}"))
    if "node" in given and given["node"].output is not None:
        raise InputError(OWN_OUTPUT.format("-o"))
    return given


def _repeats(given: Mapping[str, Any], profile: AnyProfile, burn_in_s: float) -> int:
    """So many repeats that they do not end before the burn-in does: launches of no more than their window and 3 s."""
    twice = [f"--{name}" for name in ("repeat", "budget", "target_ci", "sessions") if name in given]
    if twice:
        raise InputError(
            f"--for says how often the profile is repeated. Leave {twice[0].replace('_', '-')} out of --jobs"
        )
    names = given.get("name", ())
    tests = sum(not names or any(fnmatch(test, name) for name in names) for test in profile.tests)
    window_s = (given["node"].window if "node" in given else None) or MEASURED_BY.length_s
    return math.ceil(burn_in_s / (max(1, tests) * (window_s + 3))) + 1


def own_command() -> tuple[str, ...]:
    """What starts this mnb."""
    script = shutil.which(sys.argv[0])
    named = script is not None and Path(script).name == "mnb"
    return (str(Path(script).absolute()),) if script and named else (sys.executable, "-m", "milabench_ng")


def words(text: str, option: str) -> tuple[str, ...]:
    """The words of a command, as a shell reads them. Raises InputError for a quote that nothing closes."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{option} {short(text)}: {error}") from None
