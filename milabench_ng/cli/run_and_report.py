"""Run a request and print how it ended: shared by the commands that run workloads."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from milabench_ng.cli.showing import shown
from milabench_ng.fence.choosing import enter_scope
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.files import why_unwritable
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.signals import exit_code
from milabench_ng.model.units import format_seconds, utc_now
from milabench_ng.records.names import MANIFEST, write_atomically
from milabench_ng.records.stopping import Headline
from milabench_ng.run.execution.interruption import Interrupted
from milabench_ng.run.jobs import Ahead, RunOutcome, jobs
from milabench_ng.run.persistence.resuming import resumed_request
from milabench_ng.run.persistence.sessions import Unwritten
from milabench_ng.run.planning.planned_run import PlannedRun
from milabench_ng.run.planning.request import RunRequest, suites_asked
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.rules import Rules

COSTS = "Ctrl-C interrupts the current launch group; mnb resume measures it again"


def require_weights(weights: Path | None, request: RunRequest) -> None:
    """Find mistakes in a file of weights before hours of work, not after."""
    if weights is None:
        return
    from milabench_ng.analysis.scoring.scale import load_scale
    from milabench_ng.analysis.scoring.weights import read_weights, weighed_suites

    file = read_weights(weights, request.profile.suite)
    load_scale(file)
    weighed_suites(file, suites_asked(request), [request.profile.id_of(name) for name in request.profile.tests])


def execute(request: RunRequest, weights: Path | None = None, rules: Rules | None = None) -> int:
    """Run it, print how it ended with these weights or the suite's, and return the exit code.

    ``rules``: the results are verified with them, and that decides the exit code of a run that was not interrupted.
    """
    from milabench_ng.present.writers import write_last_screen
    from milabench_ng.report.reporting import make_report

    enter_scope(request.isolation, request.cgroup_parent)
    try:
        outcome = _run(request, partial(_ahead, weights))
    except Interrupted:
        if os.path.lexists(request.outdir / MANIFEST):
            told = f"results so far: {plain(request.outdir)}. To go on: mnb resume {quoted(request.outdir)}"
            print(told, file=sys.stderr)
        raise
    report = make_report(outcome.folder, weights=weights)
    found = None if rules is None else _verified(outcome.folder, rules)
    write_last_screen(msgspec.structs.replace(report, verification=found), sys.stdout)
    return _exit_code(outcome) if found is None or outcome.interrupted else int(not found.passed)


def _verified(folder: Path, rules: Rules) -> Verification:
    """The verdict on a folder, which nobody can have signed or stamped yet."""
    from milabench_ng.verification.verify import verify

    return verify(folder, msgspec.structs.replace(rules, signed=False, signed_by=(), stamps=None))


def execute_into_file(request: RunRequest) -> int:
    """Run one launch and keep its record in the file that the request names."""
    if os.path.lexists(request.outdir):
        raise InputError(f"-o {request.outdir}: the file exists, and records are never overwritten. Name another file")
    if not os.path.isdir(request.outdir.parent):
        raise InputError(
            f"-o {request.outdir}: the folder {request.outdir.parent} does not exist. Create it, or name another file"
        )
    if why := why_unwritable(request.outdir.parent):
        raise InputError(f"-o {request.outdir}: {request.outdir.parent} is not writable ({why}). Name another folder")
    enter_scope(request.isolation, request.cgroup_parent)
    folder = Path(tempfile.mkdtemp(prefix="mnb-run-"))
    try:
        outcome = _run(msgspec.structs.replace(request, outdir=folder / "results"), partial(_marked, None))
        _keep_record(outcome.folder, request.outdir)
    except Unwritten:
        raise
    except MnbError:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)  # after any other error, it may hold the only results
    print(f"record: {plain(request.outdir)}")
    return _exit_code(outcome)


def _keep_record(folder: Path, file: Path) -> None:
    """Copy the one record of a result folder, and its log, to ``file``. Raises Unwritten if that fails."""
    records = [path for path in folder.glob("*.json") if path.name != MANIFEST]
    if len(records) != 1:
        raise InputError(f"-o {file}: {len(records)} records do not fit in one file. Name a folder")
    target = file.parent.resolve() / file.name
    try:
        write_atomically(target, records[0].read_bytes())
        for log in folder.glob("logs/*"):
            write_atomically(target.with_suffix(".log"), log.read_bytes())
    except OSError as error:
        raise Unwritten(f"-o {file}: {error.strerror}; the record is in {folder}") from None


def _ahead(weights: Path | None, planned: PlannedRun) -> Iterator[str]:
    """What a user should know before hours of work."""
    yield from _marked(weights, planned)
    yield COSTS


def _marked(weights: Path | None, planned: PlannedRun) -> Iterator[str]:
    from milabench_ng.cli.foreseen import foreseen

    if found := foreseen(planned, weights):
        yield f"expected warnings: {found}"


def _run(request: RunRequest, ahead: Ahead) -> RunOutcome:
    """Run all its sessions, one after the other: each is like a run that is resumed."""
    outcome = _session(request, ahead)
    for _ in range(1, request.sessions):
        if outcome.interrupted or not outcome.missing:
            break
        if request.session_gap_s:
            begins = utc_now() + timedelta(seconds=request.session_gap_s)
            print(
                f"results so far: {plain(outcome.folder)}\nthe next session begins at {begins:%Y-%m-%d %H:%M} "
                f"UTC, in {format_seconds(request.session_gap_s)}; to start it at another time, press Ctrl-C "
                f"and run\n         mnb resume {quoted(outcome.folder)}",
                flush=True,
            )
            time.sleep(request.session_gap_s)
        given = {"retry": request.retry, "spool": request.spool}
        outcome = _session(resumed_request(outcome.folder, None, request.accept, **given), ahead)
    return outcome


def _session(request: RunRequest, ahead: Ahead) -> RunOutcome:
    with shown() as bus:
        return asyncio.run(jobs(request, bus, tuple(sys.argv), judge, ahead))


def judge(folder: Path) -> Headline:
    """What is known of the headline of a result folder, as its report has it."""
    from milabench_ng.analysis.scoring.narrowness import headline
    from milabench_ng.analysis.summary.folder import load

    try:
        return headline(load(folder).tests)
    except InputError:  # of what cannot be read now, nothing is known, and the run goes on
        return Headline("its headline", None)


def _exit_code(outcome: RunOutcome) -> int:
    return exit_code(outcome.interrupted) if outcome.interrupted else int(outcome.failed > 0)
