"""Make result folders of our schema, of any size: exact slices of 0.5 s, so that every expectation is known by hand.

They are whole: manifest, ledger and records have everything that those of a run have, and are as valid.

python tests/report/make_records.py FOLDER [--records 2000] [--slices 120]
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from make_node import conditions, fence, inventory, storage, surroundings

from milabench_ng import __version__
from milabench_ng.model.builtin import Declared, read_builtin
from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.plan import Device, Launch, Plan, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import PartitionScheme, Profile, Scheme, Test, name_of
from milabench_ng.model.sources import package_digests
from milabench_ng.model.units import utc_iso
from milabench_ng.node.edge import Edge
from milabench_ng.records import ledger
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.isolation import Share
from milabench_ng.records.manifest import FenceSummary, Manifest, ProfileText
from milabench_ng.records.origin import RECORD_SCHEMA
from milabench_ng.records.proof import CodeProof, DataProof, WheelCheck
from milabench_ng.records.record import DIGEST_STEP, PROBED_STEPS
from milabench_ng.records.window import MEASURED_BY, SliceRow, first_full

START = datetime(2026, 1, 6, 16, 0, 0, 123456, tzinfo=UTC)
BUILTIN = read_builtin()
RUN_ID = "20260106-160000-abcdef"
CHECKSUM = "5" * 64
BEGIN_S = 1000.0
BETWEEN_S = 100.0
"""From the start line of one batch to that of the next."""
WORKLOADS = Path(__file__).parents[2] / "milabench_ng" / "workloads" / "standard"
FED_WAIT_S, UNFED_WAIT_S = 0.125, 0.01
"""Of a slice: where loader processes make the batches, and where nothing does."""
PER_GPU = PartitionScheme(Scheme.PER_GPU)
PROGRESSION = PartitionScheme(Scheme.PROGRESSION)
Rate = Callable[[Launch, int], float]
"""Items per second of a rank of a launch."""


def plan(
    suite: str,
    tests: dict[str, PartitionScheme],
    devices: int,
    repeat: int,
    names: Sequence[str] = (),
    nonce: str | None = None,
    suites: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """The real plan of a made-up profile; a nonce makes its order random. ``suites``: of tests that have their own."""
    profile = Profile(
        suite,
        {name: Test(workload=name, partition_scheme=scheme, suite=suites.get(name)) for name, scheme in tests.items()},
        text="{}",
        source="made",
    )
    arguments = {name: ResolvedOptions(arguments_of(name)) for name in names or tests}
    chosen = [device(index) for index in range(devices)]
    return make_plan(profile, arguments, chosen, repeat, "interleaved" if nonce is None else "random", nonce)


def arguments_of(workload: str) -> dict[str, Scalar | None]:
    """What the workload has by default, in batches of 64 where it has batches."""
    defaults = declares(workload).defaults
    own = {"batch_size": 64} if workload not in BUILTIN or "batch_size" in defaults else {}
    return {**defaults, **own}


def declares(workload: str) -> Declared:
    """What a workload counts: a built-in one as it says itself, any other one images."""
    made_up = Declared(
        unit="images", classic_factor=1.0, bound="cpu", derived=(), data="imagenet", defaults={"precision": "fp32"}
    )
    return BUILTIN.get(workload, made_up)


def device(index: int) -> Device:
    """A made-up GPU."""
    return Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="Test GPU", numa_node=0)


def record(
    launch: Launch, rate: Rate, slices: int = 120, batch: int = 0, beside: int = 0, **changes: Any
) -> dict[str, Any]:
    """The record of one launch: ``slices`` slices of 0.5 s each until the stop, ``changes`` to its ``mnb`` part.

    ``beside``: how many launches of its batch it worked beside.
    """
    ranks = range(len(launch.devices)) if launch.scheme == "gpu-progression" else range(1)
    begin = BEGIN_S + BETWEEN_S * batch
    run_id = changes.get("run_id", RUN_ID)
    rows = {rank: _rows(launch, (rank, run_id), begin, slices, round(rate(launch, rank) / 2)) for rank in ranks}
    stop = begin + 0.5 * slices
    program = {"type": "program", "start": 0.0, "end": stop - begin, "time": stop - begin}
    train = {
        "train" if launch.scheme == "per-gpu" else f"train_{rank}": {
            "type": "train",
            "start": 0.0,
            "end": stop - begin,
            "time": stop - begin,
            "sample_duration": 0.5,
            "rates": [row[2] / row[1] for row in rows[rank] if row[0] >= stop - 10],
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
        "mnb": changed(_mnb(launch, rows, begin, stop, (batch, beside)), changes),
    }


def changed(part: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``part`` with other values; of what it has in a dictionary, only the keys that the change has."""
    merged = dict(part)
    for key, value in changes.items():
        inside = isinstance(value, dict) and value and isinstance(part.get(key), dict)
        merged[key] = changed(part[key], value) if inside else value
    return merged


