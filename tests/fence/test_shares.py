"""Shares: the hand cases of the design, and what must hold on any node."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milabench_ng.fence.sharing.shares import Bounds, Placement, Policy, allocate, disjoint, environment
from milabench_ng.model.errors import IsolationError
from milabench_ng.node.topology import Cpu, NumaNode, Topology

GIB = 1 << 30


def machine(nodes: int, cores: int, threads: int = 1, node_gib: int = 256, cache: int = 8) -> Topology:
    """CPUs numbered as on Linux x86: first one thread of every core, node after node, then the second threads."""
    total = nodes * cores
    cpus = tuple(
        Cpu(core + total * thread, core, core // cores, core // cores, core // cache * cache)
        for thread in range(threads)
        for core in range(total)
    )
    numa = tuple(
        NumaNode(node, tuple(cpu.id for cpu in cpus if cpu.node == node), node_gib * GIB) for node in range(nodes)
    )
    return Topology(cpus=cpus, isolated=(), nodes=numa, memory_bytes=nodes * node_gib * GIB)


def tenants(*nodes: int | None) -> list[Placement]:
    return [Placement(f"t{index}", node) for index, node in enumerate(nodes)]


def test_eight_gpus_on_two_sockets_of_64_cores() -> None:
    result = allocate(machine(2, 64, threads=2), tenants(0, 0, 0, 0, 1, 1, 1, 1))
    assert result.shares["t0"].cpus == (*range(16), *range(128, 144))
    assert result.shares["t7"].cpus == (*range(112, 128), *range(240, 256))
    assert {len(share.cpus) for share in result.shares.values()} == {32}
    assert all(share.local == 1.0 and not share.smt_shared for share in result.shares.values())
    assert result.leftover_cpus == ()
    # 512 GiB less 5 %, by 8, is 60.8 GiB; four of them are exactly 95 % of a node of 256 GiB, so memory is bound.
    assert result.shares["t0"].memory_bytes == int(60.8 * GIB) // 65536 * 65536
    assert result.shares["t0"].memory_nominal_bytes == 64 * GIB
    assert (result.shares["t0"].mems, result.shares["t7"].mems) == ((0,), (1,))
    assert result.shares["t0"].pids == 8192


def test_three_and_five_gpus_local_first() -> None:
    result = allocate(machine(2, 28, threads=2), tenants(0, 0, 0, 1, 1, 1, 1, 1))
    assert {len(share.cpus) for share in result.shares.values()} == {14}
    assert [share.local for share in result.shares.values()] == [1, 1, 1, 1, 1, 1, 1, 0]
    assert result.shares["t7"].nodes == (0,)
    assert result.notes == ("t7: only 0% of its CPUs are on NUMA node 1, where its device is",)


def test_reserved_cores_go_to_no_tenant() -> None:
    result = allocate(machine(1, 8, threads=2), tenants(None, None), policy=Policy(reserved_cores=2))
    assert [share.cpus for share in result.shares.values()] == [(2, 3, 4, 10, 11, 12), (5, 6, 7, 13, 14, 15)]
    assert result.leftover_cpus == (0, 1, 8, 9)
    with pytest.raises(IsolationError, match="0 usable CPUs for 2 tenants"):
        allocate(machine(1, 2), tenants(None, None), policy=Policy(reserved_cores=2))


def test_two_cores_two_tenants() -> None:
    result = allocate(machine(1, 2, node_gib=24), tenants(None, None))
    assert [share.cpus for share in result.shares.values()] == [(0,), (1,)]
    assert [share.local for share in result.shares.values()] == [None, None]
    assert result.shares["t0"].memory_bytes == 11 * GIB
    assert environment(result.shares["t1"])["MNB_CPUS"] == "1"


def test_fewer_cores_than_tenants_splits_siblings() -> None:
    result = allocate(machine(1, 4, threads=2), tenants(*[None] * 8))
    assert sorted(share.cpus for share in result.shares.values()) == [(cpu,) for cpu in range(8)]
    assert all(share.smt_shared for share in result.shares.values())
    expected = "warning: 4 physical cores for 8 tenants: SMT siblings are split between tenants (smt_shared)."
    assert result.notes == (expected,)


def test_fewer_cpus_than_tenants_is_refused() -> None:
    with pytest.raises(IsolationError, match=r"isolation: 2 usable CPUs for 3 tenants, but each .*-per-device\)\.$"):
        allocate(machine(1, 2), tenants(None, None, None))
    with pytest.raises(
        IsolationError,
        match=r"1 usable CPU for 2 tenants.* The node has 2 CPUs: --reserve-cores of mnb jobs, an affinity mask \(tas",
    ):
        allocate(machine(1, 2), tenants(None, None), Bounds(cpus=(1,)))


def test_unknown_numa_node_spreads_over_nodes() -> None:
    result = allocate(machine(2, 8), tenants(None, None, None, None))
    assert [share.nodes for share in result.shares.values()] == [(0,), (1,), (0,), (1,)]


def test_hybrid_processor_gives_equal_numbers_of_both_kinds_of_core() -> None:
    wide = [Cpu(cpu, cpu // 2 * 2, 0, 0, 0) for cpu in range(12)]  # 6 cores with two threads
    narrow = [Cpu(cpu, cpu, 0, 0, 12) for cpu in range(12, 17)]  # 5 cores with one
    node = NumaNode(0, tuple(range(17)), 64 * GIB)
    result = allocate(Topology(tuple(wide + narrow), (), (node,), 64 * GIB), tenants(None, None))
    assert [share.cpus for share in result.shares.values()] == [
        (0, 1, 2, 3, 4, 5, 12, 13),
        (6, 7, 8, 9, 10, 11, 14, 15),
    ]
    assert result.leftover_cpus == (16,)


def test_isolated_cpus_and_parents_bounds_are_left_out() -> None:
    node = machine(1, 8, threads=2)
    node = Topology(node.cpus, (0,), node.nodes, node.memory_bytes)
    result = allocate(node, tenants(None, None), Bounds(cpus=(*range(6), *range(8, 16))))
    # Core 0 lost a thread to isolcpus, cores 6 and 7 lost one to the parent: five whole cores are left, two each.
    assert [share.cpus for share in result.shares.values()] == [(1, 2, 9, 10), (3, 4, 11, 12)]


def test_one_thread_of_each_core_allowed() -> None:
    result = allocate(machine(1, 4, threads=2), tenants(None, None), Bounds(cpus=(0, 1, 2, 3)))
    assert [share.cpus for share in result.shares.values()] == [(0, 1), (2, 3)]
    assert all(share.smt_shared for share in result.shares.values())


def test_too_little_memory_names_the_group_that_limits() -> None:
    with pytest.raises(IsolationError) as caught:
        allocate(machine(1, 8, node_gib=24), tenants(0, 0), Bounds(memory_bytes=4 * GIB, memory_group="/x/memory.max"))
    assert str(caught.value).startswith(
        "isolation: each tenant would get 1.0 GiB of RAM (of 24.0 GiB limited to 4.0 GiB by /x/memory.max), "
        "and needs at least 4 GiB."
    )


def test_ram_total_overrides_a_memtotal_that_grows() -> None:
    result = allocate(machine(1, 16, node_gib=31), tenants(0, 0), policy=Policy(ram_total_bytes=256 * GIB))
    assert result.shares["t0"].memory_bytes == int(256 * GIB * 0.95 / 2) // 65536 * 65536
    assert result.shares["t0"].mems == (0,)
    said = "256.0 GiB of RAM are divided, but the node shows 31.0 GiB now. Unless it grows, the limits have no effect"
    assert said in result.notes
    assert not allocate(machine(1, 16, node_gib=31), tenants(0, 0), policy=Policy(ram_total_bytes=31 * GIB)).notes


def test_memory_of_a_gpu_shown_as_a_node_is_not_ram() -> None:
    host = machine(1, 72, node_gib=480)
    nodes = (*host.nodes, NumaNode(1, (), 96 * GIB))
    result = allocate(Topology(host.cpus, (), nodes, 576 * GIB), tenants(0))
    assert result.memory_total_bytes == 480 * GIB
    assert result.shares["t0"].mems == (0,)


def test_memory_is_not_bound_when_a_node_is_too_small_for_its_tenants() -> None:
    big, small = NumaNode(0, tuple(range(8)), 200 * GIB), NumaNode(1, tuple(range(8, 16)), 56 * GIB)
    node = Topology(machine(2, 8).cpus, (), (big, small), 256 * GIB)
    result = allocate(node, tenants(0, 1))
    assert result.shares["t1"].mems == (0, 1)
    assert result.shares["t1"].memory_bytes == int(128 * GIB * 0.95) // 65536 * 65536


def test_unequal_nodes_give_up_a_little_memory_for_locality() -> None:
    nodes = (NumaNode(0, tuple(range(8)), 127 * GIB), NumaNode(1, tuple(range(8, 16)), 129 * GIB))
    result = allocate(Topology(machine(2, 8).cpus, (), nodes, 256 * GIB), tenants(0, 1))
    assert [share.mems for share in result.shares.values()] == [(0,), (1,)]
    assert {share.memory_bytes for share in result.shares.values()} == {int(127 * GIB * 0.95) // 65536 * 65536}


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    nodes = draw(st.integers(1, 8))
    threads = draw(st.sampled_from([1, 2, 4]))
    cores = draw(st.integers(1, 1024 // (nodes * threads)))
    node = machine(nodes, cores, threads, cache=draw(st.sampled_from([1, 4, 8, 16])))
    gone = draw(st.sets(st.sampled_from([cpu.id for cpu in node.cpus]), max_size=4))
    isolated = draw(st.sets(st.sampled_from([cpu.id for cpu in node.cpus]), max_size=4))
    cpus = tuple(cpu for cpu in node.cpus if cpu.id not in gone)
    numa = tuple(NumaNode(n.id, tuple(c for c in n.cpus if c not in gone), n.memory_bytes) for n in node.nodes)
    return Topology(cpus, tuple(sorted(isolated)), numa, node.memory_bytes)


@given(topologies(), st.lists(st.sampled_from([None, *range(8)]), min_size=1, max_size=16))
@settings(max_examples=150, deadline=None)
def test_any_division_is_equal_and_disjoint(node: Topology, nodes: list[int | None]) -> None:
    usable = set(node.online) - set(node.isolated)
    try:
        shares = allocate(node, tenants(*nodes)).shares.values()
    except IsolationError:
        per_tenant = node.memory_bytes * 0.95 / len(nodes)
        assert len(usable) < len(nodes) or per_tenant < 4 * GIB
        return
    assert len({len(share.cpus) for share in shares}) == 1
    assert len({share.memory_bytes for share in shares}) == 1
    assert disjoint(share.cpus for share in shares)
    assert not any(set(a.cpus) & set(b.cpus) for a, b in combinations(shares, 2))
    assert set().union(*(share.cpus for share in shares)) <= usable
    assert sum(share.memory_bytes for share in shares) <= node.memory_bytes
    core = {cpu.id: cpu.core for cpu in node.cpus}
    width = {c: sum(cpu.core == c for cpu in node.cpus) for c in set(core.values())}
    for share in shares:
        if not share.smt_shared:
            assert len(share.cpus) == sum(width[c] for c in {core[cpu] for cpu in share.cpus})
