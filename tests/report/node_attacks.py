"""Attacks on what the node says of itself: fence, clocks, precision, data, storage, code, GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import tampering
from book_attacks import an_hour_later, later
from slice_attacks import cpu_time, skipping
from tampering import Change, Tamper, fence, gpu, gpu_state, host, manifest, ours, record

from milabench_ng.records.ledger import LedgerLine, Session


def no_data_at_all(folder: Path) -> None:
    for path in folder.glob("*.vae.*"):
        tampering.rewrite(path, ours(data=None))
    tampering.rehash(folder)


def unsaid_storage(content: dict[str, Any]) -> None:
    del content["storage"]["outdir"]


def empty_bus(content: dict[str, Any]) -> None:
    content["inventory"]["pci_gpus"] = []


def idle_gpu(content: dict[str, Any]) -> None:
    more = content["inventory"]["pci_gpus"][-1] | {"pci_bus_id": "0000:99:00.0"}
    content["inventory"]["pci_gpus"].append(more)


def another_gpu(content: dict[str, Any]) -> None:
    gpus = content["mnb"]["conditions"]["before"]["gpus"]
    gpus["GPU-9"] = next(iter(gpus.values()))


def tmpfs(content: dict[str, Any]) -> None:
    content["storage"]["dataroot"] |= {"filesystem": "tmpfs", "kind": "memory"}


def small_share(content: dict[str, Any]) -> None:
    content["mnb"]["data"]["scale"] = 0.5


def precise(content: dict[str, Any]) -> None:
    if content["mnb"]["precision"]["requested"] != "fp32":
        raise LookupError("a launch in fp32")
    content["mnb"]["precision"]["ran_after"] = "tf32"


def imprecise(content: dict[str, Any]) -> None:
    if content["mnb"]["precision"]["requested"] != "fp32":
        raise LookupError("a launch in fp32")
    content["mnb"]["precision"]["matmul_error_before"] = 3e-4


def layers_in_half(content: dict[str, Any]) -> None:
    known = content["mnb"]["precision"]["layer_dtype"]
    content["mnb"]["precision"]["layer_dtype"] = "bfloat16" if known == "float16" else "float16"


def another_moment(content: dict[str, Any]) -> None:
    if not content["mnb"]["neighbours"]["planned"]:
        raise LookupError("a launch beside others")
    content["mnb"]["start_s"] = 900.0


def partly_isolated(content: dict[str, Any]) -> None:
    """Marked by kind."""
    content["mnb"]["marks"] = [{"kind": "partly isolated"}]


def no_data(content: dict[str, Any]) -> None:
    if content["mnb"]["data"] is None:
        raise LookupError("a launch that reads data")
    content["mnb"]["data"] = None


def widened(content: dict[str, Any]) -> None:
    content["mnb"]["isolation"]["1"]["effective_end"]["cpus"] = [0, 1, 2, 3]


def unlimited(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        for what in ("requested", "effective", "effective_end"):
            share[what]["memory_bytes"] = 1 << 50


def lonely(content: dict[str, Any]) -> None:
    content["mnb"]["neighbours"] = {"planned": 1, "alive_at_stop": 0, "lost": [{"job_id": "1.0", "cause": "oom"}]}


def throttle(content: dict[str, Any]) -> None:
    for state in content["mnb"]["conditions"]["after"]["gpus"].values():
        state["throttled_ns"]["hw_thermal"] = 1e9


def hostname(content: dict[str, Any]) -> None:
    content["hostname"] = "faster-node"


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


def stretched(content: dict[str, Any]) -> None:
    """More work in what was longer by the dates."""
    after = content["mnb"]["conditions"]["after"]
    after["utc"] = later(after["utc"], 5.0)


def another_boot(folder: Path) -> None:
    """A session that the node, rebooted in between, did not have."""

    def change(entry: LedgerLine) -> LedgerLine:
        what = entry.what
        other = msgspec.structs.replace(what, boot_id="another") if isinstance(what, Session) else what
        return msgspec.structs.replace(entry, what=other)

    tampering.rehash(folder, change)


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


def called_cpus(folder: Path) -> None:
    """GPUs that plan and records call CPUs, so that nothing asks for what only GPUs tell."""

    def plan(content: dict[str, Any]) -> None:
        for device in content["plan"]["devices"]:
            device["kind"] = "cpu"
        content["inventory"] |= {"gpus": [], "pci_gpus": []}

    def launch(content: dict[str, Any]) -> None:
        mnb = content["mnb"]
        for device in mnb["devices"]:
            device["kind"] = "cpu"
        for edge in mnb["conditions"].values():
            edge["gpus"] = {}
            edge["settings"] = edge["settings"] and edge["settings"] | {"gpus": {}}
        mnb["telemetry"] = {key: seen for key, seen in mnb["telemetry"].items() if not key.startswith("gpu:")}

    tampering.records(launch)(folder)
    manifest(plan)(folder)


def named_otherwise(content: dict[str, Any]) -> None:
    """Another name in the inventory than in the plan, of a GPU with less memory."""
    content["inventory"]["gpus"][0]["name"] = "NVIDIA A16"


def half_an_instance(content: dict[str, Any]) -> None:
    """A whole GPU that is called an instance, whose memory nobody knows."""
    content["inventory"]["gpus"][0]["mig"] = True


def processes_unsupported(content: dict[str, Any]) -> None:
    """No edge of the launch says whose processes were there."""
    for edge in content["mnb"]["conditions"].values():
        for state in edge["gpus"].values():
            state["foreign_pids"] = None


def without_a_rank(content: dict[str, Any]) -> None:
    """The slices of the first rank alone; a launch on one device has those of the second."""
    ranks = content["mnb"]["ranks"]
    content["mnb"]["ranks"] = ranks[:1] if len(ranks) > 1 else [ranks[0] | {"rank": 1}]


def other_programs(content: dict[str, Any]) -> None:
    """Every CPU was busy, the tenants were not, and no launch has a mark of it."""
    spread = {"n": 18, "span_s": 8.5}
    telemetry = content["mnb"]["telemetry"]
    telemetry["host:node"] = {"cpu_busy_pct": {"min": 99.0, "mean": 100.0, "max": 100.0, **spread}}
    for slot in content["mnb"]["isolation"]:
        telemetry[f"tenant:{slot}"] = {"cpu_s": {"min": 1.0, "mean": 1.5, "max": 2.0, **spread}}
    content["mnb"]["marks"] = []


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "not isolated": ("R16", record(fence(tier="affinity")), "isolation was 'affinity', but the rules require 'full'"),
    "claimed isolation": ("R16", record(fence(effective=None)), "no limits are recorded at its entry"),
    "limits beyond the node's RAM": ("R16", record(unlimited), "of RAM, the node had"),
    "share that grew": ("R16", record(widened), "cpus was (2, 3) at entry and (0, 1, 2, 3) at the end"),
    "lost neighbour": ("R17", record(lonely), "0 of 1 neighbors were there at the stop"),
    "record of another moment": ("R17", record(another_moment), "did not start and stop together"),
    "lower precision": ("R18", record(precise), "fp32 was asked for, fp32, then tf32 ran"),
    "precision and probe": (
        "R18",
        record(imprecise),
        "the record says fp32, but the product of the probe was wrong by",
    ),
    "layers in another type": (
        "R18",
        record(layers_in_half),
        "fp32 was asked for, the model's layers gave float16",
    ),
    "data not said": ("R19", record(no_data), "it does not say what it read; vae reads mnist"),
    "data of no launch said": ("R19", no_data_at_all, "it does not say what it read; vae reads mnist"),
    "storage not said": (
        "R20",
        manifest(unsaid_storage),
        "run.json does not say which storage holds the outdir",
    ),
    "PCI bus not listed": ("R23", manifest(empty_bus), "the list of the PCI bus lacks the GPU at 0000:01:00.0"),
    "default power limit not told": (
        "R25",
        record(gpu(default_power_limit_w=None)),
        "GPU-1 does not say its power limit by default",
    ),
    "less data": ("R19", record(small_share), "mnist has scale 0.5, but the rules require 1"),
    "data in memory": ("R20", manifest(tmpfs), "/data is on tmpfs (memory), which the rules refuse"),
    "mark": ("R22", record(partly_isolated), "isolation partial"),
    "skipped steps without their mark": ("R22", record(skipping), "skipped 90% of the steps after warm-up"),
    "mode without types": ("R18", record(mode_without_types), "fp32 was asked for, bf16 ran"),
    "half without types": ("R18", record(half_without_types), "half_master was asked for, half ran"),
    "missing GPU": ("R23", manifest(idle_gpu), "the GPU at 0000:99:00.0 (NVIDIA 10de:2335, nvidia) did not work"),
    "GPU that the inventory hides": ("R23", record(another_gpu), "launches saw the GPU GPU-9"),
    "GPUs called CPUs": ("R27", called_cpus, "device 0 is called a CPU, and is Test GPU (GPU-0)"),
    "another name in the inventory": (
        "R27",
        manifest(named_otherwise),
        "in the plan, NVIDIA A16 (gpu) in the inventory",
    ),
    "a GPU called an instance": ("R27", manifest(half_an_instance), "(mig) in the inventory"),
    "a rank left out": ("R4", record(without_a_rank, "*.scaling.J*.1.*"), "and ran on"),
    "other programs without their mark": (
        "R22",
        tampering.records(other_programs),
        "but the record has no such warning",
    ),
    "ECC mode not told": ("R24", record(gpu(ecc=None)), "GPU-1 does not say whether ECC is on"),
    "whose processes not told": ("R26", record(processes_unsupported), "does not say which processes it runs"),
    "ECC off": ("R24", record(gpu(ecc=False)), "ECC of GPU-1 is off"),
    "memory errors": ("R24", record(gpu_state(ecc_uncorrected=1)), "could not correct"),
    "power limit": ("R25", record(gpu(power_limit_w=900.0)), "is 900 W, its default 700 W"),
    "throttled": ("R25", record(throttle), "hw_thermal held the clocks of GPU-1 down"),
    "somebody else": ("R26", record(gpu_state(foreign_pids=[4711])), "processes 4711 of others on GPU-1"),
    "ECC not read": ("R24", record(without_after), "vae J1.1: its conditions were not read after it"),
    "clocks read too soon": ("R25", record(read_too_soon), "not read before its start and after its stop"),
    "GPU not read": ("R26", record(gpu_not_read), "the state after it of its GPU GPU-1 was not read"),
    "processes not told": (
        "R26",
        record(gpu_state(foreign_pids=None)),
        "GPU-1 reported processes before it, but not after",
    ),
    "another node": ("R27", record(hostname), "it was made on 'faster-node', the run on 'node'"),
    "more CPU time than CPUs": ("R16", record(cpu_time(1e6)), "s of CPU time, 2 CPUs had"),
    "stretched dates": ("clock-steps", record(stretched), "s more than the monotonic clock, from its first conditions"),
    "launch of another hour": ("clock-steps", record(an_hour_later), "the wall clock advanced by"),
    "another boot": ("R27", another_boot, "the ledger's first session and run.json are from different boots"),
    "another kernel in one repeat": ("R27", record(host(kernel="7.0-fast")), "the kernel was 7.0-fast"),
    "another driver in one repeat": ("R27", record(other_driver), "the driver was 999.1, run.json says"),
    "other RAM in one repeat": ("R27", record(less_ram), "the node had 1048576 bytes of RAM, but run.json says"),
    "another power limit in one repeat": ("R27", record(gpu(power_limit_w=900.0)), "power_limit_w of GPU-1 was 900"),
    "overclocked": ("R25", record(clocked_up), "the cores of GPU-1 ran at 2100 MHz, 1980 MHz is their highest clock"),
    "mitigations off": (
        "R25",
        record(host(command_line="quiet mitigations=off")),
        "the kernel was started with mitigations=off",
    ),
    "dataset renamed": ("R19", record(renamed_data), "it says that it read mnist2, but vae reads mnist"),
    "data on a file in memory": ("R20", manifest(ram_disk("rests_on")), "/dev/shm/disk is on tmpfs (memory)"),
    "memory mounted inside": ("R20", manifest(ram_disk("inside")), "/dev/shm/disk is on tmpfs (memory)"),
    "scheduling without its mark": (
        "R22",
        record(favoured),
        "scheduling class fifo, but the record has no such warning",
    ),
    "another run without its mark": (
        "R22",
        record(beside_others),
        "CPU 0 also used by another mnb run, but the record has no such warning",
    ),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
