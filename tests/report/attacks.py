"""Every attack on results that was ever tried, as one list: the tests and ``scripts/red-team`` make each of them.

Each is done as well as its author could: the ledger's chain holds no secret, so that it is always written anew.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import contradiction_attacks
import evidence_attacks
import msgspec
import tampering
from tampering import (
    Change,
    Tamper,
    everywhere,
    fence,
    gpu,
    gpu_state,
    manifest,
    members,
    ours,
    record,
    records,
    repack,
)

from milabench_ng.records.ledger import LedgerLine, Session
from milabench_ng.report.verification.signing import sign
from milabench_ng.units import utc_iso

BundleTamper = Callable[[Path, Path], None]
"""Changes a bundle; the second path is the folder of the keys."""


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


def one_test_less(content: dict[str, Any]) -> None:
    content["plan"]["batches"] = [
        batch for batch in content["plan"]["batches"] if not batch["launches"][0]["test"].endswith(".toy_reg")
    ]


def second_device_as_company(launch: dict[str, Any]) -> None:
    """A slow device is relabelled: it is there to be a neighbour, and is never scored."""
    if launch["devices"] == [1]:
        launch["role"] = "company"


def company_without_records(folder: Path) -> None:
    everywhere(second_device_as_company)(folder)
    remove("*.vae.J0.1.*")(folder)


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


def faster_learning(launch: dict[str, Any]) -> None:
    if launch["test"].endswith(".vae"):
        launch["arguments"]["learning_rate"] = 1.0


def worth_more(folder: Path) -> None:
    for path in folder.glob("*.vae.*"):
        tampering.rewrite(path, ours(classic_factor=1000.0))
    tampering.rehash(folder)


def no_data_at_all(folder: Path) -> None:
    for path in folder.glob("*.vae.*"):
        tampering.rewrite(path, ours(data=None))
    tampering.rehash(folder)


def unsaid_storage(content: dict[str, Any]) -> None:
    del content["storage"]["outdir"]


def empty_bus(content: dict[str, Any]) -> None:
    content["inventory"]["pci_gpus"] = []


def moved(folder: Path, **more: float) -> None:
    """The stop of a batch 10 s earlier, with a window to fit."""
    for path in folder.glob("*.vae.J0.*"):

        def change(content: dict[str, Any]) -> None:
            mnb = content["mnb"]
            stop = mnb["stop_s"] - 10
            mnb.update(stop_s=stop, window={"start_s": stop - 10, "end_s": stop - 1})
            mnb["ranks"][0] |= {name: mnb["ranks"][0][name] + by for name, by in more.items()}

        tampering.rewrite(path, change)
    tampering.rehash(folder)


def earlier_stop(folder: Path) -> None:
    moved(folder)


def earlier_full(folder: Path) -> None:
    moved(folder, full_s=-10)


def everywhere_full_too_soon(folder: Path) -> None:
    for path in folder.glob("*.vae.*"):
        tampering.rewrite(path, lambda content: content["mnb"]["launch"]["arguments"].update(max_count=10**9))
    tampering.rehash(folder)


def cut_short(content: dict[str, Any]) -> None:
    del content["mnb"]["ranks"][0]["slices"][-2:]


def idle_gpu(content: dict[str, Any]) -> None:
    more = content["inventory"]["pci_gpus"][-1] | {"pci_bus_id": "0000:99:00.0"}
    content["inventory"]["pci_gpus"].append(more)


def another_gpu(content: dict[str, Any]) -> None:
    gpus = content["mnb"]["conditions"]["before"]["gpus"]
    gpus["GPU-9"] = next(iter(gpus.values()))


def tmpfs(content: dict[str, Any]) -> None:
    content["storage"]["dataroot"] |= {"filesystem": "tmpfs", "kind": "memory"}


def cut_the_ledger(folder: Path) -> None:
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_bytes(b"".join(lines[:4] + lines[5:]))


def small_share(content: dict[str, Any]) -> None:
    content["mnb"]["data"]["scale"] = 0.5


def source(content: dict[str, Any]) -> None:
    content["mnb"]["source"]["sha256"] = "1" * 64


def precise(content: dict[str, Any]) -> None:
    if content["mnb"]["precision"]["requested"] != "fp32":
        raise LookupError("a launch in fp32")
    content["mnb"]["precision"]["ran_after"] = "tf32"


def imprecise(content: dict[str, Any]) -> None:
    if content["mnb"]["precision"]["requested"] != "fp32":
        raise LookupError("a launch in fp32")
    content["mnb"]["precision"]["matmul_error_before"] = 3e-4


def layers_in_half(content: dict[str, Any]) -> None:
    content["mnb"]["precision"]["layer_dtype"] = "float16"


def too_many_latencies(content: dict[str, Any]) -> None:
    """One batch more than steps."""
    row = content["mnb"]["ranks"][0]["slices"][20]
    row[5:] = [row[5] if len(row) > 5 else None, [[348, row[3]], [465, 1]]]


def partly_isolated(content: dict[str, Any]) -> None:
    """Marked, in words as in records of schema 1 or by kind."""
    content["mnb"]["marks"] = ["fence partial"] if content["mnb"]["schema"] == 1 else [{"kind": "partly isolated"}]


def backlog_alone(content: dict[str, Any]) -> None:
    """Items made ahead, in a test that makes none."""
    if any(len(row) > 5 and row[5] is not None for row in content["mnb"]["ranks"][0]["slices"]):
        raise LookupError("launches without a backlog")
    backlog(64, 64, of=even)(content)


def no_data(content: dict[str, Any]) -> None:
    content["mnb"]["data"] = None


def widened(content: dict[str, Any]) -> None:
    content["mnb"]["isolation"]["1"]["effective_end"]["cpus"] = [0, 1, 2, 3]


def lonely(content: dict[str, Any]) -> None:
    content["mnb"]["neighbours"] = {"planned": 1, "alive_at_stop": 0, "lost": [{"job_id": "1.0", "cause": "oom"}]}


def throttle(content: dict[str, Any]) -> None:
    for state in content["mnb"]["conditions"]["after"]["gpus"].values():
        state["throttled_ns"]["hw_thermal"] = 1e9


def hostname(content: dict[str, Any]) -> None:
    content["hostname"] = "faster-node"


def skipping(content: dict[str, Any]) -> None:
    steps = {"steps": 200, "skipped": 100, "settled_steps": 100, "settled_skipped": 90}
    content["mnb"]["ranks"][0]["skipped"] = steps


def lost_minus_one(content: dict[str, Any]) -> None:
    """A slow launch that the report should not see."""
    content["mnb"]["sampled"] = {"start_s": 0.0, "end_s": 1.0, "interval_s": 0.5, "dropped": -1}


def without_after(content: dict[str, Any]) -> None:
    del content["mnb"]["conditions"]["after"]


def read_too_soon(content: dict[str, Any]) -> None:
    content["mnb"]["conditions"]["after"]["time_s"] = content["mnb"]["conditions"]["before"]["time_s"]


def gpu_not_read(content: dict[str, Any]) -> None:
    content["mnb"]["conditions"]["after"]["gpus"] = {}


def mode_without_types(content: dict[str, Any]) -> None:
    content["mnb"]["precision"] |= {"dtypes": {}, "ran_before": "bf16", "ran_after": "bf16"}


def half_without_types(content: dict[str, Any]) -> None:
    """Types and what ran are forged; the parameters' digest is there."""
    content["mnb"]["launch"]["arguments"]["precision"] = "half_master"
    content["mnb"]["precision"] |= {"requested": "half_master", "dtypes": {}, "ran_before": "half", "ran_after": "half"}
    content["mnb"]["ranks"][0]["digests"] = {"100": "0" * 64}


