"""The plan: which launches run, in which order, on which devices."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from milabench_ng.errors import InputError
from milabench_ng.plan import Device, Order, Plan, make_plan
from milabench_ng.profile import PartitionScheme, Profile, Scheme, Test

PROFILE = Profile(
    "suite",
    {
        "vae": Test("vae", data_scale=0.5),
        "scaling": Test("scaling", partition_scheme=PartitionScheme(Scheme.PROGRESSION)),
        "whole": Test("scaling", partition_scheme=PartitionScheme(Scheme.NORMAL)),
    },
    "{}",
)
ARGUMENTS = {
    "vae": ({"batch_size": 64, "seed": 7}, ("seed",)),
    "scaling": ({"batch_size": 8}, ()),
    "whole": ({"batch_size": 16}, ()),
}


def gpus(*indices: int) -> list[Device]:
    return [Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="H200") for index in indices]


def plan(devices: list[Device], *names: str, repeat: int = 1) -> Plan:
    return make_plan(PROFILE, names, ARGUMENTS, devices, repeat)


def shape(made: Plan) -> list[list[tuple[str, str]]]:
    return [[(launch.label, launch.job_id) for launch in batch.launches] for batch in made.batches]


def test_repeats_are_outside_and_tests_inside() -> None:
    made = plan(gpus(0, 1), repeat=2)
    first = [
        [("suite.vae", "0.0"), ("suite.vae", "0.1")],
        [("suite.scaling.1", "0.0")],
        [("suite.scaling.2", "0.1")],
        [("suite.whole", "0.1")],
    ]
    second = [[(label, job.replace("0.", "1.", 1)) for label, job in batch] for batch in first]
    assert shape(made) == first + second
    assert [batch.number for batch in made.batches] == list(range(8))
    assert [launch.run for launch in made.launches] == [0] * 5 + [1] * 5
    assert made.labels == ("suite.vae", "suite.scaling.1", "suite.scaling.2", "suite.whole")
    assert made.omitted == ()


def test_a_launch_carries_all_that_a_worker_needs() -> None:
    launch = plan(gpus(0), "vae").launches[0]
    assert (launch.test, launch.workload, launch.scheme) == ("suite.vae", "vae", "per-gpu")
    assert launch.arguments == {"batch_size": 64, "seed": 7}
    assert launch.overrides == ("seed",)
    assert launch.data_scale == 0.5


def test_a_progression_takes_one_device_more_each_time() -> None:
    made = plan(gpus(0, 1, 2), "scaling")
    assert [launch.devices for launch in made.launches] == [(0,), (0, 1), (0, 1, 2)]
    assert [len(batch.launches) for batch in made.batches] == [1, 1, 1]


def test_a_subset_of_devices_keeps_their_numbers() -> None:
    made = plan(gpus(0, 2, 5))
    assert shape(made) == [
        [("suite.vae", "0.0"), ("suite.vae", "0.2"), ("suite.vae", "0.5")],
        [("suite.scaling.1", "0.0")],
        [("suite.scaling.2", "0.2")],
        [("suite.scaling.3", "0.5")],
        [("suite.whole", "0.5")],
    ]
    assert made.launches[-1].devices == (0, 2, 5)


@pytest.mark.parametrize("indices", [(0,), (3, 1, 2), (0, 1, 2, 3)])
def test_file_names_never_clash(indices: tuple[int, ...]) -> None:
    """A record's name is made of test and job id."""
    launches = plan(gpus(*indices), repeat=3).launches
    assert len({(launch.test, launch.job_id) for launch in launches}) == len(launches)


def test_what_was_not_selected_is_omitted_by_label() -> None:
    made = plan(gpus(0, 1), "vae")
    assert made.labels == ("suite.vae",)
    assert made.omitted == ("suite.scaling.1", "suite.scaling.2", "suite.whole")
    assert plan(gpus(0), "whole", "scaling").omitted == ("suite.vae",)


def test_arguments_of_tests_that_are_not_selected_are_not_needed() -> None:
    made = make_plan(PROFILE, ["vae"], {"vae": ARGUMENTS["vae"]}, gpus(0), 1)
    assert len(made.launches) == 1


def test_impossible_plans() -> None:
    with pytest.raises(InputError, match="--repeat 0: at least 1"):
        plan(gpus(0), repeat=0)
    with pytest.raises(InputError, match="no device"):
        plan([])
    with pytest.raises(InputError, match="no test 'vea'; it has vae, scaling, whole"):
        plan(gpus(0), "vea")


def runs_of(order: Order, nonce: str | None = None) -> list[tuple[str, int]]:
    made = make_plan(PROFILE, (), ARGUMENTS, gpus(0, 1), 3, order, nonce)
    assert (made.order, made.nonce) == (order, nonce)
    assert [batch.number for batch in made.batches] == list(range(12))
    return [(batch.launches[0].label, batch.launches[0].run) for batch in made.batches]


def test_orders_of_the_repeats() -> None:
    interleaved = runs_of("interleaved")
    assert [run for _, run in interleaved] == [0] * 4 + [1] * 4 + [2] * 4
    by_test = runs_of("file")
    assert [label for label, _ in by_test[:3]] == ["suite.vae"] * 3
    assert [run for _, run in by_test[3:9]] == [0, 0, 1, 1, 2, 2]
    assert sorted(by_test) == sorted(interleaved)


def test_a_random_order_follows_from_its_nonce_alone() -> None:
    made = runs_of("random", "RFP 17")
    assert made == runs_of("random", "RFP 17")
    assert made != runs_of("random", "RFP 18")
    assert sorted(made) == sorted(runs_of("interleaved"))
    assert [run for _, run in made] == [0] * 4 + [1] * 4 + [2] * 4
    labels = ["suite.vae", "suite.scaling.1", "suite.scaling.2", "suite.whole"]
    by_hash = sorted(labels, key=lambda label: hashlib.sha256(f"RFP 17:1:{label}".encode()).hexdigest())
    assert [label for label, _ in made[4:8]] == by_hash


def test_the_hash_of_a_plan_is_that_of_what_runs() -> None:
    made = plan(gpus(0, 1))
    assert made.sha256 == plan(gpus(0, 1)).sha256
    assert made.sha256 != plan(gpus(0)).sha256
    assert made.sha256 != plan(gpus(0, 1), repeat=2).sha256
    replaced = [msgspec.structs.replace(gpu, uuid="GPU-new") for gpu in gpus(0, 1)]
    assert made.sha256 == plan(replaced).sha256
