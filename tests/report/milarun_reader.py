"""How the 2020 tool summarised a folder, written anew from its description and from nothing of ours.

Every ``*.json`` below the folder whose ``job_id`` is not null and that is no sub-job is a run. A run is good if it
succeeded and no final metric is NaN. Of each good run and each timing called ``train*`` the mean of ``rates[-20:-2]``
enters ``train``; the program's seconds enter ``total``. Spread is the population standard deviation.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any


def summarize(folder: Path) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.rglob("*.json")):
        data = json.loads(file.read_text())
        if data.get("job_id") is None or data.get("sub_job"):
            continue
        name = data["name"]
        if data["job"]["partition_scheme"]["type"] == "gpu-progression":
            name = f"{name}.{data['device_count']}"
        groups.setdefault(name, []).append(data)
    return {name: _group(runs) for name, runs in groups.items()}


def _group(runs: list[dict[str, Any]]) -> dict[str, Any]:
    good = [run for run in runs if run["success"] and not any(math.isnan(value) for value in run["metrics"].values())]
    train: list[float] = []
    by_device: dict[int, list[float]] = {}
    for run in good:
        visible = run["environ"].get("CUDA_VISIBLE_DEVICES", "unset,unset").split(",")
        for name, timing in run["timings"].items():
            if not name.startswith("train"):
                continue
            kept = timing["rates"][-20:-2]
            perf = sum(kept) / len(kept) if kept else math.nan
            train.append(perf)
            if len(visible) == 1:
                by_device.setdefault(int(visible[0]), []).append(perf)
    memory = [0.0]
    for run in runs:
        visible = run["environ"].get("CUDA_VISIBLE_DEVICES", "unset,unset").split(",")
        for device, counters in run["gpu_monitor"].items():
            if len(visible) > 1 or visible[0] == device:
                memory.append(counters["memory"]["max"])
    return {
        "n": len(runs),
        "failures": len(runs) - len(good),
        "train": _stats(train),
        "total": _stats([run["timings"]["program"]["time"] for run in good]),
        "pergpu": {str(device): _stats(perfs) for device, perfs in by_device.items()},
        "peak_memory": max(memory),
    }


def _stats(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "n": len(values),
        "min": min(values),
        "max": max(values),
        "mean": statistics.fmean(values),
        "std": statistics.pstdev(values),
    }
