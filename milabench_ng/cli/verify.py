"""``mnb verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from milabench_ng.cli.options import Force, FormOption, Output, Whole
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.verification_tables import verification_document
from milabench_ng.present.writers import open_output, write
from milabench_ng.verification.rules import load_rules, with_options
from milabench_ng.verification.verify import verify as find_out


def verify(
    folder: Path,
    /,
    *,
    rules: str | None = None,
    profile: Path | None = None,
    weights: Path | None = None,
    require: Literal["full"] | None = None,
    repeat: Whole | None = None,
    nonce: str | None = None,
    allowed_signers: Path | None = None,
    tsa_certs: Path | None = None,
    form: FormOption = "table",
    output: Output = None,
    force: Force = False,
) -> int:
    """Verify a bundle or a result folder: recompute every number and check the rules.

    The rules are numbered as in docs/reference/rules.md. Findings are divided into
    recomputed, self-reported (by the node) and not checkable. Needs neither torch nor a GPU.

    Exit code: 0 if no rule is broken, 1 if one is or a refused doubt is raised, 2 for bad input.

    Example: mnb verify results.bundle.tar.gz --rules standard --allowed-signers vendors.txt

    Parameters
    ----------
    folder
        A result folder or a bundle.
    rules
        A JSON file of rules, or the name of a shipped one: procurement, standard.
    profile
        The profile that must have been run: a file, or the name of a shipped one.
    weights
        File of weights that the score must use.
    require
        Require full isolation in every launch, whatever the rules say.
    repeat
        Require at least this many runs of every test, instead of what the rules say.
    nonce
        The nonce that the buyer gave when the run began, instead of what the rules say.
    allowed_signers
        Who may sign: a file as in ssh-keygen(1), ALLOWED SIGNERS.
    tsa_certs
        Certificates of the time-stamping authorities whose stamps count (PEM).
    """
    if repeat is not None and repeat < 1:
        raise InputError(f"--repeat {repeat}: at least 1")
    asked = with_options(load_rules(rules), isolation=require, repeat=repeat, nonce=nonce)
    found = find_out(
        folder,
        asked,
        profile=profile,
        weights=weights,
        allowed_signers=allowed_signers,
        authorities=tsa_certs,
    )
    with open_output(output, sys.stdout, force=force) as stream:
        write(verification_document(found), form, stream)
    return int(not found.passed)
