"""A parent of v2 that is threaded: groups can be made below it, and no process can enter them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench_ng.fence.kernel.mounts import find, parse_mountinfo
from milabench_ng.fence.probing.probe import _trial

MOUNT = find(parse_mountinfo(Path("/proc/self/mountinfo").read_text()), "")


@pytest.fixture
def threaded() -> Iterator[Path]:
    """A threaded group."""
    if MOUNT is None or not os.access(MOUNT.point, os.W_OK):
        pytest.skip("needs root and cgroup v2")
    place = Path(MOUNT.point, f"mnb-test-{os.getpid()}")
    place.mkdir()
    (place / "cgroup.type").write_text("threaded")
    yield place
    with contextlib.suppress(OSError):
        place.rmdir()


@pytest.mark.root
def test_a_threaded_parent_is_refused_by_name(threaded: Path) -> None:
    with (
        pytest.raises(OSError, match="its group is threaded, so no process can enter a group below it"),
        _trial(threaded),
    ):
        pass
    assert not [path for path in threaded.iterdir() if path.is_dir()], "nothing is left of the trial"
