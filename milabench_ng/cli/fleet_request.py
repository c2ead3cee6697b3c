"""What the commands of `mnb fleet` that start something are given, found to be valid before any node is reached."""

from __future__ import annotations

import dataclasses
import inspect
import math
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import MissingArgumentError, Parameter

from milabench_ng.cli.doctor import doctor
from milabench_ng.cli.node_options import NodeOptions, file_of_profile
from milabench_ng.cli.options import Switch, Whole
from milabench_ng.cli.run_options import RunOptions
from milabench_ng.fleet.manifest import MOST_RETESTS
from milabench_ng.fleet.rendering.slurm_script import slurm_script
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain, quoted, short
from milabench_ng.model.profile import Profile
from milabench_ng.model.shipped import ShippedKind, names
from milabench_ng.model.units import parse_seconds
from milabench_ng.records.links import NodesLaunch
from milabench_ng.records.worker_variables import of_messages
from milabench_ng.run.planning.refusals import tests_ahead
from milabench_ng.run.planning.request import RunRequest

OVER_NODES = ("scaling", "collectives")
"""Workloads whose ranks may be on several nodes."""
OWN_OUTPUT = "the fleet decides where nodes write. Leave {} out of --jobs"

JobsOption = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,
        help="Options of `mnb jobs` for every node, as one word, such as '--repeat 3 --isolation full'.",
    ),
]


@Parameter(name="*")
@dataclasses.dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """Common to `mnb fleet run` and what prints its script.

    Parameters
    ----------
    output
        The fleet folder, which must be new.
    mnb
        The command that starts mnb on the nodes. Default: this one, by its path.
    retests
        How many more sessions suspicious nodes run, together with some other nodes for comparison.
    common_start
        Have all nodes begin at the same moment of their clocks, this long after the check, such as 60s. Their power
        and cooling are then loaded all at once.
    burn_in
        Repeat the profile on every node for this time, such as 12h, even if launches fail.
    network
        When the nodes have worked by themselves, measure the network between them: pairs, and rings.
    over_nodes
        When the nodes have worked by themselves, run the tests of `scaling` and `collectives` of the profile over 1, 2,
        4 ... and all nodes. They leave no records, and do not count for the score.
    rendezvous
        The address at which nodes reach this host when they meet. Default: the one that ssh or Slurm gives.
    node_folder
        Folder on each node's own disk that holds its results until they are collected.
    """

    output: Annotated[Path, Parameter(name=["--output", "-o"])]
    jobs: JobsOption = ""
    mnb: str | None = None
    retests: Whole = 3
    common_start: str | None = None
    burn_in: Annotated[str | None, Parameter(name="--for")] = None
    network: Switch = False
    over_nodes: Switch = False
    rendezvous: str = ""
    node_folder: str = "/var/tmp"

    def words(self) -> tuple[str, ...]:
        """Those that are not as usual, for a command line; without the folder."""
        fields = [one for one in dataclasses.fields(self) if one.name != "output"]
        given = {_NAMES.get(one.name, one.name): (getattr(self, one.name), one.default) for one in fields}
        return tuple(
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
            for name, (value, usual) in given.items()
            if value != usual
        )


_NAMES = {"burn_in": "for"}


class OnNodes(msgspec.Struct, frozen=True, kw_only=True):
    """What every node is to run, found to be valid."""

    file: Path
    """The profile."""
    arguments: tuple[str, ...]
    """Of `mnb jobs`."""
    asked: RunOptions
    node: NodeOptions
    """The same, read."""
    request: RunRequest
    """What they come to."""

    @property
    def checkup(self) -> tuple[str, ...]:
        """Those that `mnb doctor` has, too."""
        node, usual = self.node, NodeOptions()
        shared = [name for name in inspect.signature(doctor).parameters if hasattr(usual, name)]
        given = {name: getattr(node, name) for name in shared if getattr(node, name) != getattr(usual, name)}
        return tuple(f"--{name.replace('_', '-')}={value}" for name, value in given.items())


class FleetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet is to run, found to be valid before any node is reached."""

    on_nodes: OnNodes
    arguments: tuple[str, ...]
    """Of `mnb jobs`, with those of a burn-in."""
    common_start_s: float
    burn_in_s: float
    over_nodes: tuple[NodesLaunch, ...]
    options: FleetOptions


def fleet_request(profile: Path, options: FleetOptions) -> FleetRequest:
    """Raises InputError for what is not valid."""
    asked = on_nodes(profile, options.jobs)
    if not 0 <= options.retests <= MOST_RETESTS:
        raise InputError(f"--retests: expected 0 to {MOST_RETESTS}, got {options.retests}")
    if not options.node_folder.startswith("/"):
        raise InputError(f"--node-folder {plain(options.node_folder)}: expected a path from the root, such as /var/tmp")
    common_start_s = parse_seconds(options.common_start, "--common-start") if options.common_start else 0.0
    burn_in_s = parse_seconds(options.burn_in, "--for") if options.burn_in else 0.0
    burning: tuple[str, ...] = ()
    if options.burn_in:
        burning = ("--repeat", str(_repeats(asked, burn_in_s)), "--budget", options.burn_in)
    return FleetRequest(
        on_nodes=asked,
        arguments=(*asked.arguments, *burning),
        common_start_s=common_start_s,
        burn_in_s=burn_in_s,
        over_nodes=launches_over_nodes(asked.request) if options.over_nodes else (),
        options=options,
    )


def on_nodes(profile: Path, jobs: str) -> OnNodes:
    """The profile, and the options of ``--jobs``. Raises InputError for what is not valid."""
    file = file_of_profile(profile)
    arguments = words(jobs, "--jobs")
    given = _given_to_jobs(file, arguments)
    asked, node = given.get("asked", RunOptions()), given.get("node", NodeOptions())
    request = asked.request(file, node, given.get("flags", ()))
    tests_ahead(request)
    return OnNodes(file=file, arguments=arguments, asked=asked, node=node, request=request)


def script_of(asked: FleetRequest, nodes: int | None, options: tuple[str, ...]) -> str:
    if nodes is None:
        raise InputError("--launcher slurm: say how many nodes to ask for. Try --nodes 16")
    given = ("--", *options) if options else ()  # to be recorded, for a resume
    output = asked.options.output.absolute()
    words = (
        str(asked.on_nodes.file.absolute()),
        "--launcher=slurm",
        f"--output={output}",
        *asked.options.words(),
        *given,
    )
    return slurm_script(
        nodes, (*own_command(), "fleet", "run", *words), options, f"{output}-%j.log", of_messages(os.environ)
    )


def _given_to_jobs(profile: Path, words: Sequence[str]) -> Mapping[str, Any]:
    """The options of --jobs by name. Raises what `mnb jobs` would, and InputError for those that the fleet decides."""
    from milabench_ng.cli import app

    try:
        _, bound, _ = app.parse_args(["jobs", str(profile), *words], exit_on_error=False, print_error=False)
    except MissingArgumentError:
        if len(words) > 1:
            raise
        told = f"--jobs {plain(words[0])}: value missing. Quote all options of mnb jobs together"
        raise InputError(f"{told}: --jobs '{plain(words[0])} ...'") from None
    given = bound.arguments
    if given.get("resume"):
        raise InputError(OWN_OUTPUT.format("--resume"))
    if given.get("dry_run"):
        raise InputError(f"--jobs: --dry-run runs nothing. To see the plan, run mnb jobs {quoted(profile)} --dry-run")
    options: tuple[ShippedKind, ...] = ("rules", "weights")
    for option in options:
        file = Path(given.get(option) or "/")
        if not file.is_absolute() and str(file) not in names(option):
            raise InputError(
                f"--jobs: nodes do not work in this folder. Give --{option} {plain(file)} as a path from the root that "
                "all nodes have"
            )
    if "node" in given and given["node"].output is not None:
        raise InputError(OWN_OUTPUT.format("-o"))
    return given


def launches_over_nodes(request: RunRequest) -> tuple[NodesLaunch, ...]:
    """The launches over nodes of what nodes run. Raises InputError if it has none."""
    profile, known, picked = request.profile, read_builtin(), _picked(request)
    tests = profile.tests.items() if isinstance(profile, Profile) else ()
    found = tuple(
        NodesLaunch(
            test=name,
            workload=test.workload,
            unit=known[test.workload].unit,
            arguments={**known[test.workload].defaults, **test.arguments, "max_count": 0},
            least_devices=test.least_devices,
            window_s=request.rule.length_s,
        )
        for name, test in tests
        if test.workload in OVER_NODES and name in picked
    )
    if not found:
        left = " that --name picks" if request.names else ""
        raise InputError(f"--over-nodes: the profile {profile.suite} has no test of {' or '.join(OVER_NODES)}{left}")
    return found


def _repeats(asked: OnNodes, burn_in_s: float) -> int:
    """So many repeats that they do not end before the burn-in does: launches of no more than their window and 3 s."""
    of_repeats = ("--repeat", "--budget", "--target-ci", "--sessions")
    twice = [word for word in (one.partition("=")[0] for one in asked.arguments) if word in of_repeats]
    if twice:
        raise InputError(f"--for says how often the profile is repeated. Leave {twice[0]} out of --jobs")
    tests = len(_picked(asked.request))
    return math.ceil(burn_in_s / (max(1, tests) * (asked.request.rule.length_s + 3))) + 1


def _picked(request: RunRequest) -> tuple[str, ...]:
    """The tests that --name picks, or all."""
    return request.names or tuple(request.profile.tests)


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