def backlog(*edges: float, of: Callable[[int], int | None]) -> Change:
    """The backlog that a record states, and that of its slices, 30 of them; the window holds those from 10 to 27."""

    def change(content: dict[str, Any]) -> None:
        rank = content["mnb"]["ranks"][0]
        rank["backlog"] = list(edges) or None
        for place, row in enumerate(rank["slices"]):
            row[5:] = [of(place)]

    return change


def paced(content: dict[str, Any]) -> None:
    content["mnb"]["host_pace"]["1"]["after"]["mb_per_s"] = 90.0


def even(_place: int) -> int:
    return 64


def falling(place: int) -> int:
    """By one item a slice."""
    return 170 - place


def settled_sooner(folder: Path) -> None:
    """Windows that begin at once, and end with the stop."""
    for name in ("settle_s", "margin_s"):
        manifest(lambda content, name=name: content["window_rule"].update({name: 0.0}))(folder)
        records(lambda content, name=name: content["mnb"]["window_rule"].update({name: 0.0}))(folder)


def a_session_for_each_run(content: dict[str, Any]) -> None:
    """Three sessions make an interval narrower than one."""
    content["mnb"]["session"] = 1 + content["mnb"]["launch"]["run"]


def idle_between_slices(content: dict[str, Any]) -> None:
    """Half a millisecond of each slice is in none."""
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[0], row[1] = row[0] + 0.0005, row[1] - 0.0005


