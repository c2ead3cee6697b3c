"""What a real fence does to real processes (cgroup v1 or v2, root; skipped with the reason elsewhere)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fence_waiting import process_of, wait_for

from milabench_ng.fence import isolation_check
from milabench_ng.fence.interface import Fence, Group, IsolationMismatch
from milabench_ng.model.errors import IsolationError
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import Death, Share

pytestmark = pytest.mark.root
Start = Callable[..., "subprocess.Popen[str]"]
MakeShare = Callable[..., Share]
HOLD = "import sys; print('in', flush=True); sys.stdin.read()"


def judge(group: Group, returncode: int | None) -> Death | None:
    """The verdict as an orchestrator forms it; groups are new, so all counters were 0 before."""
    before = msgspec.structs.replace(group.events(), oom_kill=0, oom=0, pids_max=0)
    return isolation_check.verdict(before, group.events(), group.usage(), group.share.memory_bytes, returncode)


def test_a_tenant_is_where_it_should_be(fence: Fence, make_share: MakeShare, start: Start) -> None:
    cpu = max(os.sched_getaffinity(0))
    group = fence.create("t0", make_share(cpu))
    process = start(group, f"import os; print(len(os.sched_getaffinity(0)), os.getsid(0) == os.getpid()); {HOLD}")
    assert process.stdout
    assert process.stdout.readline() == "1 True\n"
    effective, proc = group.verify(process_of(process.pid))
    assert (effective.cpus, effective.memory_bytes, effective.swap_bytes or 0) == ((cpu,), 256 * MIB, 0)
    assert (effective.pids, proc.cpus_allowed, proc.threads) == (200, (cpu,), 1)
    assert sum(f"/{'t0'}" in line for line in proc.groups) >= 1
    assert set(proc.open_fds) == {"0", "1", "2"}
    assert group.pids() == (process.pid,)
    nproc = start(group, ["nproc"])
    assert nproc.communicate()[0] == "1\n"


def test_a_group_that_exists_is_not_adopted(fence: Fence, make_share: MakeShare) -> None:
    fence.create("t0", make_share())
    with pytest.raises(IsolationError, match="cannot make the group of t0: File exists"):
        fence.create("t0", make_share())


def test_affinity_cannot_be_widened(fence: Fence, make_share: MakeShare, start: Start) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    group = fence.create("t0", make_share(0))
    process = start(group, "import os; os.sched_setaffinity(0, {1})")
    assert "OSError: [Errno 22] Invalid argument" in process.communicate()[1]


def test_children_and_daemons_stay_inside(fence: Fence, make_share: MakeShare, start: Start) -> None:
    group = fence.create("t0", make_share())
    process = start(group, f"import os; os.fork() or (os.setsid(), os.fork()); {HOLD}")
    assert wait_for(lambda: len(group.pids()) == 3)
    assert group.remove()
    process.wait()


def test_out_of_memory_stops_that_tenant_only(fence: Fence, make_share: MakeShare, start: Start) -> None:
    groups = [fence.create(f"t{index}", make_share()) for index in range(2)]
    big = start(groups[0], "x = b'x' * (384 << 20)")
    small = start(groups[1], "x = b'x' * (192 << 20)")
    assert (big.wait(), small.wait()) == (-9, 0)
    verdict = judge(groups[0], -9)
    assert verdict is not None
    assert verdict.cause == "oom"
    assert "limit 0.2 GiB" in verdict.detail
    assert judge(groups[1], 0) is None
    assert groups[1].events().oom_kill == 0


def test_out_of_memory_in_a_grandchild_ends_the_tenant(fence: Fence, make_share: MakeShare, start: Start) -> None:
    group = fence.create("t0", make_share())
    source = "import os, time\nif not os.fork(): x = b'x' * (384 << 20)\nos.wait(); time.sleep(60)"
    process = start(group, source)
    assert wait_for(lambda: bool(group.watch()) and process.poll() is not None)
    assert process.returncode == -9
    assert wait_for(lambda: group.pids() == ())
    verdict = judge(group, -9)
    assert verdict is not None
    assert verdict.cause == "oom"


def test_reading_a_file_larger_than_the_share_is_no_oom(
    fence: Fence, make_share: MakeShare, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "big"
    with file.open("wb") as stream:
        for _ in range(400):
            stream.write(os.urandom(MIB))
        stream.flush()
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    group = fence.create("t0", make_share())
    process = start(group, f"f = open({str(file)!r}, 'rb')\nwhile f.read(1 << 20): pass")
    assert process.wait() == 0
    assert judge(group, 0) is None
    usage = group.usage()
    assert usage.memory_peak_bytes is not None
    assert 200 * MIB < usage.memory_peak_bytes <= 256 * MIB
    assert usage.anon_shmem_max_bytes is not None
    assert usage.anon_shmem_max_bytes < 50 * MIB


def test_whoever_reads_a_file_first_is_charged_and_nobody_for_what_is_warm(
    fence: Fence, make_share: MakeShare, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "data"
    file.write_bytes(os.urandom(48 * MIB))
    read = f"open({str(file)!r}, 'rb').read(); {HOLD}"
    cold, second, warm = (fence.create(name, make_share()) for name in ("cold", "second", "warm"))
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for group in (cold, second):
            reader = start(group, read)
            assert reader.stdout
            assert reader.stdout.readline() == "in\n"
        assert cache_bytes(cold) - cache_bytes(second) >= 40 * MIB
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        stream.read()
    reader = start(warm, read)
    assert reader.stdout
    assert reader.stdout.readline() == "in\n"
    assert cache_bytes(warm) < 8 * MIB


def cache_bytes(group: Group) -> int:
    """The page cache that a group is charged for."""
    return group.usage().page_cache_max_bytes or 0


def test_a_fork_bomb_is_bounded(fence: Fence, make_share: MakeShare, start: Start) -> None:
    group = fence.create("t0", make_share(pids=40))
    # Nine doublings: more than the limit, and no more than 512 processes should it fail to hold.
    bomb = "import os, time\nfor _ in range(9):\n  try: os.fork()\n  except BlockingIOError: pass\ntime.sleep(60)"
    process = start(group, bomb)
    assert wait_for(lambda: (group.events().pids_max or 0) > 0)
    assert len(group.pids()) <= 40
    assert group.usage().pids_peak == 40
    verdict = judge(group, 1)
    assert verdict is not None
    assert verdict.cause == "pids_limit"
    assert group.remove(patience_s=3.0)
    process.wait()


def test_a_raised_limit_is_noticed(fence: Fence, make_share: MakeShare, start: Start) -> None:
    group = fence.create("t0", make_share())
    process = start(group, HOLD)
    assert process.stdout
    process.stdout.readline()
    entry, _ = group.verify(process_of(process.pid))
    directory = Path(group.entry.procs[0]).parent
    procs = [Path(path).parent for path in group.entry.procs]
    for name in ("memory.memsw.limit_in_bytes", "memory.limit_in_bytes", "memory.max"):
        for directory in procs:
            if (directory / name).exists():
                (directory / name).write_text(str(512 * MIB))
    lost = isolation_check.changes(entry, group.effective())
    assert lost == ("memory_bytes was 268435456 at entry and is 536870912",)
    with pytest.raises(IsolationMismatch, match="requested 268435456 bytes of RAM, but the kernel gives 536870912"):
        group.verify(process_of(process.pid))


def test_a_process_elsewhere_is_a_mismatch(fence: Fence, make_share: MakeShare) -> None:
    group = fence.create("t0", make_share())
    with pytest.raises(IsolationMismatch, match="and not in /mnb-test"):
        group.verify(process_of(os.getpid()))


def test_shared_memory_files_vanish_with_the_tenant(fence: Fence, make_share: MakeShare, start: Start) -> None:
    if fence.create("probe", make_share()).entry.shm_bytes is None:
        pytest.skip("this node does not let a process have its own /dev/shm")
    group = fence.create("t0", make_share())
    name = f"mnb-test-{os.urandom(4).hex()}"
    source = f"open('/dev/shm/{name}', 'wb').write(b'x' * (50 << 20)); {HOLD}"
    process = start(group, source)
    assert process.stdout
    assert process.stdout.readline() == "in\n"
    assert (group.usage().shmem_bytes or 0) >= 50 * MIB
    process.kill()
    process.wait()
    assert wait_for(lambda: (group.usage().memory_bytes or 0) < 50 * MIB)
    assert not Path("/dev/shm", name).exists()


def test_bytes_that_v1_does_not_count_are_not_zero(fence: Fence, make_share: MakeShare) -> None:
    usage = fence.create("t0", make_share()).usage()
    counted = None if fence.backend == "cgroup1" else 0
    assert (usage.io_read_bytes, usage.io_write_bytes) == (counted, counted)


def test_usage_counts_cpu_time(fence: Fence, make_share: MakeShare, start: Start) -> None:
    group = fence.create("t0", make_share())
    process = start(group, "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass")
    assert process.wait() == 0
    assert (group.usage().cpu_usec or 0) >= 200_000


def test_entry_fails_loudly(fence: Fence, make_share: MakeShare, start: Start) -> None:
    group = fence.create("t0", make_share())
    assert group.remove()
    process = start(group, ["true"])
    assert process.wait() == 125
    assert process.stderr
    assert "mnb: could not enter its isolation: cannot write '0' to" in process.stderr.read()
