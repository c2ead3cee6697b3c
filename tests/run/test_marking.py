"""A mark belongs to the devices of its launch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.sharing.layout import lay_out
from milabench_ng.model.bounds import Spread
from milabench_ng.model.catalogue import Catalogue
from milabench_ng.model.events import Done, Ready
from milabench_ng.model.plan import Device, Launch, Plan
from milabench_ng.model.profile import Profile, Scheme
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.resctrl import Resctrl
from milabench_ng.node.storage import StorageKind
from milabench_ng.records.host_pace import HostPace
from milabench_ng.records.isolation import Effective, ProcView, Scheduling, Share, Usage
from milabench_ng.records.marks import Mark
from milabench_ng.records.record import Data, Neighbour, Neighbours, SamplingSpan
from milabench_ng.records.surroundings import CpuLimit, Surroundings
from milabench_ng.records.window import WindowRule
from milabench_ng.run.execution.batch import GroupEvidence
from milabench_ng.run.execution.tenant import RankLog
from milabench_ng.run.outcome.marking import marks
from milabench_ng.run.outcome.observation import Observation, SessionFacts
from milabench_ng.run.outcome.observing import cache_spread
from milabench_ng.run.persistence.sessions import LedgerSession, SessionName
from milabench_ng.run.planning.planned_run import PlannedRun
from milabench_ng.run.planning.request import ResolvedRequest, RunRequest
from milabench_ng.worker.discovery import describe
from tests.report.make_node import conditions, fence, storage

BOARDS = {"0": "GPU-0", "1": "GPU-1", "2": "GPU-1"}
"""Device 2 is a MIG instance of GPU 1."""


def facts(
    differences: tuple[str, ...] = (),
    rule: WindowRule = WindowRule(),  # noqa: B008  # frozen
    shares: Mapping[str, Share] = {},
    **changes: object,
) -> SessionFacts:
    """A run on two GPUs and an instance of the second, with nothing to mark."""
    request = RunRequest(
        profile=Profile("s", {}, "", "s.json"),
        dataroot=Path("/data"),
        outdir=Path("/results"),
        rule=rule,
    )
    profile = Profile("s", {}, "", "s.json")
    catalogue = Catalogue(workloads={}, data_sets={})
    devices = {slot: Device(index=int(slot), kind="gpu", uuid=f"GPU-{slot}") for slot in BOARDS}
    own = {slot: fence(int(slot), "run").requested for slot in BOARDS} | dict(shares)
    planned = PlannedRun(
        resolved=ResolvedRequest(request=request, catalogue=catalogue, profile=profile, tests={}, arguments={}),
        plan=Plan(suite="s", devices=tuple(devices.values()), repeat=1, batches=()),
        layout=lay_out(devices, own),
        leftover_cpus=(),
        isolation="auto",
        capabilities=Capabilities("v1", "6.1", True, {}),
        start="warm",
        io={},
        resctrl=None,
        limits={},
        sharing_notes=(),
    )
    made = SessionFacts(
        planned=planned,
        begun=LedgerSession(SessionName("run", 1), differences),
        hostname="node",
        boards=BOARDS,
        fence=fence(0, "run"),
        dataroot=storage("/data"),
        dropped_environment=(),
    )
    return msgspec.structs.replace(made, **changes)


def seen(*devices: int, held: Mapping[str, float] = {}, ran: str = "fp32", **changes: object) -> Observation:
    """A launch on these devices in a batch of 100 s; ``held``: by GPU, seconds in which heat held its clocks down."""
    before, after = conditions(0.0, (0, 1)), conditions(100.0, (0, 1), "2026-01-06T16:01:40.123456Z")
    made = Observation(
        launch=Launch(
            test="s.t",
            scheme=Scheme("per-gpu"),
            workload="t",
            arguments={"precision": "fp32", "sample_duration": 0.5},
            run=0,
            devices=devices,
        ),
        attempt=1,
        batch=0,
        started=datetime(2026, 1, 6, tzinfo=UTC),
        requested_s=0.0,
        ready_s=1.0,
        ended_s=100.0,
        start_s=2.0,
        stop_s=99.0,
        window=None,
        ranks=[
            RankLog(ready=Ready(time_s=1.0, precision="fp32", ran=ran, matmul_error=0.0, parameters=1)) for _ in devices
        ],
        exit_status=0,
        failure=None,
        groups={},
        shares={},
        evidence={},
        disjoint=True,
        batch_search=None,
        neighbours=Neighbours(planned=1, alive_at_stop=1),
        data=None,
        environment={},
        conditions=(before, _throttled(after, held)),
        surroundings=(around(0.0), around(100.0)),
        strays=(),
        cache_spread=0.0,
        host_pace=dict.fromkeys(map(str, devices), (pace(80.0), pace(80.0))),
        gpu_monitor={},
        telemetry={},
        gpu_load={},
        sampled=SamplingSpan(start_s=89.0, end_s=98.0, interval_s=0.5, dropped=0),
    )
    return msgspec.structs.replace(made, **changes)


def around(time_s: float, **changes: object) -> Surroundings:
    """Nothing in the way of 4 CPUs."""
    quiet = Surroundings(time_s=time_s, cpus=4, cpu_limits=(), contested=(), machinery_cpu_s=0.0)
    return msgspec.structs.replace(quiet, **changes)


def pace(mb_per_s: float) -> HostPace:
    """Of a share, the same in all bursts."""
    return HostPace(library="zlib 1", mb_per_s=mb_per_s, bursts=(mb_per_s,) * 5)


def _throttled(after: Conditions, held: Mapping[str, float]) -> Conditions:
    states = {
        uuid: msgspec.structs.replace(state, throttled_ns={**state.throttled_ns, "hw_thermal": held.get(uuid, 0) * 1e9})
        for uuid, state in after.gpus.items()
    }
    return msgspec.structs.replace(after, gpus=states)


def test_clocks_that_were_held_down_in_the_window_only_mark_the_launch() -> None:
    """0.09 s of a window of 9 s are 1%, of the launch group of 100 s they are 0.09%."""
    counter = Spread(n=18, min=5.0, mean=5.0, max=5.09, span_s=9.0)
    telemetry = {"gpu:GPU-1": {"sw_thermal_s": counter, "sw_power_cap_s": counter}, "host:node": {"load_1min": counter}}
    (mark,) = marks(facts(), seen(1, held={"GPU-1": 0.09}, telemetry=telemetry))
    assert (mark.kind, mark.device, mark.what, mark.limit) == ("throttled", "1", "sw_thermal", 0.005)
    assert mark.value == pytest.approx(0.01)


def test_clocks_that_were_held_down_mark_the_launches_on_that_gpu_only() -> None:
    held = {"GPU-1": 3.1}
    assert marks(facts(), seen(0, held=held)) == ()
    mark = Mark(kind="throttled", device="1", what="hw_thermal", value=0.031, limit=0.005)
    assert marks(facts(), seen(1, held=held)) == (mark,)
    assert marks(facts(), seen(0, 1, held=held)) == (mark,)
    assert mark.text == "device 1: GPU clocks throttled (hw_thermal) for 3.1% of the time (limit 0.5%)"


def test_a_mig_instance_has_the_clocks_of_its_board() -> None:
    (mark,) = marks(facts(), seen(2, held={"GPU-1": 50.0}))
    assert (mark.device, mark.value) == ("2", 0.5)


def test_a_process_of_others_marks_the_launches_on_its_gpu_only() -> None:
    """Only one that was there before: after the batch, workers may still be ending."""
    (before, after), busy = seen(0, 1).conditions, {"GPU-1": (4711, 4712)}
    taken = msgspec.structs.replace(
        before,
        gpus={
            uuid: msgspec.structs.replace(state, foreign_pids=busy.get(uuid, ())) for uuid, state in before.gpus.items()
        },
    )
    (mark,) = marks(facts(), seen(0, 1, conditions=(taken, after)))
    assert mark == Mark(kind="GPU used by others", device="1", what="4711, 4712")
    assert mark.sentence == "other processes were on the GPU before the launch group: 4711, 4712"
    assert marks(facts(), seen(0, 1, conditions=(after, taken))) == ()


@pytest.mark.parametrize("held", [0.0, 0.5], ids=["never", "as long as the limit allows"])
def test_a_sound_launch_has_no_mark(held: float) -> None:
    assert marks(facts(), seen(0, 1, held={"GPU-0": held})) == ()


def test_parts_of_caches_are_a_mark() -> None:
    divided = msgspec.structs.replace(facts().planned, resctrl=Resctrl())
    assert marks(facts(planned=divided), seen(0)) == (Mark(kind="caches divided"),)


@pytest.mark.parametrize(
    ("workload", "kind", "told"),
    [
        ("checkpoint", "memory", ["output was written to ext4 (RAM), so no disk was measured"]),
        ("disk_read", "memory", ["output was written to ext4 (RAM), so no disk was measured"]),
        ("vae", "memory", []),
        ("checkpoint", "disk", []),
        ("checkpoint", "network", []),
    ],
)
def test_files_in_memory_are_a_mark(workload: str, kind: StorageKind, told: list[str]) -> None:
    planned = facts().planned
    resolved = msgspec.structs.replace(planned.resolved, catalogue=describe(()))
    found = facts(
        planned=msgspec.structs.replace(planned, resolved=resolved),
        dataroot=msgspec.structs.replace(storage("/data"), kind=kind),
    )
    launch = msgspec.structs.replace(seen(0).launch, workload=workload)
    assert [mark.text for mark in marks(found, seen(0, launch=launch))] == told


def test_a_launch_without_a_gpu_has_no_mark_of_one() -> None:
    assert marks(facts(boards={}), seen(0, held={"GPU-0": 50.0})) == ()


def test_every_kind_has_its_words() -> None:
    weak = facts(
        differences=("driver: 1, was 2",),
        fence=msgspec.structs.replace(fence(0, "run"), tier="affinity"),
        rule=WindowRule(length_s=2.0),
        shares={"0": msgspec.structs.replace(fence(0, "run").requested, smt_shared=True)},
    )
    lost = Neighbours(planned=3, alive_at_stop=2, lost=(Neighbour(job_id="0.1", cause="oom"),))
    read = Data(name="set", kind="classic", scale=1.0, path="/", checksum=None, cache="cold", resident_fraction=None)
    launch = msgspec.structs.replace(seen(0).launch, overrides=("batch_size", "workers"))
    found = marks(weak, seen(0, ran="tf32", neighbours=lost, data=read, launch=launch))
    assert [mark.text for mark in found] == [
        "resumed with another driver: 1, was 2",
        "NOT ISOLATED: isolation affinity",
        "averaging window shortened to 2 s",
        "options overridden: batch_size, workers",
        "data of milabench 2020: set",
        "1 of 3 neighbors lost during the launch group",
        "SMT siblings shared between tenants",
        "device 0: precision fp32 requested, tf32 ran",
    ]


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (None, []),
        ("float32", []),
        ("float16", ["device 0: precision fp32 requested, the model's layers computed in float16"]),
    ],
)
def test_layers_that_compute_in_another_type_are_a_mark(layer: str | None, told: list[str]) -> None:
    launch = seen(0)
    done = Done(time_s=99.0, count=1, steps=1, ran="fp32", matmul_error=0.0, layer_dtype=layer)
    assert [mark.text for mark in marks(facts(), replaced(launch, done=done))] == told


def replaced(launch: Observation, done: Done) -> Observation:
    ranks = [RankLog(ready=rank.ready, done=done) for rank in launch.ranks]
    return msgspec.structs.replace(launch, ranks=ranks)


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.41, ["other programs used 41% of the busy CPU time (limit 15%)"]), (0.12, []), (None, [])],
)
def test_other_programs_on_the_cpus_are_a_mark(share: float | None, told: list[str]) -> None:
    assert [mark.text for mark in marks(facts(), seen(0, foreign_cpu=share))] == told


def test_another_run_and_a_quota_are_marks_at_whichever_edge_they_were() -> None:
    pod = CpuLimit(group="/pod", cpus=3.0, periods=100, throttled=10, held_back_s=1.0)
    later = msgspec.structs.replace(pod, periods=200, throttled=60, held_back_s=9.0)
    surroundings = (around(0.0, cpu_limits=(pod,)), around(100.0, cpu_limits=(later,), contested=("cpu1", "cpu2")))
    assert [mark.text for mark in marks(facts(), seen(0, surroundings=surroundings))] == [
        "cpu1, cpu2 also used by another mnb run",
        "/pod has a quota of 3 CPUs, but the tenants have 4",
        "throttled by the CPU quota of /pod or above for 50% of the time (limit 0.5%)",
    ]


def test_a_quota_that_cannot_be_seen_is_a_mark_by_what_it_held_back() -> None:
    """40 of the 400 seconds that 4 CPUs have in the batch."""
    before, after = (CpuLimit(group="/", held_back_s=seconds) for seconds in (2.0, 42.0))
    surroundings = (around(0.0, cpu_limits=(before,)), around(100.0, cpu_limits=(after,)))
    mark = Mark(kind="held back by a CPU quota", what="/", value=0.1, limit=0.005)
    assert marks(facts(), seen(0, surroundings=surroundings)) == (mark,)


def test_quotas_that_leave_enough_are_none() -> None:
    wide = CpuLimit(group="/pod", cpus=4.0, weight=0.5, periods=100, throttled=0, held_back_s=0.0)
    surroundings = (around(0.0, cpu_limits=(wide,)), around(100.0, cpu_limits=(wide,)))
    assert marks(facts(), seen(0, surroundings=surroundings)) == ()


def test_processes_that_outlived_the_fences_mark_all_launches_of_the_batch() -> None:
    mark = Mark(kind="outlived its fence", what="daemon (12)")
    assert marks(facts(), seen(0, strays=("daemon (12)",))) == (mark,)


def test_what_schedules_or_limits_a_tenant_in_another_way_is_a_mark() -> None:
    proc = ProcView(7, (), (0,), (0,), 1, {}, scheduling=Scheduling("other", 19, {"open files": 64}))
    evidence = {"0": GroupEvidence(proc=proc, privileged=("scheduling class fifo",))}
    mark = Mark(kind="scheduling", device="0", what="niceness 19, open files limited to 64, scheduling class fifo")
    assert marks(facts(), seen(0, evidence=evidence)) == (mark,)


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ("2026-01-06T16:01:40.123456Z", []),
        ("2026-01-06T16:01:40.223456Z", []),
        ("2026-01-06T16:01:41.123456Z", []),
        ("2026-01-06T16:01:35.123456Z", ["the node's clock was changed by -5 s during the launch group (limit 2 s)"]),
        (
            "2026-01-07T16:01:40.123456Z",
            ["the node's clock was changed by 86400 s during the launch group (limit 2 s)"],
        ),
    ],
)
def test_a_clock_that_is_set_by_seconds_is_a_mark(later: str, told: list[str]) -> None:
    """Not one that NTP steps by 0.1 s, nor a leap second."""
    edges = conditions(0.0, (0, 1), "2026-01-06T16:00:00.123456Z"), conditions(100.0, (0, 1), later)
    assert [mark.text for mark in marks(facts(), seen(0, conditions=edges))] == told


def test_page_caches_that_differ_by_a_tenth_of_a_share_are_a_mark() -> None:
    def group(cache_bytes: int | None) -> GroupEvidence:
        return GroupEvidence(usage=Usage(page_cache_max_bytes=cache_bytes), effective=Effective(memory_bytes=1000))

    spread = cache_spread([{"0": group(150)}, {"1": group(25), "2": group(None)}])
    mark = Mark(kind="unequal page cache", value=0.125, limit=0.1)
    assert marks(facts(), seen(0, cache_spread=spread)) == (mark,)
    assert marks(facts(), seen(0, cache_spread=cache_spread([{"0": group(150)}, {"1": group(50)}]))) == ()
    assert cache_spread([{"0": GroupEvidence()}]) == 0.0


def test_tf32_on_a_device_without_it_is_a_mark() -> None:
    """An option without effect is never silent."""
    launch = seen(0)
    launch = msgspec.structs.replace(
        launch, launch=msgspec.structs.replace(launch.launch, arguments={"precision": "tf32"})
    )
    assert [mark.text for mark in marks(facts(), launch)] == ["device 0: precision tf32 requested, fp32 ran"]


def test_a_partial_fence_is_a_mark_of_its_own() -> None:
    partial = msgspec.structs.replace(fence(0, "run"), tier="partial")
    assert [mark.text for mark in marks(facts(fence=partial), seen(0))] == ["isolation partial"]
