"""The script of a Slurm job that runs a fleet: its first node starts the others, and writes the fleet folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from milabench_ng.fleet.node_scripts import exports
from milabench_ng.model.errors import InputError

GRACE_S = 120
"""How long before the time limit the fleet is told to end, so that its nodes write what they have."""


def slurm_script(
    nodes: int, command: Sequence[str], options: Sequence[str], log: str, variables: Mapping[str, str]
) -> str:
    """The script. ``options`` of sbatch come last, so they win; ``log``: the file for what the command says.

    ``variables``: of the fabric. sbatch hands them on, too, but not under ``--export=NONE``.
    """
    stated = [
        "--job-name=mnb-fleet",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--no-kill",
        f"--signal=B:TERM@{GRACE_S}",
        f"--output={log}",
        *options,
    ]
    for one in stated:
        if "\n" in one or not one.startswith("-"):
            raise InputError(f"{one!r}: expected an option of sbatch, such as --partition=gpu, with = before its value")
    lines = "\n".join(f"#SBATCH {_stated(one)}" for one in stated)
    return f"#!/bin/sh\n{lines}\n{exports(variables)}exec {shlex.join(command)}\n"


def _stated(option: str) -> str:
    """An option as sbatch reads it in a script: words are split at spaces, and quoted by double quotes."""
    name, equals, value = option.partition("=")
    return f"{name}={_quoted(value)}" if equals else name


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if set(value) & set(" '\"\\#") else value
