"""``mnb fleet``: the same run on many nodes."""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import cyclopts
from cyclopts import Parameter

from milabench_ng import __version__
from milabench_ng.cli.options import FormOption, ProfileOption, Whole
from milabench_ng.fleet.adopting import LAUNCHER as NO_LAUNCHER
from milabench_ng.fleet.adopting import adopt as adopt_results
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.launchers import registry
from milabench_ng.fleet.launchers.interface import Asked, Launcher
from milabench_ng.fleet.launchers.slurm import in_allocation, submit
from milabench_ng.fleet.manifest import MOST_RETESTS, FleetManifest
from milabench_ng.fleet.rendering.indexed_job import JobRequest, indexed_job
from milabench_ng.fleet.rendering.slurm_script import slurm_script
from milabench_ng.fleet.retesting import missing_nodes
from milabench_ng.fleet.running import collect as pull_results
from milabench_ng.fleet.running import new_fleet_id
from milabench_ng.fleet.running import resume as go_on
from milabench_ng.fleet.running import run as run_fleet
from milabench_ng.fleet.writer import require_new
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text
from milabench_ng.model.plain import plain
from milabench_ng.model.profile import AnyProfile, parse_profile
from milabench_ng.model.shipped import profile_file
from milabench_ng.model.units import parse_seconds, utc_iso, utc_now
from milabench_ng.present.render.fleet_tables import standing_document
from milabench_ng.present.render.sections import Form
from milabench_ng.present.writers import write
from milabench_ng.records.manifest import ProfileText
from milabench_ng.records.names import file_digest
from milabench_ng.records.window import MEASURED_BY

fleet = cyclopts.App(name="fleet", help="Run the same profile on many nodes, and judge each of them.")
fleet.command("milabench_ng.cli.fleet_plan:plan")

LauncherOption = Annotated[str, Parameter(help=f"How nodes are reached: {', '.join(registry.names())}.")]
FleetOutput = Annotated[Path, Parameter(name=["--output", "-o"], help="The fleet folder, which must be new.")]
OWN_OUTPUT = "the fleet decides where nodes write. Leave {} out of --jobs"


render = cyclopts.App(name="render", help="Print what a batch system would be given, and submit nothing.")
fleet.command(render)

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


@fleet.command
def run(
    profile: ProfileOption,
    /,
    *engine: str,
    launcher: LauncherOption,
    output: FleetOutput,
    nodes: Whole | None = None,
    hosts: str | None = None,
    jobs: JobsOption = "",
    mnb: MnbOption = None,
    retests: Whole = 3,
    common_start: str | None = None,
    burn_in: Annotated[str | None, Parameter(name="--for")] = None,
    node_folder: NodeFolder = "/var/tmp",
) -> int:
    """Run a profile on every node, all at once, and collect the results.

    Outside an allocation of Slurm, --launcher slurm submits a job that does so, and ends.

    Exit code: 0 if all nodes pass, 1 if one is slow, faulty or lost, or a launch failed, 2 for bad input and unequal
    software, 3 if it is not decided.

    Example: mnb fleet run standard --launcher slurm --nodes 16 --jobs '--repeat 3' -o acceptance -- --partition=gpu

    Parameters
    ----------
    engine
        Options for what the launcher uses, after "--", such as --partition=gpu for Slurm.
    nodes
        Number of nodes.
    hosts
        The nodes by name.
    retests
        How many sessions the nodes do again that are suspicious after the first, with some others for comparison.
    common_start
        Have all nodes begin at the same moment of their clocks, this long after the check, such as 60s. Their power
        and cooling are then loaded all at once.
    burn_in
        Repeat the profile on every node until this time is over, such as 12h, and go on through failures.
    """
    asked = _Asked(profile, output, jobs, mnb, node_folder, retests, common_start, burn_in)
    if launcher == "slurm" and not in_allocation():
        require_new(output)
        return submit(_slurm_script(asked, nodes, engine))
    reached = registry.make(launcher, Asked(count=nodes, hosts=hosts, engine=engine))
    fleet_id = new_fleet_id()
    manifest = FleetManifest(
        fleet_id=fleet_id,
        version=__version__,
        created_utc=utc_iso(utc_now()),
        command_line=tuple(sys.argv),
        suite=asked.file.stem,
        profile=ProfileText(file=str(asked.file), sha256=file_digest(asked.text.encode()), text=asked.text),
        arguments=(*asked.arguments, *reached.arguments),
        nodes=reached.nodes,
        launcher=launcher,
        engine=engine,
        mnb=tuple(shlex.split(mnb)) if mnb else _own_command(),
        common_start_s=asked.common_start_s,
        burn_in_s=asked.burn_in_s,
        retests=retests,
        node_folder=f"{node_folder}/mnb-fleet-{fleet_id}",
    )
    return _judged(run_fleet(output, manifest, reached, _tell))


@render.command
def slurm(
    profile: ProfileOption,
    /,
    *engine: str,
    output: FleetOutput,
    nodes: Whole | None = None,
    jobs: JobsOption = "",
    mnb: MnbOption = None,
    retests: Whole = 3,
    common_start: str | None = None,
    burn_in: Annotated[str | None, Parameter(name="--for")] = None,
    node_folder: NodeFolder = "/var/tmp",
) -> int:
    """Print the script that `mnb fleet run --launcher slurm` submits.

    Exit code: 0, 2 for bad input.

    Example: mnb fleet render slurm standard --nodes 16 -o acceptance -- --partition=gpu > job.sbatch

    Parameters
    ----------
    engine
        Options of sbatch, after "--", such as --partition=gpu.
    nodes
        Number of nodes.
    retests
        How many sessions the nodes do again that are suspicious after the first, with some others for comparison.
    common_start
        Have all nodes begin at the same moment of their clocks, this long after the check, such as 60s. Their power
        and cooling are then loaded all at once.
    burn_in
        Repeat the profile on every node until this time is over, such as 12h, and go on through failures.
    """
    print(
        _slurm_script(_Asked(profile, output, jobs, mnb, node_folder, retests, common_start, burn_in), nodes, engine),
        end="",
    )
    return 0


