"""``mnb fleet render``."""

from __future__ import annotations

import os

import cyclopts

from milabench_ng.cli.fleet_request import FleetOptions, JobsOption, fleet_request, on_nodes, script_of
from milabench_ng.cli.options import Count, ProfileOption, Whole
from milabench_ng.fleet.rendering.indexed_job import JobRequest, indexed_job
from milabench_ng.model.errors import InputError
from milabench_ng.records.worker_variables import of_messages

render = cyclopts.App(name="render", help="Print what a batch system would be given, and submit nothing.")


@render.command
def slurm(
    profile: ProfileOption,
    /,
    *engine: str,
    nodes: Count | None = None,
    options: FleetOptions,
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
    """
    print(script_of(fleet_request(profile, options), nodes, engine), end="")
    return 0


@render.command
def k8s(
    profile: ProfileOption,
    /,
    *,
    nodes: Count,
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
    every = on_nodes(profile, jobs)
    if gpus < 0:
        raise InputError(f"--gpus: expected at least 0, got {gpus}")
    asked = JobRequest(
        name=name,
        nodes=nodes,
        gpus=gpus,
        image=image,
        claim=claim,
        suite=every.file.stem,
        profile=every.request.profile.text,
        arguments=every.arguments,
        variables=of_messages(os.environ),
    )
    print(indexed_job(asked), end="")
    return 0
