"""Where nodes meet: a store, and who decides when a round is over and who is left behind.

``python -m milabench_ng.worker.meeting ADDRESS PLAN LEFT`` prints the port of the store, and works until it is ended.
It appends to ``LEFT`` how nodes meet, and who has left.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from milabench_ng.model import signals
from milabench_ng.records.links import Backend, Devices, Kept, LinkBegun, LinkLeft, MeetingPlan, Turn

_LOOK_S = 0.01


def main(address: str, plan_file: str, left_file: str) -> None:
    """Serve a meeting at ``address``, or at all addresses of this host if it is empty."""
    plan = msgspec.json.decode(Path(plan_file).read_bytes(), type=MeetingPlan)
    listening = _listening(address)
    store = TCPStore(
        address or "127.0.0.1",
        listening.getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=plan.start_s),
        master_listen_fd=listening.detach(),
    )
    store.set("plan", msgspec.json.encode(plan))  # type: ignore[arg-type]
    with Path(left_file).open("ab", buffering=0) as left:

        def tell(one: Kept) -> None:
            left.write(msgspec.json.encode(one) + b"\n")

        print(store.port, flush=True)
        serve(store, plan, tell)
    while True:  # nodes may still ask
        time.sleep(3600)


def _listening(address: str) -> socket.socket:
    """At ``address``, or at all of this host, by IPv6 as well where it has that."""
    if not address and socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=4096)


def serve(store: TCPStore, plan: MeetingPlan, tell: Callable[[Kept], None]) -> None:
    """Begin every round as soon as all have done the one before, or its time is over."""
    there = list(plan.nodes)
    turn = Turn(backend="gloo", devices=1, gone=())
    for number in range(-1, len(plan.rounds)):
        if number >= 0:
            store.set(f"turn/{number}", msgspec.json.encode(turn))  # type: ignore[arg-type]
        places = range(turn.devices)
        marks = {node: [f"ready/{number}/{node}/{place}" for place in places] for node in there}
        there = _ready(store, marks, plan.start_s if number < 0 else plan.round_s)
        for node in marks:
            if node not in there:
                where = "at the start" if number < 0 else f"after round {number + 1} of {len(plan.rounds)}"
                reason = f"it was not ready in time {where}"
                tell(LinkLeft(node=node, round=max(0, number), reason=reason, came=number >= 0))
        if number < 0:
            devices = {node: count for node in there if (count := _devices(store, node)) is not None}
            for node in there:
                if node not in devices:
                    tell(LinkLeft(node=node, round=0, reason="it did not say how many devices it has"))
            there = list(devices)
            fewest = min(devices.values(), default=0)
            backend: Backend = "nccl" if fewest else "gloo"
            turn = Turn(backend=backend, devices=max(1, fewest), gone=())
            tell(LinkBegun(backend=turn.backend, devices=turn.devices))
        gone = tuple(node for node in plan.nodes if node not in there)
        turn = msgspec.structs.replace(turn, gone=gone)
        store.set("gone", msgspec.json.encode(gone))  # type: ignore[arg-type]


def _devices(store: TCPStore, node: str) -> int | None:
    """How many devices a node says that it has; None if it says nothing that can be meant."""
    key = f"devices/{node}"
    try:
        return msgspec.json.decode(store.get(key), type=Devices) if store.check([key]) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _ready(store: TCPStore, marks: dict[str, list[str]], limit_s: float) -> list[str]:
    """The nodes that have set all of their marks in time."""
    until = time.monotonic() + limit_s
    missing = dict(marks)
    while True:
        missing = {node: keys for node, keys in missing.items() if not store.check(keys)}
        if not missing or time.monotonic() > until:
            return [node for node in marks if node not in missing]
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    signals.heed(signals.end)
    main(*sys.argv[1:])
