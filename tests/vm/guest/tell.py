"""A run in small, for a user of the guest: one tenant that takes more RAM than its share; says in JSON what came of it.

`tell.py hold` starts a tenant that sleeps instead and waits to be killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from milabench_ng.fence import isolation_check
from milabench_ng.fence.choosing import enter_scope, open_fence, reap
from milabench_ng.fence.kernel.processes import identify
from milabench_ng.fence.probing.probe import probe
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import Share

MEMORY = 128 * MIB
GREEDY = f"input(); x = b'x' * {3 * MEMORY // 2}; import time; time.sleep(5)"
SLEEPING = "input(); import os, time; os.fork(); time.sleep(600)"


def main(hold: bool) -> None:
    enter_scope("auto", None)
    capabilities = probe()
    told: dict[str, object] = {"pid": os.getpid(), "reaped": reap(capabilities)}
    fence = open_fence(capabilities, "auto", f"run-{os.getpid()}", "CPU 2 of the guest")
    mems = (0, 1)
    group = fence.create("t0", Share((2,), mems, MEMORY, MEMORY, 50, cores=1))
    argv = [sys.executable, "-I", "-S", "-c", SLEEPING if hold else GREEDY]
    process = subprocess.Popen(group.entry.command(argv), stdin=subprocess.PIPE)
    while Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[4:5] != argv[4:5]:
        time.sleep(0.05)
    running = identify(process.pid)
    assert running
    effective, proc = group.verify(running)
    told |= {
        "backend": fence.backend,
        "tier": fence.tier,
        "parent": fence.parent,
        "notes": fence.notes,
        "cpus": proc.cpus_allowed,
        "memory": effective.memory_bytes,
        "swap": effective.swap_bytes,
    }
    assert process.stdin
    process.stdin.write(b"\n")
    process.stdin.flush()
    if hold:
        while len(group.pids()) < 2:
            time.sleep(0.05)
        print(json.dumps({**told, "tenant": group.pids()}), flush=True)
        time.sleep(600)
    before = group.events()
    while process.poll() is None:
        group.watch()
        time.sleep(0.05)
    verdict = isolation_check.verdict(type(before)(), group.events(), group.usage(), None, process.returncode)
    told |= {"cause": verdict and verdict.cause}
    group.remove()
    fence.close()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] == ["hold"])
    sys.exit(7)
