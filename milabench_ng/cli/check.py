"""``mnb check``."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from milabench_ng.analysis.baselines.peaks import same_models
from milabench_ng.analysis.summary.folder import encode_summary, load_baseline
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli.named_files import READS_RESULTS
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.options import DataRoot, Fraction, GpusOption, Switch
from milabench_ng.cli.run_and_report import judge
from milabench_ng.cli.showing import shown
from milabench_ng.fence.choosing import enter_scope
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import why_unwritable
from milabench_ng.model.plain import plain
from milabench_ng.model.shipped import names, shipped_profile
from milabench_ng.model.signals import exit_code, interrupted_by
from milabench_ng.present.render.sections import facts
from milabench_ng.present.render.terminal import write_parts
from milabench_ng.records.output_files import write_output
from milabench_ng.records.stopping import Stopping
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.jobs import RunOutcome, jobs
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.tender.health import HEALTH_SCHEMA, Health, health, why_not_stored
from milabench_ng.verification.opening import load_result, load_source

PROFILE = Path("check")
REPEATS = 5
"""As many as a verdict takes."""
WINDOW_S = 3.0
BUDGET_S = 150.0
"""Of the repeats: with the start and the comparison of the code, a check stays below three minutes.

Five take 132 s on two H200 of a virtual machine.
"""
LAUNCH_S = 40.0
"""After which a launch is killed: a first repeat that hangs in all its tests is over in two minutes."""


def check(
    *,
    store: Switch = False,
    json: Switch = False,
    baseline: Annotated[str | None, READS_RESULTS] = None,
    least: Fraction | None = None,
    gpus: GpusOption = "",
    dataroot: DataRoot = None,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Check in at most three minutes whether this node is as fast as it was, for cron and the prologs of Slurm.

    Runs the profile check: up to five repeats of three short tests on all devices. The node is held against the result
    that --store kept of this kind of node (model of GPU, processors), and its devices against each other.

    Exit code: 0 healthy, 1 slow or faulty, 3 not decided, 2 for bad input, 130 after Ctrl-C.

    Example: mnb check --store

    Parameters
    ----------
    store
        Keep this result as the baseline of this kind of node, in $XDG_STATE_HOME/milabench_ng/check.
    json
        Print one line of JSON instead, as docs/reference/check.md describes. Progress is then shown at a terminal only.
    baseline
        Hold the node against this instead: a summary, a result folder, a bundle, or a shipped baseline.
    least
        How much of the baseline is healthy, such as 0.95 (default: 0.95 on GPUs, else 0.75).
    output
        Keep the result folder here. Without it, only that of a slow or faulty node is kept, in a temporary folder.
    """
    if store and baseline is not None:
        raise InputError("--store cannot be combined with --baseline. Leave one of them out")
    began = time.monotonic()
    named = _named(baseline) if baseline else None  # a mistake shows before the run
    if store:
        _make_writable(state_folder())
    enter_scope("auto", None)
    with tempfile.TemporaryDirectory(prefix="mnb-check-") as scratch:
        folder = output or Path(scratch) / "results"
        request = _request(NodeOptions(gpus=gpus, dataroot=dataroot, output=folder))
        shows = not json or sys.stderr.isatty()  # cron would send what is printed
        outcome = _run(request, shows=shows)
        if outcome.interrupted:
            if not shows:
                print(f"mnb: {interrupted_by(outcome.interrupted)}", file=sys.stderr)
            return exit_code(outcome.interrupted)
        found = load_result(folder)
        name = None if store else baseline or _known(found)
        made = health(found, named or (load_source(name) if name else None), least)
        if store and made.exit_code != 1:  # a node with a slow device is no baseline, either
            reasons = tuple(why_not_stored(found))
            made = msgspec.structs.replace(made, verdict="not decided" if reasons else "healthy", reasons=reasons)
        kept = output
        if made.exit_code == 1 and output is None:
            kept = shutil.copytree(folder, Path(tempfile.mkdtemp(prefix="mnb-slow-")) / "results")
    line = {
        "schema": HEALTH_SCHEMA,
        "exit_code": made.exit_code,
        **msgspec.structs.asdict(made),
        "hostname": os.uname().nodename,
        "hardware": found.provenance.hardware,
        "seconds": round(time.monotonic() - began, 1),
        "baseline": name,
        "stored": _store(found) if store and made.verdict == "healthy" else None,
        "results": kept and str(kept),
    }
    if json:
        print(msgspec.json.encode(line).decode())
    else:
        write_parts([facts("", _told(line, made, store=store))], sys.stdout)
    return made.exit_code


