"""``mnb fleet``: the same run on many nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from milabench_ng import __version__
from milabench_ng.cli.fleet_render import render
from milabench_ng.cli.fleet_request import (
    FleetOptions,
    FleetRequest,
    fleet_request,
    own_command,
    script_of,
    words,
)
from milabench_ng.cli.fleet_standing import print_standing
from milabench_ng.cli.options import Count, FormOption, ProfileOption
from milabench_ng.fleet.adopting import adopt as adopt_results
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers import registry
from milabench_ng.fleet.launchers.interface import Asked, Launcher
from milabench_ng.fleet.launchers.slurm import in_allocation, submit
from milabench_ng.fleet.manifest import ADOPT_AGAIN, ADOPTED, FleetManifest, new_fleet_id, require_same_variables
from milabench_ng.fleet.nodes import NodeName, node_set
from milabench_ng.fleet.rendering.slurm_script import slurm_script
from milabench_ng.fleet.retesting import nodes_left
from milabench_ng.fleet.running import collect as pull_results
from milabench_ng.fleet.running import resume as go_on
from milabench_ng.fleet.running import run as run_fleet
from milabench_ng.fleet.verdicts.columns import FEWEST_NODES
from milabench_ng.fleet.writer import require_new
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import names_of, plain, short
from milabench_ng.model.units import counted, utc_iso, utc_now
from milabench_ng.records.manifest import ProfileText
from milabench_ng.records.names import file_digest
from milabench_ng.records.output_files import check_target_folder
from milabench_ng.records.worker_variables import of_messages

fleet = cyclopts.App(name="fleet", help="Run the same profile on many nodes, and judge each of them.")
fleet.command("milabench_ng.cli.fleet_plan:plan")
fleet.command(render)

LauncherOption = Annotated[str, Parameter(help=f"How nodes are reached: {', '.join(registry.names())}.")]


@fleet.command
def run(
    profile: ProfileOption,
    /,
    *engine: str,
    launcher: LauncherOption,
    nodes: Count | None = None,
    hosts: str | None = None,
    options: FleetOptions,
) -> int:
    """Run a profile on every node, all at once, and collect the results.

    Outside an allocation of Slurm, --launcher slurm submits a job that does so, and ends.

    Exit code: 0 if all nodes and links pass, 1 if one is slow, faulty, broken or lost, or a launch failed, 2 for bad
    input and unequal software, 3 if it is not decided.

    Example: mnb fleet run standard --launcher slurm --nodes 16 --jobs '--repeat 3' -o acceptance -- --partition=gpu

    Parameters
    ----------
    engine
        Options for what the launcher uses, after "--", such as --partition=gpu for Slurm.
    nodes
        Number of nodes.
    hosts
        The nodes by name.
    """
    asked = fleet_request(profile, options)
    require_new(options.output)
    check_target_folder(options.output, "-o")
    if launcher == "slurm" and not in_allocation():
        if hosts is not None:
            raise InputError("--launcher slurm: Slurm picks the nodes. To name some, add -- --nodelist=NODES")
        return submit(script_of(asked, nodes, engine))
    reached = registry.make(launcher, Asked(count=nodes, hosts=hosts, engine=engine))
    _refuse_alone(reached.nodes, options)
    return _judged(run_fleet(options.output, _manifest(asked, reached, launcher, engine), reached, _tell))


@fleet.command(show=False)
def meet(head: str, port: int, node: str, /) -> int:
    """Take part in the network phase, as the node NODE: `mnb fleet run --network` starts this on every node."""
    os.execv(sys.executable, [sys.executable, "-m", "milabench_ng.worker.links", head, str(port), node])


@fleet.command
def adopt(folder: Path, /, *, hosts: str | None = None) -> int:
    """Make a fleet folder of results that something else brought together, such as Kubernetes or Ansible.

    The result folder of each node must be FOLDER/nodes/NODE/screen, or its bundle screen.tar.gz there. All nodes must
    have run the same profile. Retests, which decide on suspicious nodes, are retest-1, retest-2 and so on there.

    Exit code: as `mnb fleet status`.

    Example: mnb fleet adopt results --hosts 'gpu[001-016]'

    Parameters
    ----------
    folder
        The folder with all results.
    hosts
        The nodes that should be there: one without results is lost. Others that have results count, too.
    """
    expected = node_set(hosts, f"--hosts {short(hosts)}") if hosts else ()
    made = adopt_results(folder, expected, tuple(sys.argv))
    unnamed = [node for node in made.manifest.nodes if expected and node not in expected]
    if unnamed:
        _tell(f"--hosts does not name {names_of(unnamed)}. Nodes with results are in the fleet all the same")
    return print_standing(made)


@fleet.command
def resume(folder: Path, /) -> int:
    """Run what is missing of a fleet, with its own options: nodes that were lost, and results that are not here.

    Outside an allocation of Slurm, a fleet of Slurm is submitted again, with the nodes that are missing.

    Exit code: as `mnb fleet run`.

    Example: mnb fleet resume acceptance

    Parameters
    ----------
    folder
        A fleet folder.
    """
    found = FleetFolder.read(folder)
    require_same_variables(found.manifest, os.environ)
    left = nodes_left(found)
    if not left:
        _tell("the results of all nodes are here: nothing to run")
        return _judged(found)
    if found.manifest.launcher == "slurm" and not in_allocation():
        command = (*own_command(), "fleet", "resume", str(folder.absolute()))
        options = (*found.manifest.engine, f"--nodelist={','.join(left)}")
        log = f"{folder.absolute()}-%j.log"
        return submit(slurm_script(len(left), command, options, log, found.manifest.variables))
    return _judged(go_on(found, _reached(found), tuple(sys.argv), _tell))


@fleet.command
def collect(folder: Path, /) -> int:
    """Pull the results that are still on the nodes. Runs nothing.

    Exit code: as `mnb fleet status`.

    Example: mnb fleet collect acceptance

    Parameters
    ----------
    folder
        A fleet folder.
    """
    found = FleetFolder.read(folder)
    return print_standing(pull_results(found, _reached(found), tuple(sys.argv), _tell))


@fleet.command
def status(folder: Path, /, *, form: FormOption = "table") -> int:
    """Show the state of every node.

    Exit code: 0 if the results of all nodes are here and no launch failed, 1 if not, 2 for bad input.

    Example: mnb fleet status acceptance

    Parameters
    ----------
    folder
        A fleet folder, even while nodes work.
    """
    return print_standing(FleetFolder.read(folder), form)


def _manifest(asked: FleetRequest, reached: Launcher, launcher: str, engine: tuple[str, ...]) -> FleetManifest:
    options, every, fleet_id = asked.options, asked.on_nodes, new_fleet_id()
    text = every.request.profile.text
    return FleetManifest(
        fleet_id=fleet_id,
        version=__version__,
        created_utc=utc_iso(utc_now()),
        command_line=tuple(sys.argv),
        suite=every.file.stem,
        profile=ProfileText(file=str(every.file), sha256=file_digest(text.encode()), text=text),
        arguments=(*asked.arguments, *(one for one in reached.arguments if one not in asked.arguments)),
        checkup=every.checkup,
        nodes=reached.nodes,
        launcher=launcher,
        engine=engine,
        mnb=words(options.mnb, "--mnb") if options.mnb else own_command(),
        common_start_s=asked.common_start_s,
        burn_in_s=asked.burn_in_s,
        retests=options.retests,
        network=options.network,
        over_nodes=asked.over_nodes,
        variables=of_messages(os.environ),
        rendezvous=options.rendezvous,
        node_folder=f"{options.node_folder}/mnb-fleet-{fleet_id}",
    )


def _reached(found: FleetFolder) -> Launcher:
    """The launcher of a fleet that goes on. Raises InputError if nobody started its nodes through one."""
    manifest = found.manifest
    if manifest.launcher == ADOPTED:
        told = f"{plain(found.path)}: made by `mnb fleet adopt`, so its nodes cannot be reached from here"
        raise InputError(f"{told}. To go on, {ADOPT_AGAIN}")
    return registry.make(manifest.launcher, Asked(known=manifest.nodes, engine=manifest.engine))


def _refuse_alone(nodes: Sequence[NodeName], options: FleetOptions) -> None:
    """Raise InputError for what needs more nodes, and say what so few cannot show."""
    for option, wanted in (("--network", options.network), ("--over-nodes", options.over_nodes)):
        if wanted and len(nodes) < 2:
            raise InputError(f"{option}: nodes meet in pairs, and there is one. Name more, or leave it out")
    if len(nodes) < FEWEST_NODES:
        _tell(f"{counted(len(nodes), 'node')}: too few to say which is slow. Failures are found")


def _tell(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


def _judged(found: FleetFolder) -> int:
    """Print how it stands with a fleet, and the verdict on its nodes; the exit code."""
    from milabench_ng.cli.fleet_report import make_fleet_report, print_fleet_report

    incomplete = print_standing(found, whole=False)
    report = make_fleet_report(found.path, weights=None, price=None, groups=None, margin=None)
    print()
    code = print_fleet_report(report, form="table", html=None, output=None, force=False)
    return incomplete or code
