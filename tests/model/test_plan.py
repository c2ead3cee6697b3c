"""The plan: which launches run, in which order, on which devices."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Batch, Device, Launch, Order, Plan, ResolvedOptions, tenant_number, unplanned_told
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import PartitionScheme, Profile, Scheme, Test

PROFILE = Profile(
    "suite",
    {
        "vae": Test("vae", data_scale=0.5),
        "scaling": Test("scaling", partition_scheme=PartitionScheme(Scheme.PROGRESSION)),
        "whole": Test("scaling", partition_scheme=PartitionScheme(Scheme.NORMAL)),
    },
    "{}",
    "suite.json",
)
ARGUMENTS = {
    "vae": ResolvedOptions({"batch_size": 64, "seed": 7}, ("seed",)),
    "scaling": ResolvedOptions({"batch_size": 8}),
    "whole": ResolvedOptions({"batch_size": 16}),
}


def gpus(*indices: int) -> list[Device]:
    return [Device(index=index, kind="gpu", uuid=f"GPU-{index}", name="H200") for index in indices]


def plan(devices: list[Device], *names: str, repeat: int = 1) -> Plan:
    return make_plan(PROFILE, {name: ARGUMENTS[name] for name in names or ARGUMENTS}, devices, repeat)


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


WIDE = Profile("suite", {**PROFILE.tests, "wide": Test("scaling", least_devices=2)}, "{}", "suite.json")


@pytest.mark.parametrize(
    ("count", "unplanned"), [(1, {"suite.wide": "it needs 2 devices, but the node has 1"}), (2, {})]
)
def test_a_test_that_needs_more_devices_is_not_planned_and_not_left_out(count: int, unplanned: dict[str, str]) -> None:
    given = {"vae": ARGUMENTS["vae"], "wide": ARGUMENTS["whole"]}
    made = make_plan(WIDE, given, gpus(*range(count)), 1)
    assert made.not_planned == unplanned
    assert ("suite.wide" in made.labels) == (not unplanned)
    assert "suite.wide" not in made.omitted
    assert make_plan(WIDE, {"vae": ARGUMENTS["vae"]}, gpus(0), 1).omitted[-1] == "suite.wide"


def test_a_run_of_nothing_else_is_refused() -> None:
    with pytest.raises(InputError, match=r"suite\.wide is not planned: it needs 2 devices, but the node has 1"):
        make_plan(WIDE, {"wide": ARGUMENTS["whole"]}, gpus(0), 1)


def test_what_one_reason_keeps_from_the_plan_is_told_at_once() -> None:
    told = list(unplanned_told({"s.a": "it is wide", "s.b": "it is large", "s.c": "it is wide"}))
    assert told == ["2 tests are not planned, each because it is wide: s.a, s.c", "s.b is not planned: it is large"]


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


def test_impossible_plans() -> None:
    with pytest.raises(InputError, match="--repeat: expected 1"):
        plan(gpus(0), repeat=0)
    with pytest.raises(InputError, match="no device"):
        plan([])


def runs_of(order: Order, nonce: str | None = None) -> list[tuple[str, int]]:
    made = make_plan(PROFILE, ARGUMENTS, gpus(0, 1), 3, order, nonce)
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


SHARED = {"devices": (0,), "slots": ("0a",)}


def changed(**changes: object) -> Launch:
    """A launch of ``vae`` on device 0, with changes."""
    return msgspec.structs.replace(plan(gpus(0), "vae").launches[0], **changes)


def test_with_one_slot_per_device_plans_are_the_bytes_that_they_were_before_there_were_slots() -> None:
    made = plan(gpus(0, 1), repeat=2)
    assert made.sha256 == "38cac1cae5cc61497d215f3e7a0cb15d503687197cf52c7d7a50d14dedcc4b3a"
    written = msgspec.json.encode(made)
    assert hashlib.sha256(written).hexdigest() == "09c20cbfe0a9f1636a35b10bb0d1880a87ccc30714033ef4287bf4669ba02586"
    assert msgspec.json.encode(made.launches[0]) == (
        b'{"test":"suite.vae","scheme":"per-gpu","workload":"vae","arguments":{"batch_size":64,"seed":7},'
        b'"overrides":["seed"],"data_scale":0.5,"run":0,"devices":[0]}'
    )
    assert msgspec.json.decode(written, type=Plan) == made
    assert made.measured_slots == ("0", "1")


def test_what_can_be_left_away_is_left_away() -> None:
    stated = changed(devices=(3, 4), slots=("3", "4"), role="measured")
    assert stated == changed(devices=(3, 4))
    assert msgspec.json.encode(stated) == msgspec.json.encode(changed(devices=(3, 4)))
    assert (stated.slot_ids, stated.measured) == (("3", "4"), True)


def test_job_and_label_follow_from_slot_and_test() -> None:
    shared = changed(**SHARED, run=2)
    assert (shared.job_id, shared.label, shared.slot_ids) == ("2.0a", "suite.vae", ("0a",))
    wide = changed(scheme=Scheme.PROGRESSION, devices=(0, 1), slots=("0b", "1a"))
    assert (wide.job_id, wide.label) == ("0.1a", "suite.vae.2")
    assert msgspec.json.decode(msgspec.json.encode(wide), type=Launch) == wide


def test_company_is_said_and_has_no_row() -> None:
    company = changed(**SHARED, role="company")
    assert msgspec.json.encode(company).endswith(b'"devices":[0],"slots":["0a"],"role":"company"}')
    assert not company.measured
    beside = msgspec.structs.replace(company, test="suite.other", slots=("0b",), role="measured")
    made = msgspec.structs.replace(plan(gpus(0), "vae"), batches=(Batch(number=0, launches=(company, beside)),))
    assert made.labels == ("suite.other",)
    assert made.measured_slots == ("0b",)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ('"devices":[0,1],"slots":["0a"]', "1 slots for 2 devices"),
        ('"devices":[0],"slots":["../0"]', "matching regex"),
        ('"devices":[0],"slots":["0a\\n"]', "matching regex"),
        ('"devices":[0],"role":"guest"', "Invalid enum value 'guest'"),
    ],
)
def test_slots_of_others_are_checked(stated: str, reason: str) -> None:
    text = f'{{"test":"s.t","scheme":"per-gpu","workload":"t","arguments":{{}},"run":0,{stated}}}'
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.json.decode(text, type=Launch)


def test_a_slot_has_one_launch_at_a_time() -> None:
    with pytest.raises(ValueError, match="launch group 5 has several launches on one slot"):
        Batch(number=5, launches=(changed(**SHARED), changed(**SHARED, run=1)))


def test_every_slot_has_its_own_data_order_and_the_only_slot_of_a_device_that_of_its_index() -> None:
    assert [tenant_number(str(index)) for index in (0, 1, 15)] == [0, 1, 15]
    slots = [f"{index}{letter}" for index in range(16) for letter in ("", "a", "b", "z")]
    assert len({tenant_number(slot) for slot in slots}) == len(slots)
    with pytest.raises(ValueError, match="slot 'gpu0'"):
        tenant_number("gpu0")
