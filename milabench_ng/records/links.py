"""What nodes that meet over a network are told and tell: rounds of pairs and rings, and what each of them showed.

Whoever starts the nodes makes the plan, and the ranks on them tell one `LinkResult` for each group and device.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from milabench_ng.model.bounds import LARGEST, SMALLEST
from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.profile import ByMemoryClass

SAYS = "mnb-link "
"""How the lines begin that nodes and ranks print."""
LONGEST = 300
"""Characters of a problem: Slurm breaks lines of 1,024."""

Backend = Literal["gloo", "nccl"]
Shape = Literal["pairs", "ring", "launch"]
Above = Annotated[float, msgspec.Meta(ge=SMALLEST, le=LARGEST)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Devices = Annotated[int, msgspec.Meta(ge=0, le=1024)]
Place = Annotated[int, msgspec.Meta(ge=0, lt=1024)]
"""Of a device on its node."""
Problem = Annotated[str, msgspec.Meta(max_length=LONGEST)]

TOO_LATE = 3
"""Exit status of a node that was left behind."""


class NodesLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """A launch whose ranks are on several nodes: a workload, with all of its options."""

    test: str
    workload: str
    unit: str
    arguments: dict[str, Scalar | ByMemoryClass | None]
    """Those by memory class are chosen on the nodes, where all ranks know the smallest of their devices."""
    least_devices: int = 1
    """With fewer ranks it does not run."""
    window_s: float
    """How long its rate is averaged at least."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of nodes that are measured at the same time; a node is in one of them at most."""

    shape: Shape
    groups: tuple[tuple[str, ...], ...]
    launch: NodesLaunch | None = None
    """What each group runs, if its shape is that."""


class MeetingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Who meets whom, and how long somebody is waited for."""

    nodes: tuple[str, ...]
    rounds: tuple[Round, ...]
    start_s: float = 180.0
    """Until all nodes are there."""
    round_s: float = 60.0
    """Until a round is over: who is not ready then is left behind."""
    message_s: float = 20.0
    """Until a message is there; under gloo at most, since that tries to connect for longer."""
    block_mib: Annotated[float, msgspec.Meta(gt=0, le=1024)] | None = None
    """Size of the messages that bandwidth is measured with; None: what suits the back end."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A round begins."""

    backend: Backend
    devices: int
    """Of each node."""
    gone: tuple[str, ...]
    """The nodes that nobody waits for any more."""


class LinkHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """What a node is as it comes."""

    node: str
    devices: Devices
    """GPUs; 0 on nodes without."""
    interface: str
    """The network interface that gloo uses."""
    variables: dict[str, str]
    """Those that change how messages travel."""


class LinkResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """What a group of a round showed."""

    round: Count
    group: Count
    device: Place
    """Which device of every node, from 0."""
    node: str
    """Which node tells it."""
    backend: Backend
    gb_s: Above | None = None
    """10^9 bytes per second that every node sends, and as many that it receives meanwhile."""
    latency_us: Above | None = None
    """Half of a round trip of 4 bytes; of pairs only."""
    problem: Problem = ""


class RankResult(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """What one rank of a launch over nodes did."""

    round: Count
    group: Count
    device: Place
    node: str
    backend: Backend
    ranks: Count
    """Of all nodes of the launch."""
    rate: Above | None = None
    """Items per second of this rank in the window; None if the launch failed."""
    steps: Count = 0
    """All that it did, the same on every rank."""
    problem: Problem = ""


class LinkBegun(msgspec.Struct, frozen=True, kw_only=True, tag="begun"):
    """All nodes that come are there, and this is how they meet."""

    backend: Backend
    devices: Devices
    """Of each node."""


class LinkLeft(msgspec.Struct, frozen=True, kw_only=True, tag="left"):
    """A node has left before the end."""

    node: str
    reason: str
    round: Count
    """The first that it did not do to its end."""
    came: bool = True
    """Whether it had reached the place to meet."""


class LinkPlanned(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """The first line of a file of results."""

    plan: MeetingPlan


Said = LinkHello | LinkResult | RankResult
"""By nodes and their ranks."""
Kept = LinkBegun | LinkLeft
"""By the store."""
LinkLine = LinkPlanned | Said | Kept
