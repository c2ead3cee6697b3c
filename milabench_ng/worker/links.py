"""What a node does at a meeting: a process for each of its devices takes part in all rounds.

``python -m milabench_ng.worker.links HOST PORT NODE``. A message that does not come in time is a result, too. The
process that has started the others ends when the meeting goes on without this node, and they end with it.
"""

from __future__ import annotations

import os
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import msgspec
import psutil
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from milabench_ng.fence.entry import die_with
from milabench_ng.model import signals
from milabench_ng.model.plain import short
from milabench_ng.model.units import MIB
from milabench_ng.records.links import (
    LONGEST,
    SAYS,
    TOO_LATE,
    LinkHello,
    LinkResult,
    MeetingPlan,
    Said,
    Shape,
    Turn,
)
from milabench_ng.records.worker_variables import of_messages
from milabench_ng.worker.groups import group_of
from milabench_ng.worker.over_nodes import over_nodes
from milabench_ng.worker.rank import size_thread_pools

_TRIPS, _FIRST_TRIPS = 50, 5
"""Round trips that the latency is the median of, after some that do not count."""
_SAMPLES = 5
"""Bandwidth is the median of so many samples."""
_SAMPLE_S = 0.1
_MOST = 500
"""Exchanges of a sample."""
_BLOCK_MIB: Mapping[str, float] = {"gloo": 8.0, "nccl": 64.0}
_TOLD = 600
"""Bytes of a line that variables may take: Slurm breaks lines of 1,024."""
_LOOK_S = 0.2
_LOOPBACK = "lo"
_ELSEWHERE = "elsewhere"
"""In the store: the address of a node that is not on the host of the store."""


def main(host: str, port: str, node: str) -> int:
    """Take part with all devices of this node; the exit status.

    ``host`` may be in the brackets that addresses of IPv6 have elsewhere.
    """
    host = host.removeprefix("[").removesuffix("]")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # CUDA cannot be used after a fork once it is asked
    interface = os.environ.setdefault("GLOO_SOCKET_IFNAME", _interface(_address_to(host, int(port))))
    devices = torch.cuda.device_count()
    variables = short_enough(of_messages(os.environ))
    hello = LinkHello(node=node, devices=devices, interface=interface, variables=variables)
    _print(hello)
    children = [_fork(partial(_rank, host, int(port), hello, place)) for place in range(max(1, devices))]
    return _watch(_store(host, int(port), timedelta(seconds=30)), node, children)


def short_enough(variables: Mapping[str, str]) -> dict[str, str]:
    """``variables`` without the longest, so that the others fit into one line. Pure."""
    kept = dict(variables)
    while len(msgspec.json.encode(kept)) > _TOLD:
        del kept[max(kept, key=lambda name: len(kept[name]))]
    return kept


def _watch(store: TCPStore, node: str, children: list[int]) -> int:
    """Wait for all ranks; the exit status. Not 0 if one fails, or the meeting goes on without this node."""
    while children:
        pid, raw = os.waitpid(-1, os.WNOHANG)
        if pid:
            children.remove(pid)
            if raw:
                return 1
        try:
            gone = store.check(["gone"]) and node in msgspec.json.decode(store.get("gone"))
        except RuntimeError as error:
            print(short(f"the place to meet is gone: {error}"), file=sys.stderr)
            return 1
        if gone:
            print("the meeting went on without this node, which was too late", file=sys.stderr)
            return TOO_LATE
        time.sleep(_LOOK_S)
    return 0


