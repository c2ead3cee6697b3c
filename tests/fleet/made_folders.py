"""Fleet folders of made-up result folders, with exact rates."""

from __future__ import annotations

import io
import math
import random
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).parents[1] / "report"))

from make_records import PER_GPU, PROGRESSION, plan, write_run

from milabench_ng import __version__
from milabench_ng.analysis.summary.summary import Stat, Summary, TestSummary
from milabench_ng.fleet.folder import NODES, NodeSession, own_names
from milabench_ng.fleet.ledger import (
    FLEET_LEDGER,
    AnyFleetEvent,
    Collected,
    FleetSession,
    NodeEnded,
    NodeStarted,
    next_line,
)
from milabench_ng.fleet.manifest import FleetManifest, encode_fleet_manifest
from milabench_ng.model.plan import Launch
from milabench_ng.records.folder import Folder
from milabench_ng.records.ledger import FIRST
from milabench_ng.records.manifest import Manifest, ProfileText
from milabench_ng.records.names import FLEET_MANIFEST, LEDGER, MANIFEST, file_digest
from milabench_ng.verification.opening import opened

UTC = "2026-01-06T16:00:00Z"
TESTS = ("convnet", "fast_style", "wlm", "toy_reg", "vae")
"""Three that the GPU bounds and two that the host does."""
BEGUN = FleetSession(number=1, hostname="h", pid=1, version="1", command_line=("mnb",), manifest_sha256="0")
Factor = Callable[[str, str, str], float]
"""How fast a node is, by its name, the session and the test."""


def write_fleet(
    folder: Path,
    nodes: Sequence[str],
    factor: Factor = lambda *_: 1.0,
    *,
    retests: Mapping[str, Sequence[str]] | None = None,
    more: Sequence[AnyFleetEvent] = (),
    without: Sequence[str] = (),
) -> Path:
    """A fleet of nodes with two devices each; ``without``: nodes that left nothing."""
    sessions = {"screen": [node for node in nodes if node not in without], **(retests or {})}
    for session, there in sessions.items():
        for node in there:
            write_session(session_folder(folder, node, session), node, session, factor)
    done = [event for session, there in sessions.items() for node in there for event in _events(folder, node, session)]
    write_frame(folder, nodes, (*done, *more))
    return folder


def session_folder(folder: Path, node: str, session: str) -> Path:
    """Where a plain folder lies that was brought to a fleet."""
    return folder / NODES / node / session


def records_of(one: NodeSession) -> Folder:
    """What is read of a session."""
    with opened(one.path) as there:
        return there.folder


def write_session(folder: Path, node: str, session: str, factor: Factor) -> None:
    """A result folder whose rates differ a little between nodes and repeats."""

    def rate(launch: Launch, rank: int) -> float:
        luck = random.Random(f"{node} {session} {launch.test} {launch.job_id} {rank}").gauss(0, 0.003)
        return 100_000 * factor(node, session, launch.workload) * math.exp(luck)

    run_id = f"20260106-160000-{random.Random(f'{node} {session}').randrange(16**6):06x}"
    write_run(folder, plan("standard", dict.fromkeys(TESTS, PER_GPU), 2, 2), rate, slices=24, run_id=run_id)


def write_frame(folder: Path, nodes: Sequence[str], events: Sequence[AnyFleetEvent]) -> None:
    """Manifest and ledger."""
    folder.mkdir(parents=True, exist_ok=True)
    ran = [{"profile": profile_of(each)} for each in (folder / NODES).glob("*/screen")][:1]
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(made_manifest(nodes, **dict(*ran))))
    (folder / FLEET_LEDGER).write_bytes(made_ledger(BEGUN, *events))


def profile_of(results: Path) -> ProfileText:
    """What a run has done."""
    return msgspec.json.decode((results / MANIFEST).read_bytes(), type=Manifest).profile


def made_manifest(nodes: Sequence[str], suite: str = "standard", text: str = "{}", **more: Any) -> FleetManifest:
    """Of a fleet that was asked for nothing unusual."""
    usual = FleetManifest(
        fleet_id="f",
        version=__version__,
        created_utc=UTC,
        command_line=("mnb", "fleet", "run"),
        suite=suite,
        profile=ProfileText(file=f"{suite}.json", sha256=file_digest(text.encode()), text=text),
        nodes=tuple(nodes),
        launcher="local",
        mnb=("mnb",),
        node_folder="/var/tmp/f",
    )
    return msgspec.structs.replace(usual, **more)


def made_ledger(*events: AnyFleetEvent) -> bytes:
    """A chain of events."""
    head, content = FIRST, b""
    for number, event in enumerate(events):
        head, line = next_line(number, head, UTC, event)
        content += line
    return content


def packed(files: Mapping[str, bytes | tarfile.TarInfo]) -> bytes:
    """A compressed archive of files, or of members as they are."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _events(folder: Path, node: str, session: str) -> Iterator[AnyFleetEvent]:
    ledger = (session_folder(folder, node, session) / LEDGER).read_bytes()
    yield NodeStarted(node=node, session=session)
    yield NodeEnded(node=node, session=session, status=0)
    summary = session_folder(folder, node, session).with_name(own_names(session)[1])
    yield Collected(
        node=node,
        session=session,
        sha256="",
        ledger_sha256=file_digest(ledger),
        summary_sha256=file_digest(summary.read_bytes()) if summary.exists() else "",
    )


def write_node(folder: Path) -> Path:
    """The profile standard on 8 devices, 3 repeats."""
    profile = msgspec.json.decode((Path(__file__).parents[2] / "profiles" / "standard.json").read_bytes())
    tests = {name: PROGRESSION if name == "scaling" else PER_GPU for name in profile if name != "*"}
    write_run(folder, plan("standard", tests, 8, 3), slices=90)
    return folder


def scaled(summary: Summary, factors: Mapping[str, float]) -> Summary:
    """The summary of a node that is so many times as fast, by test."""
    rows = {label: _scaled(row, factors[label]) for label, row in summary.tests.items()}
    return msgspec.structs.replace(summary, tests=rows)


def _scaled(row: TestSummary, by: float) -> TestSummary:
    return msgspec.structs.replace(
        row,
        train=row.train and _stat(row.train, by),
        pergpu=row.pergpu and {device: _stat(stat, by) for device, stat in row.pergpu.items()},
        launches={job: by * rate for job, rate in row.launches.items()},
        repeats={repeat: by * rate for repeat, rate in row.repeats.items()},
        ranks={rank: by * rate for rank, rate in row.ranks.items()},
        log_perf=row.log_perf and row.log_perf.shifted(by),
    )


def _stat(stat: Stat, by: float) -> Stat:
    return Stat(stat.n, by * stat.min, by * stat.max, by * stat.mean, by * stat.std)
