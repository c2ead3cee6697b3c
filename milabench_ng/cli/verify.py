"""``mnb verify``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from milabench_ng.cli.options import Output, TableOrJson
from milabench_ng.report.verification.forms import write_verification
from milabench_ng.report.verification.rules import load_rules, with_options
from milabench_ng.report.verification.verify import verify as find_out
from milabench_ng.report.writers import open_output


def verify(
    source: Path,
    /,
    *,
    rules: str | None = None,
    profile: Path | None = None,
    weights: Path | None = None,
    require: Literal["full"] | None = None,
    repeat: int | None = None,
    nonce: str | None = None,
    allowed_signers: Path | None = None,
    form: TableOrJson = "table",
    output: Output = None,
) -> int:
    """Verify a bundle or a result folder: compute every number again, and check it against rules.

    The rules are numbered as in docs/run-rules.md. What is found is divided into
    proven, self-reported (by the node) and not checkable. It needs no torch or GPU.

    Exit code: 0 if no rule is broken, 1 if one is, 2 for bad input, which includes archives that are no bundles.

    Example: mnb verify results.bundle.tar.gz --rules procurement --allowed-signers vendors.txt

    Parameters
    ----------
    source
        A bundle or a result folder.
    rules
        A JSON file of rules, or the name of a shipped one: procurement.
    profile
        The profile that had to be run: a file, or the name of a shipped one.
    weights
        The file of weights that the score must be made with.
    require
        Full isolation in every launch, whatever the rules say.
    repeat
        At least so many runs of every test, instead of what the rules say.
    nonce
        What the buyer gave when the run began, instead of what the rules say.
    allowed_signers
        Who may sign: a file as in ssh-keygen(1), ALLOWED SIGNERS.
    """
    asked = with_options(load_rules(rules), isolation=require, repeat=repeat, nonce=nonce)
    found = find_out(source, asked, profile=profile, weights=weights, allowed_signers=allowed_signers)
    with open_output(output, sys.stdout) as stream:
        write_verification(found, form, stream)
    return int(not found.passed)
