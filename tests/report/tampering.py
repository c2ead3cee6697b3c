"""What somebody may do to a result folder or a bundle who wants to look better than he is."""

from __future__ import annotations

import functools
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import make_records
import msgspec
from make_records import PER_GPU, PROGRESSION

from milabench_ng.model.plan import Plan
from milabench_ng.records import ledger
from milabench_ng.records.ledger import Attempt, Chain, LedgerLine, Recorded, Started, StoppedEarly, extend
from milabench_ng.records.names import file_digest
from milabench_ng.records.reading import read_ledger
from milabench_ng.records.stopping import Stopping
from milabench_ng.verification.findings import Verification

NONCE = "drawn on 2026-01-06"
TESTS = {"vae": PER_GPU, "toy_reg": PER_GPU, "loader": PER_GPU, "scaling": PROGRESSION}
WHOLE = make_records.plan("standard", TESTS, 2, 2, nonce=NONCE)
Change = Callable[[dict[str, Any]], None]
Tamper = Callable[[Path], None]


def told_by(found: Verification, finder: str) -> str:
    """Why a rule is broken or a doubt is raised; empty if it is not."""
    broken = {ruling.id: ruling.reasons for ruling in found.having("fail")}
    return "\n".join((broken | {doubt.name: doubt.reasons for doubt in found.doubts}).get(finder, ()))


@contextmanager
def changing(path: Path) -> Iterator[dict[str, Any]]:
    """The content of a JSON file, which is written with what is done to it."""
    content = json.loads(path.read_bytes())
    yield content
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))


def rewrite(path: Path, change: Change) -> None:
    """Change a JSON file."""
    with changing(path) as content:
        change(content)


def record(change: Change, pattern: str = "*.vae.J*.1.*") -> Tamper:
    """Change the last record of that name, or of any on a folder without one, and the ledger with it."""

    def tamper(folder: Path) -> None:
        named, second, any_ = (
            [path for path in sorted(folder.glob(each)) if ".FAIL." not in path.name]
            for each in (pattern, "*.J*.1.*.json", "*.J*.json")
        )
        rewrite((named or second or any_)[-1], change)
        rehash(folder)

    return tamper


def records(change: Change, pattern: str = "*.J*.json") -> Tamper:
    """Change every record of that name but those of failures, of which no number counts, and the ledger with them."""

    def tamper(folder: Path) -> None:
        for path in sorted(folder.glob(pattern)):
            if ".FAIL." not in path.name:
                rewrite(path, change)
        rehash(folder)

    return tamper


def rehash(folder: Path, change: Callable[[LedgerLine], LedgerLine] = lambda entry: entry) -> None:
    """The ledger anew, as if it had always noted what the folder holds now: sums, promises, no word of what is gone."""
    promised, chain, lines = json.loads((folder / "run.json").read_bytes()), Chain(), b""
    for entry in map(change, read_ledger(folder).entries):
        what = entry.what
        if isinstance(what, Started):
            sums: dict[str, Any] = {
                "plan_sha256": plan_of(folder).sha256,
                "profile_sha256": promised["profile"]["sha256"],
            }
            stated = {"nonce": promised["plan"]["nonce"], "version": promised["version"]}
            sums["stopping"] = msgspec.convert(promised.get("stopping"), Stopping | None)
            what = msgspec.structs.replace(what, **stated, **sums)
        if isinstance(what, Recorded):
            path = folder / what.file
            if not path.exists():
                continue
            content = path.read_bytes()
            failure = json.loads(content)["mnb"]["failure"]
            what = msgspec.structs.replace(what, sha256=file_digest(content), cause=failure and failure["cause"])
        if isinstance(what, Attempt) and not list(folder.glob(f"*.J{what.job_id}.*")):
            continue
        chain, more = extend(chain, entry.utc, [what])
        lines += more
    (folder / "ledger.jsonl").write_bytes(lines)


def end_after(folder: Path, repeats: int, rule: Stopping, why: Literal["narrow", "budget"] | None = "narrow") -> None:
    """The folder as if it had been begun with this rule for stopping, and ended by it after so many repeats.

    ``why`` None: the rule never ended it.
    """
    for path in folder.glob("*.J*.json"):
        if json.loads(path.read_bytes())["mnb"]["launch"]["run"] >= repeats:
            path.unlink()
    rewrite(folder / "run.json", lambda content: content.update(stopping=msgspec.to_builtins(rule)))
    rehash(folder)
    chain, lines = Chain(), b""
    entries = [entry for entry in read_ledger(folder).entries if not isinstance(entry.what, StoppedEarly)]
    last = max(place for place, entry in enumerate(entries) if isinstance(entry.what, Recorded))
    for place, entry in enumerate(entries):
        end = [StoppedEarly(repeats=repeats, why=why, detail="it is enough")] if why and place == last else []
        chain, more = extend(chain, entry.utc, [entry.what, *end])
        lines += more
    (folder / "ledger.jsonl").write_bytes(lines)


def ours(**changes: Any) -> Change:
    """Replace keys of the ``mnb`` part."""
    return lambda content: content.update(mnb=make_records.changed(content["mnb"], changes))


def manifest(change: Change) -> Tamper:
    """Change ``run.json``, and the ledger with it."""

    def tamper(folder: Path) -> None:
        rewrite(folder / "run.json", change)
        rehash(folder)

    return tamper


def plan_of(folder: Path) -> Plan:
    """The plan that ``run.json`` has now."""
    return msgspec.convert(json.loads((folder / "run.json").read_bytes())["plan"], Plan)


def write_honest(folder: Path) -> None:
    """A run with which nothing is wrong; `vae` reads what it says."""
    make_records.write_run(folder, WHOLE, slices=24)
    records(lambda content: content["mnb"]["data"].update(name="mnist"), "*.vae.*")(folder)
    make_records.write_ledger(folder, WHOLE)


