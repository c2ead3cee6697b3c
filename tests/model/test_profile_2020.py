"""The real profile of 2020 becomes ours; nothing in it is executed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from milabench_ng.model.catalogue import Catalogue, resolve
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import read_text
from milabench_ng.model.profile import Profile, Profile2020, RawTests, Test, parse_profile, read_profile
from milabench_ng.model.profile_2020 import convert_2020
from milabench_ng.worker.discovery import describe

REPOSITORY = Path(__file__).parents[2]
OLD = REPOSITORY / "tests/data/milarun2020/profile-standard.json"
NAMES = ("vae", "convnet", "convnet_fp16", "scaling", "toy_lstm", "loader", "toy_reg")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return describe(())


@pytest.fixture(scope="module")
def old() -> RawTests:
    profile = parse_profile("standard", read_text(OLD), "old.json")
    assert isinstance(profile, Profile2020)
    assert len(profile.tests) == 18
    return profile.tests


def today(catalogue: Catalogue, tests: RawTests) -> Profile:
    return convert_2020(Profile2020("standard", tests, "", "old.json"), catalogue)


def converted(catalogue: Catalogue, **definition: Any) -> Test:
    return today(catalogue, json.loads(json.dumps({"t": definition}))).tests["t"]


def test_the_suite_of_2020_is_our_standard_profile(catalogue: Catalogue, old: RawTests) -> None:
    ours = read_profile(REPOSITORY / "profiles/standard.json").tests
    then = convert_2020(Profile2020("standard", old, "", "old.json"), catalogue, NAMES).tests
    assert then == {name: ours[name] for name in then}
    assert sorted(then) == sorted(NAMES)
    assert then["toy_lstm"].arguments["max_count"] == 7760  # 8000 of 2020, which counted 100 for 97


def test_standard_has_the_arguments_of_2020_but_for_one(catalogue: Catalogue, old: RawTests) -> None:
    """All options of all eighteen tests, those that a profile leaves out with their defaults."""
    ours = read_profile(REPOSITORY / "profiles/standard.json").tests
    differ = {}
    for name, test in today(catalogue, old).tests.items():
        workload = catalogue.workloads[test.workload]
        then = resolve(workload.options, test.arguments, "old.json")
        now = resolve(workload.options, ours[name].arguments, "standard.json")
        differ |= {(name, option): (then[option], now[option]) for option in then if then[option] != now[option]}
        assert ours[name].workload == test.workload
    assert differ == {("reso", "learning_rate"): (0.1, 0.001)}


def test_every_key_that_is_not_executed_is_named_once(catalogue: Catalogue, old: RawTests) -> None:
    warnings = today(catalogue, {name: old[name] for name in NAMES}).warnings
    assert [warning.split(":")[1] for warning in warnings] == [
        f" the 2020 key {key!r} is not executed" for key in ("prepare", "exec_prefix", "cgroup")
    ]
    warnings = today(catalogue, {"scaling": {**old["scaling"], "prepare": []}}).warnings
    assert len(warnings) == 2  # its own partition scheme has no cgroup
    assert today(catalogue, {"t": {"experiment": "milarun.models.vae:main"}}).warnings == ()


def test_nothing_of_it_is_executed(catalogue: Catalogue, old: RawTests, tmp_path: Path) -> None:
    line = f"touch {tmp_path}/executed"
    test = {**old["vae"], "prepare": [line], "exec_prefix": ["sh", "-c", line]}
    assert line not in str(today(catalogue, {"vae": test}).tests)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("old_count", "count"), [(100, 97), (8000, 7760), (1, 1), (8001, 7761), (20_000_000, 19_400_000)]
)
def test_counts_are_true_items(catalogue: Catalogue, old_count: int, count: int) -> None:
    made = converted(catalogue, experiment="milarun.models.sine_wave:main", arguments={"--max-count": old_count})
    assert made.arguments == {"max_count": count}


WORD_MODEL = {
    "model": "LSTM",
    "batch_size": 64,
    "embedding": 200,
    "hidden": 200,
    "layers": 2,
    "dropout": 0.2,
    "bptt": 35,
    "learning_rate": 20.0,
    "clip_norm": 0.25,
    "max_count": 35_000,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "polynome": {"degree": 4, "batch_size": 64, "learning_rate": 0.01},
    "sine_wave": {"samples": 100, "hidden": 51, "learning_rate": 0.01, "max_count": 970},
    "vae": {"batch_size": 256, "learning_rate": 1e-3, "workers": 1},
    "loader": {"batch_size": 256},
    "subpixel": {"upscale": 2, "batch_size": 64, "image_size": 256, "learning_rate": 0.1, "max_count": 782},
    "rnn_translator": {
        "batch_size": 64,
        "hidden": 1024,
        "layers": 4,
        "dropout": 0.2,
        "longest": 50,
        "smoothing": 0.1,
        "learning_rate": 5e-4,
        "clip_norm": 5.0,
    },
    "wlm": WORD_MODEL | {"vocabulary_multiple": 1},
    "wlm:main_fp16": WORD_MODEL | {"vocabulary_multiple": 8, "precision": "half_master_static"},
    "cart_pole": {"steps": 500, "discount": 0.99, "learning_rate": 0.01},
    "minigrid": {
        "env": "BabyAI-UnlockPickup-v0",  # 2020 had to be told one
        "environments": 64,
        "steps": 40,
        "batch_size": 1280,
        "recurrence": 20,
        "learning_rate": 1e-4,
    },
    "atari": {
        "env": "PongNoFrameskip-v4",
        "algorithm": "a2c",
        "environments": 16,
        "steps": 5,
        "minibatches": 32,
        "learning_rate": 7e-4,
        "linear_decay": False,
        "gae_lambda": 1.0,
        "clip": 0.2,
        "value_coefficient": 0.5,
        "entropy_coefficient": 0.01,
        "max_count": 128_000,
    },
    "ssd": {
        "arch": "resnet34",
        "batch_size": 32,
        "learning_rate": 1e-3,
        "momentum": 0.9,
        "weight_decay": 5e-4,
        "workers": 4,
    },
    "neural_style": {
        "batch_size": 64,
        "image_size": 256,
        "style_size": 1024,
        "content_weight": 1e5,
        "style_weight": 1e10,
        "learning_rate": 1e-3,
    },
    "dcgan": {"batch_size": 64, "noise": 100, "width": 64, "learning_rate": 2e-4},
    "convnet:conv_simple": {"arch": "resnet18", "batch_size": 128, "image_size": 224, "learning_rate": 0.1},
    "recommendation": {
        "batch_size": 128,
        "factors": 8,
        "layers": "64,32,16,8",
        "negatives": 4,
        "learning_rate": 1e-3,
    },
    "scaling": {
        "arch": "alexnet",  # 2020 had to be told one
        "batch_size": 64,
        "image_size": 224,
        "learning_rate": 0.01,
        "momentum": 0.9,
    },
}
"""What the code of 2020 did where a profile said nothing, all options of each test; 1000 items and fp32 unless it says
so. In seeds and loader processes the two differ: 2020 failed where a loader was not told how many."""


def experiment(name: str) -> str:
    return f"milarun.models.{name if ':' in name else f'{name}:main'}"


def test_defaults_are_known_of_every_experiment(catalogue: Catalogue) -> None:
    known = {legacy.experiment for workload in catalogue.workloads.values() for legacy in workload.legacy_2020}
    assert {experiment(name) for name in DEFAULTS} == known


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_a_profile_leaves_out_is_the_default_of_2020(catalogue: Catalogue, name: str) -> None:
    made = converted(catalogue, experiment=experiment(name))
    options = catalogue.workloads[made.workload].options
    resolved = {option.name: option.default for option in options} | made.arguments
    expected = {"precision": "fp32", "workers": 8, "max_count": 1000} | DEFAULTS[name]
    assert {name: value for name, value in resolved.items() if name not in ELSEWHERE} == expected


ELSEWHERE = ("seed", "sample_duration", "max_seconds")


@pytest.mark.parametrize("name", DEFAULTS)
def test_what_a_profile_says_counts_more_than_a_default(catalogue: Catalogue, name: str) -> None:
    said = {"--max-count": 300, **({} if name in ("cart_pole", "sine_wave", "atari") else {"--batch-size": 3})}
    made = converted(catalogue, experiment=experiment(name), arguments=said)
    factor = catalogue.workloads[made.workload].classic_factor
    assert made.arguments["max_count"] == math.ceil(round(300 / factor, 6))
    assert "--batch-size" not in said or made.arguments["batch_size"] == 3


def test_atari_of_2020_without_an_algorithm_is_refused(catalogue: Catalogue) -> None:
    """It was a2c, which is not here."""
    made = converted(catalogue, experiment="milarun.models.atari:main")
    with pytest.raises(InputError, match="algorithm is 'a2c'; it takes one of ppo"):
        resolve(catalogue.workloads["atari"].options, made.arguments, "old.json")


@pytest.mark.parametrize(
    ("name", "arguments", "precision"),
    [
        ("convnet:conv_simple", {"--half": True}, "half_master"),
        ("convnet:conv_simple", {"--half": False}, None),
        ("wlm:main_fp16", {}, "half_master_static"),
        ("wlm:main_fp16", {"--dynamic-loss-scale": True}, "half_master"),
        ("wlm:main_fp16", {"--dynamic-loss-scale": False}, "half_master_static"),
        ("sine_wave", {"--dtype": "float16"}, "half"),
        ("sine_wave", {"--dtype": "float32"}, None),
    ],
)
def test_options_that_mean_a_precision(
    catalogue: Catalogue, name: str, arguments: dict[str, Any], precision: str | None
) -> None:
    made = converted(catalogue, experiment=experiment(name), arguments=arguments)
    assert made.arguments.get("precision") == precision


def test_a_type_that_nobody_computes_in_is_not_taken_for_fp32(catalogue: Catalogue) -> None:
    made = converted(catalogue, experiment=experiment("sine_wave"), arguments={"--dtype": "float64"})
    with pytest.raises(InputError, match="unknown option 'dtype'"):
        resolve(catalogue.workloads["toy_lstm"].options, made.arguments, "old.json")


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"experiment": "milarun.models.vea:main"}, "matches experiment 'milarun.models.vea:main'. Known: milarun"),
        ({"experiment": 3}, "matches experiment 3"),
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
    assert made.arguments == {"batch_size": 256, "workers": 1, "max_count": True, "bogus": "x"}
    with pytest.raises(InputError, match="unknown key 'requrie'"):
        converted(catalogue, experiment="milarun.models.vae:main", partition_scheme={"type": "per-gpu"}, requrie="full")
