"""The real profile of 2020 becomes ours; nothing in it is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from milabench_ng.catalogue import Catalogue
from milabench_ng.errors import InputError
from milabench_ng.files import read_text
from milabench_ng.profile import RawTests, build_profile, parse_profile
from milabench_ng.profile_2020 import convert_2020
from milabench_ng.worker.discovery import describe

REPOSITORY = Path(__file__).parents[2]
OLD = REPOSITORY / "tests/data/milarun2020/profile-standard.json"
NAMES = ("vae", "convnet", "convnet_fp16", "scaling", "toy_lstm", "loader", "toy_reg")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return describe(())


@pytest.fixture(scope="module")
def old() -> RawTests:
    tests, of_2020 = parse_profile(read_text(OLD), "old.json")
    assert of_2020
    assert len(tests) == 18
    return tests


def converted(catalogue: Catalogue, **definition: Any) -> dict[str, Any]:
    tests, _ = parse_profile(json.dumps({"t": definition}), "old.json")
    return convert_2020(tests, catalogue, "old.json")[0]["t"]


def test_the_suite_of_2020_is_our_standard_profile(catalogue: Catalogue, old: RawTests) -> None:
    chosen, _ = convert_2020({name: old[name] for name in NAMES}, catalogue, "old.json")
    text = read_text(REPOSITORY / "profiles/standard.json")
    ours = build_profile("standard", parse_profile(text, "standard.json")[0], text, "standard.json").tests
    today = build_profile("standard", chosen, text, "old.json").tests
    assert {name: today[name] for name in NAMES} == {name: ours[name] for name in NAMES}
    assert today["toy_lstm"].arguments["max_count"] == 7760  # 8000 of 2020, which counted 100 for 97


def test_every_key_that_is_not_executed_is_named_once(catalogue: Catalogue, old: RawTests) -> None:
    _, warnings = convert_2020({name: old[name] for name in NAMES}, catalogue, "old.json")
    assert [warning.split(":")[1] for warning in warnings] == [
        f" the 2020 key {key!r} is not executed" for key in ("prepare", "exec_prefix", "cgroup")
    ]
    _, warnings = convert_2020({"scaling": {**old["scaling"], "prepare": []}}, catalogue, "old.json")
    assert len(warnings) == 2  # its own partition scheme has no cgroup
    assert convert_2020({"t": {"experiment": "milarun.models.vae:main"}}, catalogue, "old.json")[1] == ()


def test_nothing_of_it_is_executed(catalogue: Catalogue, old: RawTests, tmp_path: Path) -> None:
    line = f"touch {tmp_path}/executed"
    test = {**old["vae"], "prepare": [line], "exec_prefix": ["sh", "-c", line]}
    made, warnings = convert_2020({"vae": test}, catalogue, "old.json")
    build_profile("p", made, "", "old.json", warnings)
    assert line not in str(made)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old_count", "count"), [(100, 97), (8000, 7760), (1, 1), (8001, 7761), (20_000_000, 19_400_000)]
)
def test_counts_are_true_items(catalogue: Catalogue, old_count: int, count: int) -> None:
    made = converted(catalogue, experiment="milarun.models.sine_wave:main", arguments={"--max-count": old_count})
    assert made["arguments"] == {"max_count": count}


def test_defaults_of_2020_that_differ_from_ours(catalogue: Catalogue) -> None:
    for model, batch_size in (("vae", 256), ("polynome", 64)):
        made = converted(catalogue, experiment=f"milarun.models.{model}:main")
        assert made["arguments"] == {"batch_size": batch_size}
        made = converted(catalogue, experiment=f"milarun.models.{model}:main", arguments={"--batch-size": 3})
        assert made["arguments"] == {"batch_size": 3}


def test_flags_that_mean_a_precision(catalogue: Catalogue) -> None:
    experiment = "milarun.models.convnet:conv_simple"
    for value, arguments in ((True, {"precision": "half_master"}), (False, {})):
        assert converted(catalogue, experiment=experiment, arguments={"--half": value})["arguments"] == arguments


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"experiment": "milarun.models.vea:main"}, "stands for experiment 'milarun.models.vea:main'; known: milarun"),
        ({"experiment": 3}, "stands for experiment 3"),
        ({"experiment": "milarun.models.vae:main", "arguments": [1]}, "arguments must be an object, not list"),
        (
            {"experiment": "milarun.models.convnet:conv_simple", "arguments": {"--lr": 1, "learning_rate": 2}},
            "'learning_rate' sets 'learning_rate', which another argument has set",
        ),
    ],
)
def test_what_cannot_be_converted(catalogue: Catalogue, definition: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"old\.json: test 't': ") as caught:
        converted(catalogue, **definition)
    assert message in str(caught.value)


def test_wrong_values_stay_wrong(catalogue: Catalogue) -> None:
    """They are refused later, against the workload's options, and are not made fit here."""
    made = converted(catalogue, experiment="milarun.models.vae:main", arguments={"--max-count": True, "--bogus": "x"})
    assert made["arguments"] == {"batch_size": 256, "max_count": True, "bogus": "x"}
    made = converted(catalogue, experiment="milarun.models.vae:main", partition_scheme="per-gpu", requrie="full")
    with pytest.raises(InputError, match="unknown key 'requrie'"):
        build_profile("p", {"t": made}, "", "old.json")