def _named(baseline: str) -> Summary:
    """Raises InputError, before minutes of work, for one that has none of the tests of a check."""
    found = load_source(baseline)
    if PROFILE.name not in found.known_suites:
        suites = ", ".join(found.known_suites)
        raise InputError(f"--baseline {plain(baseline)}: it is of {suites}. Make one of check: mnb check --store")
    return found


def _request(node: NodeOptions) -> RunRequest:
    """The same work at every check, whatever the profile of a user."""
    asked = dataclasses.replace(node, window=WINDOW_S, total_limit=LAUNCH_S).profile_request(shipped_profile(PROFILE))
    return msgspec.structs.replace(asked, repeat=REPEATS, stopping=Stopping(width=None, budget_s=BUDGET_S))


def _run(request: RunRequest, *, shows: bool) -> RunOutcome:
    with shown() if shows else nullcontext(Bus()) as bus:
        return asyncio.run(jobs(request, bus, tuple(sys.argv), judge))


def state_folder() -> Path:
    """Where the baselines of all kinds of node are."""
    named = os.environ.get("XDG_STATE_HOME")
    try:
        root = Path(named) if named else Path.home() / ".local" / "state"
    except RuntimeError:
        raise InputError("HOME is not set. Set HOME or XDG_STATE_HOME to the folder of the baselines") from None
    return root / "milabench_ng" / "check"


def state_file(found: Summary) -> Path:
    """The baseline of this kind of node: its GPUs' models and its processors, whatever their number."""
    kind = " ".join((*sorted(set(found.models.values())), found.provenance.node.get("processors", "")))
    return state_folder() / f"{re.sub(r'[^a-z0-9]+', '-', kind.lower()).strip('-')[:150]}.json"


def _known(found: Summary) -> str | None:
    """The stored baseline of this kind of node, else a shipped one of the same devices."""
    file = state_file(found)
    if file.is_file():
        return str(file)
    own = same_models(found.models.values())
    shipped = (name for name in names("baselines") if name.startswith(f"{PROFILE}-"))
    return next((one for one in shipped if own and same_models(load_baseline(one).models.values()) == own), None)


def _make_writable(folder: Path) -> None:
    """Raise InputError, before minutes of work, if no baseline can be kept in this folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = why_unwritable(folder)
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise InputError(f"--store: {plain(folder)} is not writable ({why}). Name another with XDG_STATE_HOME")


def _store(found: Summary) -> str:
    file = state_file(found)
    write_output(file, encode_summary(found).encode(), "--store", force=True)
    return str(file)


def _told(line: Mapping[str, object], made: Health, *, store: bool) -> Iterator[tuple[str, str]]:
    yield "verdict", made.verdict
    if made.devices:
        yield "devices", ", ".join(f"device {one}" for one in made.devices)
    if made.tests:
        yield "tests", ", ".join(made.tests)
    if made.ratio is not None:
        bound = f", at least {made.low:.1%}" if made.low is not None else ""
        yield "baseline", f"{made.ratio:.1%} of {line['baseline']}{bound}; healthy from {made.least:.0%} on"
    yield from (("because", reason) for reason in made.reasons)
    if store:
        yield "stored", str(line["stored"] or "nothing: only a healthy node is a baseline")
    if line["results"]:
        yield "results", str(line["results"])
