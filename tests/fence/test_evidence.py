"""What kernel's answers mean."""

from __future__ import annotations

import pytest

from milabench_ng.fence import isolation_check
from milabench_ng.fence.interface import IsolationMismatch
from milabench_ng.records.isolation import Effective, GroupEvents, MemoryLimit, ProcView, Share, Usage

GIB = 1 << 30
SHARE = Share(cpus=(48, 49), mems=(0,), memory_bytes=GIB, memory_nominal_bytes=GIB, pids=40, cores=2)
HELD = Effective(cpus=(48, 49), mems=(0,), memory_bytes=GIB, swap_bytes=0, oom_group=True, pids=40)
INSIDE = ProcView(7, ("0::/mnb/r/t3",), (48, 49), (0,), 1, {})
NOTHING = GroupEvents(oom=0, pids_max=0, host_oom_kill=5)
FULL = Usage(memory_peak_bytes=GIB, anon_bytes=GIB // 2, shmem_bytes=GIB // 4, page_cache_bytes=0)


def cause(after: GroupEvents, returncode: int | None, usage: Usage = FULL, **more: object) -> str | None:
    found = isolation_check.verdict(NOTHING, after, usage, GIB, returncode, **more)  # type: ignore[arg-type]
    return found and found.cause


def test_held_share_passes() -> None:
    isolation_check.check("t3", SHARE, HELD, INSIDE, {"": "/mnb/r/t3"})


@pytest.mark.parametrize(
    ("effective", "proc", "text"),
    [
        (
            Effective(cpus=(0, 1)),
            INSIDE,
            "t3 requested CPUs 48-49, but the kernel gives 0-1 (CPUs 48-49 offline or outside the parent's cpuset)",
        ),
        (Effective(memory_bytes=2 * GIB), INSIDE, "requested 1073741824 bytes of RAM, but the kernel gives 2147483648"),
        (Effective(swap_bytes=GIB), INSIDE, "may swap 1.0 GiB"),
        (Effective(memory_bytes=GIB, ancestors=(MemoryLimit("/x", GIB // 2),)), INSIDE, "/x gives only 536870912"),
        (HELD, ProcView(7, ("0::/elsewhere",), (48, 49), (0,), 1, {}), "is in group /elsewhere of cgroup2"),
        (HELD, ProcView(7, ("0::/mnb/r/t3",), (48,), (0,), 1, {}), "its process may run on 48"),
        (HELD, ProcView(7, ("0::/mnb/r/t3",), (48, 49), (0, 1), 1, {}), "its process has 0-1"),
    ],
)
def test_differences_stop_the_run(effective: Effective, proc: ProcView, text: str) -> None:
    with pytest.raises(IsolationMismatch) as caught:
        isolation_check.check("t3", SHARE, effective, proc, {"": "/mnb/r/t3"})
    assert text in str(caught.value)


def test_changes() -> None:
    assert isolation_check.changes(HELD, HELD) == ()
    assert isolation_check.changes(
        HELD, Effective(cpus=(0, 1, 2), mems=(0,), memory_bytes=GIB, swap_bytes=0, pids=40)
    ) == (
        "cpus was 48-49 at entry and is 0-2",
        "oom_group was True at entry and is unlimited",
    )


def test_causes_in_their_order() -> None:
    oom = GroupEvents(oom_kill=2, oom=1, pids_max=3, host_oom_kill=6)
    assert cause(oom, 0, lost=("memory_bytes was 1",)) == "isolation_lost"
    assert cause(oom, 0) == "oom"
    assert cause(GroupEvents(oom_kill=1, oom=0, host_oom_kill=6), -9) == "host_oom"
    assert cause(GroupEvents(oom=0, pids_max=0, host_oom_kill=6), -9) == "host_oom"
    assert cause(GroupEvents(oom=0, pids_max=0, host_oom_kill=6), -9, timed_out=True) == "timeout"
    assert cause(GroupEvents(oom=0, pids_max=3, host_oom_kill=5), -9) == "pids_limit"
    assert cause(NOTHING, None, timed_out=True) == "timeout"
    assert cause(NOTHING, -11) == "signal"
    assert cause(NOTHING, 3) == "exit"
    assert cause(NOTHING, 0) is None
    assert cause(GroupEvents(oom=0, pids_max=3, host_oom_kill=9), 0) is None


def test_v1_tells_own_from_host_out_of_memory_by_the_peak() -> None:
    killed = GroupEvents(oom_kill=1)
    assert cause(killed, -9) == "oom"
    assert cause(killed, -9, Usage(memory_peak_bytes=GIB // 2)) == "host_oom"


def detail(usage: Usage, limit_bytes: int) -> str:
    found = isolation_check.verdict(NOTHING, GroupEvents(oom_kill=1, oom=1), usage, limit_bytes, -9)
    assert found is not None
    return found.detail


def test_sentence_of_an_out_of_memory_death() -> None:
    usage = Usage(anon_bytes=int(180.1 * GIB), shmem_bytes=int(60.9 * GIB), page_cache_bytes=int(2.1 * GIB))
    assert detail(usage, int(243.2 * GIB)) == (
        "out of memory in its allocation: limit 243.2 GiB, anon 180.1, shmem+pinned 60.9, page cache 2.1 GiB "
        "at death. Pinned buffers and /dev/shm count."
    )


def test_a_death_between_two_samples_shows_no_made_up_figures() -> None:
    text = detail(Usage(memory_peak_bytes=2 * GIB, anon_bytes=0), 2 * GIB)
    assert "limit 2.0 GiB, peak 2.0 GiB; it grew too fast to see which kind." in text


def test_maxima_over_readings() -> None:
    first = isolation_check.with_maxima(None, Usage(memory_bytes=9, anon_bytes=5, shmem_bytes=1, page_cache_bytes=3))
    second = isolation_check.with_maxima(first, Usage(memory_bytes=4, anon_bytes=2, shmem_bytes=2, page_cache_bytes=7))
    assert (second.anon_bytes, second.shmem_bytes, second.page_cache_bytes) == (5, 1, 3)
    assert (second.anon_shmem_max_bytes, second.memory_bytes) == (6, 4)
    assert (second.page_cache_max_bytes, second.memory_peak_bytes) == (7, 9)