def whole_slices(folder: Path) -> None:
    """A stall across the edge of a window is in no rate."""
    manifest(lambda content: content["window_rule"].pop("edges"))(folder)
    records(lambda content: content["mnb"]["window_rule"].pop("edges"))(folder)


def copied(folder: Path) -> None:
    """The slow device has the numbers of the fast one."""
    source = json.loads(next(folder.glob("*.vae.J0.0.*")).read_bytes())
    own = source["mnb"]["ranks"][0]

    def change(content: dict[str, Any]) -> None:
        content["timings"] = source["timings"]
        content["mnb"]["ranks"][0] |= {key: own[key] for key in ("count", "full_s", "slices", "backlog") if key in own}
        content["mnb"] |= {key: source["mnb"][key] for key in ("start_s", "stop_s", "window")}

    record(change, "*.vae.J0.1.*")(folder)


def cpu_time(seconds: float) -> Change:
    """The CPU time that the kernel is said to have counted."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            share["usage"] = (share.get("usage") or {}) | {"cpu_usec": int(1e6 * seconds)}

    return change


def later(utc: str, seconds: float) -> str:
    """A date moved."""
    return utc_iso(datetime.fromisoformat(utc) + timedelta(seconds=seconds))


def stretched(content: dict[str, Any]) -> None:
    """More work in what was longer by the dates."""
    after = content["mnb"]["conditions"]["after"]
    after["utc"] = later(after["utc"], 5.0)


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


def another_boot(folder: Path) -> None:
    """A session that the node, rebooted in between, did not have."""

    def change(entry: LedgerLine) -> LedgerLine:
        what = entry.what
        other = msgspec.structs.replace(what, boot_id="another") if isinstance(what, Session) else what
        return msgspec.structs.replace(entry, what=other)

    tampering.rehash(folder, change)


def host_settings(**changes: Any) -> Change:
    """Settings of the host before a launch."""
    return lambda content: content["mnb"]["conditions"]["before"]["settings"]["host"].update(changes)


def other_driver(content: dict[str, Any]) -> None:
    content["mnb"]["conditions"]["before"]["settings"]["driver"] = "999.1"


def less_ram(content: dict[str, Any]) -> None:
    content["mnb"]["conditions"]["before"]["host"]["memory_total_bytes"] = 1 << 20


def clocked_up(content: dict[str, Any]) -> None:
    edges = content["mnb"]["conditions"]
    for settings in edges["before"]["settings"]["gpus"].values():
        settings["max_sm_clock_mhz"] = 1980
    for state in edges["after"]["gpus"].values():
        state["sm_clock_mhz"] = 2100


def free_energy(content: dict[str, Any]) -> None:
    """More power than energy."""
    mnb = content["mnb"]
    span = {edge: mnb["window"][edge] for edge in ("start_s", "end_s")}
    mnb["sampled"] = span | {"interval_s": 0.5, "dropped": 0}
    for edge, energy in (("before", 1000), ("after", 2000)):
        for uuid, state in mnb["conditions"][edge]["gpus"].items():
            state["energy_mj"] = energy
            mnb["telemetry"][f"gpu:{uuid}"] = {
                "power_w": {"n": 18, "span_s": 8.5, "min": 600.0, "mean": 650.0, "max": 700.0}
            }


def tf32_forced(content: dict[str, Any]) -> None:
    content["mnb"]["environment"]["NVIDIA_TF32_OVERRIDE"] = "1"


def renamed_data(content: dict[str, Any]) -> None:
    """No checksum is pinned for a set of that name."""
    content["mnb"]["data"]["name"] = "mnist2"


def ram_disk(below: str) -> Change:
    """A data root on a file in memory, or with a file system in memory inside."""

    def change(content: dict[str, Any]) -> None:
        root = content["storage"]["dataroot"]
        root[below] = [root | {"path": "/dev/shm/disk", "filesystem": "tmpfs", "kind": "memory"}]

    return change


def favoured(content: dict[str, Any]) -> None:
    """Real-time scheduling, without its mark."""
    for share in content["mnb"]["isolation"].values():
        share["proc"]["scheduling"] = {"policy": "fifo", "nice": 0, "limits": {}}


def beside_others(content: dict[str, Any]) -> None:
    """Another run had the same CPUs, and no mark says so."""
    edge = {"time_s": 1.0, "cpus": 2, "cpu_limits": [], "contested": ["CPU 0"], "machinery_cpu_s": 0.0}
    content["mnb"]["surroundings"] = {"before": edge, "after": edge | {"time_s": 2.0}}


def other_option(launch: dict[str, Any]) -> None:
    """An option that only a patched workload takes."""
    launch["arguments"]["skip"] = 10


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


def unknown_device(folder: Path) -> None:
    """A device without a data sheet, fifty times as fast."""
    name = json.loads((folder / "run.json").read_bytes())["plan"]["devices"][0]["name"]
    for path in (folder / "run.json", *folder.glob("*.J*.json")):
        path.write_bytes(path.read_bytes().replace(json.dumps(name).encode(), b'"Unobtainium 9"'))
    records(lambda content: multiplied(content, 50))(folder)


def never_learned(content: dict[str, Any]) -> None:
    """Losses far from those of the reference traces."""
    content["mnb"]["ranks"][0]["losses"] = dict.fromkeys(content["mnb"]["ranks"][0].get("losses", {}), 0.001)


def no_losses(content: dict[str, Any]) -> None:
    for name in ("losses", "gradient_norms", "digests"):
        content["mnb"]["ranks"][0][name] = {}


def multiplied(content: dict[str, Any], by: float) -> None:
    """Every count and all that follows from it."""
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[2] = round(row[2] * by)
    tampering.recount(content)


def more_a_step(content: dict[str, Any]) -> None:
    """Every count x 1.45, steps, latencies and losses untouched; of steps that were not full, more."""
    rows = [row for rank in content["mnb"]["ranks"] for row in rank["slices"]]
    batch = content["mnb"]["launch"]["arguments"].get("batch_size", 1)
    multiplied(content, 1.45 * max(1.0, batch / max(row[2] / row[3] for row in rows)))


def more_in_one(content: dict[str, Any]) -> None:
    """A launch with more items a step than the others of its test, and no more than its batch."""
    multiplied(content, 1.2)


def without_a_latency(content: dict[str, Any]) -> None:
    """As many latencies as there were steps before they were raised."""
    for rank in content["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[5:] = [row[5] if len(row) > 5 else None, [[348, row[3] - 1]]]


def more_steps(content: dict[str, Any], by: float) -> None:
    """Every count and every step, and all that counts them."""
    for rank in content["mnb"]["ranks"]:
        before = sum(row[3] for row in rank["slices"])
        for row in rank["slices"]:
            items, steps = row[2] / row[3], round(row[3] * by)
            row[2:4] = [round(items * steps), steps]
            if len(row) > 6 and row[6]:
                row[6][-1][1] += steps - sum(number for _, number in row[6])
        if rank.get("skipped"):
            rank["skipped"]["steps"] += sum(row[3] for row in rank["slices"]) - before
    tampering.recount(content)


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "tampered slice": ("R3", record(tampering.one_slice), "rates that rank 0 states are not those of its slices"),
    "slice taken out": ("R4", record(tampering.without_a_slice), "slice 20 begins 0.5 s after the one before it"),
    "stop at the best moment": ("R4", earlier_stop, "vae J0.0: it was stopped -9.0 s after the last launch"),
    "full at the best moment": ("R4", earlier_full, "rank 0 has slices from long after its stop"),
    "full before max_count": ("R4", everywhere_full_too_soon, "items, 1000000000 are its max_count"),
    "slices cut before the stop": ("R4", record(cut_short), "rank 0 has no slices up to its stop"),
    "impossible rate": ("R5", record(tampering.faster), "x the peak of Test GPU in fp32"),
    "swapped profile": ("R6", manifest(other_profile), "is demanded"),
    "launches relabelled as company": ("R8", everywhere(second_device_as_company), "on 1 (company) at the same time"),
    "company that left no record": ("R12", company_without_records, "it was planned as company and has no record"),
    "record relabelled as company": ("R12", record(as_company), "it has a record as company and was not planned"),
    "smaller data than the profile says": (
        "R8",
        manifest(less_data),
        "data scale 1 instead of 0.5 in standard.vae; `mnb jobs --data-scale` changes it",
    ),
    "test left out of the plan": ("R8", manifest(one_test_less), "1 of 4 tests are not in the plan: toy_reg"),
    "batches in another order": ("R9", manifest(backwards), "not in the order that the nonce makes"),
    "batch size changed everywhere": ("R10", everywhere(smaller_batch), "batch_size is 32, 64 is demanded"),
    "batch size overridden": ("R10", everywhere(overridden), "changed on the command line: batch_size"),
    "option that the profile does not state": ("R10", everywhere(smaller_option), "max_count is 10, 0 is demanded"),
    "option that nobody states": ("R10", everywhere(faster_learning), "learning_rate is 1.0, 0.001 is demanded"),
    "items of all records": ("R10", worth_more, "its classic_factor is 1000.0, vae has 1.0"),
    "arguments of one record": ("R10", record(lambda at: smaller_batch(at["mnb"]["launch"])), "instead of 64"),
    "formula of one record": (
        "R10",
        record(ours(derived=[{"unit": "MPx/s", "formula": "rate * 9"}])),
        "its list of derived units is MPx/s = rate * 9, that of most of its row none",
    ),
    "items of one record": ("R10", record(ours(classic_factor=10.0)), "its classic_factor is 10.0, that of most"),
    "removed record": ("R12", remove("*.vae.J0.0.*"), "vae J0.0: it was planned and has no record"),
    "too few repeats": ("R11", remove("*.vae.J1.*"), "vae"),
    "hidden failed attempt": ("R13", hide_a_failed_attempt, "attempt 1 was recorded (it failed: oom)"),
    "line taken out of the ledger": ("R13", cut_the_ledger, "line 5"),
    "failed launch": ("R14", record(tampering.failed("oom")), "of the attempts failed"),
    "not isolated": ("R16", record(fence(tier="affinity")), "isolation was 'affinity', 'full' is demanded"),
    "claimed isolation": ("R16", record(fence(effective=None)), "no limits are recorded at its entry"),
    "share that grew": ("R16", record(widened), "cpus was (2, 3) at entry and (0, 1, 2, 3) at the end"),
    "lost neighbour": ("R17", record(lonely), "0 of 1 neighbours were there at the stop"),
    "record of another moment": ("R17", record(ours(start_s=900.0)), "did not start and stop together"),
    "lower precision": ("R18", record(precise), "fp32 was asked for, fp32, then tf32 ran"),
    "precision and probe": ("R18", record(imprecise), "fp32 is said to have run, and the probe's product was wrong by"),
    "layers in another type": (
        "R18",
        record(layers_in_half),
        "fp32 was asked for, the model's layers gave float16",
    ),
    "more batches than steps": (
        "R4",
        record(too_many_latencies),
        "slice 20 is impossible: the latencies of 6 batches in 5 steps",
    ),
    "data not said": ("R19", record(no_data), "it does not say what it read; vae reads mnist"),
    "data of no launch said": ("R19", no_data_at_all, "it does not say what it read; vae reads mnist"),
    "storage not said": ("R20", manifest(unsaid_storage), "run.json does not say what the outdir lies on"),
    "PCI bus not listed": ("R23", manifest(empty_bus), "the list of the PCI bus lacks the GPU at 0000:01:00.0"),
    "default power limit not told": (
        "R25",
        record(gpu(default_power_limit_w=None)),
        "GPU-1 does not say its power limit by default",
    ),
    "less data": ("R19", record(small_share), "mnist has scale 0.5, 1 is demanded"),
    "data in memory": ("R20", manifest(tmpfs), "/data lies on tmpfs (memory), which is refused"),
    "changed workload": (
        "R21",
        record(source),
        "the source of milabench_ng.workloads.standard.vae:vae is not the one here",
    ),
    "mark": ("R22", record(partly_isolated), "fence partial"),
    "skipped steps without their mark": ("R22", record(skipping), "90 % of the steps after settling skipped"),
    "record that the report cannot read": ("R12", record(lost_minus_one), "vae.J1.1"),
    "mixed backlogs": ("R4", record(backlog(of=lambda at: None if at else 1)), "some of its slices have a backlog"),
    "backlog taken out": ("R4", record(backlog(of=even)), "the backlog that it states is not that of its"),
    "backlog not of the slices": ("R4", record(backlog(0, 0, of=even)), "the backlog that it states is not"),
    "backlog in one launch alone": ("R4", record(backlog_alone), "J0.0: its slices have no backlog, as"),
    "backlog worked off": ("R4", record(backlog(320, 287, of=lambda at: 2 * falling(at))), "of the 954 items of its"),
    "mode without types": ("R18", record(mode_without_types), "fp32 was asked for, bf16 ran"),
    "half without types": ("R18", record(half_without_types), "half_master was asked for, half ran"),
    "missing GPU": ("R23", manifest(idle_gpu), "the GPU at 0000:99:00.0 (NVIDIA 10de:2335, nvidia) did not work"),
    "GPU that the inventory hides": ("R23", record(another_gpu), "launches saw the GPU GPU-9"),
    "ECC off": ("R24", record(gpu(ecc=False)), "ECC of GPU-1 is off"),
    "memory errors": ("R24", record(gpu_state(ecc_uncorrected=1)), "could not correct"),
    "power limit": ("R25", record(gpu(power_limit_w=900.0)), "is 900 W, its default 700 W"),
    "throttled": ("R25", record(throttle), "hw_thermal held the clocks of GPU-1 down"),
    "somebody else": ("R26", record(gpu_state(foreign_pids=[4711])), "processes 4711 of others on GPU-1"),
    "ECC not read": ("R24", record(without_after), "vae J1.1: its conditions were not read after it"),
    "clocks read too soon": ("R25", record(read_too_soon), "not read before its start and after its stop"),
    "GPU not read": ("R26", record(gpu_not_read), "the state after it of its GPU GPU-1 was not read"),
    "processes not told": ("R26", record(gpu_state(foreign_pids=None)), "GPU-1 told processes before it and not after"),
    "damaged host pace": ("R12", record(paced), "a host pace of 90.0 MB/s does not follow from its bursts"),
    "another node": ("R27", record(hostname), "it was made on 'faster-node', the run on 'node'"),
    "settled sooner": ("R4", settled_sooner, "0 s are left out after the start, 2 s are demanded"),
    "one session called several": ("R13", records(a_session_for_each_run), "noted it"),
    "time between slices": ("R4", records(idle_between_slices), "after the one before it"),
    "whole slices only": ("R4", whole_slices, "slices across an edge of the window count nothing"),
    "slices of another device": ("R4", copied, "slices of the same lengths as"),
    "more CPU time than CPUs": ("R16", record(cpu_time(1e6)), "s of CPU time, 2 CPUs had"),
    "counts x 1.45, steps as they were": ("R4", records(more_a_step), "images a step, its options allow 64"),
    "counts of one launch": ("R4", record(more_in_one), "items a step, other launches of standard.vae have"),
    "steps that the loss scale did not see": ("R4", record(skipping), "steps, its loss scale saw 200"),
    "steps without a latency": ("R4", record(without_a_latency), "steps and the latencies of 120 batches"),
    "all counts x 4": ("R5", records(lambda content: multiplied(content, 4)), "s of CPU time, which decode"),
    "pictures without CPU time": ("R5", records(cpu_time(0.001), "*.loader.*"), "s of CPU time, which decode"),
    "power without energy": ("R5", record(free_energy), "used 1 J in"),
    "fifty times as fast on an unknown device": ("R5", unknown_device, "the peak of Unobtainium 9 in fp32"),
    "stretched dates": ("R17", record(stretched), "passed by the dates of its conditions"),
    "launch of another hour": ("R17", record(an_hour_later), "passed by their dates and"),
    "noted before it happened": ("R13", record(an_hour_later), "s after its end"),
    "ledger out of order": ("R13", earlier_lines, "older than the line before it"),
    "another boot": ("R27", another_boot, "the first session of the ledger is of another boot"),
    "another kernel in one repeat": ("R27", record(host_settings(kernel="7.0-fast")), "the kernel was 7.0-fast"),
    "another driver in one repeat": ("R27", record(other_driver), "the driver was 999.1, run.json says"),
    "other RAM in one repeat": ("R27", record(less_ram), "the node had 1048576 bytes of RAM, run.json says"),
    "another power limit in one repeat": ("R27", record(gpu(power_limit_w=900.0)), "power_limit_w of GPU-1 was 900"),
    "overclocked": ("R25", record(clocked_up), "the cores of GPU-1 ran at 2100 MHz, 1980 MHz is their highest clock"),
    "mitigations off": (
        "R25",
        record(host_settings(command_line="quiet mitigations=off")),
        "the kernel was started with mitigations=off",
    ),
    "TF32 forced": ("R18", record(tf32_forced), "NVIDIA_TF32_OVERRIDE is set to '1'"),
    "data set renamed": ("R19", record(renamed_data), "it says that it read mnist2, vae reads mnist"),
    "data on a file in memory": ("R20", manifest(ram_disk("rests_on")), "/dev/shm/disk lies on tmpfs (memory)"),
    "memory mounted inside": ("R20", manifest(ram_disk("inside")), "/dev/shm/disk lies on tmpfs (memory)"),
    "scheduling without its mark": ("R22", record(favoured), "scheduling class fifo, and it has no mark of it"),
    "another run without its mark": (
        "R22",
        record(beside_others),
        "CPU 0 too, and it has no mark of it",
    ),
    "option that no workload has": ("R10", everywhere(other_option), "has no option skip"),
    "record that fills the memory": ("R12", huge, "larger than the 20 MiB that such a file may have"),
    "record below the folder": ("R12", second_record_below, "more/better.json: it belongs to no run"),
    **evidence_attacks.ATTACKS,
    **contradiction_attacks.ATTACKS,
}
"""By name: the rule that finds it, what is done, and part of the reason."""

FOLDER_ONLY = ("record below the folder",)
"""What no bundle holds."""
NEEDS_GPU = {"R23", "R24", "R25", "R26"}
"""Rules that a node without GPUs cannot break."""
ON_GPUS = (
    "throttling left out",
    "another driver in one repeat",
    "another power limit in one repeat",
    "power without energy",
)
"""Other attacks that need one."""


def in_bundle(change: Callable[[dict[str, bytes]], None]) -> BundleTamper:
    """Change the files of a bundle, and leave its packing list and its signature as they are."""

    def tamper(bundle: Path, _keys: Path) -> None:
        files = members(bundle)
        change(files)
        repack(bundle, files)

    return tamper


def other_unit(files: dict[str, bytes]) -> None:
    name = next(name for name in files if ".vae.J0.0." in name and name.endswith(".json"))
    files[name] = files[name].replace(b'"unit"', b'"Unit"')


def one_file_less(files: dict[str, bytes]) -> None:
    del files[next(name for name in files if ".vae.J0.0." in name and name.endswith(".json"))]


def more_claimed(files: dict[str, bytes]) -> None:
    """More than the slices give; the sums of the files still fit."""
    listed = json.loads(files["bundle.json"])
    test = next(iter(listed["claim"]["tests"].values()))
    test["perf"] = 2 * test["perf"]
    files["bundle.json"] = msgspec.json.encode(listed)


def unsigned(files: dict[str, bytes]) -> None:
    del files["bundle.json.sig"]


def signed_by(name: str) -> BundleTamper:
    """Somebody else's signature, on the same packing list."""

    def tamper(bundle: Path, keys: Path) -> None:
        files = members(bundle)
        files["bundle.json.sig"] = sign(files["bundle.json"], keys / name)
        repack(bundle, files)

    return tamper