def _fork(work: Callable[[], None]) -> int:
    """Run ``work`` in a process of its own, which ends with this one; its pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with(parent)
        work()
    except Exception as error:  # noqa: BLE001  # whatever ends a rank is the reason that its node gives
        print(short(f"{type(error).__name__}: {error}"), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def _rank(host: str, port: int, hello: LinkHello, place: int) -> None:
    """All rounds of one device, with its part of the threads that torch would use on the node."""
    size_thread_pools(max(1, torch.get_num_threads() // max(1, hello.devices)))
    node = hello.node
    store = _store(host, port, timedelta(seconds=30))
    plan = msgspec.json.decode(store.get("plan"), type=MeetingPlan)
    wait = timedelta(seconds=plan.start_s + plan.round_s)
    if hello.interface != _LOOPBACK:
        store.set(_ELSEWHERE, _address_to(host, port))
    store.set(f"devices/{node}", str(hello.devices))  # before the mark, since it is asked for after that
    store.set(f"ready/-1/{node}/{place}", "")
    for number, one in enumerate(plan.rounds):
        store.wait([f"turn/{number}"], wait)
        turn = msgspec.json.decode(store.get(f"turn/{number}"), type=Turn)
        os.environ["GLOO_SOCKET_IFNAME"] = interface_among(store, hello.interface, port)
        if place >= turn.devices or node in turn.gone:
            return
        for group, members in enumerate(one.groups):
            there = tuple(member for member in members if member not in turn.gone)
            if node not in there:
                continue
            apart = PrefixStore(f"{number}/{group}", store)
            if one.launch is not None:
                ranks = len(there) * turn.devices
                if len(there) == len(members) and ranks >= one.launch.least_devices:
                    rank = there.index(node) * turn.devices + place
                    ran = over_nodes(apart, plan, turn, one.launch, rank, ranks, place)
                    _print(msgspec.structs.replace(ran, round=number, group=group, node=node))
            elif len(there) == len(members) or (one.shape == "ring" and len(there) > 1):
                own = PrefixStore(str(place), apart)
                result = _meet(own, plan, turn, one.shape, there.index(node), len(there), place)
                if result.problem or there[0] == node:
                    told = msgspec.structs.replace(result, round=number, group=group, device=place, node=node)
                    _print(told)
        store.set(f"ready/{number}/{node}/{place}", "")


def _meet(store: Store, plan: MeetingPlan, turn: Turn, shape: Shape, rank: int, ranks: int, place: int) -> LinkResult:
    """Measure one group."""
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"  # so that a dead peer is an error, and not the end of this process
    blank = LinkResult(round=0, group=0, device=0, node="", backend=turn.backend)
    device = torch.device("cuda", place) if turn.backend == "nccl" else torch.device("cpu")
    block_mib = plan.block_mib or _BLOCK_MIB[turn.backend]
    try:
        with group_of(store, plan, turn.backend, rank, ranks, device):
            latency = _latency(rank, device) if shape == "pairs" else None
            rate = _bandwidth(rank, ranks, device, int(block_mib * MIB))
    except (RuntimeError, ValueError) as error:
        return msgspec.structs.replace(blank, problem=short(f"{error}")[:LONGEST])
    return msgspec.structs.replace(blank, gb_s=rate / 1e9, latency_us=latency and 1e6 * latency)


def _latency(rank: int, device: torch.device) -> float:
    """Half of the median round trip, in seconds."""
    message = torch.zeros(1, device=device)
    trips = []
    for _ in range(_FIRST_TRIPS + _TRIPS):
        began = _now(device)
        if rank == 0:
            dist.send(message, 1)
            dist.recv(message, 1)
        else:
            dist.recv(message, 0)
            dist.send(message, 0)
        trips.append(_now(device) - began)
    return statistics.median(trips[_FIRST_TRIPS:]) / 2


def _bandwidth(rank: int, ranks: int, device: torch.device, size: int) -> float:
    """Bytes per second that every rank sends to the next one, while it receives as many from the one before."""
    sent, received = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    following, before = (rank + 1) % ranks, (rank - 1) % ranks

    def exchange(times: int) -> float:
        dist.barrier()
        began = _now(device)
        for _ in range(times):
            both = [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, received, before)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
        return _slowest(_now(device) - began, device)

    exchange(1)
    times = max(1, min(_MOST, round(_SAMPLE_S / max(1e-6, exchange(1)))))
    return size * times / statistics.median(exchange(times) for _ in range(_SAMPLES))


def _slowest(seconds: float, device: torch.device) -> float:
    """The most that a rank took, the same on all ranks."""
    shared = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(shared, dist.ReduceOp.MAX)
    return shared.item()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _store(host: str, port: int, limit: timedelta) -> TCPStore:
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=limit)


def _address_to(host: str, port: int) -> str:
    """The own address from which messages to ``host`` come: a node's own name often leads to its loopback interface."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0].partition("%")[0])


def interface_among(store: Store, interface: str, port: int) -> str:
    """The interface that leads to the other nodes: on the host of the store, not the one that leads to the store."""
    if interface != _LOOPBACK or not store.check([_ELSEWHERE]):
        return interface
    return _interface(_address_to(store.get(_ELSEWHERE).decode(), port))


def _interface(own: str) -> str:
    """The network interface that has this address."""
    found = psutil.net_if_addrs().items()
    return next((name for name, each in found if any(one.address.partition("%")[0] == own for one in each)), _LOOPBACK)


def _print(what: Said) -> None:
    """One write for a line: the ranks share the output."""
    os.write(1, SAYS.encode() + msgspec.json.encode(what) + b"\n")


if __name__ == "__main__":
    signals.heed(signals.end)
    sys.exit(main(*sys.argv[1:]))
