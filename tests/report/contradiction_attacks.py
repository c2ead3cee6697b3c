"""Attacks that forget something: facts of one record, or of the manifest, that cannot both be true."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tampering import Tamper, gpu, manifest, record, recount, rewrite


def above_the_limit(content: dict[str, Any]) -> None:
    """The limit is lowered, as the tender demands, and the power is what it was."""
    mnb = content["mnb"]
    span = {edge: mnb["window"][edge] for edge in ("start_s", "end_s")}
    mnb["sampled"] = span | {"interval_s": 0.5, "dropped": 0}
    taken = mnb["conditions"]["after"]["time_s"] - mnb["conditions"]["before"]["time_s"]
    for edge, energy in (("before", 0.0), ("after", 690e3 * taken)):
        for uuid, state in mnb["conditions"][edge]["gpus"].items():
            state["energy_mj"] = int(energy)
            mnb["telemetry"][f"gpu:{uuid}"] = {
                "power_w": {"n": 18, "span_s": 8.5, "min": 680.0, "mean": 690.0, "max": 700.0}
            }
    for settings in mnb["conditions"]["before"]["settings"]["gpus"].values():
        settings["power_limit_w"] = 500.0


def without_gradients(content: dict[str, Any]) -> None:
    for rank in content["mnb"]["ranks"]:
        rank["gradient_norms"] = dict.fromkeys(rank["gradient_norms"], 0.0) | {"1": 0.0}


def in_memory(content: dict[str, Any]) -> None:
    """Called cold, with all of it in the page cache."""
    content["mnb"]["data"] |= {"cache": "cold", "resident_fraction": 1.0}


def memory_called_a_disk(content: dict[str, Any]) -> None:
    content["storage"]["dataroot"] |= {"filesystem": "tmpfs", "kind": "disk", "source": "tmpfs"}


def ram_disk_called_a_disk(content: dict[str, Any]) -> None:
    content["storage"]["dataroot"] |= {"source": "/dev/zram0", "device": "zram0"}


def free_process(content: dict[str, Any]) -> None:
    """A process that may do everything, and is said to be fenced in."""
    for share in content["mnb"]["isolation"].values():
        names = ("cgroup_namespace", "groups_read_only", "ipc_namespace", "no_new_privs")
        share["proc"]["confinement"] = dict.fromkeys(names, False) | {"capabilities": ["SYS_ADMIN"]}


def process_elsewhere(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        share["proc"]["groups"] = ["0::/user.slice"]


def shared_siblings(content: dict[str, Any]) -> None:
    for share in content["mnb"]["isolation"].values():
        share["requested"]["smt_shared"] = True


def other_request(content: dict[str, Any]) -> None:
    """Forty repeats were asked for, and the best were kept."""
    content["request"] = {"repeat": 20, "sessions": 1}


def measured_power(content: dict[str, Any], watts: float, busy: float) -> None:
    """Power, energy and utilisation that agree."""
    mnb = content["mnb"]
    mnb["sampled"] = {edge: mnb["window"][edge] for edge in ("start_s", "end_s")} | {"interval_s": 0.5, "dropped": 0}
    edges = mnb["conditions"]
    passed = edges["after"]["time_s"] - edges["before"]["time_s"]
    for uuid, state in edges["after"]["gpus"].items():
        state["energy_mj"] = int((edges["before"]["gpus"][uuid]["energy_mj"] or 0) + 1e3 * watts * passed)
        edges["before"]["gpus"][uuid]["energy_mj"] = edges["before"]["gpus"][uuid]["energy_mj"] or 0
        own = mnb["telemetry"].setdefault(f"gpu:{uuid}", {})
        until = mnb["window"]["start_s"] - edges["before"]["time_s"]
        begun = edges["before"]["gpus"][uuid]["energy_mj"] / 1000 + until * watts
        own["energy_j"] = {"n": 18, "span_s": 8.5, "min": begun, "mean": begun, "max": begun + 8.5 * watts}
        for name, value in (("power_w", watts), ("utilization_pct", busy)):
            own[name] = dict.fromkeys(("min", "mean", "max"), value) | {"n": 18, "span_s": 8.5}


def idle(folder: Path) -> None:
    """A GPU that rested, with the items of one that worked; all of them told how they worked."""
    paths = sorted(folder.glob("*.vae.*"))
    if not paths:
        raise LookupError("several launches of a test")
    for path in paths:
        if "energy_mj" not in path.read_text() or '"utilization_pct"' not in path.read_text():
            rewrite(path, lambda content: measured_power(content, 500.0, 90.0))
    record(lambda content: measured_power(content, 90.0, 1.0))(folder)


def jittered(folder: Path) -> None:
    """The slow device has the slices of the fast one, and each is some nanoseconds longer or shorter."""
    source = json.loads(sorted(folder.glob("*.vae.J0.0.*"))[0].read_bytes())["mnb"]
    draw = random.Random(3)

    def change(content: dict[str, Any]) -> None:
        own, at = content["mnb"]["ranks"][0], content["mnb"]["start_s"]
        begin = at + source["ranks"][0]["slices"][0][0] - source["start_s"]
        own["slices"] = []
        for row in source["ranks"][0]["slices"]:
            length = row[1] + draw.uniform(-2e-9, 2e-9)
            own["slices"].append([begin, length, *row[2:]])
            begin += length
        recount(content)

    record(change, "*.vae.J0.1.*")(folder)


def smaller_devices(content: dict[str, Any]) -> None:
    """GPUs that are said to have a quarter of their memory: tests that need more are not planned."""
    named(content)
    for one in content["inventory"]["gpus"]:
        one["memory_bytes"] = 35 * 2**30


def lifted(folder: Path) -> None:
    """GPUs whose firmware says that more power is the default."""
    manifest(named)(folder)
    record(gpu(power_limit_w=800.0, default_power_limit_w=800.0), "*.J*.json")(folder)


def named(content: dict[str, Any]) -> None:
    """GPUs with a data sheet."""
    if not content["inventory"]["gpus"]:
        raise LookupError("a GPU")
    for one in content["inventory"]["gpus"]:
        one["name"] = one["name"] if "H200" in one["name"] else "NVIDIA H200"


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "more power than its limit": (
        "gpu-counters",
        record(above_the_limit),
        "used 690 W on average, but its power limit is 500 W",
    ),
    "cold with all in memory": ("R19", record(in_memory, "*.loader.*"), "was cold, with 100% of its bytes in memory"),
    "memory called a disk": ("R20", manifest(memory_called_a_disk), "which is memory, but is recorded as disk"),
    "RAM disk called a disk": ("R20", manifest(ram_disk_called_a_disk), "of /dev/zram0, which is memory"),
    "full isolation of a free process": ("R16", record(free_process), "kept the means to leave its isolation"),
    "process in another group": ("R16", record(process_elsewhere), "its process is in none of its groups"),
    "shared siblings without their mark": ("R22", record(shared_siblings), "SMT siblings shared between tenants, but"),
    "an idle GPU with all items": ("idle-gpus", idle, "an item took"),
    "firmware that lifts the power limit": (
        "gpu-limits",
        lifted,
        "is 800 W, that of such GPUs 700 W",
    ),
    "a quarter of the GPUs' memory": (
        "gpu-memory",
        manifest(smaller_devices),
        "reports 35.0 GiB, but this model has 141",
    ),
    "another request": ("R8", manifest(other_request), "the request in run.json asks for repeat 20, and run.json has"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