BUNDLES: dict[str, tuple[str, BundleTamper, str]] = {
    "file changed in a bundle": ("R1", in_bundle(other_unit), "was changed after it was packed"),
    "file taken out of a bundle": ("R1", in_bundle(one_file_less), "is in the packing list and not in the bundle"),
    "more claimed than measured": ("R3", in_bundle(more_claimed), "perf was claimed as"),
    "packing list changed after signing": ("R2", in_bundle(more_claimed), "the signature does not fit the bundle"),
    "signature taken away": ("R2", in_bundle(unsigned), "it is not signed"),
    "signed by a stranger": ("R2", signed_by("stranger"), "the key of the signature is not in"),
    "signed by another vendor": ("R2", signed_by("other"), "other@example.org signed it, vendor@example.org should"),
}
"""The same for signed bundles; the folder of keys has ``vendor``, ``other`` (allowed, too) and ``stranger``."""


def add(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[[Path], None]:
    """A tamperer that puts one more member into an archive."""

    def tamper(path: Path) -> None:
        made = io.BytesIO(gzip.decompress(path.read_bytes()))
        with tarfile.open(fileobj=made, mode="a") as archive:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(content))
        path.write_bytes(gzip.compress(made.getvalue()))

    return tamper


def without_packing_list(path: Path) -> None:
    repack(path, {name: content for name, content in members(path).items() if name != "bundle.json"})


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2000])


