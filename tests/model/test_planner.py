"""Which tests run side by side: company and mixes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from milabench_ng.model import planner
from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Device, Plan, ResolvedOptions, tenant_memory
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import Profile, build_profile

WORK = {"workload": "vae"}


def profile(**tests: dict[str, Any]) -> Profile:
    return build_profile("s", {name: {**WORK, **test} for name, test in tests.items()}, "{}", "p.json")


def plan(made: Profile, slots: int, *names: str, per_device: int = 1, **options: Any) -> Plan:
    resolved = {name: ResolvedOptions({}) for name in made.tests}
    devices = [Device(index=index, kind="cpu") for index in range(slots)]
    asked: dict[str, Any] = {"repeat": 1, **options}
    return make_plan(made, resolved, devices, names=names, slots_per_device=per_device, **asked)


def shape(made: Plan) -> list[str]:
    """A word for each slot of each batch, in capitals where it is measured."""
    return [
        " ".join(
            f"{name.upper() if one.measured else name}{one.slot_ids[0]}"
            for one in batch.launches
            for name in [one.test.removeprefix("s.")]
        )
        for batch in made.batches
    ]


def test_alone_it_takes_the_slots_in_turn() -> None:
    assert shape(plan(profile(a={"neighbors": "none"}, b={}), 3)) == ["A0", "A1", "A2", "B0 B1 B2"]


def test_company_fills_the_other_slots_in_turn() -> None:
    made = profile(a={"neighbors": ["x", "y"]}, x={"role": "neighbor"}, y={"role": "neighbor"})
    assert shape(plan(made, 4)) == ["A0 x1 y2 x3", "A1 x0 y2 x3", "A2 x0 y1 x3", "A3 x0 y1 x2"]
    assert plan(made, 4).labels == ("s.a",)
    assert plan(made, 4).omitted == ()


@pytest.mark.parametrize("slots", [2, 5])
@pytest.mark.parametrize(
    "tests",
    [
        {"a": {}},
        {"a": {"neighbors": "none"}},
        {"a": {"neighbors": ["x", "y"]}, "x": {"role": "neighbor"}, "y": {"role": "neighbor"}},
        {"a": {"mix": "m"}, "b": {}, "c": {"mix": "m"}, "d": {"mix": "m"}},
        {"a": {"partition_scheme": {"type": "gpu-progression"}}, "b": {"partition_scheme": {"type": "normal"}}},
    ],
)
def test_how_large_a_plan_would_be_is_known_before_it_is_made(
    tests: dict[str, Any], slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = profile(**tests)
    places = sum(len(launch.devices) for launch in plan(made, slots, repeat=3).launches)
    assert plan(made, slots, repeat=3, most_places=places) == plan(made, slots, repeat=3)
    monkeypatch.setattr(planner, "_Composer", None)
    with pytest.raises(InputError, match=f"on {places} slots in total. The limit is {places - 1}"):
        plan(made, slots, repeat=3, most_places=places - 1)


def test_several_tenants_share_each_device() -> None:
    made = plan(profile(a={}, b={"neighbors": ["x"]}, x={"role": "neighbor"}), 2, per_device=2)
    assert shape(made)[:2] == ["A0a A0b A1a A1b", "B0a x0b x1a x1b"]
    assert [launch.devices for launch in made.batches[0].launches] == [(0,), (0,), (1,), (1,)]
    assert (made.slots_per_device, made.slots) == (2, ("0a", "0b", "1a", "1b"))
    assert made.batches[0].launches[1].job_id == "0.0b"
    assert plan(profile(a={}), 2).slots_per_device is msgspec.UNSET, "as plans were before"


def test_a_device_that_is_shared_is_company_enough() -> None:
    """A mix, or company, takes two slots, and two tenants of one device have them."""
    assert shape(plan(profile(a={"mix": "m"}, b={"mix": "m"}), 1, per_device=2)) == ["A0a B0b", "B0a A0b"]


def test_a_test_over_several_devices_wants_them_whole() -> None:
    made = profile(a={}, wide={"partition_scheme": {"type": "gpu-progression"}})
    assert plan(made, 2, per_device=2).not_planned == {
        "s.wide": "it needs whole devices, but each of these has 2 tenants"
    }
    for count in (0, 27):
        with pytest.raises(InputError, match=f"--slots-per-device: expected 1 to 26, got {count}"):
            plan(made, 2, per_device=count)


def test_company_may_be_a_test_of_its_own() -> None:
    made = profile(a={"neighbors": ["b"]}, b={})
    assert shape(plan(made, 2)) == ["A0 b1", "A1 b0", "B0 B1"]
    assert shape(plan(made, 2, "a")) == ["A0 b1", "A1 b0"]
    assert plan(made, 2, "a").omitted == ("s.b",)


@pytest.mark.parametrize(("tests", "slots"), [(2, 2), (3, 2), (2, 4), (4, 4), (3, 8)])
def test_each_test_of_a_mix_visits_each_slot_once_in_a_run(tests: int, slots: int) -> None:
    made = plan(profile(**{f"t{i}": {"mix": "day"} for i in range(tests)}), slots, repeat=2)
    visits = Counter((one.test, one.run, one.devices) for one in made.launches)
    assert len(visits) == 2 * tests * slots
    assert set(visits.values()) == {1}
    assert all(len(batch.launches) == slots for batch in made.batches)
    if tests >= slots:
        assert all(len({one.test for one in batch.launches}) == slots for batch in made.batches)


def test_a_mix_stands_where_its_first_test_does() -> None:
    made = profile(a={"mix": "day"}, b={}, c={"mix": "day"})
    assert shape(plan(made, 2)) == ["A0 C1", "C0 A1", "B0 B1"]


@pytest.mark.parametrize(
    ("tests", "says"),
    [
        ({"a": {"neighbors": ["nobody"]}}, "in this profile"),
        ({"a": {"neighbors": "alone"}}, "it takes one of 'same', 'none'"),
        ({"a": {"neighbors": "none", "partition_scheme": {"type": "normal"}}}, "leaves no slot for neighbors"),
        ({"a": {"neighbors": ["b"]}, "b": {"partition_scheme": {"type": "normal"}}}, "leaves no slot for neighbors"),
        ({"a": {"neighbors": "none", "mix": "day"}, "b": {"mix": "day"}}, "Choose one"),
        ({"a": {}, "b": {"role": "neighbor"}}, "no test names it"),
        ({"a": {"mix": "day"}, "b": {}}, "has one test"),
        ({"a": {"least_devices": 2, "partition_scheme": {"type": "gpu-progression"}}}, "begins with one device"),
        ({"a": {"device_counts": [1, 2]}}, "uses other numbers of devices"),
        ({"a": {"instead_of": "b"}}, "not another test of this profile"),
        ({"a": {"least_memory": {"each": "much"}}}, "least_memory: each: expected a size, got 'much'"),
    ],
)
def test_company_that_cannot_be_is_refused(tests: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        profile(**tests)


def test_what_needs_a_second_slot_says_so() -> None:
    for made in (profile(a={"neighbors": ["b"]}, b={"role": "neighbor"}), profile(a={"mix": "day"}, b={"mix": "day"})):
        with pytest.raises(InputError, match=r"not planned.* two devices or more, but there is one"):
            plan(made, 1)
    assert shape(plan(profile(a={"neighbors": "none"}), 1)) == ["A0"]


def test_what_cannot_spread_over_these_devices_is_not_planned() -> None:
    spread = {"partition_scheme": {"type": "normal"}, "device_counts": [1, 2]}
    made = profile(a={}, b=spread)
    assert [len(plan(made, slots).batches) for slots in (1, 2, 3)] == [2, 2, 1]
    assert plan(made, 2).not_planned == {}
    assert plan(made, 3).not_planned == {"s.b": "a launch needs 1 or 2 devices, but the node has 3"}


def test_a_mix_is_chosen_whole() -> None:
    with pytest.raises(InputError, match="choose b, or neither"):
        plan(profile(a={"mix": "day"}, b={"mix": "day"}), 2, "a")


FSDP = profile(
    large={"least_devices": 2, "least_memory": {"together": "128.5GB", "each": "14GB"}},
    small={"least_devices": 2, "least_memory": {"together": "51.4GB", "each": "7GB"}, "instead_of": "large"},
    other={},
)


@pytest.mark.parametrize(
    ("devices", "mib", "planned"),
    [
        (1, 143_771, ""),
        (2, 143_771, "large"),  # 78.3 GB of 135.7
        (2, 81_559, "small"),  # 78.3 GB are more than 77.0; 32.7 are not
        (4, 81_559, "large"),
        (5, 40_536, "small"),  # 39.7 GB are more than 38.3
        (6, 40_536, "large"),
        (2, 23_028, ""),  # 32.7 GB are more than 21.7
        (8, 23_028, "small"),
    ],
)
def test_a_smaller_test_is_planned_where_the_larger_does_not_fit(devices: int, mib: int, planned: str) -> None:
    options = {name: ResolvedOptions({}) for name in FSDP.tests}
    slots = [Device(index=index, kind="gpu", uuid=f"GPU-{index}") for index in range(devices)]
    made = make_plan(FSDP, options, slots, 1, memory=DeviceMemory("device 0 (a GPU)", mib << 20))
    assert {*made.labels} - {"s.other"} == {f"s.{name}" for name in [planned] if name}
    assert {*made.not_planned} == {"s.large", "s.small"} - {f"s.{planned}"}
    if planned == "large":
        assert made.not_planned["s.small"] == "it replaces large, which is planned"
    if (devices, planned) == (2, "small"):
        told = "it needs 78.2 GB on each of 2 devices, but 90% of the memory of device 0 (a GPU) is 77.0 GB"
        assert made.not_planned["s.large"] == told


@pytest.mark.parametrize(("gib", "planned"), [(88, {"large"}), (40, {"small"}), (4, set())])
def test_on_the_cpu_the_smallest_share_decides(gib: int, planned: set[str]) -> None:
    options = {name: ResolvedOptions({}) for name in FSDP.tests}
    slots = [Device(index=index, kind="cpu") for index in range(2)]
    made = make_plan(FSDP, options, slots, 1, memory=tenant_memory(None, [1 << 40, gib << 30]))
    assert {*made.labels} - {"s.other"} == {f"s.{name}" for name in planned}
    if gib == 4:
        told = "it needs 78.2 GB on each of 2 devices, but 90% of the memory of a CPU partition is 3.9 GB"
        assert made.not_planned["s.large"] == told


def test_what_needs_a_later_gpu_is_not_planned_on_an_earlier_one_nor_on_the_cpu() -> None:
    made = profile(any={}, gpu={"least_capability": 0}, fp8={"least_capability": 8.9})
    options = {name: ResolvedOptions({}) for name in made.tests}

    def not_planned(*devices: Device) -> dict[str, str]:
        return dict(make_plan(made, options, devices, 1).not_planned)

    h200 = Device(index=0, kind="gpu", uuid="GPU-0", name="H200", capability=9.0)
    a100 = Device(index=1, kind="gpu", uuid="GPU-1", name="A100", capability=8.0)
    assert not_planned(h200) == {}
    assert not_planned(h200, a100) == {"s.fp8": "it needs compute capability 8.9, but device 1 (A100) has 8.0"}
    assert not_planned(Device(index=0, kind="gpu", uuid="GPU-0")) == {}  # unknown: it is tried
    told = "it needs GPUs, but the tenants are CPU partitions"
    assert not_planned(Device(index=0, kind="cpu")) == {"s.gpu": told, "s.fp8": told}


def test_what_runs_next_to_a_test_needs_its_gpu_too() -> None:
    made = profile(any={}, gpu={"least_capability": 0}, both={"neighbors": ["gpu"]})
    options = {name: ResolvedOptions({}) for name in made.tests}
    cpus = tuple(Device(index=index, kind="cpu") for index in range(2))
    told = "it needs GPUs, but the tenants are CPU partitions"
    assert make_plan(made, options, cpus, 1).not_planned == {"s.gpu": told, "s.both": f"its neighbor gpu: {told}"}


def test_the_memory_of_the_device_decides_where_it_has_one() -> None:
    card = DeviceMemory("device 0 (a GPU)", 80 << 30)
    assert tenant_memory(card, [1 << 30]) == card


def test_the_smaller_test_runs_by_name() -> None:
    options = {name: ResolvedOptions({}) for name in FSDP.tests}
    slots = [Device(index=index, kind="cpu") for index in range(2)]
    assert make_plan(FSDP, options, slots, 1, names=["small"]).labels == ("s.small",)
    assert "s.small" in make_plan(FSDP, options, slots, 1).not_planned


def test_tenants_that_share_a_device_are_no_further_devices() -> None:
    made = profile(a={"least_devices": 2}, b={})
    assert plan(made, 1, per_device=2).not_planned == {"s.a": "it needs 2 devices, but the node has 1"}
    assert plan(made, 2, per_device=2).not_planned == {}


def test_profiles_of_before_the_renaming_say_company() -> None:
    new = profile(a={"neighbors": ["b"]}, b={"role": "neighbor"})
    assert profile(a={"company": ["b"]}, b={"role": "company"}).tests == new.tests
