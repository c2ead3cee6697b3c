"""The same run with and without the fence, for what the fence is worth: ``mnb jobs --unfenced-too``."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from milabench_ng.cli.executing import execute
from milabench_ng.cli.planned import show_plan
from milabench_ng.errors import InputError
from milabench_ng.orchestrator.persistence.sessions import refuse_outdir
from milabench_ng.orchestrator.planning.request import RunRequest, read_profile
from milabench_ng.plain import plain

SIGNALLED = 128
"""Exit codes above it are of runs that a signal ended."""


def with_and_without_fence(request: RunRequest) -> tuple[RunRequest, RunRequest]:
    """The request with full isolation, and the same without a fence, into a folder beside its own.

    Raises InputError for what cannot run without a fence, or has none anyway, and for a folder that is taken.
    """
    if request.isolation not in ("auto", "full"):
        raise InputError(
            f"--unfenced-too --isolation {request.isolation}: it compares with the full fence; leave out --isolation"
        )
    strict = [name for name, test in read_profile(request)[0].items() if test.get("require") == "full"]
    if strict:
        raise InputError(f"--unfenced-too: test {strict[0]!r} of {request.profile_source} requires full isolation")
    fenced = msgspec.structs.replace(request, isolation="full")
    beside = request.outdir.with_name(f"{request.outdir.name}-unfenced")
    unfenced = msgspec.structs.replace(request, isolation="none", outdir=beside)
    for one in (fenced, unfenced):
        refuse_outdir(one.outdir)
    return fenced, unfenced


def show_both_plans(request: RunRequest) -> int:
    """Print the plan with the fence, then the one without; return the exit code."""
    return max(map(show_plan, with_and_without_fence(request)))


def execute_both(request: RunRequest, weights: Path | None = None) -> int:
    """Run with the fence, then without, unless the first run did not end; say how to go on, or what compares them."""
    codes = []
    both = with_and_without_fence(request)
    fenced, unfenced = (shlex.quote(plain(one.outdir)) for one in both)
    for one in both:
        codes.append(execute(one, weights))
        if codes[-1] > 1:
            if codes[-1] > SIGNALLED and one is both[0]:
                print(
                    "fence:   the run without it has not begun; when this one is resumed and done, give the same "
                    f"command with --isolation none -o {unfenced} instead of --unfenced-too"
                )
            return codes[-1]
    print(f"fence:   mnb report {fenced} --compare {unfenced}")
    return max(codes)