def later_schema(path: Path) -> None:
    files = members(path)
    files["bundle.json"] = msgspec.json.encode(json.loads(files["bundle.json"]) | {"schema": 99})
    repack(path, files)


HOSTILE: dict[str, tuple[Tamper, str]] = {
    "way out": (add("../evil.json"), "'../evil.json' is no file of a bundle"),
    "absolute path": (add("/etc/mnb.json"), "'/etc/mnb.json' is no file of a bundle"),
    "way out behind the folder": (add("results/../../x.log"), "is no file of a bundle"),
    "foreign file": (add("results/setup.py"), "'results/setup.py' is no file of a bundle"),
    "hidden file": (add("results/.run.json.tmp"), "is no file of a bundle"),
    "name with a newline": (add("results/logs/a\nb.log"), "is no file of a bundle"),
    "symbolic link": (add("results/logs/a.log", kind=tarfile.SYMTYPE, link="/etc/passwd"), "is no regular file"),
    "hard link": (add("results/logs/a.log", kind=tarfile.LNKTYPE, link="bundle.json"), "is no regular file"),
    "device": (add("results/logs/a.log", kind=tarfile.CHRTYPE), "is no regular file"),
    "pipe": (add("results/logs/a.log", kind=tarfile.FIFOTYPE), "is no regular file"),
    "folder": (add("results/logs/a.log", kind=tarfile.DIRTYPE), "is no regular file"),
    "twice": (add("results/run.json"), "'results/run.json' is in it twice"),
    "no packing list": (without_packing_list, "there is no bundle.json in it"),
    "cut short": (truncated, "not a bundle that `mnb bundle` made"),
    "not an archive": (lambda path: path.write_text("hello"), "not a bundle that `mnb bundle` made"),
    "newer": (later_schema, "bundle schema 99: this is mnb"),
}
"""Archives that no bundle is, and part of the message."""

DOCUMENTED: dict[str, tuple[Tamper, str]] = {
    "all counts and steps x 1.4": (
        records(lambda content: more_steps(content, 1.4)),
        "consistent forgery before signing",
    ),
}
"""What no file shows, and where docs/threats.md says so."""
