"""Attacks on what was to run and on the books: profile, plan, options, records, ledger."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import tampering
from tampering import Tamper, everywhere, manifest, ours, record, records

from milabench_ng.model.units import utc_iso
from milabench_ng.records.borders import date_of
from milabench_ng.records.ledger import LedgerLine, Recorded
from milabench_ng.records.reading import read_ledger
from milabench_ng.records.stopping import Stopping


def remove(pattern: str) -> Tamper:
    """Take records away, and the ledger's word of them."""

    def tamper(folder: Path) -> None:
        paths = list(folder.glob(pattern))
        if not paths:
            raise LookupError(pattern)
        for path in paths:
            path.unlink()
        tampering.rehash(folder)

    return tamper


def hide_a_failed_attempt(folder: Path) -> None:
    """The failed record goes; the ledger that notes it stays."""
    path = sorted(folder.glob("*.vae.J*.1.*"))[-1]
    tampering.rewrite(path, tampering.failed("oom"))
    tampering.rehash(folder)
    path.unlink()


def other_profile(content: dict[str, Any]) -> None:
    """One byte more, which means the same."""
    content["profile"]["text"] += " "


def less_data(content: dict[str, Any]) -> None:
    """The profile in the manifest states another scale than the plan has."""
    tests = json.loads(content["profile"]["text"])
    tests["vae"]["data_scale"] = 0.5
    content["profile"]["text"] = json.dumps(tests)


def millions_of_launches(content: dict[str, Any]) -> None:
    """A profile of which the stated devices would make 8.6 million launches; the plan has only those of the run."""
    planned, beside = content["plan"], {"workload": "vae", "role": "company"}
    planned["devices"] = [{**planned["devices"][0], "index": index} for index in range(80)]
    planned["slots_per_device"], planned["repeat"] = 26, 2
    text = json.dumps({"vae": {"workload": "vae", "company": ["toy_reg"]}, "toy_reg": beside})
    content["profile"] |= {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def one_test_less(content: dict[str, Any]) -> None:
    content["plan"]["batches"] = [
        batch for batch in content["plan"]["batches"] if not batch["launches"][0]["test"].endswith(".toy_reg")
    ]


def too_small_for_one(content: dict[str, Any]) -> None:
    """The node is said to be too small for a slow test, which then would have no weight."""
    one_test_less(content)
    content["plan"]["unplanned"] = {"standard.toy_reg": "it needs 4 devices, but the node has 2"}


def second_device_as_company(launch: dict[str, Any]) -> None:
    """A slow device is relabelled: it is there to be a neighbour, and is never scored."""
    if launch["devices"] == [1]:
        launch["role"] = "company"


def company_without_records(folder: Path) -> None:
    everywhere(second_device_as_company)(folder)
    remove("*.vae.J0.1.*")(folder)


def company_of_one_batch(folder: Path) -> None:
    """Company that two batches have in common, of which one has no record any more and its events stay."""
    of_first = list(folder.glob("*.toy_reg.J0.1.*"))
    share_company(folder)
    for path in of_first:
        path.unlink()
    tampering.rehash(folder)


def share_company(folder: Path) -> None:
    """The second device's launch of toy_reg's first batch is company in its second batch too, by the same name."""

    def first_run(launch: dict[str, Any]) -> None:
        if launch["test"].endswith(".toy_reg") and launch["devices"] == [1]:
            launch.update(role="company", run=0)

    everywhere(first_run)(folder)
    for path in list(folder.glob("*.toy_reg.J1.1.*")):
        tampering.rewrite(path, lambda content: content.update(job_id="0.1"))
        path.rename(path.with_name(path.name.replace(".J1.1.", ".J0.1.")))


def as_company(content: dict[str, Any]) -> None:
    content["mnb"]["launch"]["role"] = "company"


def backwards(content: dict[str, Any]) -> None:
    content["plan"]["batches"].reverse()


def smaller_batch(launch: dict[str, Any]) -> None:
    launch["arguments"]["batch_size"] = 32


def overridden(launch: dict[str, Any]) -> None:
    launch["overrides"] = ["batch_size"]


def smaller_option(launch: dict[str, Any]) -> None:
    if launch["test"].endswith(".vae"):
        launch["arguments"]["max_count"] = 10


def cyrillic(launch: dict[str, Any]) -> None:
    """A test by a name that looks like that of the profile."""
    if launch["test"].endswith(".vae"):
        launch["test"] = launch["test"].replace(".vae", ".v\u0430e")


def faster_learning(launch: dict[str, Any]) -> None:
    if launch["test"].endswith(".vae"):
        launch["arguments"]["learning_rate"] = 1.0


def worth_more(folder: Path) -> None:
    for path in folder.glob("*.vae.*"):
        tampering.rewrite(path, ours(classic_factor=1000.0))
    tampering.rehash(folder)


def cut_the_ledger(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:4] + lines[5:]))