def _rows(launch: Launch, who: tuple[int, str], begin: float, slices: int, count: int) -> list[list[float]]:
    """Slices of 0.5 s, but for a microsecond: no two launches of a real meter have the same lengths.

    Every other slice ends on the exact half second, so that windows hold exactly what they would without. ``who``: the
    rank and its run.
    """
    tenants = launch.devices if launch.slots is msgspec.UNSET else launch.slots
    draw = random.Random(f"{launch.label} {launch.run} {tenants} {who}")
    odd = [draw.randrange(-(2**15), 2**15) / 2**36 if i % 2 else 0.0 for i in range(slices + 1)]
    odd[-1] = 0.0
    steps = max(5, -(-count // 64))
    wait_s = FED_WAIT_S if _fed(launch) else UNFED_WAIT_S
    return [[begin + 0.5 * i + odd[i], 0.5 + odd[i + 1] - odd[i], count, steps, wait_s] for i in range(slices)]


def _fed(launch: Launch) -> bool:
    """Whether loader processes make its batches."""
    source = launch.arguments.get("source")
    return source != "resident" if source is not None else declares(launch.workload).data is not None


def full(rows: list[list[float]], begin: float, stop: float) -> float:
    """When the rank was full; of a launch that is too short for that, as if it had been so."""
    found = first_full(msgspec.convert(rows, list[SliceRow]), begin, MEASURED_BY, 0)
    return stop - 1 if found is None else found


def utc_at(time_s: float) -> str:
    """What the wall clock shows at a moment of the monotonic one."""
    return utc_iso(START + timedelta(seconds=time_s - BEGIN_S))


def move_to_session(made: dict[str, Any], session: int) -> None:
    """Make a record one of a session that began so many days after the first one."""
    mnb, days = made["mnb"], timedelta(days=session - 1)
    mnb["session"] = session
    for dated, key in ((mnb, "started_utc"), *((edge, "utc") for edge in mnb["conditions"].values())):
        dated[key] = utc_iso(datetime.fromisoformat(dated[key]) + days)


def divide_into_sessions(folder: Path, whole: Plan, sessions: int) -> None:
    """Make the repeats of a run, in their order, those of so many sessions, each a day after the one before."""
    repeats = 1 + max(launch.run for launch in whole.launches)
    for path in folder.glob("*.J*.json"):
        made = json.loads(path.read_bytes())
        move_to_session(made, 1 + made["mnb"]["launch"]["run"] * sessions // repeats)
        path.write_bytes(msgspec.json.encode(made))
    write_ledger(folder, whole)


def _monitor(memory: float) -> dict[str, Any]:
    sample = {"min": 1.0, "mean": 2.0, "max": 3.0}
    return {"load": sample, "memory": sample | {"max": memory}, "temperature": sample}


def _mnb(
    launch: Launch, rows: dict[int, list[list[float]]], begin: float, stop: float, place: tuple[int, int]
) -> dict[str, Any]:
    batch, beside = place
    own = declares(launch.workload)
    source = WORKLOADS / f"{launch.workload}.py"
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else "0" * 64
    return {
        "schema": RECORD_SCHEMA,
        "version": __version__,
        "run_id": RUN_ID,
        "started_utc": utc_at(begin),
        "session": 1,
        "attempt": 1,
        "batch": batch,
        "launch": msgspec.to_builtins(launch),
        "label": launch.label,
        "unit": own.unit,
        "bound": own.bound,
        "classic_factor": own.classic_factor,
        "source": {
            "workload": launch.workload,
            "origin": f"milabench_ng.workloads.standard.{launch.workload}:{launch.workload}",
            "package": f"milabench_ng {__version__}",
            "sha256": sha256,
            "modules": [],
        },
        "devices": [msgspec.to_builtins(device(index)) for index in launch.devices],
        "environment": _environment(launch),
        "dropped_environment": [f"DROPPED_{i}" for i in range(40)],
        "start": "warm",
        "phases_s": {"fork": 0.01, "fence": 0.02, "model": 0.3},
        "start_to_ready_s": 0.33,
        "start_s": begin,
        "stop_s": stop,
        "window_rule": msgspec.to_builtins(MEASURED_BY),
        "window": {"start_s": stop - 10, "end_s": stop - 1, "edges": "shared"},
        "ranks": [
            {
                "rank": rank,
                "device": launch.devices[rank],
                "pid": 1,
                "count": sum(row[2] for row in slices),
                "full_s": full(slices, begin, stop),
                "slices": slices,
                "backlog": None,
                "skipped": None,
                **_traced(sum(row[3] for row in slices)),
            }
            for rank, slices in rows.items()
        ],
        "precision": {
            "requested": "fp32",
            "dtypes": {"float32": 5},
            "ran_before": "fp32",
            "ran_after": "fp32",
            "matmul_error_before": 1e-7,
            "matmul_error_after": 1e-7,
            "layer_dtype": "float32",
        },
        "data": {
            "name": "imagenet",
            "kind": "twin",
            "scale": 1.0,
            "path": "/data/ImageNet",
            "checksum": CHECKSUM,
            "cache": "cold",
            "resident_fraction": 0.0,
        },
        "neighbours": {"planned": beside, "alive_at_stop": beside, "lost": []},
        "isolation": {slot: msgspec.to_builtins(fence(_place(slot), RUN_ID)) for slot in launch.slot_ids},
        "conditions": {
            "before": msgspec.to_builtins(conditions(begin - 1, launch.devices, utc_at(begin - 1))),
            "after": msgspec.to_builtins(conditions(stop + 1, launch.devices, utc_at(stop + 1))) | {"settings": None},
        },
        "surroundings": {
            "before": msgspec.to_builtins(surroundings(begin - 1, launch.devices)),
            "after": msgspec.to_builtins(surroundings(stop + 1, launch.devices)),
        },
        "host_pace": {slot: host_pace(80.0, 80.0) for slot in launch.slot_ids},
        "telemetry": {
            "host:node": {"load_1min": dict.fromkeys(("min", "mean", "max"), 1.0) | {"n": 18, "span_s": 8.5}},
            **{
                f"tenant:{slot}": {"anon_mib": {"n": 18, "span_s": 8.5, "min": 8.0, "mean": 8.0, "max": 8.0}}
                for slot in launch.slot_ids
            },
            **{
                f"gpu:GPU-{index}": {
                    f"{reason}_s": {"n": 18, "span_s": 8.5, "min": 0.0, "mean": 0.0, "max": 0.0}
                    for reason in ("sw_thermal", "hw_thermal", "hw_power_brake")
                }
                for index in launch.devices
            },
        },
        "sampled": {"start_s": stop - 10, "end_s": stop - 1, "interval_s": 0.5, "dropped": 0},
        "failure": None,
        "exit_status": 0,
        "marks": [],
    }


def _share(slot: str, tenants: int) -> Share:
    """What the run gives a slot of a device with that many."""
    own = fence(_place(slot), RUN_ID).requested
    return own if tenants == 1 else msgspec.structs.replace(own, device_part=1 / tenants)


def _place(slot: str) -> int:
    """A number of its own for each slot, of which a device has at most four."""
    letter = slot.lstrip("0123456789")
    return 4 * int(slot.removesuffix(letter)) + "abcd".index(letter) if letter else int(slot)


def _traced(steps: float) -> dict[str, Any]:
    """Losses that fall, gradient norms, and the digest of the parameters, at the steps that a run tells."""
    probed = [step for step in PROBED_STEPS if step <= steps]
    return {
        "losses": {str(step): 1 + 1 / step for step in probed},
        "gradient_norms": {str(step): 2 + 1 / step for step in probed},
        "digests": {str(DIGEST_STEP): "0" * 64} if steps >= DIGEST_STEP else {},
    }


def _environment(launch: Launch) -> dict[str, str]:
    """Of a worker, with many settings of the operator."""
    return {
        "PATH": "/venv/bin:/usr/bin:/bin",
        "HOME": "/root",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(f"GPU-{index}" for index in launch.devices),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "TMPDIR": "/tmp/scratch",
        "PYTHONPYCACHEPREFIX": "/tmp/scratch/compiled",
        **{f"NCCL_OPTION_{i}": "value" for i in range(20)},
    }


def host_pace(before: float, after: float) -> dict[str, Any]:
    """Of one share: the same in all bursts of an edge, in MB/s."""
    edges = {
        name: HostPace(library="zlib 1", mb_per_s=pace, bursts=(pace,) * 5, cpu_min=pace, cpu_max=pace, on_cpu=1.0)
        for name, pace in (("before", before), ("after", after))
    }
    made: dict[str, Any] = msgspec.to_builtins(edges)
    return made


def failed(launch: Launch, cause: str, detail: str = "why", slices: int = 4) -> dict[str, Any]:
    """The record of a failed launch."""
    made = record(launch, lambda *_: 1.0, slices, failure={"cause": cause, "detail": detail}, window=None)
    return made | {"success": False, "error": detail}


def profile_text(whole: Plan) -> str:
    """The profile that makes a plan."""
    tests = {
        name_of(launch.test): {
            **({"suite": launch.suite} if launch.suite != whole.suite else {}),
            "workload": launch.workload,
            "arguments": {name: value for name, value in launch.arguments.items() if name == "batch_size"},
            "partition_scheme": {"type": launch.scheme},
            "data_scale": launch.data_scale,
        }
        for launch in whole.launches
    }
    return msgspec.json.encode(tests).decode()


def promise(whole: Plan, run_id: str = RUN_ID) -> Manifest:
    """``run.json``."""
    text = profile_text(whole)
    return Manifest(
        run_id=run_id,
        version=__version__,
        started_utc="2026-01-06T16:00:00.123456Z",
        command_line=("mnb", "jobs"),
        profile=ProfileText(file=f"{whole.suite}.json", sha256=hashlib.sha256(text.encode()).hexdigest(), text=text),
        plan=whole,
        window_rule=MEASURED_BY,
        start="warm",
        dataroot="/data",
        inventory=inventory(whole.devices),
        storage={"dataroot": storage("/data"), "outdir": storage("/results")},
        fence=FenceSummary(requested="auto", backend="v2", tier="full"),
        shares={slot: _share(slot, whole.tenants_per_device) for slot in whole.slots},
        software={"torch": "2.15.0", "torchvision": "0.30.0", "numpy": "2.5.2"},
        software_key="0" * 16,
        import_path=("/venv/lib/python3/site-packages", "/usr/lib/python3.11"),
    )


def manifest(whole: Plan, run_id: str = RUN_ID) -> dict[str, Any]:
    """``run.json`` as plain values."""
    made: dict[str, Any] = msgspec.to_builtins(promise(whole, run_id))
    return made


def write(folder: Path, made: dict[str, Any], moment: int = 0) -> Path:
    """Write a record under its name."""
    stamp = (START + timedelta(seconds=moment)).strftime("%Y%m%d-%H%M%S-%f")
    fail = "" if made["success"] else "FAIL."
    path = folder / f"{made['name']}.J{made['job_id']}.{fail}{stamp}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1))
    return path


def write_manifest(folder: Path, whole: Plan, run_id: str = RUN_ID) -> Path:
    """Write ``run.json``."""
    path = folder / "run.json"
    path.write_bytes(msgspec.json.encode(manifest(whole, run_id)))
    return path


def steady(launch: Launch, rank: int) -> float:
    """100 items/s on device 0 in run 0, 2 more for each device or rank, 4 more for each run."""
    return 100 + 2 * (launch.devices[0] + rank) + 4 * launch.run


def write_run(folder: Path, whole: Plan, rate: Rate = steady, slices: int = 120, run_id: str = RUN_ID) -> None:
    """A complete result folder of ``whole``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, whole, run_id)
    moment = 0
    for batch in whole.batches:
        for launch in batch.launches:
            made = record(launch, rate, slices, batch.number, len(batch.launches) - 1, run_id=run_id)
            for slot, share in made["mnb"]["isolation"].items():
                share["requested"] = msgspec.to_builtins(_share(slot, whole.tenants_per_device))
            write(folder, made, moment)
            moment += 1
    write_ledger(folder, whole)


def write_ledger(folder: Path, whole: Plan) -> None:
    """The ledger of a run in which each record of the folder took one attempt, in its sessions."""
    promised = promise(whole, json.loads((folder / "run.json").read_bytes())["run_id"])
    files = [(path, path.read_bytes()) for path in sorted(folder.glob("*.J*.json"), key=lambda path: path.name[-27:])]
    read = [(path.name, content, msgspec.json.decode(content)["mnb"]) for path, content in files]
    sets = sorted({made["data"]["name"] for *_, made in read if made["data"]})
    begun = [*_begun(promised, whole), _session(1), *proofs("before", sets)]
    chain, lines = ledger.extend(ledger.Chain(), "2026-01-06T16:00:00.123456Z", begun)
    last, session = START, 1
    for batch in sorted({made["batch"] for _, _, made in read}):
        those = [one for one in read if one[2]["batch"] == batch]
        own = those[0][2].get("session", 1)
        between = [*proofs("after", sets), _session(own), *proofs("before", sets)] if own != session else []
        session = own
        tried: list[ledger.AnyLedgerEvent] = [
            ledger.Company(batch=batch, **_which(made))
            if _is_company(made)
            else ledger.Attempt(number=1, batch=batch, **_which(made))
            for _, _, made in those
        ]
        kept = [
            ledger.Recorded(
                number=0 if _is_company(made) else 1,
                file=name,
                sha256=hashlib.sha256(content).hexdigest(),
                cause=made["failure"] and made["failure"]["cause"],
                **_which(made),
            )
            for name, content, made in those
        ]
        begin = START + timedelta(days=session - 1, seconds=BETWEEN_S * batch)
        last = begin + timedelta(
            seconds=max((made["stop_s"] or 0.0) - BEGIN_S - BETWEEN_S * batch for *_, made in those)
        )
        for at, events in ((begin, [*between, *tried]), (last + timedelta(seconds=2), kept)):
            chain, more = ledger.extend(chain, utc_iso(at), events)
            lines += more
    causes = [made["failure"] and made["failure"]["cause"] for *_, made in read if not _is_company(made)]
    left = len(whole.measured) - sum(cause not in ledger.NOT_TRIED for cause in causes)
    ended = [*proofs("after", sets), ledger.Finished(missing=max(0, left), failed=0)]
    lines += ledger.extend(chain, utc_iso(last + timedelta(seconds=3)), ended)[1]
    (folder / "ledger.jsonl").write_bytes(lines)


def _begun(promised: Manifest, whole: Plan) -> list[ledger.AnyLedgerEvent]:
    return [
        ledger.Started(
            run_id=promised.run_id,
            version=__version__,
            plan_sha256=whole.sha256,
            profile_sha256=promised.profile.sha256,
            launches=len(whole.measured),
            order=whole.order,
            nonce=whole.nonce,
        ),
    ]


def _is_company(made: dict[str, Any]) -> bool:
    return made["launch"].get("role") == "company"


def _session(number: int) -> ledger.Session:
    return ledger.Session(number=number, hostname="node", boot_id="boot", pid=1, command_line=("mnb", "jobs"))


def _which(made: dict[str, Any]) -> dict[str, str]:
    return {"label": made["label"], "job_id": f"{made['launch']['run']}.{made['launch']['devices'][-1]}"}


@functools.cache
def own_package() -> dict[str, str]:
    """The digests of the package that is tested, which takes a tenth of a second."""
    return package_digests(WORKLOADS.parents[1])


def proofs(edge: Edge, sets: Iterable[str] = ("mnist", "imagenet")) -> tuple[ledger.CodeSeen | ledger.DataSeen, ...]:
    """What a session reads of code and data."""
    wheels = {
        name: WheelCheck(version=version, folder="/venv/site", sha256="0" * 64, files=9)
        for name, version in (("torch", "2.15.0"), ("torchvision", "0.30.0"), ("numpy", "2.5.2"))
    }
    code = CodeProof(
        package=own_package(),
        elsewhere=(),
        wheels=wheels if edge == "after" else {},
        base="/usr",
        prefix="/venv",
        folder="/venv/lib/python3/site-packages",
        seconds=1.0,
    )
    data = DataProof(
        name="",
        scale=1.0,
        checksum=CHECKSUM,
        generator=1,
        libraries={"numpy": "2"},
        files=9,
        bytes=9,
        changed_s=1e9,
        seconds=1.0,
    )
    read = (msgspec.structs.replace(data, name=name) for name in sets)
    return (ledger.CodeSeen(edge=edge, code=code), *(ledger.DataSeen(edge=edge, data=one) for one in read))


def main() -> None:
    """Make a folder with at least the given number of records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--slices", type=int, default=120)
    given = parser.parse_args()
    standard = json.loads((Path(__file__).parents[2] / "profiles" / "standard.json").read_text())
    tests = {name: PROGRESSION if name == "scaling" else PER_GPU for name in standard if name != "*"}
    repeat = -(-given.records // (8 * len(tests)))
    write_run(given.folder, plan("standard", tests, 8, repeat), slices=given.slices)


if __name__ == "__main__":
    main()
