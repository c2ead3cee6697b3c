"""``mnb verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from milabench_ng.cli.named_files import CertificatesFile, ProfilePath, RulesFile, SignersFile, WeightsPath
from milabench_ng.cli.options import Count, FileForm, Force, Output, form_for
from milabench_ng.fleet.bundling import is_fleet_source, opened_fleet
from milabench_ng.fleet.verifying import verify_fleet
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.verification_tables import fleet_verification_document, verification_document
from milabench_ng.present.writers import open_output, write
from milabench_ng.verification.rules import with_options
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verified_results import Demands
from milabench_ng.verification.verify import verify as find_out


def verify(
    folder: Path,
    /,
    *,
    rules: RulesFile = None,
    profile: ProfilePath = None,
    weights: WeightsPath = None,
    require: Literal["full"] | None = None,
    repeat: Count | None = None,
    nonce: str | None = None,
    allowed_signers: SignersFile = None,
    tsa_certs: CertificatesFile = None,
    form: FileForm = None,
    output: Output = None,
    force: Force = False,
) -> int:
    """Verify a bundle, a result folder or a fleet folder: recompute every number and check the rules.

    The rules are numbered as in docs/reference/rules.md. Findings are grouped into recomputed, self-reported (by the
    node), witnessed and not checkable. Needs neither torch nor a GPU.

    Exit code: 0 if no rule is broken, 1 if a rule is broken or a refused doubt is raised, 2 for bad input.

    Example: mnb verify results.bundle.tar.gz --rules standard --allowed-signers vendors.txt

    Parameters
    ----------
    folder
        A result folder, a bundle or a fleet folder.
    rules
        A JSON file of rules, or the name of a shipped rule set: standard, procurement.
    profile
        The required profile: a file, or the name of a shipped one.
    weights
        The required file of weights.
    require
        Require full isolation in every launch. Overrides the rules.
    repeat
        Require at least this many repeats of every test. Overrides the rules.
    nonce
        The nonce that the buyer gave for the run. Overrides the rules.
    allowed_signers
        Who may sign: a file as in ssh-keygen(1), ALLOWED SIGNERS.
    tsa_certs
        Certificates of the trusted time-stamping authorities (PEM).
    """
    written = form_for(form, output)
    asked = with_options(load_rules(rules), isolation=require, repeat=repeat, nonce=nonce)
    if is_fleet_source(folder):
        if profile is not None or weights is not None:
            raise InputError("--profile and --weights: not for a fleet. Name both in the rules (--rules)")
        demands = Demands(rules=asked, allowed_signers=allowed_signers, authorities=tsa_certs)
        with opened_fleet(folder) as there:
            of_fleet = verify_fleet(there, demands)
        document, passed = fleet_verification_document(of_fleet), of_fleet.passed
    else:
        found = find_out(
            folder,
            asked,
            profile=profile,
            weights=weights,
            allowed_signers=allowed_signers,
            authorities=tsa_certs,
        )
        document, passed = verification_document(found), found.passed
    with open_output(output, sys.stdout, force=force) as stream:
        write(document, written, stream)
    return int(not passed)
