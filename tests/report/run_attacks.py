"""Attacks on what runs, what is read and how a node is set up, as a node that was attacked recorded them.

Each is done as well as its author could, short of lying about what was read: nobody can tell that from files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from tampering import Change, Tamper, add_session, environment, host, ledger_events, ours, proof, record, records

from milabench_ng.records.ledger import CodeSeen


def patched_meter(event: dict[str, Any]) -> None:
    event["code"]["package"]["bench"] = "f" * 64


def module_from_elsewhere(event: dict[str, Any]) -> None:
    event["code"]["elsewhere"] = ["milabench_ng.bench.meter"]


def patched_torch(event: dict[str, Any]) -> None:
    event["code"]["wheels"]["torch"]["differing"] = ["/site/torch/nn/modules/linear.py"]


def torch_without_record(event: dict[str, Any]) -> None:
    event["code"]["wheels"]["torch"] = None


def padded(event: dict[str, Any]) -> None:
    event["data"] |= {"checksum": "6" * 64, "differing": ["train/n01/0.JPEG"]}


def another_set(event: dict[str, Any]) -> None:
    event["data"]["checksum"] = "6" * 64


def put_back(event: dict[str, Any]) -> None:
    event["data"]["changed_s"] += 60.0


def slowed(content: dict[str, Any]) -> None:
    """Every second of work lasts 1.05 s."""
    for edge in content["mnb"]["conditions"].values():
        edge["raw_s"] = 1.05 * edge["time_s"]


def import_path(content: dict[str, Any]) -> None:
    content["import_path"] = ["/venv/bin", "/usr/lib/python3.11", "/evil"]


def stray(event: dict[str, Any]) -> None:
    event["code"]["strays"] = ["/site/nvidia/cublas/lib/libcublas.so.13 (deleted)"]


def another_torch(folder: Path) -> None:
    after = [event for _, event in ledger_events(folder) if "code" in event]
    patched = msgspec.convert(after, list[CodeSeen])
    wheels = patched[-1].code.wheels
    torch = wheels["torch"]
    assert torch is not None
    other = {**wheels, "torch": msgspec.structs.replace(torch, sha256="5" * 64)}
    code = msgspec.structs.replace(patched[-1].code, wheels=other)
    add_session(folder, [patched[0], msgspec.structs.replace(patched[-1], code=code)])


def wheel(**changes: Any) -> Change:
    return lambda event: event["code"]["wheels"]["torch"].update(changes)


def data_proof(**changes: Any) -> Change:
    return lambda event: event["data"].update(changes)


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "bench/meter.py patched": (
        "R21",
        proof("code", "after", patched_meter),
        "differed from the one here in bench after the work",
    ),
    "patched during the imports and put back": (
        "R21",
        proof("code", "before", patched_meter),
        "session 1: milabench_ng differed from the one here in bench before the work",
    ),
    "a module put in by a .pth file": (
        "R21",
        proof("code", "after", module_from_elsewhere),
        "modules of milabench_ng came from elsewhere (milabench_ng.bench.meter)",
    ),
    "torch patched": (
        "R21",
        proof("code", "after", patched_torch),
        "torch 2.15.0 was changed after installation: /site/torch",
    ),
    "a library of NVIDIA replaced while it was loaded": (
        "R21",
        proof("code", "after", stray),
        "files were loaded that belong to no installed package: /site/nvidia/cublas/lib/libcublas.so.13 (deleted)",
    ),
    "another torch in another session": (
        "R21",
        another_torch,
        "session 2: torch 2.15.0 has other files than in an earlier session",
    ),
    "no file of torch read": ("R21", proof("code", "after", wheel(files=0)), "none of the files of torch"),
    "another torch than was recorded": (
        "R21",
        proof("code", "after", wheel(version="9.9.9")),
        "torch 9.9.9 was read, but run.json says",
    ),
    "no file of the data read": ("R19", proof("data", "after", data_proof(files=0)), "imagenet after the work had no"),
    "data of the future": (
        "R19",
        lambda folder: [proof("data", edge, data_proof(changed_s=4e9))(folder) for edge in ("before", "after")][-1],
        "before the work was changed",
    ),
    "a twin that nothing made": (
        "R19",
        proof("data", "before", data_proof(generator=None)),
        "imagenet before the work is recorded as a synthetic dataset without a generator",
    ),
    "code not read before": ("R21", proof("code", "before", None), "session 1 does not say which code it began with"),
    "code not read after": (
        "R21",
        proof("code", "after", None),
        "the last session did not read its code after the work",
    ),
    "pictures made smaller and padded": (
        "R19",
        proof("data", "after", padded),
        "session 1: imagenet was damaged after the work: train/n01/0.JPEG",
    ),
    "another dataset": ("R19", proof("data", "before", another_set), "imagenet has another checksum than was found"),
    "data changed during the work and put back": (
        "R19",
        proof("data", "after", put_back),
        "files of imagenet were changed during the work",
    ),
    "data not read before": ("R19", proof("data", "before", None), "its session did not compare imagenet with its"),
    "data not read after": (
        "R19",
        proof("data", "after", None),
        "the last session did not read imagenet after the work",
    ),
    "a library path": (
        "R31",
        record(environment(LD_LIBRARY_PATH="/evil")),
        "the environment has LD_LIBRARY_PATH=/evil",
    ),
    "a preloaded library": (
        "R31",
        record(environment(LD_PRELOAD="/evil.so")),
        "the environment has LD_PRELOAD=/evil.so",
    ),
    "TF32 by the environment": (
        "R31",
        record(environment(NVIDIA_TF32_OVERRIDE="1")),
        "open division: the environment has NVIDIA_TF32",
    ),
    "a back end of torch": (
        "R31",
        record(environment(TORCH_DEVICE_BACKEND_AUTOLOAD="1")),
        "the environment has TORCH_DEVICE_BACKEND_AUTOLOAD=1",
    ),
    "compiled modules of another run": ("R31", record(environment(MNB_PYCACHE="/evil")), "has MNB_PYCACHE=/evil"),
    "mitigations that are not listed": (
        "tuned-kernel",
        record(host(command_line="BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet mitigations=off")),
        "the kernel was started with mitigations=off",
    ),
    "a slow clock": (
        "tuned-kernel",
        record(host(clock_source="jiffies")),
        "the kernel reads the time from jiffies",
    ),
    "a clock that was slowed by one in twenty": (
        "clock-steps",
        records(slowed),
        "passed by the clock that measures, and the hardware counted",
    ),
    "a file over the kernel's": (
        "tuned-kernel",
        record(host(covered=["tmpfs on /proc/acpi", "fuse.shown on /proc/stat"])),
        "a file of the kernel is hidden by a mount: fuse.shown on /proc/stat",
    ),
    "mitigations off in another way": (
        "tuned-kernel",
        record(host(mitigations={"spectre_v2": "Vulnerable; IBPB: disabled"})),
        "the kernel's mitigation of spectre_v2 is off: Vulnerable; IBPB: disabled",
    ),
    "a plugin of NCCL": ("R31", record(environment(NCCL_TUNER_PLUGIN="/evil.so")), "NCCL_TUNER_PLUGIN=/evil.so"),
    "modules of UCX": ("R31", record(environment(UCX_MODULE_DIR="/evil")), "the environment has UCX_MODULE_DIR=/evil"),
    "another GPU": (
        "R31",
        record(environment(CUDA_VISIBLE_DEVICES="GPU-9")),
        "the environment has CUDA_VISIBLE_DEVICES=GPU-9, but its devices are GPU-1",
    ),
    "compiled modules elsewhere": (
        "R31",
        record(environment(PYTHONPYCACHEPREFIX="/evil")),
        "PYTHONPYCACHEPREFIX=/evil, which is not a folder of the session",
    ),
    "no environment": ("R31", record(ours(environment={})), "the environment is recorded without PATH"),
}
