"""What a run measures, and under which conditions: read from /proc and from its records."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import pytest

from milabench_ng.analysis.summary.folder import load
from milabench_ng.node.cgroup_files import parse_ids
from milabench_ng.records.late_steps import late_steps
from milabench_ng.run.events.run_events import AnyRunEvent, BatchBegins, LaunchState, Slices
from tests.report.milarun_reader import summarize
from tests.run.conftest import AT_WORK
from tests.run.processes import descriptors, process_tree

TESTS: dict[str, object] = {
    "toy_reg": {"workload": "toy_reg"},
    "loader": {"workload": "loader", "arguments": {"batch_size": 16, "workers": 2}},
    "scaling": {
        "workload": "scaling",
        "arguments": {"arch": "resnet18", "batch_size": 2, "image_size": 32},
        "partition_scheme": {"type": "gpu-progression"},
    },
}


class ProcessReader:
    """Reads every process of every tenant from /proc once it has worked: what is, not what was asked for."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, int], list[dict[str, object]]] = {}

    def __call__(self, event: AnyRunEvent) -> None:
        if isinstance(event, BatchBegins):
            self.devices = {launch.job_id: int(launch.slots[-1]) for launch in event.launches}
            self.pids = {}
        if isinstance(event, LaunchState) and event.state == "working" and event.pid:
            self.pids[event.job_id] = (event.label, event.pid)
        if isinstance(event, Slices) and event.job_id in self.pids:
            label, pid = self.pids.pop(event.job_id)
            self.seen[label, self.devices[event.job_id]] = [self.read(one) for one in process_tree(pid)]

    def read(self, pid: int) -> dict[str, object]:
        """Group, CPUs, threads and descriptors of one process."""
        proc = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        return {
            "pid": pid,
            "parent": int(status["PPid"]),
            "groups": (proc / "cgroup").read_text(),
            "cpus": status["Cpus_allowed_list"].strip(),
            "threads": int(status["Threads"]),
            "fds": descriptors(pid),
            "environment": (proc / "environ").read_bytes(),
        }


@pytest.fixture(scope="module", params=["warm", "cold"])
def observed(request, run_profile):  # type: ignore[no-untyped-def]
    """A run with two tenants, warm and cold, watched from outside."""
    if os.cpu_count() == 1:
        pytest.skip("needs two CPUs for two tenants")
    reader = ProcessReader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCCL_NVLS_ENABLE", "0")
        patch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        patch.setenv("NVSHMEM_DISABLE_NVLS", "1")
        patch.setenv("LD_PRELOAD_NOT", "dropped")
        finished = run_profile(TESTS, reader, own_server=request.param == "warm", rule=AT_WORK, start=request.param)
    return finished, reader.seen, request.param


