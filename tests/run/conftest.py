"""Real runs of real workers: one server start serves many launches, and many runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from milabench_ng.cli.run_and_report import judge
from milabench_ng.model.profile import parse_profile
from milabench_ng.records.ledger import AnyLedgerEvent, Recorded, check_chain
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.names import LEDGER, MANIFEST
from milabench_ng.records.record import Record
from milabench_ng.records.window import MEASURED_BY
from milabench_ng.run.events.bus import Bus
from milabench_ng.run.events.run_events import AnyRunEvent, Note, RunEvent, Stamped
from milabench_ng.run.jobs import RunOutcome, jobs
from milabench_ng.run.persistence.resuming import resumed_request
from milabench_ng.run.planning.request import RunRequest
from tests.one_server import OneServer, without_pauses

BRIEF = msgspec.structs.replace(MEASURED_BY, settle_s=0.1, length_s=0.5, margin_s=0.1)
"""Just enough for a launch to count."""
AT_WORK = msgspec.structs.replace(MEASURED_BY, settle_s=0.4, length_s=1.5, margin_s=0.3)
"""Enough to do something to a launch at work, and to see what comes of it."""
SLICE_S = 0.1
"""In a brief run: a first slice of half a second is all of its window, and work settles only after that."""
BROKEN = "tests.run.broken"
"""Workloads that behave badly on purpose."""
STEADY: dict[str, object] = {"steady": {"workload": f"{BROKEN}:steady"}}
needs_two_cpus = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs for two tenants")

Act = Callable[[AnyRunEvent], None]


class PlannedError(Exception):
    """Raised by a witness on purpose: the run is what is looked at."""


class Witness:
    """A sink that remembers, and can act in the middle of a run."""

    name = "witness"
    wants: tuple[type[RunEvent], ...] = (RunEvent,)

    def __init__(self, act: Act | None = None) -> None:
        self.told: list[Stamped] = []
        self.act = act
        self.failed: Exception | None = None

    def receive(self, stamped: Stamped) -> None:
        """Remember it, and act if there is something to do. The bus drops a sink that raises: `failed` keeps why."""
        self.told.append(stamped)
        if self.act:
            try:
                self.act(stamped.event)
            except Exception as error:
                self.failed = None if isinstance(error, PlannedError) else error
                raise

    def close(self) -> None:
        """Nothing is held."""


class Finished(msgspec.Struct, frozen=True):
    """A run that is over."""

    outcome: RunOutcome
    folder: Path
    told: list[Stamped]
    manifest: Manifest
    records: list[Record]
    events: tuple[AnyLedgerEvent, ...]
    """Of the ledger, whose chain is sound."""

    @property
    def notes(self) -> list[str]:
        """What the user was told."""
        return [one.event.text for one in self.told if isinstance(one.event, Note)]

    def log(self, test: str) -> str:
        """What the first launch of a test wrote, and what was written of it."""
        return "".join(path.read_text() for path in sorted(self.folder.glob(f"logs/trial.{test}.J*.log")))

    def of(self, test: str) -> list[Record]:
        """The records of one test."""
        return [record for record in self.records if record.name == f"trial.{test}"]


Runner = Callable[..., Finished]


@pytest.fixture(scope="session")
def run_profile(tmp_path_factory: pytest.TempPathFactory, data_root: Path, one_server: OneServer) -> Runner:
    """Run a profile for real and read back what it wrote; with a worker server of its own only where that matters."""

    def run(tests: dict[str, Any], act: Act | None = None, *, own_server: bool = False, **options: object) -> Finished:
        defaults: dict[str, object] = {
            "tenants": min(2, os.cpu_count() or 1),
            "rule": BRIEF,
            "dataroot": data_root,
            "outdir": tmp_path_factory.mktemp("run") / "results",
        }
        given = {**defaults, **options}
        brief = {name: in_short_slices(test) for name, test in tests.items()} if given["rule"] == BRIEF else tests
        request = RunRequest(
            profile=parse_profile("trial", json.dumps({"*": {"data_scale": 0.002}, **brief}), "trial.json"),
            **given,  # type: ignore[arg-type]
        )
        with contextlib.nullcontext() if own_server else one_server.lent():
            return finish(request, act)

    return run


def in_short_slices(test: Any) -> dict[str, object]:
    """A test of a profile, with slices that fit into a brief window."""
    return {**test, "arguments": {"sample_duration": SLICE_S, **test.get("arguments", {})}}


@pytest.fixture(scope="session")
def resume_run(one_server: OneServer) -> Runner:
    """Go on with the run in a folder."""

    def resume(folder: Path, act: Act | None = None, **given: object) -> Finished:
        with one_server.lent():
            return finish(resumed_request(folder, None, **given), act)

    return resume


def tell_seen(folder: Path) -> None:
    """Tell scripts/fault-matrix what causes a run has recorded."""
    place = os.environ.get("MNB_TEST_FAULTS")
    if place and (folder / LEDGER).exists():
        events = check_chain((folder / LEDGER).read_bytes()).events
        causes = [event.cause or "success" for event in events if isinstance(event, Recorded)]
        with Path(place).open("a") as file:
            print(", ".join(causes) or "no record", file=file)


def finish(request: RunRequest, act: Act | None) -> Finished:
    """Run a request, and read what is in its folder."""
    witness = Witness(act)
    with contextlib.closing(Bus(witness)) as bus, without_pauses():
        outcome = asyncio.run(jobs(request, bus, ("mnb", "jobs", "trial.json"), judge))
    if witness.failed:
        raise witness.failed
    folder = request.outdir
    tell_seen(folder)
    chain = check_chain((folder / LEDGER).read_bytes())
    assert (chain.problems, chain.torn) == ((), b"")
    files = sorted(path for path in folder.glob("*.json") if path.name != MANIFEST)
    return Finished(
        outcome=outcome,
        folder=folder,
        told=witness.told,
        manifest=msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest),
        records=[msgspec.json.decode(path.read_bytes(), type=Record) for path in files],
        events=chain.events,
    )