def lost_minus_one(content: dict[str, Any]) -> None:
    """A slow launch that the report should not see."""
    content["mnb"]["sampled"] = {"start_s": 0.0, "end_s": 1.0, "interval_s": 0.5, "dropped": -1}


def paced(content: dict[str, Any]) -> None:
    content["mnb"]["host_pace"]["1"]["after"]["mb_per_s"] = 90.0


def a_session_for_each_run(folder: Path) -> None:
    """Three sessions make an interval narrower than one."""
    if not list(folder.glob("*.J1.*")):
        raise LookupError("a second run")
    records(lambda content: content["mnb"].update(session=1 + content["mnb"]["launch"]["run"]))(folder)


def later(utc: str, seconds: float) -> str:
    """A date moved."""
    return utc_iso(datetime.fromisoformat(utc) + timedelta(seconds=seconds))


def an_hour_later(content: dict[str, Any]) -> None:
    """A launch of another time, with all its dates."""
    mnb = content["mnb"]
    mnb["started_utc"] = later(mnb["started_utc"], 3600)
    for edge in mnb["conditions"].values():
        edge["utc"] = later(edge["utc"], 3600)


def earlier_lines(folder: Path) -> None:
    """The second half of the ledger was written before the first."""

    def change(entry: LedgerLine) -> LedgerLine:
        return msgspec.structs.replace(entry, utc=later(entry.utc, -7200 if entry.number > 8 else 0))

    tampering.rehash(folder, change)


def other_option(launch: dict[str, Any]) -> None:
    """An option that only a patched workload takes."""
    launch["arguments"]["skip"] = 10


def odd_version(folder: Path) -> None:
    """A version of one's own, which nobody knows, in run.json and all records."""

    def change(content: dict[str, Any]) -> None:
        content["version"] = "0.3.0.dev"

    tampering.rewrite(folder / "run.json", change)
    for path in folder.glob("*.J*.json"):
        tampering.rewrite(path, lambda content: content["mnb"].update(version="0.3.0.dev"))
    tampering.rehash(folder)


def another_version(content: dict[str, Any]) -> None:
    content["version"] = "0.2.9"


def huge(folder: Path) -> None:
    """A record that would take gigabytes when decoded."""
    path = next(folder.glob("*.vae.J0.0.*"))
    noise = random.Random(1).randbytes(11 << 20).hex().encode()  # so that the bundle is not refused as a bomb
    path.write_bytes(path.read_bytes().replace(b'"mnb":', b'"noise": "' + noise + b'",\n "mnb":', 1))
    tampering.rehash(folder)


def second_record_below(folder: Path) -> None:
    """A record in a folder of its own, which the report counts."""
    (folder / "more").mkdir()
    shutil.copy(next(folder.glob("*.vae.J0.0.*")), folder / "more" / "better.json")


def last_repeat_cut_off(folder: Path) -> None:
    """The last repeat was slow: a rule is said to have ended the run before it."""
    repeats = tampering.plan_of(folder).repeat
    if repeats < 2:
        raise LookupError("a second repeat")
    tampering.end_after(folder, repeats - 1, Stopping(width=0.001))


def budget_made_up(folder: Path) -> None:
    """The last repeat was slow: what was measured before it is said to have spent a budget."""
    repeats = tampering.plan_of(folder).repeat
    if repeats < 2:
        raise LookupError("a second repeat")
    runs = {(one.label, one.job_id): one.run for one in tampering.plan_of(folder).launches}
    first, *lines = read_ledger(folder).entries
    recorded = [(line, line.what) for line in lines if isinstance(line.what, Recorded)]
    last = [line for line, what in recorded if runs[what.label, what.job_id] < repeats - 1][-1]
    spent_s = (date_of(last) - date_of(first)).total_seconds()
    tampering.end_after(folder, repeats - 1, Stopping(budget_s=spent_s + 1.0), "budget")