def test_all_launches_succeed_and_are_recorded(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, start = observed
    assert finished.outcome.failed == 0
    assert len(finished.records) == finished.outcome.planned == 6
    assert [record.job_id for record in finished.of("scaling")] == ["0.0", "0.1"]
    assert {record.mnb.start for record in finished.records} == {start}
    assert all(record.success and record.mnb.failure is None for record in finished.records)


def test_the_host_pace_is_measured_on_the_cores_of_each_share_at_both_edges(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    for record in finished.records:
        assert set(record.mnb.host_pace) == set(record.mnb.isolation)
        for device, paces in record.mnb.host_pace.items():
            for edge in ("before", "after"):
                assert paces[edge].problem is None
                assert paces[edge].bursts
                assert 0 < paces[edge].cpu_min <= paces[edge].cpu_max
                assert paces[edge].slowest_cpu in record.mnb.isolation[device].requested.cpus


def test_all_tenants_of_a_batch_work_throughout_every_window(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    batches: dict[int, list[object]] = {}
    for record in finished.records:
        batches.setdefault(record.mnb.batch, []).append(record)
    for records in batches.values():
        for record in records:
            window = record.mnb.window
            assert window.end_s == record.mnb.stop_s - record.mnb.window_rule.margin_s
            assert window.start_s <= window.end_s - record.mnb.window_rule.length_s
            for other in records:
                for rank in other.mnb.ranks:
                    assert rank.slices[0].start_s <= window.start_s
                    assert rank.slices[-1].end_s >= window.end_s
                    gaps = [b.start_s - a.end_s for a, b in zip(rank.slices, rank.slices[1:], strict=False)]
                    assert all(abs(gap) < 1e-6 for gap in gaps), "slices leave no time out"


def test_every_process_is_inside_its_share(observed) -> None:  # type: ignore[no-untyped-def]
    finished, seen, _ = observed
    assert set(seen) == {(r.mnb.label, r.device) for r in finished.records}
    for record in finished.records:
        shares = [isolation.requested for isolation in record.mnb.isolation.values()]
        processes = seen[record.mnb.label, record.device]
        loaders = 1 if record.name == "trial.loader" else 0  # two were asked for, the tenant has one CPU
        ranks = len(record.devices) if record.name == "trial.scaling" else 0
        assert len(processes) == 1 + loaders + ranks
        for process in processes:
            cpus = set(parse_ids(process["cpus"]))
            assert cpus in [set(share.cpus) for share in shares]
            if finished.outcome.tier == "full":
                assert f"mnb/{record.mnb.run_id}" in process["groups"]
    for label in {label for label, _ in seen}:
        tenants = [processes for (name, _), processes in seen.items() if name == label and label == "trial.toy_reg"]
        sets = [set(parse_ids(processes[0]["cpus"])) for processes in tenants]
        assert len(sets) < 2 or not sets[0] & sets[1]


def test_no_process_inherits_descriptors_or_extra_threads(observed) -> None:  # type: ignore[no-untyped-def]
    finished, seen, _ = observed
    for (label, _), processes in seen.items():
        if label != "trial.toy_reg":
            continue
        (worker,) = processes
        fds = worker["fds"]
        assert set(fds) == {0, 1, 2, 3, 4}, fds
        assert fds[1] == fds[2]
        assert fds[1].endswith(".log")
        assert fds[3].startswith("pipe:")
        assert fds[4].startswith("pipe:")
    for record in finished.of("toy_reg"):
        (share,) = (isolation.requested for isolation in record.mnb.isolation.values())
        assert record.mnb.ranks[0].torch_threads == share.cores


def test_the_operators_variables_reach_every_worker(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    for record in finished.records:
        environment = record.mnb.environment
        assert environment["NCCL_NVLS_ENABLE"] == "0"
        assert environment["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
        assert environment["NVSHMEM_DISABLE_NVLS"] == "1"
        assert "LD_PRELOAD_NOT" not in environment
        share = next(iter(record.mnb.isolation.values())).requested
        assert environment["MNB_CPUS"] == ",".join(map(str, share.cpus))


def test_tenants_groups_are_sampled(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    if finished.outcome.tier != "full":
        pytest.skip(f"the fence is {finished.outcome.tier} here: there are no groups to sample")
    seen = [record.mnb.telemetry[f"tenant:{device}"] for record in finished.records for device in record.devices]
    assert any(at["anon_mib"].max > 10 for at in seen if at)
    assert any(at["cpu_s"].max > at["cpu_s"].min for at in seen if at)


def test_telemetry_is_that_of_the_averaging_window(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    for record in finished.records:
        window, sampled = record.mnb.window, record.mnb.sampled
        assert (sampled.start_s, sampled.end_s) == (window.start_s, window.end_s)
        assert all(at.span_s <= window.end_s - window.start_s for at in record.mnb.telemetry["host:node"].values())


def test_full_isolation_is_proved_by_the_kernel(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    if finished.outcome.tier != "full":
        pytest.skip(f"the fence is {finished.outcome.tier} here")
    for record in finished.records:
        for isolation in record.mnb.isolation.values():
            assert isolation.tier == "full"
            assert isolation.effective.cpus == isolation.requested.cpus
            assert isolation.effective.memory_bytes == isolation.requested.memory_bytes
            assert isolation.effective_end == isolation.effective
            assert isolation.disjoint is True
            assert isolation.usage.cpu_usec > 0


def test_every_rank_has_given_up_the_means_to_leave(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    if finished.outcome.tier != "full" or os.geteuid() != 0:
        pytest.skip("needs root and full isolation")
    for record in finished.records:
        for isolation in record.mnb.isolation.values():
            confinement, scheduling = isolation.proc.confinement, isolation.proc.scheduling
            assert confinement.groups_read_only
            assert confinement.ipc_namespace
            assert confinement.no_new_privs
            assert "SYS_ADMIN" not in confinement.capabilities
            assert (scheduling.policy, scheduling.nice) == ("other", 0)


def test_what_surrounded_a_batch_is_recorded(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    for record in finished.records:
        before, after = record.mnb.surroundings["before"], record.mnb.surroundings["after"]
        assert after.machinery_cpu_s > before.machinery_cpu_s > 0
        assert before.contested == after.contested == ()
        own = sum(len(isolation.requested.cpus) for isolation in record.mnb.isolation.values())
        assert before.cpus == own * (1 + record.mnb.neighbours.planned)


def test_tenants_compute_the_same_in_the_first_step_and_part_then(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    first, second = finished.of("toy_reg")
    one, other = first.mnb.ranks[0], second.mnb.ranks[0]
    assert (one.losses["1"], one.gradient_norms["1"]) == (other.losses["1"], other.gradient_norms["1"])
    assert one.losses["2"] != other.losses["2"]
    assert one.digests["100"] != other.digests["100"]
    usual, late = list(one.gradient_norms)[:5], [list(rank.gradient_norms)[5:] for rank in (one, other)]
    assert usual == ["1", "2", "5", "10", "100"]
    assert late[0][:1] == late[1][:1] == [str(late_steps(finished.manifest.plan.nonce, first.mnb.label)[0])]
    assert first.mnb.precision.ran_before == first.mnb.precision.ran_after == "fp32"
    assert first.mnb.precision.matmul_error_before < 1e-5


def test_ranks_work_in_lockstep(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    record = finished.of("scaling")[1]
    assert record.device_count == 2
    assert record.mnb.label == "trial.scaling.2"
    assert [rank.device for rank in record.mnb.ranks] == [0, 1]
    rates = [statistics.mean(timing.rates) for name, timing in record.timings.items() if name.startswith("train_")]
    assert len(rates) == 2
    assert len({rank.pid for rank in record.mnb.ranks}) == 2


def test_a_reader_of_2020_reads_the_folder(observed) -> None:  # type: ignore[no-untyped-def]
    finished, _, _ = observed
    theirs = summarize(finished.folder)
    ours = load(finished.folder).tests
    assert set(theirs) == set(ours)
    for name, group in theirs.items():
        assert (group["n"], group["failures"]) == (ours[name].n, ours[name].failures)
        # They take the mean of the slices' rates, we divide items by seconds: close where slices are alike.
        assert group["train"]["mean"] == pytest.approx(ours[name].train.mean, rel=0.5)


def test_nothing_is_left(observed) -> None:  # type: ignore[no-untyped-def]
    finished, seen, _ = observed
    run_id = finished.manifest.run_id
    assert not list(Path("/sys/fs/cgroup").glob(f"**/mnb/{run_id}"))
    assert not [
        process for processes in seen.values() for process in processes if Path(f"/proc/{process['pid']}").exists()
    ]
    assert not list(Path(tempfile.gettempdir()).glob(f"mnb-scratch-{run_id}"))
    assert not list(finished.folder.glob(".*"))
