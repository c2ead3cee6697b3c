"""``mnb resume``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.cli.named_files import RulesFile, WeightsPath
from milabench_ng.cli.node_options import not_negative
from milabench_ng.cli.options import Whole
from milabench_ng.cli.run_and_report import execute, require_weights
from milabench_ng.model.files import read_text
from milabench_ng.model.shipped import profile_file
from milabench_ng.run.persistence.resuming import DifferenceKind, resumed_request
from milabench_ng.run.persistence.spooling import require_spool
from milabench_ng.verification.rules_file import load_rules

Differences = Annotated[tuple[DifferenceKind, ...], Parameter(negative=())]
"""What may differ from the first session, by name; may be repeated."""


def resume(
    folder: Path,
    /,
    *,
    retry: Whole = 0,
    weights: WeightsPath = None,
    rules: RulesFile = None,
    spool: Path | None = None,
    accept_difference: Differences = (),
) -> int:
    """Resume a run with its own options: run the launches that have no valid record.

    Exit code: as `mnb jobs`.

    Example: mnb resume results --rules standard

    Parameters
    ----------
    folder
        A result folder of `mnb jobs`.
    retry
        Retry a failed launch up to this many times. Failed attempts are kept and count.
    weights
        A JSON file of weights by test for the final report. Default: the shipped file of the suite.
    rules
        Refuse at the start what breaks these rules already, and verify the results at the end: a JSON file, or the
        name of a shipped rule set (standard, procurement). Signature and timestamps come later, and are not required.
    spool
        Folder for results while FOLDER is not writable, or a file with the results that a run printed.
    accept_difference
        Continue although the node, software or isolation differs, and record it. May be repeated.
    """
    return go_on(folder, None, retry, accept_difference, spool, weights, rules)


def go_on(
    folder: Path,
    profile: Path | None,
    retry: int,
    accept: tuple[DifferenceKind, ...],
    spool: Path | None,
    weights: Path | None,
    rules: str | None,
) -> int:
    """Resume a run. A ``profile`` must be that of the first session."""
    if spool is not None:
        require_spool(spool)
    text = None if profile is None else read_text(profile_file(profile))
    given = {"retry": not_negative(retry, "--retry"), "spool": spool and spool.resolve()}
    demanded = None if rules is None else load_rules(rules)
    request = resumed_request(folder, text, accept, **given)
    require_weights(weights, request)
    if demanded is not None:
        from milabench_ng.cli.preflight import refuse_to_resume  # imports what plans a run

        refuse_to_resume(demanded, folder)
    return execute(request, weights, demanded)