def rule_in_the_manifest(folder: Path) -> None:
    """A rule that the run did not begin with."""
    tampering.rewrite(folder / "run.json", lambda content: content.update(stopping={"budget_s": 1e6}))


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "swapped profile": ("R6", manifest(other_profile), "but the rules require"),
    "launches relabelled as company": ("R8", everywhere(second_device_as_company), "on 1 (neighbor) at the same time"),
    "company that left no record": ("R12", company_without_records, "it was planned as a neighbor and has no record"),
    "company of one batch that left no record": ("R12", company_of_one_batch, "as a neighbor and has no record"),
    "record relabelled as company": ("R12", record(as_company), "it has a record as a neighbor and was not planned"),
    "smaller data than the profile says": (
        "R8",
        manifest(less_data),
        "data scale 1 instead of 0.5 in standard.vae; `mnb jobs --data-scale` changes it",
    ),
    "a profile of millions of launches": (
        "R8",
        manifest(millions_of_launches),
        "the profile needs launches on 8,652,800 slots in total. The limit is 100,000",
    ),
    "test left out of the plan": ("R8", manifest(one_test_less), "1 of 5 tests are not in the plan: toy_reg"),
    "a test by a name that looks alike": ("R8", everywhere(cyrillic), "the plan runs standard.v\\u0430e run 0"),
    "test that the node is said to be too small for": (
        "R8",
        manifest(too_small_for_one),
        "run.json lists standard.toy_reg as not planned, but the profile gives none",
    ),
    "batches in another order": ("R9", manifest(backwards), "not in the order that follows from the nonce"),
    "batch size changed everywhere": ("R10", everywhere(smaller_batch), "batch_size is 32, but the rules require 64"),
    "batch size overridden": ("R10", everywhere(overridden), "changed on the command line: batch_size"),
    "option that the profile does not state": (
        "R10",
        everywhere(smaller_option),
        "max_count is 10, but the rules require 0",
    ),
    "option that nobody states": (
        "R10",
        everywhere(faster_learning),
        "learning_rate is 1.0, but the rules require 0.001",
    ),
    "items of all records": ("R37", worth_more, "its classic_factor is 1000.0, vae has 1.0"),
    "arguments of one record": ("R38", record(lambda at: smaller_batch(at["mnb"]["launch"])), "instead of 64"),
    "formula of one record": (
        "R37",
        record(ours(derived=[{"unit": "MPx/s", "formula": "rate * 9"}])),
        "its list of derived units is MPx/s = rate * 9, that of most of its row none",
    ),
    "pace of one record": (
        "R37",
        record(ours(paced_by="pulse_hz")),
        "its option that sets the pace is pulse_hz, vae has none",
    ),
    "items of one record": ("R37", record(ours(classic_factor=10.0)), "its classic_factor is 10.0, that of most"),
    "removed record": ("R12", remove("*.vae.J0.0.*"), "vae J0.0: it was planned and has no record"),
    "too few repeats": ("R11", remove("*.vae.J1.*"), "vae"),
    "hidden failed attempt": ("R13", hide_a_failed_attempt, "attempt 1 was recorded (it failed: oom)"),
    "line taken out of the ledger": ("R13", cut_the_ledger, "line 5"),
    "failed launch": ("R14", record(tampering.failed("oom")), "the rules allow"),
    "record that the report cannot read": ("R12", record(lost_minus_one), "vae.J1.1"),
    "damaged host pace": ("R12", record(paced), "a CPU speed of 90.0 MB/s does not follow from its bursts"),
    "one session called several": ("R13", a_session_for_each_run, "noted it"),
    "option that no workload has": ("R10", everywhere(other_option), "has no option skip"),
    "a version of one's own": ("R33", odd_version, "'0.3.0.dev' is no released version"),
    "a version that did not begin the run": (
        "R13",
        lambda folder: tampering.rewrite(folder / "run.json", another_version),
        "was begun by mnb",
    ),
    "record that fills the memory": ("R12", huge, "larger than the 20 MiB that such a file may have"),
    "last repeat cut off by a rule added afterwards": ("R12", last_repeat_cut_off, "where its rule had it go on"),
    "a budget made up": ("R11", budget_made_up, "it was free to end early"),
    "rule added to run.json": ("R13", rule_in_the_manifest, "differs from the start of the run"),
    "record below the folder": ("R12", second_record_below, "more/better.json: it belongs to no run"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
