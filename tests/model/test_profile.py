"""Profiles are read strictly: what is wrong is named with file, test and key."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import SMALL, read_text
from milabench_ng.model.profile import (
    MOST_TESTS,
    IoShare,
    PartitionScheme,
    Profile,
    Scheme,
    Test,
    parse_profile,
)

SHIPPED = Path(__file__).parents[2] / "profiles"


def profile(text: str) -> Profile:
    made = parse_profile("p", text, "p.json")
    assert isinstance(made, Profile)
    return made


def one(**definition: Any) -> Test:
    return profile(json.dumps({"t": definition})).tests["t"]


def test_all_keys() -> None:
    test = one(
        workload="vae",
        arguments={"batch_size": 64, "learning_rate": 0.5, "flag": True, "word": "x"},
        partition_scheme={"type": "normal"},
        require="full",
        io={"read": "1000MiB/s"},
        data_scale=1,
    )
    assert test == Test(
        workload="vae",
        arguments={"batch_size": 64, "learning_rate": 0.5, "flag": True, "word": "x"},
        partition_scheme=PartitionScheme(Scheme.NORMAL),
        require="full",
        io=IoShare(read="1000MiB/s"),
        data_scale=1.0,
    )
    assert one(workload="vae", require=None, io=None) == Test(workload="vae")


def test_the_text_is_kept_with_its_hash() -> None:
    text = '{ "t": {"workload": "vae"} }\n'
    assert profile(text).text == text
    assert profile(text).sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_defaults_are_merged_shallowly_and_may_stand_anywhere() -> None:
    tests = profile(
        """{
            "a": {"workload": "vae"},
            "*": {"arguments": {"batch_size": 1, "workers": 2}, "data_scale": 0.5,
                  "partition_scheme": {"type": "normal"}},
            "b": {"workload": "vae", "arguments": {"batch_size": 3}, "partition_scheme": {}}
        }"""
    ).tests
    assert list(tests) == ["a", "b"]
    assert tests["a"].arguments == {"batch_size": 1, "workers": 2}
    assert tests["a"].partition_scheme.type == "normal"
    assert tests["b"].arguments == {"batch_size": 3}  # replaced whole
    assert tests["b"].partition_scheme.type == "per-gpu"
    assert tests["b"].data_scale == 0.5


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (
            {"workload": "v", "agruments": {}},
            "unknown key 'agruments' (did you mean 'arguments'?)",
        ),
        (
            {"workload": "v", "partition_scheme": {"kind": "normal"}},
            "partition_scheme: unknown key 'kind'. Known: type",
        ),
        (
            {"workload": "v", "partition_scheme": {"type": "gpu"}},
            "type is 'gpu'; it takes one of 'per-gpu', 'gpu-progression'",
        ),
        ({"workload": "v", "partition_scheme": "per-gpu"}, "partition_scheme: expected an object, got text"),
        ({"workload": "v", "io": {"reed": "1MiB/s"}}, "io: unknown key 'reed' (did you mean 'read'?)"),
        ({"workload": "v", "require": "fully"}, "require is 'fully'; it takes one of 'full'"),
        ({"workload": "v", "arguments": {"a": 1, "size": [1]}}, "argument 'size' is [1]; it must be"),
        ({"workload": "v", "arguments": {"size": None}}, "argument 'size' is None; it must be"),
        ({"workload": "v", "arguments": [1]}, "arguments: expected an object, got a list"),
        ({"workload": 5}, "workload: expected text, got a whole number"),
        ({}, "the key 'workload' is missing"),
        ({"workload": "v", "data_scale": "half"}, "data_scale: expected a number, got text"),
        ({"workload": "v", "data_scale": 0}, "data_scale is 0.0; expected above 0 and at most 1"),
        ({"workload": "v", "data_scale": 1.01}, "data_scale is 1.01"),
    ],
)
def test_what_is_wrong_is_named(definition: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        one(**definition)
    assert str(caught.value).startswith("p.json: test 't': ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"workload": "v"}, "a": {"workload": "v"}}', "'a' appears twice"),
        ('{"a": {"workload": "v", "workload": "w"}}', "'workload' appears twice"),
        ('{"a": {"workload": "v", "arguments": {"x": {"y": 1, "y": 1}}}}', "'y' appears twice"),
        ('{"*": {}, "*": {}, "a": {}}', "'*' appears twice"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "has more than 64 bits"),
        ('{"a": {"workload": "v", "data_scale": NaN}}', "NaN is not a JSON number"),
        ('{"a": {"workload": "v", "data_scale": -Infinity}}', "-Infinity is not a JSON number"),
        ('{"a": {"workload": "v"},\n }', "not JSON: .* \\(line \\d, column \\d+\\)"),
        ("\ufeff{}", "byte order mark"),
        ("", "the file is empty"),
        ("[]", "must be an object of tests, not list"),
        ('"vae"', "must be an object of tests, not str"),
        ("{}", "no tests"),
        ('{"*": {"workload": "v"}}', "no tests"),
        ('{"*": [], "a": {}}', "'\\*' must be an object of defaults, not list"),
        ('{"a": "vae"}', "test 'a' must be an object, not str"),
        ('{"../a": {"workload": "v"}}', "test name '../a'"),
        ('{"a.b": {"workload": "v"}}', "test name 'a.b'"),
        ('{"": {"workload": "v"}}', "test name ''"),
        ('{"a\\n": {"workload": "v"}}', "test name"),
    ],
)
def test_text_that_is_no_profile(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        profile(text)
    assert str(caught.value).startswith("p.json: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"caf\xe9": {}}')
    with pytest.raises(InputError, match=r"latin\.json: not a JSON file: not UTF-8 text .* at byte 5"):
        read_text(latin)
    with pytest.raises(InputError, match=r"none\.json: no such file"):
        read_text(tmp_path / "none.json")
    with pytest.raises(InputError, match="a folder, not a file"):
        read_text(tmp_path)


def test_selecting_keeps_the_order_of_the_file() -> None:
    whole = profile('{"a": {"workload": "v"}, "b": {"workload": "v"}, "c": {"workload": "v"}}')
    assert list(whole.select(["c", "a", "c"]).tests) == ["a", "c"]
    assert whole.select([]) == whole
    with pytest.raises(InputError, match="profile p: no test 'd'"):
        whole.select(["a", "d"])


def test_a_test_is_known_by_the_name_that_reports_print() -> None:
    whole = profile('{"a": {"workload": "v"}, "loader": {"workload": "v"}}')
    with pytest.raises(InputError, match=r"no test 'p\.loader' \(did you mean 'loader'\?\)$"):
        whole.select(["p.loader"])


OVER_SEVERAL = {
    "scaling",
    "collectives",
    "collectives_sweep",
    "burn_links",
    "dlrm",
    "hstu",
    "llm_fsdp",
    "moe_ep",
    "cv_train_ddp",
}
"""Workloads of one launch over several devices; others can do both, and tests say it in their name."""


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.json")), ids=lambda path: path.name)
def test_the_shipped_profiles_are_profiles(path: Path) -> None:
    tests = profile(read_text(path)).tests
    assert tests
    others = [name for name, test in tests.items() if test.partition_scheme.type != "per-gpu"]
    named = [name for name in tests if name.endswith("_ddp") or "_tp_" in name]
    assert others == [name for name, test in tests.items() if test.workload in OVER_SEVERAL or name in named]


@pytest.mark.parametrize("name", ["standard", "lite", "smoke", "quick"])
def test_the_profiles_of_the_suite_of_2020_have_its_cheap_tests(name: str) -> None:
    tests = profile(read_text(SHIPPED / f"{name}.json")).tests
    assert {"toy_reg", "toy_lstm", "vae", "loader", "convnet"} <= set(tests)


def test_a_profile_of_more_tests_than_anybody_writes_is_refused() -> None:
    """Untrusted ones come in manifests, which may be larger than a file of a profile."""
    many = {f"t{number}": {"workload": "vae"} for number in range(MOST_TESTS + 1)}
    with pytest.raises(InputError, match=r"p\.json: 10,001 tests. A profile has at most 10,000"):
        profile(json.dumps(many))
    with pytest.raises(InputError, match=r"p\.json: larger than the 4 MiB that a profile may have"):
        profile(json.dumps({"t": {"workload": "vae"}}) + " " * SMALL)
