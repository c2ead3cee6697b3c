"""A request read against the catalogue: once, and then for all that follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from milabench_ng.model.catalogue import Catalogue
from milabench_ng.model.errors import InputError
from milabench_ng.model.memory_classes import DeviceMemory
from milabench_ng.model.plan import Device
from milabench_ng.model.profile import TimeLimits, build_profile, parse_profile
from milabench_ng.model.shipped import find
from milabench_ng.model.units import GIB, MIB
from milabench_ng.records.isolation import Tier
from milabench_ng.run.planning import refusals
from milabench_ng.run.planning.catalogue_queries import read_by_tests
from milabench_ng.run.planning.planned_run import without_alone
from milabench_ng.run.planning.refusals import options_asked, refuse_unsearchable
from milabench_ng.run.planning.request import (
    ResolvedRequest,
    RunRequest,
    named_tests,
    named_workloads,
    plan_for,
    required_isolation,
    resolve_request,
    time_limits,
)
from milabench_ng.worker.discovery import describe, find_workload

CPUS = (Device(index=0, kind="cpu"), Device(index=1, kind="cpu"))
TESTS: dict[str, object] = {
    "one": {"workload": "toy_reg", "arguments": {"batch_size": 32}, "limits": {"silence": 7}},
    "two": {"workload": "vae", "require": "full"},
    "three": {"workload": "scaling", "partition_scheme": {"type": "gpu-progression"}},
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return describe(())


def request_for(tests: dict[str, object] = TESTS, suite: str = "s", **options: object) -> RunRequest:
    made = RunRequest(profile=parse_profile(suite, json.dumps(tests), "s.json"), dataroot=Path("/"), outdir=Path("/"))
    return msgspec.structs.replace(made, **options)


def resolved(catalogue: Catalogue, **options: object) -> ResolvedRequest:
    return resolve_request(request_for(**options), catalogue)


def test_a_pattern_names_the_measured_tests_that_match() -> None:
    tests = TESTS | {"tea": {"workload": "vae", "company": ["twist"]}, "twist": {"workload": "vae", "role": "company"}}
    request = request_for(tests)
    assert named_tests(request, ()) == ()
    assert named_tests(request, ("t*",)) == ("two", "three", "tea")
    assert named_tests(request, ("one", "*o*", "t?o")) == ("one", "two"), "each once, in the order of their names"
    assert named_tests(request, ("twist", "nowhere")) == ("twist", "nowhere"), (
        "what is not right about them is told later"
    )
    with pytest.raises(InputError, match=r"--name x\*: no test of s matches\. Known: one, two, three, tea$"):
        named_tests(request, ("one", "x*"))


def test_a_test_in_company_without_itself_alone_is_said_to_have_no_slowdown() -> None:
    table = {
        "alone": {"workload": "vae", "company": "none"},
        "beside": {"workload": "vae", "company": ["noise"]},
        "other": {"workload": "vae", "arguments": {"batch_size": 3}, "company": ["noise"]},
        "longer": {"workload": "vae", "arguments": {"max_seconds": 30.0}, "company": ["noise"]},
        "in_bf16": {"workload": "vae", "arguments": {"precision": "bf16"}, "company": ["noise"]},
        "noise": {"workload": "loader", "role": "company"},
    }
    made = build_profile("s", table, "", "s.json")
    told = {
        names: list(without_alone(made, made.select(names).tests))
        for names in (("alone", "beside"), ("alone", "longer", "in_bf16"), ("beside",), ("beside", "other"), ("alone",))
    }
    lacking = "no slowdown will be computed for {}: no test does the same work alone{}"
    assert told == {
        ("alone", "beside"): [],
        ("alone", "longer", "in_bf16"): [lacking.format("in_bf16", "")],
        ("beside",): [lacking.format("beside", ". Add --name alone")],
        ("beside", "other"): [lacking.format("beside", ". Add --name alone"), lacking.format("other", "")],
        ("alone",): [],
    }


def test_what_is_selected_is_resolved_and_the_rest_is_known_by_name(catalogue: Catalogue) -> None:
    found = resolved(catalogue, names=("one",), flags=("--batch-size", "64"))
    assert list(found.tests) == list(found.arguments) == ["one"]
    assert list(found.profile.tests) == ["one", "two", "three"]
    one = found.arguments["one"]
    assert (one.arguments["batch_size"], one.overrides, one.classes) == (64, ("batch_size",), {})
    assert one.arguments.keys() == {option.name for option in catalogue.workloads["toy_reg"].options}
    plan = plan_for(found, CPUS)
    assert [launch.label for launch in plan.launches] == ["s.one", "s.one"]
    assert plan.omitted == ("s.two", "s.three.1", "s.three.2")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"names": ("four",)}, "profile s: no test 'four'. Known: one, two, three"),
        ({"data_scale": 2.0}, "--data-scale: expected a value above 0"),
        ({"flags": ("--nothing", "1"), "names": ("one",)}, "s.json: test 'one': after --"),
        (
            {"tests": {"a": {"workload": "vae", "partition_scheme": {"type": "normal"}}}},
            "s.json: test 'a': partition scheme 'normal' runs over several devices, but workload 'vae' runs in one",
        ),
        ({"tests": {"a": {"workload": "none"}}}, "s.json: test 'a'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(catalogue: Catalogue, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolved(catalogue, **options)
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize(
    ("arguments", "flags", "words"),
    [
        ({}, ("--batch-size", "0"), "'one': after --: batch_size is 0; it takes a whole number, at least 1"),
        ({}, ("--bach-size=3",), "unknown option '--bach-size=3' \\(did you mean '--batch-size'"),
        ({"batch_size": "many"}, (), "'one': batch_size is 'many'; it takes a whole number, at least 1"),
        ({"batch_size": {"16GiB": 1, "32GiB": 0}}, (), "'one': 32GiB: batch_size is 0"),
    ],
)
def test_wrong_options_of_builtin_workloads_are_refused_without_a_catalogue(
    arguments: dict[str, object], flags: tuple[str, ...], words: str
) -> None:
    asked = request_for({"one": {"workload": "toy_reg", "arguments": arguments}}, flags=flags)
    with pytest.raises(InputError, match=words):
        refusals.tests_ahead(asked)


def test_what_only_an_unselected_test_asks_for_is_not_asked_for(catalogue: Catalogue) -> None:
    def required(**asked: Any) -> str:
        made = resolved(catalogue, **asked)
        return required_isolation(made.request, made.tests)

    assert required(names=("one",)) == "auto"
    assert required() == "full"
    with pytest.raises(InputError, match=r"test 'two' of s\.json requires full isolation"):
        required(isolation="affinity")


def test_limits_of_the_command_line_come_before_the_profiles(catalogue: Catalogue) -> None:
    def limits(**options: object) -> tuple[float, float]:
        found = resolved(catalogue, names=("one",), **options)
        made = time_limits(found, plan_for(found, CPUS), "warm")["s.one"]
        return made.silence_s, made.end_s

    own = limits()
    assert own[0] == 7
    assert limits(limits=TimeLimits(end=3.0)) == (7, 3)
    assert limits(limits=TimeLimits(silence=9.0)) == (9, own[1])
    with pytest.raises(InputError, match="its total time limit of 1 s is shorter than its work"):
        limits(limits=TimeLimits(total=1.0))


def test_the_limits_of_a_suite_with_a_dot_in_its_name_are_found(catalogue: Catalogue) -> None:
    found = resolved(catalogue, suite="standard.v2", names=("one",))
    assert time_limits(found, plan_for(found, CPUS), "warm")["standard.v2.one"].silence_s == 7


TABLE: dict[str, object] = {
    "one": {"workload": "toy_reg", "arguments": {"batch-size": {"16GiB": 32, "80GiB": 128}}},
    "two": {"workload": "vae"},
}


def test_an_option_by_memory_class_is_resolved_once_and_the_plan_says_its_class(catalogue: Catalogue) -> None:
    found = resolve_request(request_for(TABLE), catalogue, DeviceMemory("device 0 (H100)", 81559 * MIB))
    assert found.arguments["one"].arguments["batch_size"] == 128
    launches = plan_for(found, CPUS).launches
    assert [launch.memory_classes for launch in launches] == [{"batch_size": "80GiB"}] * 2 + [{}] * 2
    assert b'"classes"' not in msgspec.json.encode(launches[2])


def test_an_option_by_memory_class_can_be_overridden_also_where_no_class_fits(catalogue: Catalogue) -> None:
    flags = ("--batch-size", "4")
    found = resolve_request(request_for(TABLE, flags=flags, names=("one",)), catalogue, DeviceMemory("a card", GIB))
    one = found.arguments["one"]
    assert (one.arguments["batch_size"], one.overrides, one.classes) == (4, ("batch_size",), {})


def test_all_entries_of_a_table_are_checked_not_only_the_chosen_one(catalogue: Catalogue) -> None:
    wrong: dict[str, object] = {"one": {"workload": "toy_reg", "arguments": {"batch_size": {"16GiB": 1, "80GiB": 0}}}}
    with pytest.raises(InputError, match="80GiB: batch_size is 0; it takes a whole number, at least 1"):
        resolve_request(request_for(wrong), catalogue)
    with pytest.raises(InputError, match="test 'one': batch-size is set by memory class"):
        resolve_request(request_for({"one": TABLE["one"]}), catalogue, DeviceMemory("device 0 (T4)", GIB))


AUTO_BATCH: dict[str, object] = {"t": {"workload": "tests.run.growing:growing", "arguments": {"batch_size": "auto"}}}
SCALING: dict[str, object] = {
    "t": {
        "workload": "tests.run.growing:growing_ranks",
        "arguments": {"batch_size": "auto"},
        "partition_scheme": {"type": "gpu-progression"},
    }
}
CARD = DeviceMemory("device 0 (Card)", GIB)


@pytest.mark.parametrize(
    ("tests", "memory", "tier", "words"),
    [
        (SCALING, CARD, "full", "a gpu-progression must do the same work per device"),
        (AUTO_BATCH, None, "none", "which needs isolation"),
        (
            AUTO_BATCH,
            DeviceMemory("device 0 (Card)", None),
            "full",
            "the driver does not report how much memory device 0",
        ),
    ],
)
def test_an_automatic_batch_size_that_cannot_be_found_is_refused(
    tests: dict[str, object], memory: DeviceMemory | None, tier: Tier, words: str
) -> None:
    found = resolve_request(request_for(tests), describe(named_workloads(request_for(tests))), memory)
    with pytest.raises(InputError, match=words):
        refuse_unsearchable(found, memory, tier)


def test_an_automatic_batch_size_is_found_on_a_card_and_in_a_fence() -> None:
    found = resolve_request(request_for(AUTO_BATCH), describe(named_workloads(request_for(AUTO_BATCH))), CARD)
    refuse_unsearchable(found, CARD, "none")
    refuse_unsearchable(found, None, "full")
    assert [launch.auto_batch for launch in plan_for(found, CPUS).launches] == [True, True]


def test_a_workload_that_does_not_declare_it_takes_no_automatic_batch_size(catalogue: Catalogue) -> None:
    with pytest.raises(InputError, match="batch_size is 'auto'; it takes a whole number, at least 1"):
        resolve_request(request_for({"t": {"workload": "vae", "arguments": {"batch_size": "auto"}}}), catalogue)
    with pytest.raises(InputError, match=r"memory_fraction is 1\.5; expected above 0 and at most 1"):
        resolve_request(request_for({"t": {"workload": "vae", "memory_fraction": 1.5}}), catalogue)


def test_no_shipped_profile_of_a_closed_division_has_an_automatic_batch_size() -> None:
    for name in ("standard", "standard-10gb", "standard-5gb", "lite", "quick", "smoke"):
        path = find("profiles", name)
        assert path is not None
        assert '"auto"' not in path.read_text()


def test_data_is_prepared_for_tests_that_only_some_nodes_run(catalogue: Catalogue) -> None:
    tests: dict[str, object] = {
        "large": {"workload": "vae", "least_devices": 4},
        "small": {"workload": "loader", "instead_of": "large", "data_scale": 0.5},
        "again": {"workload": "vae"},
    }
    found = resolved(catalogue, tests=tests)
    assert [launch.test for launch in plan_for(found, CPUS).launches[::2]] == ["s.small", "s.again"]
    four = tuple(Device(index=index, kind="cpu") for index in range(4))
    assert "s.small" in plan_for(found, four).not_planned
    assert read_by_tests(found) == (("mnist", 1.0), ("imagenet", 0.5))
    assert read_by_tests(resolved(catalogue, tests=tests, names=("small",))) == (("imagenet", 0.5),)


def test_workloads_are_asked_about_the_devices_of_each_launch(catalogue: Catalogue) -> None:
    found = resolved(catalogue, tests={"many": {"workload": "dlrm", "partition_scheme": {"type": "normal"}}, **TESTS})
    asked = options_asked(found, plan_for(found, CPUS))
    assert [(one.workload, one.devices) for one in asked] == [
        ("dlrm", 2), ("toy_reg", 1), ("vae", 1), ("scaling", 1), ("scaling", 2),
    ]  # fmt: skip
    assert asked[0].where == "s.json: test 'many'"
    definition, _ = find_workload("dlrm")
    definition.check(asked[0].arguments, asked[0].devices)
    told = r"^--tables: expected a multiple of the number of devices \(2\), at most 24, got 3$"
    with pytest.raises(InputError, match=told):
        definition.check({**asked[0].arguments, "tables": 3}, asked[0].devices)
