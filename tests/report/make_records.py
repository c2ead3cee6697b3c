"""Make result folders of our schema, of any size: exact slices of 0.5 s, so that every expectation is known by hand.

python tests/report/make_records.py FOLDER [--records 2000] [--slices 120]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from milabench_ng.plan import Device, Launch, Plan, make_plan
from milabench_ng.profile import PartitionScheme, Profile, Test
from milabench_ng.records.window import WindowRule

START = datetime(2026, 1, 6, 16, 0, 0, 123456, tzinfo=UTC)
RUN_ID = "20260106-160000-abcdef"
PER_GPU = PartitionScheme("per-gpu")
PROGRESSION = PartitionScheme("gpu-progression")
Rate = Callable[[Launch, int], float]
"""Items per second of a rank of a launch."""


def plan(suite: str, tests: dict[str, PartitionScheme], devices: int, repeat: int, names: Sequence[str] = ()) -> Plan:
    """The real plan of a made-up profile."""
    profile = Profile(
        suite, {name: Test(workload=name, partition_scheme=scheme) for name, scheme in tests.items()}, text="{}"
    )
    arguments: dict[str, Any] = {name: ({"batch_size": 64, "max_count": 1000}, ()) for name in tests}
    chosen = [Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="Test GPU") for index in range(devices)]
    return make_plan(profile, names, arguments, chosen, repeat)


def record(launch: Launch, rate: Rate, slices: int = 120, **changes: Any) -> dict[str, Any]:
    """The record of one launch: ``slices`` slices of 0.5 s each until the stop, ``changes`` to its ``mnb`` part."""
    ranks = range(len(launch.devices)) if launch.scheme == "gpu-progression" else range(1)
    begin = 1000.0
    rows = {
        rank: [[begin + 0.5 * i, 0.5, round(rate(launch, rank) / 2), 5, 0.125] for i in range(slices)] for rank in ranks
    }
    stop = begin + 0.5 * slices
    program = {"type": "program", "start": 0.0, "end": stop - begin, "time": stop - begin}
    train = {
        "train" if launch.scheme != "gpu-progression" else f"train_{rank}": {
            "type": "train",
            "start": 0.0,
            "end": stop - begin,
            "time": stop - begin,
            "sample_duration": 0.5,
            "rates": [row[2] / row[1] for row in rows[rank]],
            "metrics": {},
        }
        for rank in ranks
    }
    return {
        "name": launch.test,
        "job_id": launch.job_id,
        "dataroot": "/data",
        "outdir": "/results",
        "job": {"workload": launch.workload, "partition_scheme": {"type": launch.scheme}},
        "device": launch.devices[-1],
        "devices": list(launch.devices),
        "call": {"function": launch.workload, "argv": [], "arguments": launch.arguments},
        "success": True,
        "error": None,
        "hostname": "node",
        "gpu": "Test GPU",
        "device_count": len(launch.devices),
        "environ": {"CUDA_VISIBLE_DEVICES": ",".join(map(str, launch.devices)), "MILARUN_DATAROOT": "/data"},
        "metrics": {"loss": 0.5},
        "timings": {"program": program, **train},
        "gpu_monitor": {str(index): _monitor(1000 + index) for index in launch.devices},
        "mnb": _mnb(launch, rows, stop) | changes,
    }


def _monitor(memory: float) -> dict[str, Any]:
    sample = {"min": 1.0, "mean": 2.0, "max": 3.0}
    return {"load": sample, "memory": sample | {"max": memory}, "temperature": sample}


def _mnb(launch: Launch, rows: dict[int, list[list[float]]], stop: float) -> dict[str, Any]:
    shares = {str(index): {"backend": "v2", "tier": "full", "group": f"mnb/{index}"} for index in launch.devices}
    return {
        "schema": 1,
        "version": "0.1.0",
        "run_id": RUN_ID,
        "started_utc": "2026-01-06T16:00:00.123456Z",
        "batch": 0,
        "launch": msgspec.to_builtins(launch),
        "label": launch.label,
        "unit": "images",
        "bound": "cpu",
        "classic_factor": 1.0,
        "source": {"workload": launch.workload, "origin": "x:y", "package": "milabench_ng 0.1.0", "sha256": "0" * 64},
        "devices": [{"index": index, "kind": "gpu", "name": "Test GPU"} for index in launch.devices],
        "environment": {f"NCCL_OPTION_{i}": "value" for i in range(20)},
        "dropped_environment": [f"DROPPED_{i}" for i in range(40)],
        "start": "warm",
        "phases_s": {"fork": 0.01, "fence": 0.02, "model": 0.3},
        "start_to_ready_s": 0.33,
        "start_s": 1000.0,
        "stop_s": stop,
        "window_rule": msgspec.to_builtins(WindowRule()),
        "window": {"start_s": stop - 10, "end_s": stop - 1},
        "ranks": [
            {"rank": rank, "device": launch.devices[rank], "pid": 1, "count": 1, "full_s": stop - 1, "slices": slices}
            for rank, slices in rows.items()
        ],
        "precision": {"requested": "fp32", "dtypes": {"float32": 5}, "ran_before": "fp32", "ran_after": "fp32"},
        "data": {
            "name": "imagenet",
            "kind": "twin",
            "scale": 1.0,
            "path": "/data/ImageNet",
            "checksum": None,
            "cache": "cold",
            "resident_fraction": 0.0,
        },
        "neighbours": {"planned": 1, "alive_at_stop": 1, "lost": []},
        "isolation": shares,
        "conditions": {edge: {f"key_{i}": {"a": i, "b": "text"} for i in range(40)} for edge in ("before", "after")},
        "telemetry": {},
        "failure": None,
        "exit_status": 0,
        "marks": [],
    }


def failed(launch: Launch, cause: str, detail: str = "why", slices: int = 4) -> dict[str, Any]:
    """The record of a failed launch."""
    made = record(launch, lambda *_: 1.0, slices, failure={"cause": cause, "detail": detail})
    return made | {"success": False, "error": detail}


def manifest(whole: Plan, run_id: str = RUN_ID) -> dict[str, Any]:
    """What a report needs of ``run.json``."""
    return {
        "schema": 1,
        "job_id": None,
        "run_id": run_id,
        "version": "0.1.0",
        "started_utc": "2026-01-06T16:00:00.123456Z",
        "plan": msgspec.to_builtins(whole),
        "fence": {"requested": "auto", "backend": "v2", "tier": "full"},
        "software": {"torch": "2.15.0"},
    }


def write(folder: Path, made: dict[str, Any], moment: int = 0) -> Path:
    """Write a record under its name."""
    stamp = (START + timedelta(seconds=moment)).strftime("%Y%m%d-%H%M%S-%f")
    fail = "" if made["success"] else "FAIL."
    path = folder / f"{made['name']}.J{made['job_id']}.{fail}{stamp}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1))
    return path


def write_manifest(folder: Path, whole: Plan) -> Path:
    """Write ``run.json``."""
    path = folder / "run.json"
    path.write_bytes(msgspec.json.encode(manifest(whole)))
    return path


def steady(launch: Launch, rank: int) -> float:
    """100 items/s on device 0 in run 0, 2 more for each device or rank, 4 more for each run."""
    return 100 + 2 * (launch.devices[0] + rank) + 4 * launch.run


def write_run(folder: Path, whole: Plan, rate: Rate = steady, slices: int = 120) -> None:
    """A complete result folder of ``whole``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, whole)
    for moment, launch in enumerate(whole.launches):
        write(folder, record(launch, rate, slices), moment)


def main() -> None:
    """Make a folder with at least the given number of records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--slices", type=int, default=120)
    given = parser.parse_args()
    per_gpu = ("toy_reg", "toy_lstm", "vae", "loader", "convnet", "convnet_fp16")
    tests = dict.fromkeys(per_gpu, PER_GPU) | {"scaling": PROGRESSION}
    repeat = -(-given.records // (8 * len(tests)))
    write_run(given.folder, plan("standard", tests, 8, repeat), slices=given.slices)


if __name__ == "__main__":
    main()
