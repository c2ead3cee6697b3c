"""What nodes are before they work: whether they run the same software, and in what else they differ.

A node tells by `mnb doctor --format json`. Of another version of `mnb`, only the versions need to be readable.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

import msgspec

from milabench_ng.fleet.launchers.interface import OUTPUT
from milabench_ng.fleet.ledger import Clock, Differed
from milabench_ng.fleet.nodes import NodeName, nodes_by_value
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import convert_json, parse_json
from milabench_ng.model.plain import names_of
from milabench_ng.model.units import GIB, MIB, counted, format_bytes
from milabench_ng.node.conditions import Conditions
from milabench_ng.node.gpu_conditions import GpuSettings
from milabench_ng.node.inventory import Inventory
from milabench_ng.node.wall_clock import WallClock

LARGEST = 4 * MIB
"""Bytes that a node may say of itself."""
CLOSE_S = 1.0
"""Clocks that may be off by more make no common start: power supplies and fans answer within seconds."""


class Asked(msgspec.Struct, frozen=True):
    """Between what moments (POSIX time) a node was asked, by the clock here."""

    since_s: float
    until_s: float

    def ahead_s(self, time_s: float) -> float:
        """How much later than that a node's clock was, at least; negative if it was earlier."""
        return max(0.0, time_s - self.until_s) + min(0.0, time_s - self.since_s)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself."""

    inventory: Inventory
    tier: str
    conditions: Conditions
    wall_clock: WallClock | None = None
    reasons: tuple[str, ...] = ()
    """Why it is not ready."""


_Text = Annotated[str, msgspec.Meta(max_length=200)]


class _Versions(msgspec.Struct, frozen=True):
    versions: Annotated[dict[_Text, _Text], msgspec.Meta(max_length=1000)]
    """All of them are printed where nodes differ."""


class _OtherMnb(msgspec.Struct, frozen=True):
    inventory: _Versions


Facts = Mapping[NodeName, NodeFacts]


def answer(lines: bytes) -> bytes:
    """What a node has said in lines of base64 after the mark; empty if it is something else."""
    try:
        return base64.b64decode(lines.partition(OUTPUT.encode())[2], validate=False)
    except binascii.Error:
        return b""


def versions_of(content: bytes, node: NodeName) -> Mapping[str, str]:
    """The versions that a node tells, whatever version of `mnb` it has. Raises InputError if it tells none."""
    return convert_json(parse_json(content, node), _OtherMnb, node).inventory.versions


def facts_of(content: bytes, node: NodeName) -> NodeFacts:
    """What a node tells. Raises InputError if this is not what this version of `mnb` says."""
    return convert_json(parse_json(content, node), NodeFacts, node)


def require_equal(versions: Mapping[NodeName, Mapping[str, str]], own: str) -> None:
    """Raise InputError, with the nodes, if they do not run the same software, or another `mnb` than ``own``."""
    packages = dict.fromkeys(name for one in versions.values() for name in one)
    found = [
        (package, by_value)
        for package in packages
        if len(by_value := nodes_by_value({node: one.get(package, "missing") for node, one in versions.items()})) > 1
    ]
    lines = [f"  {package}: {_listed(by_value)}" for package, by_value in found]
    others = {one["mnb"] for one in versions.values() if one.get("mnb", own) != own} if not lines else set()
    lines += [f"  mnb: {other} on the nodes, {own} here" for other in sorted(others)]
    if lines:
        raise InputError(
            "\n".join(
                (
                    "software versions differ:",
                    *lines,
                    "Install the same versions everywhere, or name another mnb: --mnb COMMAND",
                )
            )
        )


def differences(facts: Facts) -> Iterator[Differed]:
    """In what nodes differ although they should be alike. Pure."""
    told = {node: dict(_told(one)) for node, one in facts.items()}
    for what in dict.fromkeys(what for one in told.values() for what in one):
        by_value = nodes_by_value({node: one.get(what, "unknown") for node, one in told.items()})
        if len(by_value) > 1:
            yield Differed(what=what, values=by_value)


def clocks(facts: Facts, asked: Mapping[NodeName, Asked]) -> Iterator[Clock]:
    """How well the clocks of all nodes are set that say so; ``asked``: when each was asked. Pure."""
    for node, one in facts.items():
        if (clock := one.wall_clock) is not None:
            yield Clock(
                node=node,
                synchronized=clock.synchronized,
                offset_s=clock.offset_s,
                error_s=clock.error_s,
                ahead_s=asked[node].ahead_s(clock.time_s),
            )


def clock_difference(clocks: Sequence[Clock]) -> Iterator[Differed]:
    """Nodes whose clocks do not show the time of others. Pure."""
    by_value = nodes_by_value({one.node: _apart(one) or "as here" for one in clocks})
    if len(by_value) > 1:
        yield Differed(what="clock", values=by_value)


def loose_clocks(nodes: Iterable[NodeName], clocks: Iterable[Clock]) -> tuple[str, ...]:
    """The nodes whose clock is not known to be close enough for a common start, each with the reason."""
    known = {one.node: one for one in clocks}
    reasons = {node: _why_loose(known[node]) if node in known else "it does not report its clock" for node in nodes}
    return tuple(f"{node}: {why}" for node, why in reasons.items() if why)


def _apart(clock: Clock) -> str:
    """How far a clock is from the one here; empty if it is close."""
    apart, where = abs(clock.ahead_s), "ahead" if clock.ahead_s > 0 else "behind"
    return f"{apart:.0f} s {where}" if apart > CLOSE_S else ""


def _why_loose(clock: Clock) -> str:
    if apart := _apart(clock):
        return f"by the clock here, its own is {apart}"
    if not clock.synchronized:
        return "no NTP client sets its clock"
    off = abs(clock.offset_s) + clock.error_s
    return f"its clock may be off by {off:.1f} s" if off > CLOSE_S else ""


def in_words(difference: Differed) -> str:
    """``driver: 580.95 on 15 nodes, 570.12 on gpu7``."""
    return f"{difference.what}: {_listed(difference.values)}"


def busy(facts: Facts) -> Mapping[NodeName, str]:
    """The nodes on whose GPUs somebody else computes. Pure."""
    foreign = {
        node: sum(len(state.foreign_pids or ()) for state in one.conditions.gpus.values())
        for node, one in facts.items()
    }
    return {node: counted(count, "process") + " on its GPUs" for node, count in foreign.items() if count}


def _told(facts: NodeFacts) -> Iterator[tuple[str, str]]:
    """Everything in which nodes of one order should agree."""
    inventory, settings = facts.inventory, facts.conditions.settings
    yield "GPUs", _gpus(inventory)
    yield "driver", inventory.driver or "none"
    yield "machine", inventory.machine or "unknown"
    yield "CPUs", f"{inventory.cpus.text}, {counted(inventory.cpus.threads, 'thread')}"
    yield "RAM", f"{round(inventory.memory_bytes / GIB)} GiB"
    yield "system", inventory.os
    yield "kernel", inventory.kernel
    yield "isolation", facts.tier
    yield "MPS", inventory.mps or "none"
    yield "not ready", "; ".join(facts.reasons) or "no: ready"
    if settings is None:
        return
    host = settings.host
    yield "kernel options", _stable(host.command_line or "unknown")
    yield "mitigations", ", ".join(f"{name}: {text}" for name, text in sorted(host.mitigations.items())) or "none"
    yield "CPU governors", ", ".join(sorted(host.governors)) or "none"
    yield "CPU boost", str(host.boost)
    yield "SMT", str(host.smt)
    yield "transparent huge pages", str(host.transparent_hugepages)
    yield "NUMA balancing", str(host.numa_balancing)
    yield "swap", format_bytes(host.swap_total_bytes or 0)
    yield "clock source", str(host.clock_source)
    for field in msgspec.structs.fields(GpuSettings):
        if field.name != "pci_bus_id":
            values = sorted({str(getattr(one, field.name)) for one in settings.gpus.values()})
            yield f"GPU {field.name}", ", ".join(values) or "no GPU"


def _gpus(inventory: Inventory) -> str:
    counts: dict[str, int] = {}
    for gpu in inventory.gpus:
        name = f"{gpu.name} ({format_bytes(gpu.memory_bytes)})" if gpu.memory_bytes else gpu.name
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items())) or "none"


def _stable(command_line: str) -> str:
    """Kernel options without those that name a disk or boot of one node."""
    names = ("BOOT_IMAGE=", "root=", "initrd=", "ip=", "resume=", "BOOTIF=", "hostname=")
    return " ".join(word for word in command_line.split() if not word.startswith(names))


def _listed(by_value: Mapping[str, tuple[NodeName, ...]]) -> str:
    """All values, with the nodes of each but the most frequent."""
    usual, *others = by_value.items()
    told = (f"{value} on {names_of(nodes)}" for value, nodes in others)
    return ", ".join((f"{usual[0]} on {counted(len(usual[1]), 'node')}", *told))
