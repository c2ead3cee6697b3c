"""Which rank's death ended a launch, also if the handler that notes it is late."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from milabench_ng.worker.ranks import Death, first_killed

KILLED = Death(11, signal.SIGKILL)
ENDED_BY_AGENT = Death(10, signal.SIGTERM)
RAISED = Death(10, None)


@pytest.mark.parametrize(
    ("seen", "noted", "cause"),
    [
        (KILLED, KILLED, KILLED),
        (KILLED, RAISED, KILLED),  # rank 0 failed of the loss before the agent looked
        (ENDED_BY_AGENT, KILLED, KILLED),  # the handler was late
        (RAISED, KILLED, KILLED),
        (None, KILLED, KILLED),
        (ENDED_BY_AGENT, ENDED_BY_AGENT, ENDED_BY_AGENT),  # somebody else's SIGTERM
        (Death(11, signal.SIGTERM), RAISED, None),  # an exception; the agent ended the other rank
        (RAISED, RAISED, None),
    ],
)
def test_the_first_death_by_a_signal_is_the_cause(seen: Death | None, noted: Death, cause: Death | None) -> None:
    assert first_killed(seen, noted) == cause


ALONE = """
import os, signal, time
from milabench_ng.worker.ranks import Death, FirstDeath

child = os.fork()
if child == 0:
    signal.pause()
watch = FirstDeath()
signal.signal(signal.SIGCHLD, watch.note)
os.kill(child, signal.SIGKILL)
while watch.seen is None:
    time.sleep(0.01)
assert watch.seen == Death(child, signal.SIGKILL), watch.seen
assert os.waitpid(child, 0) == (child, signal.SIGKILL)
"""


def test_a_death_is_seen_and_left_to_be_reaped() -> None:
    """In a process that has no other children."""
    subprocess.run([sys.executable, "-c", ALONE], check=True, timeout=60)
