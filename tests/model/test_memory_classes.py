"""Options by memory class: the class that a card reaches, from the sizes that real cards show."""

from __future__ import annotations

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory, check_classes, choose_class, choose_entries
from milabench_ng.model.plan import Device
from milabench_ng.model.units import GIB, MIB
from milabench_ng.node.gpus import Gpu, smallest_memory

CLASSES = {f"{size}GiB": size for size in (8, 10, 11, 12, 16, 24, 32, 40, 48, 80, 96, 141)}


@pytest.mark.parametrize(
    ("mib", "expected"),
    [
        (8192, 8),  # RTX 3070
        (10240, 10),  # RTX 3080
        (11019, 11),  # RTX 2080 Ti
        (11178, 11),  # GTX 1080 Ti
        (11264, 11),  # RTX 2080 Ti with another driver
        (15109, 16),  # T4 with ECC
        (16160, 16),  # V100 of 16 GB
        (16384, 16),  # V100 of 16 GB with another driver
        (22731, 24),  # A10G with ECC
        (23028, 24),  # A10, L4
        (24576, 24),  # RTX 3090
        (32510, 32),  # V100 of 32 GB
        (32607, 32),  # RTX 5090
        (40354, 40),  # A100 of 40 GB
        (40960, 40),  # A100 of 40 GB with another driver
        (45634, 48),  # A40 with ECC
        (46068, 48),  # L40S with ECC
        (49140, 48),  # RTX A6000
        (81079, 80),  # "79.2 GiB"
        (81559, 80),  # H100
        (81920, 80),  # A100 of 80 GB
        (97871, 96),  # H20, GH200
        (143771, 141),  # H200
    ],
)
def test_a_card_reaches_the_class_of_its_name_and_none_above(mib: int, expected: int) -> None:
    assert choose_class(CLASSES, DeviceMemory("a card", mib * MIB), "t") == f"{expected}GiB"


def test_the_largest_class_reached_decides_whatever_the_order_and_the_unit() -> None:
    table = {"80GiB": 64, "16 GiB": 8, "24000MB": 16}
    assert [choose_class(table, DeviceMemory("a card", size * GIB), "t") for size in (16, 40, 141)] == [
        "16 GiB",
        "24000MB",
        "80GiB",
    ]


def test_entries_replace_their_tables_and_a_cpu_partition_has_the_smallest() -> None:
    arguments: dict[str, object] = {"lr": 0.5, "batch_size": {"80GiB": 64, "16GiB": 8}}
    assert choose_entries(arguments, DeviceMemory("a card", 80 * GIB), "t") == (  # type: ignore[arg-type]
        {"lr": 0.5, "batch_size": 64},
        {"batch_size": "80GiB"},
    )
    assert choose_entries(arguments, None, "t") == (  # type: ignore[arg-type]
        {"lr": 0.5, "batch_size": 8},
        {"batch_size": "16GiB"},
    )


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (8 * GIB, "t: batch_size is set by memory class. The smallest is 16GiB, but device 3 (T4) has 8.0 GiB"),
        (None, "t: batch_size is set by memory class, but the driver does not report how much memory device 3 (T4)"),
    ],
)
def test_a_device_below_all_classes_or_of_unknown_size_is_an_error(size: int | None, words: str) -> None:
    with pytest.raises(InputError) as raised:
        choose_class({"16GiB": 8}, DeviceMemory("device 3 (T4)", size), "t: batch_size")
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "t: an empty table"),
        ({"large": 8}, "t: memory class: expected a size, got 'large'"),
        ({"16": 8}, "t: memory class: 16 without a unit is 16 B. Did you mean 16GiB?"),
        ({"16KiB": 8}, "t: memory class '16KiB' is below 1 MiB"),
        ({"16GiB": 8, "16 gib": 9}, "t: the memory classes '16GiB' and '16 gib' are the same size"),
    ],
)
def test_a_table_that_says_nothing_clear_is_an_error(table: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as raised:
        check_classes(table, "t")
    assert str(raised.value).startswith(words)


def test_the_smallest_device_decides_and_one_that_does_not_tell_is_smaller_still() -> None:
    devices = [Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="Card") for index in range(3)]

    def gpu(index: int, size: int | None) -> Gpu:
        return Gpu(
            index=index, uuid=f"GPU-{index}", name="Card", pci_bus_id="", numa_node=None, memory_bytes=size, mig=False
        )

    assert smallest_memory(devices[:2], [gpu(1, 16), gpu(0, 24), gpu(2, 8)]) == DeviceMemory("device 1 (Card)", 16)
    assert smallest_memory(devices, [gpu(0, 24), gpu(1, 16), gpu(2, None)]) == DeviceMemory("device 2 (Card)", None)
    assert smallest_memory([Device(index=0, kind="cpu")], [gpu(0, 24)]) is None
