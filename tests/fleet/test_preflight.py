"""Nodes before they work: unequal software stops a fleet, other differences are listed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from milabench_ng.fleet.ledger import Clock, Differed
from milabench_ng.fleet.node_scripts import checkup_script
from milabench_ng.fleet.preflight import (
    Asked,
    NodeFacts,
    answer,
    busy,
    clocks,
    differences,
    facts_of,
    in_words,
    require_equal,
    versions_of,
)
from milabench_ng.model.errors import InputError
from milabench_ng.node.conditions import read_conditions
from milabench_ng.node.drivers.opening import open_drivers
from milabench_ng.node.gpu_conditions import GpuSettings, GpuState
from milabench_ng.node.gpus import Gpu
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.wall_clock import WallClock
from tests.fleet.made_folders import made_manifest

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def facts() -> NodeFacts:
    """This node, as if it had a GPU."""
    with open_drivers() as drivers:
        conditions = read_conditions(drivers, ())
    assert conditions.settings is not None
    empty = dict.fromkeys(field.name for field in msgspec.structs.fields(GpuSettings))
    usual = msgspec.convert(empty | {"pci_bus_id": "0", "power_limit_w": 700.0}, GpuSettings)
    state = msgspec.convert(
        dict.fromkeys(field.name for field in msgspec.structs.fields(GpuState)) | {"throttled_ns": {}}, GpuState
    )
    gpu = Gpu(index=0, uuid="GPU-0", name="H200", pci_bus_id="0", numa_node=0, memory_bytes=150754820096)
    return NodeFacts(
        inventory=replace(read_inventory(), gpus=(gpu,), nvidia_driver="580.95"),
        tier="full",
        conditions=replace(
            conditions, settings=replace(conditions.settings, gpus={"GPU-0": usual}), gpus={"GPU-0": state}
        ),
        wall_clock=WallClock(time_s=0.0, synchronized=True, offset_s=-0.001, error_s=0.016),
    )


def test_what_a_node_tells_is_read_back(facts: NodeFacts) -> None:
    content = msgspec.json.encode(msgspec.to_builtins(facts) | {"schema": 1, "ready": True})
    assert facts_of(content, "a") == facts
    assert versions_of(content, "a") == facts.inventory.versions


def test_what_the_login_shell_prints_is_no_part_of_the_answer(tmp_path: Path) -> None:
    """Not even a last line without an end."""
    mnb = tmp_path / "mnb"
    mnb.write_text("#!/bin/sh\necho '{}'\n")
    mnb.chmod(0o755)
    script = f"printf 'Welcome\\nto the cluster'\n{checkup_script(made_manifest((), mnb=(str(mnb),)))}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert answer(b"".join(done.stdout.splitlines())) == b"{}"
    assert answer(b"Welcome") == b""


@pytest.mark.parametrize("tool", ["flock", "sed", "gzip", "base64", "tee", "sha256sum", "tar"])
def test_a_node_without_what_its_results_are_packed_with_says_so_before_it_works(tmp_path: Path, tool: str) -> None:
    for one in {"flock", "sed", "gzip", "base64", "tee", "sha256sum", "tar"} - {tool}:
        (tmp_path / one).symlink_to(shutil.which(one) or "")
    sh = shutil.which("sh") or ""
    done = subprocess.run(
        [sh, "-c", checkup_script(made_manifest(()))], capture_output=True, env={"PATH": str(tmp_path)}
    )
    assert done.returncode == 127
    assert f"{tool}: not found" in done.stderr.decode()
    assert answer(done.stdout) == b""


def test_nodes_that_are_alike_have_no_difference(facts: NodeFacts) -> None:
    other = replace(facts, inventory=replace(facts.inventory, hostname="other", boot_id="other"))
    assert list(differences({"a": facts, "b": other})) == []
    assert facts.wall_clock is not None
    now = facts.wall_clock.time_s
    for since, until, ahead in ((now - 2, now + 3, 0.0), (now + 298, now + 303, -298.0), (now - 62, now - 60, 60.0)):
        (clock,) = clocks({"a": facts}, {"a": Asked(since, until)})
        assert clock == Clock(node="a", synchronized=True, offset_s=-0.001, error_s=0.016, ahead_s=ahead)


def test_what_differs_is_listed_with_the_nodes(facts: NodeFacts) -> None:
    settings = facts.conditions.settings
    assert settings is not None
    capped = replace(settings, gpus={"GPU-1": replace(settings.gpus["GPU-0"], power_limit_w=500.0)})
    other = replace(
        facts,
        inventory=replace(facts.inventory, nvidia_driver="570.12"),
        conditions=replace(facts.conditions, settings=capped),
    )
    found = list(differences({"a": other, "b": facts, "c": facts}))
    assert found == [
        Differed(what="driver", values={"580.95": ("b", "c"), "570.12": ("a",)}),
        Differed(what="GPU power_limit_w", values={"700.0": ("b", "c"), "500.0": ("a",)}),
    ]
    assert in_words(found[0]) == "driver: 580.95 on 2 nodes, 570.12 on a"


def test_a_gpu_that_somebody_uses_is_named(facts: NodeFacts) -> None:
    used = {"GPU-0": replace(facts.conditions.gpus["GPU-0"], foreign_pids=(4, 5))}
    other = replace(facts, conditions=replace(facts.conditions, gpus=used))
    assert busy({"a": facts, "b": other}) == {"b": "2 processes on its GPUs"}


def test_unequal_software_is_refused_and_listed_by_node() -> None:
    same = {"mnb": "1", "torch": "2.11"}
    require_equal({"a": same, "b": same}, "1")
    with pytest.raises(InputError, match="differ") as error:
        require_equal({f"n{n:02}": same | ({"torch": "2.12"} if n > 10 else {}) for n in range(22)}, "1")
    line = str(error.value).splitlines()[1]
    assert line == "  torch: 2.11 on 11 nodes, 2.12 on n11, n12, n13, n14, n15, n16, n17, n18 and 3 more"
    with pytest.raises(InputError, match="  triton: missing on 1 node, 3 on b"):
        require_equal({"a": same, "b": same | {"triton": "3"}}, "1")
    with pytest.raises(InputError, match="  mnb: 1 on the nodes, 2 here"):
        require_equal({"a": same}, "2")


def test_versions_of_another_mnb_are_read_although_the_rest_is_not() -> None:
    content = json.dumps({"inventory": {"versions": {"mnb": "9"}}, "tier": 3}).encode()
    assert versions_of(content, "a") == {"mnb": "9"}
    with pytest.raises(InputError, match="a: "):
        facts_of(content, "a")
    with pytest.raises(InputError, match="a: not JSON"):
        versions_of(b"bash: mnb: not found", "a")


@pytest.mark.parametrize("versions", [{"mnb": "9" * 1000}, {f"p{number}": "1" for number in range(1001)}])
def test_versions_that_would_fill_the_screen_are_not_read(versions: dict[str, str]) -> None:
    content = json.dumps({"inventory": {"versions": versions}}).encode()
    with pytest.raises(InputError, match="length <= "):
        versions_of(content, "a")
