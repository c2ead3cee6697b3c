"""``mnb fleet``: the same run on many nodes."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from milabench_ng import __version__
from milabench_ng.cli.options import FormOption, ProfileOption, Whole
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers import registry
from milabench_ng.fleet.launchers.interface import Asked, Launcher
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.fleet.running import collect as pull_results
from milabench_ng.fleet.running import missing_nodes, new_fleet_id
from milabench_ng.fleet.running import resume as go_on
from milabench_ng.fleet.running import run as run_fleet
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text
from milabench_ng.model.plain import plain
from milabench_ng.model.profile import parse_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import utc_iso, utc_now
from milabench_ng.present.render.fleet_tables import standing_document
from milabench_ng.present.render.sections import Form
from milabench_ng.present.writers import write
from milabench_ng.records.manifest import ProfileText
from milabench_ng.records.names import file_digest

fleet = cyclopts.App(name="fleet", help="Run the same profile on many nodes, and judge each of them.")

LauncherOption = Annotated[str, Parameter(help=f"How nodes are reached: {', '.join(registry.names())}.")]
FleetOutput = Annotated[Path, Parameter(name=["--output", "-o"], help="The fleet folder, which must be new.")]
OWN_OUTPUT = "the fleet decides where nodes write. Leave {} out of --jobs"


@fleet.command
def run(
    profile: ProfileOption,
    /,
    *engine: str,
    launcher: LauncherOption,
    output: FleetOutput,
    nodes: Whole | None = None,
    hosts: str | None = None,
    jobs: Annotated[str, Parameter(allow_leading_hyphen=True)] = "",
    mnb: str | None = None,
    node_folder: str = "/var/tmp",
) -> int:
    """Run a profile on every node, all at once, and collect the results.

    Exit code: 0, 1 if a node is lost or a launch failed, 2 for bad input and unequal software.

    Example: mnb fleet run standard --launcher ssh --hosts 'gpu[001-016]' --jobs '--repeat 3' -o acceptance

    Parameters
    ----------
    engine
        Options for what the launcher uses, after "--", such as --partition=gpu for Slurm.
    nodes
        Number of nodes.
    hosts
        The nodes by name, such as 'gpu[001-512]', or '@rack1' for a group.
    jobs
        Options of `mnb jobs` for every node, such as '--repeat 3 --isolation full'.
    mnb
        The command that starts mnb on the nodes (default: this one, which must have the same path there).
    node_folder
        Folder on each node's own disk for its results, until they are collected.
    """
    file = profile_file(profile)
    text = read_text(file)
    parse_profile(file.stem, text, plain(file))
    _require_jobs(file, jobs)
    reached = registry.make(launcher, Asked(count=nodes, hosts=hosts, engine=engine))
    fleet_id = new_fleet_id()
    manifest = FleetManifest(
        fleet_id=fleet_id,
        version=__version__,
        created_utc=utc_iso(utc_now()),
        command_line=tuple(sys.argv),
        suite=file.stem,
        profile=ProfileText(file=str(file), sha256=file_digest(text.encode()), text=text),
        arguments=(*shlex.split(jobs), *reached.arguments),
        nodes=reached.nodes,
        launcher=launcher,
        engine=engine,
        mnb=tuple(shlex.split(mnb)) if mnb else _own_command(),
        node_folder=f"{node_folder}/mnb-fleet-{fleet_id}",
    )
    return _ended(run_fleet(output, manifest, reached, _tell))


@fleet.command
def resume(folder: Path, /) -> int:
    """Run what is missing of a fleet, with its own options: nodes that were lost, and results that are not here.

    Exit code: as `mnb fleet run`.

    Example: mnb fleet resume acceptance

    Parameters
    ----------
    folder
        A fleet folder.
    """
    found = FleetFolder.read(folder)
    return _ended(go_on(found, _reached(found.manifest), tuple(sys.argv), _tell))


@fleet.command
def collect(folder: Path, /) -> int:
    """Pull the results that are still on the nodes. Runs nothing.

    Exit code: as `mnb fleet run`.

    Example: mnb fleet collect acceptance

    Parameters
    ----------
    folder
        A fleet folder.
    """
    found = FleetFolder.read(folder)
    return _ended(pull_results(found, _reached(found.manifest), tuple(sys.argv), _tell))


@fleet.command
def status(folder: Path, /, *, form: FormOption = "table") -> int:
    """Show how it stands with every node.

    Exit code: 0 if the results of all nodes are here and no launch failed, 1 if not, 2 for bad input.

    Example: mnb fleet status acceptance

    Parameters
    ----------
    folder
        A fleet folder, also of a fleet that is at work.
    """
    return _ended(FleetFolder.read(folder), form)


def _require_jobs(profile: Path, words: str) -> None:
    """Find mistakes in --jobs before any node is reached."""
    from milabench_ng.cli import app

    _, bound, _ = app.parse_args(["jobs", str(profile), *shlex.split(words)], exit_on_error=False, print_error=False)
    node = bound.arguments.get("node")
    for name in ("resume", "dry_run"):
        if bound.arguments.get(name):
            raise InputError(OWN_OUTPUT.format(f"--{name.replace('_', '-')}"))
    if node is not None and node.output is not None:
        raise InputError(OWN_OUTPUT.format("-o"))


def _reached(manifest: FleetManifest) -> Launcher:
    """The launcher of a fleet that goes on."""
    return registry.make(manifest.launcher, Asked(known=manifest.nodes, engine=manifest.engine))


def _own_command() -> tuple[str, ...]:
    """What starts this mnb."""
    script = shutil.which(sys.argv[0])
    named = script is not None and Path(script).name == "mnb"
    return (str(Path(script).absolute()),) if script and named else (sys.executable, "-m", "milabench_ng")


def _tell(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


def _ended(found: FleetFolder, form: Form = "table") -> int:
    """Print how it stands with a fleet; the exit code."""
    write(standing_document(found), form, sys.stdout)
    return int(bool(missing_nodes(found)) or any(one.failed for one in found.standings.values()))