def everywhere(change: Callable[[dict[str, Any]], None]) -> Tamper:
    """Change every launch, in the plan and in the records, as if it had always been so."""

    def tamper(folder: Path) -> None:
        def all_launches(content: dict[str, Any]) -> None:
            launches = [launch for batch in content["plan"]["batches"] for launch in batch["launches"]]
            before = json.dumps(launches)
            for launch in launches:
                change(launch)
            if json.dumps(launches) == before:
                raise LookupError("no such launch")

        def own_launch(content: dict[str, Any]) -> None:
            change(content["mnb"]["launch"])
            content["call"]["arguments"] = content["mnb"]["launch"]["arguments"]

        rewrite(folder / "run.json", all_launches)
        for path in folder.glob("*.J*.json"):
            rewrite(path, own_launch)
        rehash(folder)

    return tamper


def one_slice(content: dict[str, Any]) -> None:
    """A tenth more items in one slice; the count of the rank with it, the rates forgotten."""
    rank = content["mnb"]["ranks"][0]
    rank["slices"][-10][2] += 5
    rank["count"] += 5


def without_a_slice(content: dict[str, Any]) -> None:
    """A slow slice taken out, everywhere."""
    rank = content["mnb"]["ranks"][0]
    gone = rank["slices"].pop(-10)
    rank["count"] -= gone[2]
    content["timings"]["train"]["rates"].pop(-10)


def faster(content: dict[str, Any]) -> None:
    """A hundred times faster, and every number that follows from it."""
    rank = content["mnb"]["ranks"][0]
    for row in rank["slices"]:
        row[2] *= 100
    rank["count"] *= 100
    timing = content["timings"]["train"]
    timing["rates"] = [100 * rate for rate in timing["rates"]]


def recount(content: dict[str, Any]) -> None:
    """The counts and rates that follow from the slices."""
    for number, rank in enumerate(content["mnb"]["ranks"]):
        rank["count"] = sum(row[2] for row in rank["slices"])
        name = "train" if content["mnb"]["launch"]["scheme"] == "per-gpu" else f"train_{number}"
        rates = [row[2] / row[1] for row in rank["slices"]]
        stated = content["timings"][name]["rates"]
        content["timings"][name]["rates"] = rates[len(rates) - len(stated) :]


def failed(cause: str) -> Change:
    """A launch that failed."""

    def change(content: dict[str, Any]) -> None:
        content["success"] = False
        content["mnb"] |= {"failure": {"cause": cause, "detail": "why"}, "window": None}
        begin = content["mnb"]["ranks"][0]["slices"]
        content["timings"]["train"]["rates"] = [row[2] / row[1] for row in begin]

    return change


def _in_each(*keys: str) -> Callable[..., Change]:
    """Makes changes of all that a launch has below these keys."""

    def changed(**changes: Any) -> Change:
        def change(content: dict[str, Any]) -> None:
            for each in functools.reduce(dict.__getitem__, keys, content["mnb"]).values():
                each.update(changes)

        return change

    return changed


fence = _in_each("isolation")
"""Change the evidence of the fence around a launch."""
gpu = _in_each("conditions", "before", "settings", "gpus")
"""Change the settings of the GPUs before a launch."""
gpu_state = _in_each("conditions", "after", "gpus")
"""Change the state of the GPUs after a launch."""


def environment(**changes: str) -> Change:
    """Change the environment of a launch."""
    return lambda content: content["mnb"]["environment"].update(changes)


def host(**changes: Any) -> Change:
    """Change the settings of the host before a launch."""
    return lambda content: content["mnb"]["conditions"]["before"]["settings"]["host"].update(changes)


def proof(kind: str, edge: str, change: Change | None) -> Tamper:
    """Change what the ledger says that the sessions read of ``code`` or ``data``; None: take it out."""

    def tamper(folder: Path) -> None:
        kept: list[tuple[str, Any]] = []
        for utc, event in ledger_events(folder):
            if kind in event and event["edge"] == edge:
                if change is None:
                    continue
                change(event)
            kept.append((utc, event))
        write_events(folder, kept)

    return tamper


def add_session(folder: Path, events: Sequence[ledger.AnyLedgerEvent]) -> None:
    """Another session after all others, with these events."""
    session = ledger.Session(number=2, hostname="node", boot_id="boot", pid=2, command_line=("mnb", "jobs"))
    finished = ledger.Finished(missing=0, failed=0)
    before = ledger_events(folder)
    added: list[Any] = msgspec.to_builtins([session, ledger.Resumed(missing=0), *events, finished])
    write_events(folder, [*before, *((before[-1][0], event) for event in added)])


def ledger_events(folder: Path) -> list[tuple[str, Any]]:
    """The dates and events of the ledger, as plain values."""
    lines = map(json.loads, (folder / "ledger.jsonl").read_bytes().splitlines())
    return [(line["utc"], line["what"]) for line in lines]


def write_events(folder: Path, events: Sequence[tuple[str, Any]]) -> None:
    """A new ledger of these dates and events, whose chain is sound."""
    chain, lines = Chain(), b""
    for utc, event in events:
        chain, more = extend(chain, utc, [msgspec.convert(event, ledger.AnyLedgerEvent)])
        lines += more
    (folder / "ledger.jsonl").write_bytes(lines)


def members(bundle: Path) -> dict[str, bytes]:
    """The files of a bundle."""
    with tarfile.open(bundle) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def repack(path: Path, files: dict[str, bytes]) -> Path:
    """An archive with these files, as anybody could make one."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path.write_bytes(gzip.compress(made.getvalue()))
    return path
