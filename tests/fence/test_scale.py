"""A node with many groups of others: making and removing a fence never walks through them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.records.isolation import Share

pytestmark = pytest.mark.root
FOREIGN = 500
# Makes and removes the fence of eight tenants, and prints how many folders were listed and files opened meanwhile.
FENCE = """
import os, sys
import msgspec
from milabench_ng.fence.choosing import open_fence, reap
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.records.isolation import Share
capabilities = msgspec.json.decode(sys.argv[1], type=Capabilities)
share = msgspec.json.decode(sys.argv[2], type=Share)
seen = {"os.scandir": 0, "os.listdir": 0, "open": 0}
def count(event, arguments):
    if event in seen and "/sys/fs/cgroup" in os.path.realpath(str(arguments[0])):
        seen[event] += 1
sys.addaudithook(count)
reap(capabilities, allow_concurrent=True)
fence = open_fence(capabilities, "full", "mnb-test-scale")
groups = [fence.create(f"t{number}", share) for number in range(8)]
for group in groups:
    group.events(), group.usage(), group.effective()
assert all(group.remove() for group in groups)
fence.close()
print(seen["os.scandir"] + seen["os.listdir"], seen["open"])
"""


def listed(capabilities: Capabilities, share: Share) -> tuple[int, int]:
    words = [msgspec.json.encode(value).decode() for value in (capabilities, share)]
    done = subprocess.run([sys.executable, "-c", FENCE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folders, files = map(int, done.stdout.split())
    return folders, files


def test_the_groups_of_others_are_not_walked_through(
    capabilities: Capabilities, make_share: Callable[..., Share]
) -> None:
    alone = listed(capabilities, make_share())
    assert alone[0] >= 8, "our own groups are listed: what counts must be counted"
    names = [f"mnb-test-foreign-{os.getpid()}-{number}" for number in range(FOREIGN)]
    directories = [Path(parent, name) for parent in capabilities.parents for name in names]
    try:
        for directory in directories:
            directory.mkdir()
        beside = listed(capabilities, make_share())
    finally:
        for directory in directories:
            if directory.exists():
                directory.rmdir()
    # How often a killed group is looked at until it is gone varies a little; 500 groups would not be a little.
    assert beside[0] - alone[0] < 50
    assert beside[1] - alone[1] < 200
