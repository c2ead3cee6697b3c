"""``mnb bids``."""

from __future__ import annotations

import sys
from pathlib import Path

from milabench_ng.cli.options import Force, FormOption, Html, Output
from milabench_ng.present.render.tender_tables import tender_document
from milabench_ng.present.writers import open_output, refuse_same, write, write_tender_page
from milabench_ng.tender.offers import compare_bids
from milabench_ng.verification.rules import load_rules
from milabench_ng.verification.verified_results import Demands


def bids(
    file: Path,
    *,
    rules: str | None = None,
    allowed_signers: Path | None = None,
    tsa_certs: Path | None = None,
    form: FormOption = "table",
    html: Html = None,
    output: Output = None,
    force: Force = False,
) -> int:
    """Rank bids by cost per reference-node equivalent.

    mnb verifies every bid first, as `mnb verify` does. It refuses a bid that is unreadable, breaks a rule, ran other
    suites than most bids, or has GPUs that are partitioned in another way. A summary cannot be verified, and is
    refused if there are rules.

    Exit code: 0, 1 if a bid is refused, has no valid score or fails too often, 2 for bad input or if all bids are
    refused.

    Example: mnb bids bids.json

    Parameters
    ----------
    file
        A JSON file with the reference, the bids (results and price of a node) and assumptions. Paths are relative to
        it.
    rules
        A JSON file of rules, or the name of a shipped rule set: standard, procurement.
    allowed_signers
        Who may sign: a file as in ssh-keygen(1), ALLOWED SIGNERS. `signed_by` of a bid names its required signer.
    tsa_certs
        Certificates of the trusted time-stamping authorities (PEM).
    """
    refuse_same(html, output)
    made = compare_bids(file, Demands(rules=load_rules(rules), allowed_signers=allowed_signers, authorities=tsa_certs))
    if html is not None:
        write_tender_page(made, html, force=force)
    with open_output(output, sys.stdout, force=force) as stream:
        write(tender_document(made), form, stream)
    return made.exit_code
