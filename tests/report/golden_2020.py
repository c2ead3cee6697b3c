"""A small result folder as the 2020 tool wrote them; its numbers are chosen to be checked by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

HEAD = [99.0, 98.0]
"""More than 20 slices before the end: not averaged."""
TAIL = [1000.0, 5.0]
"""The last full slice and the trailing partial one: not averaged."""


def run(
    name: str,
    job_id: str,
    rates: dict[str, list[float]],
    *,
    visible: str | None = "0",
    success: bool = True,
    metrics: dict[str, float] | None = None,
    memory: dict[str, float] | None = None,
    program: float = 60.0,
    scheme: str = "per-gpu",
    count: int = 1,
) -> dict[str, Any]:
    timings: dict[str, Any] = {"program": {"type": "program", "start": 0, "end": program, "time": program}}
    for timing, values in rates.items():
        timings[timing] = {"type": "train", "time": 10.0, "sample_duration": 0.5, "rates": values, "metrics": {}}
    return {
        "name": name,
        "job_id": job_id,
        "job": {"partition_scheme": {"type": scheme}},
        "device": int(job_id.split(".")[1]),
        "devices": [0, 1],
        "call": {"function": "milarun.models.vae:main", "argv": []},
        "success": success,
        "error": None if success else "Traceback ...\nRuntimeError: CUDA out of memory",
        "hostname": "golden",
        "gpu": "V100",
        "device_count": count,
        "environ": {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible},
        "metrics": metrics or {},
        "timings": timings,
        "gpu_monitor": {
            device: {"load": {"max": 1}, "memory": {"min": 0, "mean": 1, "max": peak}, "temperature": {"max": 50}}
            for device, peak in (memory or {}).items()
        },
    }


def write_golden(folder: Path) -> None:
    """vae: two good runs (one ends in an infinite loss), a crashed one, one with a NaN loss. toy: under 20 slices.
    scaling: 1 and 2 devices, and the sub-job that the 2020 tool left in a folder of its own."""
    runs = [
        run("golden.vae", "0.0", {"train": [*HEAD, *[10.0] * 18, *TAIL]}, memory={"0": 700.0, "1": 9000.0}),
        run(
            "golden.vae",
            "0.1",
            {"train": [*HEAD, *[20.0] * 18, *TAIL]},
            visible="1",
            memory={"0": 700.0, "1": 900.0},
            metrics={"loss": math.inf},
            program=80.0,
        ),
        run("golden.vae", "1.0", {"train": [1.0] * 30}, success=False),
        run("golden.vae", "1.1", {"train": [7.0] * 30}, visible="1", metrics={"loss": math.nan}),
        run("golden.toy", "0.0", {"train": [1.0, 2.0, 3.0, 100.0, 100.0]}, memory={"0": -1}),
        run("golden.toy", "0.1", {"train": [5.0, 100.0, 100.0]}, visible=None, memory={"0": 11.0, "1": 12.0}),
        run("golden.scaling", "0.0", {"train_0": [30.0] * 22}, scheme="gpu-progression"),
        run(
            "golden.scaling",
            "0.1",
            {"train_0": [8.0] * 22, "train_1": [4.0] * 22},
            visible="0,1",
            scheme="gpu-progression",
            count=2,
            memory={"0": 1.0, "1": 2.0},
        ),
    ]
    folder.mkdir(parents=True)
    for data in runs:
        fail = "" if data["success"] else "FAIL."
        name = f"{data['name']}.J{data['job_id']}.{fail}20200801-120000-000000.json"
        (folder / name).write_text(json.dumps(data, indent=4))  # writes NaN and Infinity, as in 2020
    extra = folder / "golden.scaling.J0.1.20200801-120000-000000"
    extra.mkdir()
    sub_job = runs[-1] | {"sub_job": True}
    (extra / "results-0.json").write_text(json.dumps(sub_job))
    (folder / "note.json").write_text('{"job_id": null}')