@render.command
def k8s(
    profile: ProfileOption,
    /,
    *,
    nodes: Whole,
    image: str,
    claim: str,
    gpus: Whole = 8,
    jobs: JobsOption = "",
    name: str = "mnb-fleet",
) -> int:
    """Print an Indexed Job of Kubernetes (1.33 or later) that runs a profile on every node, as JSON for kubectl.

    Its pods are privileged, since they isolate tenants by cgroups. When it is done, give the volume with the results to
    `mnb fleet adopt`.

    Exit code: 0, 2 for bad input.

    Example: mnb fleet render k8s standard --nodes 16 --image registry/mnb:0.3 --claim results | kubectl apply -f -

    Parameters
    ----------
    nodes
        Number of nodes: one pod runs on each.
    image
        The image of the pods, which has mnb.
    claim
        The PersistentVolumeClaim for the results, which all nodes can write to.
    gpus
        Number of GPUs of a node; 0 on nodes without.
    name
        Name of the Job.
    """
    file = profile_file(profile)
    text = read_text(file)
    parse_profile(file.stem, text, plain(file))
    arguments = tuple(shlex.split(jobs))
    _given_to_jobs(file, arguments)
    if nodes < 1 or gpus < 0:
        raise InputError("--nodes: expected at least 1, and --gpus at least 0")
    asked = JobRequest(
        name=name,
        nodes=nodes,
        gpus=gpus,
        image=image,
        claim=claim,
        suite=file.stem,
        profile=text,
        arguments=arguments,
    )
    print(indexed_job(asked), end="")
    return 0


@fleet.command
def adopt(folder: Path, /, *, hosts: str | None = None) -> int:
    """Make a fleet folder of results that something else brought together, such as Kubernetes or Ansible.

    The result folder of each node must be FOLDER/nodes/NODE/screen.

    Exit code: as `mnb fleet status`.

    Example: mnb fleet adopt results --hosts 'gpu[001-016]'

    Parameters
    ----------
    folder
        The folder with all results.
    hosts
        The nodes that should be there: one without results is lost.
    """
    expected = registry.make("ssh", Asked(hosts=hosts)).nodes if hosts else ()
    return _ended(adopt_results(folder, expected, tuple(sys.argv)))


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
    missing = missing_nodes(found)
    if missing and found.manifest.launcher == "slurm" and not in_allocation():
        command = (*_own_command(), "fleet", "resume", str(folder.absolute()))
        options = (*found.manifest.engine, f"--nodelist={','.join(missing)}")
        return submit(slurm_script(len(missing), command, options, f"{folder.absolute()}-%j.log"))
    return _judged(go_on(found, _reached(found.manifest), tuple(sys.argv), _tell))


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


class _Asked:
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
        self.arguments = tuple(shlex.split(jobs))
        given = _given_to_jobs(self.file, self.arguments)
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


def _slurm_script(asked: _Asked, nodes: int | None, options: tuple[str, ...]) -> str:
    if nodes is None or nodes < 1:
        raise InputError("--launcher slurm: say how many nodes to ask for. Try --nodes 16")
    given = ("--", *options) if options else ()  # to be recorded, for a resume
    words = (str(asked.file.absolute()), "--launcher=slurm", f"--output={asked.output}", *asked.options, *given)
    return slurm_script(nodes, (*_own_command(), "fleet", "run", *words), options, f"{asked.output}-%j.log")


def _given_to_jobs(profile: Path, words: Sequence[str]) -> Mapping[str, Any]:
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


def _reached(manifest: FleetManifest) -> Launcher:
    """The launcher of a fleet that goes on. Raises InputError if nobody started its nodes through one."""
    if manifest.launcher == NO_LAUNCHER:
        raise InputError(
            "made by `mnb fleet adopt`, so mnb cannot reach its nodes. Bring their results, remove fleet.json and "
            "fleet.jsonl, and adopt again"
        )
    return registry.make(manifest.launcher, Asked(known=manifest.nodes, engine=manifest.engine))


def _own_command() -> tuple[str, ...]:
    """What starts this mnb."""
    script = shutil.which(sys.argv[0])
    named = script is not None and Path(script).name == "mnb"
    return (str(Path(script).absolute()),) if script and named else (sys.executable, "-m", "milabench_ng")


def _tell(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)


def _ended(found: FleetFolder, form: Form = "table", *, whole: bool = True) -> int:
    """Print how it stands with a fleet; the exit code. ``whole``: with all nodes."""
    write(standing_document(found, whole=whole), form, sys.stdout)
    return int(bool(missing_nodes(found)) or any(one.failed for one in found.standings.values()))


def _judged(found: FleetFolder) -> int:
    """Print how it stands with a fleet, and the verdict on its nodes; the exit code."""
    from milabench_ng.cli.fleet_report import make_fleet_report, print_fleet_report

    incomplete = _ended(found, whole=False)
    report = make_fleet_report(found.path, weights=None, price=None, groups=None, margin=None)
    print()
    return incomplete or print_fleet_report(report, form="table", html=None, output=None, force=False)
