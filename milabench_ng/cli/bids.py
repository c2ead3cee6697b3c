"""``mnb bids``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from milabench_ng.cli.named_files import CertificatesFile, RulesFile, SignersFile
from milabench_ng.cli.options import FileForm, Force, Html, Output, form_for
from milabench_ng.present.layouts.nvidia_examples import systems
from milabench_ng.present.render.sections import Document, Facts
from milabench_ng.present.render.tender_facts import tender_facts
from milabench_ng.present.render.tender_tables import tender_document
from milabench_ng.present.writers import open_output, write, write_page
from milabench_ng.report.reporting import ReportOptions, make_report
from milabench_ng.tender.bids import read_bids
from milabench_ng.tender.offers import compare_bids
from milabench_ng.tender.tender import Tender
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verified_results import Demands


def bids(
    file: Path,
    *,
    rules: RulesFile = None,
    allowed_signers: SignersFile = None,
    tsa_certs: CertificatesFile = None,
    form: FileForm = None,
    html: Html = None,
    output: Output = None,
    layout: Literal["lambda"] | None = None,
    force: Force = False,
) -> int:
    """Rank bids by cost per reference-node equivalent.

    mnb verifies every bid first, as `mnb verify` does. It refuses a bid that is unreadable, breaks a rule, ran other
    suites than most bids, or has GPUs that are partitioned in another way. A summary cannot be verified, and is
    refused if there are rules.

    Exit code: 0, 1 if a bid is refused or has no valid score (with --layout: only if one is refused), 2 for bad input
    or if all bids are refused.

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
    layout
        Print a row for each bid and precision with watts, price and the throughput of each task, as Lambda's benchmark
        does, and no ranks.
    """
    written = form_for(form, output)
    made = compare_bids(file, Demands(rules=load_rules(rules), allowed_signers=allowed_signers, authorities=tsa_certs))
    if html is not None:
        write_page(made, html, force=force)
    with open_output(output, sys.stdout, force=force) as stream:
        write(tender_document(made) if layout is None else _systems(file, made), written, stream)
    return made.exit_code if layout is None else int(bool(made.refused))


def _systems(file: Path, made: Tender) -> Document:
    """The bids that are not refused, as a table of systems; who was refused is told beside it."""
    offers = read_bids(file).bids
    reports = {
        row.name: make_report(
            file.parent / offers[row.name].results, options=ReportOptions(price=offers[row.name].price)
        )
        for row in made.rows
    }
    rows = systems(reports)
    aside = tuple(fact for fact in tender_facts(made) if fact.name == "refused")
    whole = {
        "schema": 1,
        "systems": [dict(zip((one.name for one in rows.headings), row, strict=True)) for row in rows.rows],
    }
    return Document(title="mnb bids", parts=(Facts(facts=aside), rows), table=rows, aside=aside, whole=whole)
