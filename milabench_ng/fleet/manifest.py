"""``fleet.json``: what a fleet was asked to run, on which nodes, through which launcher."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from milabench_ng.fleet.nodes import NodeName
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import LARGE, convert_json, read_json, refuse, require_folder
from milabench_ng.model.plain import plain, short, whole_json
from milabench_ng.model.units import utc_now
from milabench_ng.records.links import NodesLaunch
from milabench_ng.records.manifest import ProfileText
from milabench_ng.records.names import FLEET_MANIFEST
from milabench_ng.records.origin import require_schema, written_by
from milabench_ng.records.worker_variables import of_messages

FLEET_SCHEMA = 1
MOST_RETESTS = 20
LOCAL = "local"
"""The launcher of nodes that are processes of this machine."""
ADOPTED = "none"
"""The launcher of a fleet that `mnb fleet adopt` made: nobody can be reached."""
ADOPT_AGAIN = "bring the results of its nodes, remove fleet.json and fleet.jsonl, and adopt again"
"""How such a fleet goes on."""


class FleetManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a fleet. ``job_id`` is null so that readers of records skip it."""

    schema: int = FLEET_SCHEMA
    job_id: None = None
    fleet_id: str
    version: str
    created_utc: str
    command_line: tuple[str, ...]
    suite: str
    profile: ProfileText
    arguments: tuple[str, ...] = ()
    """Options of `mnb jobs` that every node was given."""
    checkup: tuple[str, ...] = ()
    """Those of them that are also of `mnb doctor`, by which nodes are checked before."""
    nodes: tuple[NodeName, ...]
    """In the order of the launcher."""
    launcher: str
    engine: tuple[str, ...] = ()
    """What was passed on to the launcher's engine, such as ``--partition=gpu``."""
    mnb: tuple[str, ...]
    """The command on the nodes."""
    common_start_s: float = 0.0
    """After so many seconds all nodes begin at one moment of their clocks; 0: each as soon as it can."""
    burn_in_s: float = 0.0
    """How long the profile is repeated on every node; 0: as often as the arguments say."""
    retests: Annotated[int, msgspec.Meta(ge=0, le=MOST_RETESTS)] = 0
    """How many sessions the suspicious nodes run again."""
    network: bool = False
    """Whether nodes also meet in pairs and rings."""
    over_nodes: tuple[NodesLaunch, ...] = ()
    """Launches whose ranks are on several nodes."""
    variables: dict[str, str] = {}
    """Of the fabric (``NCCL_*`` and others), as they were where the fleet was started: every node has them."""
    rendezvous: str = ""
    """Where nodes find the host that started them; empty: as the launcher says."""
    node_folder: str
    """Where the nodes keep their results until they are pulled: a folder for each node, named after it, is below."""


def new_fleet_id() -> str:
    """A name that no other fleet has."""
    return f"{utc_now():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def require_same_variables(manifest: FleetManifest, here: Mapping[str, str]) -> None:
    """Raise InputError if variables of the fabric are set ``here`` that the fleet's nodes did not have.

    A switch that is set here only would not reach the nodes, and nobody would see it.
    """
    for name, value in of_messages(here).items():
        if manifest.variables.get(name) != value:
            had = f"{name}={short(manifest.variables[name])}" if name in manifest.variables else f"no {name}"
            raise InputError(
                f"{name}={short(value)} is set here, and the nodes of this fleet had {had}. Unset it, or start a new "
                "fleet"
            )


def encode_fleet_manifest(manifest: FleetManifest) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(whole_json(manifest), indent=1) + b"\n"


def read_fleet_manifest(folder: Path) -> FleetManifest:
    """The untrusted manifest of the fleet folder ``folder``. Raises InputError if there is none."""
    source = folder / FLEET_MANIFEST
    give = "Give the folder that `mnb fleet run` wrote"
    if os.path.isfile(folder):  # which no name makes raise
        refuse(folder, f"a file. The bundle of a fleet is for mnb report, mnb verify and mnb accept. {give}")
    require_folder(folder, give)
    if not os.path.isfile(source):
        refuse(folder, f"not a fleet folder: it has no {FLEET_MANIFEST}. {give}")
    raw: Any = read_json(source, LARGE)
    if isinstance(raw, dict):
        require_schema(raw.get("schema"), "fleet", FLEET_SCHEMA, str(source))
    made = convert_json(raw, FleetManifest, str(source), written_by(raw, FLEET_SCHEMA))
    if len(set(made.nodes)) < len(made.nodes):
        raise InputError(f"{plain(source)}: a node is listed twice")
    return made
