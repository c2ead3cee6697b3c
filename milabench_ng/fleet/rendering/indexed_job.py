"""An Indexed Job of Kubernetes that runs a profile once on each of N nodes, as JSON for kubectl. Pure.

Each pod works on its node's own disk and then copies its results to a volume that all pods mount, below ``nodes`` and
the name of its node. `mnb fleet adopt` makes a fleet folder of that.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_SCRIPT = """\
{command} >/scratch/screen.log 2>&1
status=$?
{summary} >/dev/null 2>&1
mkdir -p "/results/nodes/$NODE"
cp -r /scratch/screen /scratch/screen.* "/results/nodes/$NODE/"
exit "$status"
"""
Object = dict[str, Any]


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the Job is to do."""

    name: str
    """Of the Job and what belongs to it."""
    nodes: int
    gpus: int
    """Of each node."""
    image: str
    """Has mnb."""
    claim: str
    """The PersistentVolumeClaim for results, which all nodes can write to."""
    suite: str
    profile: str
    """The text."""
    arguments: Sequence[str] = ()
    """Of `mnb jobs`."""
    variables: Mapping[str, str] = {}
    """Of the fabric."""


def indexed_job(asked: JobRequest) -> str:
    """The objects, as one List in JSON."""
    objects = {"apiVersion": "v1", "kind": "List", "items": [_profile(asked), _job(asked)]}
    return msgspec.json.format(msgspec.json.encode(objects), indent=2).decode() + "\n"


def _profile(asked: JobRequest) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": asked.name, "labels": _labels(asked)},
        "data": {f"{asked.suite}.json": asked.profile},
    }


def _job(asked: JobRequest) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": asked.name, "labels": _labels(asked)},
        "spec": {
            "completionMode": "Indexed",
            "completions": asked.nodes,
            "parallelism": asked.nodes,
            # A node that fails is not tried again, and does not end the others.
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": asked.nodes,
            "template": {"metadata": {"labels": _labels(asked)}, "spec": _pod(asked)},
        },
    }


def _pod(asked: JobRequest) -> Object:
    one_a_node = {"labelSelector": {"matchLabels": _labels(asked)}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "restartPolicy": "Never",
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [one_a_node]}},
        "containers": [_container(asked)],
        "volumes": [
            {"name": "profile", "configMap": {"name": asked.name}},
            {"name": "results", "persistentVolumeClaim": {"claimName": asked.claim}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _container(asked: JobRequest) -> Object:
    words = ("mnb", "jobs", f"/profile/{asked.suite}.json", *asked.arguments, "-o", "/scratch/screen")
    summary = ("mnb", "summary", "/scratch/screen", "-o", "/scratch/screen.summary.json")
    return {
        "name": "mnb",
        "image": asked.image,
        "command": ["sh", "-c", _SCRIPT.format(command=shlex.join(words), summary=shlex.join(summary))],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            *({"name": name, "value": value} for name, value in asked.variables.items()),
        ],
        "resources": {"limits": {"nvidia.com/gpu": str(asked.gpus)}} if asked.gpus else {},
        "securityContext": {"privileged": True},  # writes cgroups, to isolate tenants
        "volumeMounts": [
            {"name": "profile", "mountPath": "/profile", "readOnly": True},
            {"name": "results", "mountPath": "/results"},
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }


def _labels(asked: JobRequest) -> Object:
    return {"app.kubernetes.io/name": "mnb-fleet", "app.kubernetes.io/instance": asked.name}
