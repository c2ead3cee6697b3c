"""Options: from profiles and from the command line, checked against what a workload takes."""

from __future__ import annotations

import math

import pytest

from milabench_ng.model.catalogue import (
    Catalogue,
    DataBy,
    DataSetInfo,
    Option,
    Workload,
    describe,
    parse_flags,
    resolve,
)
from milabench_ng.model.errors import InputError

OPTIONS = (
    Option(name="batch_size", type="int", default=128, meaning="images per step"),
    Option(name="learning_rate", type="float", default=0.1, meaning="of SGD"),
    Option(name="shuffle", type="bool", default=True),
    Option(name="arch", type="str", default="resnet18", choices=("resnet18", "resnet50")),
    Option(name="note", type="str", default=""),
)
DEFAULTS = {"batch_size": 128, "learning_rate": 0.1, "shuffle": True, "arch": "resnet18", "note": ""}


def test_arguments_replace_defaults_and_an_int_is_a_float() -> None:
    assert resolve(OPTIONS, {}, "here") == DEFAULTS
    resolved = resolve(OPTIONS, {"--batch-size": 64, "learning_rate": 1}, "here")
    assert resolved == DEFAULTS | {"batch_size": 64, "learning_rate": 1.0}
    assert type(resolved["learning_rate"]) is float


def test_an_option_is_suggested_as_it_is_written_there() -> None:
    with pytest.raises(InputError, match=r"'batch_sise' \(did you mean 'batch_size'\?\)$"):
        resolve(OPTIONS, {"batch_sise": 1}, "p.json")
    with pytest.raises(InputError, match=r"'--batch-sise' \(did you mean '--batch-size'\?\)$"):
        parse_flags(OPTIONS, ["--batch-sise", "1"], "p.json")


def test_an_unknown_option_lists_the_valid_ones_with_their_defaults() -> None:
    for call in (
        lambda: resolve(OPTIONS, {"lr": 0.1}, "p.json"),
        lambda: parse_flags(OPTIONS, ["--lr", "1"], "p.json"),
    ):
        with pytest.raises(InputError, match=r"p\.json: unknown option '(--)?lr'") as caught:
            call()
        for line in (
            "--batch-size int (default 128)  images per step",
            "--learning-rate float (default 0.1)  of SGD",
            "--arch one of resnet18, resnet50 (default 'resnet18')",
        ):
            assert line in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", "64"),
        ("batch_size", 64.0),
        ("batch_size", True),
        ("batch_size", None),
        ("batch_size", 2**63),
        ("learning_rate", "fast"),
        ("learning_rate", False),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        pytest.param("learning_rate", 10**400, id="learning_rate-huge"),
        ("shuffle", 1),
        ("arch", "vgg"),
        ("arch", 50),
        ("arch", ["resnet18"]),
    ],
)
def test_an_ill_typed_argument_is_named_with_its_default(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"t\.json: {name}\b.*\(default {DEFAULTS[name]!r}\)"):
        resolve(OPTIONS, {name: value}, "t.json")


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", -(2**63)), ("batch_size", 2**63 - 1), ("note", "any thing")]
)
def test_what_just_fits(name: str, value: object) -> None:
    assert resolve(OPTIONS, {name: value}, "here")[name] == value


def test_an_option_twice_is_an_error_in_either_spelling() -> None:
    with pytest.raises(InputError, match="'batch_size' is given twice"):
        resolve(OPTIONS, {"batch_size": 1, "--batch-size": 1}, "here")
    for tokens in (["--batch-size", "1", "--batch_size=2"], ["--shuffle", "--no-shuffle"]):
        with pytest.raises(InputError, match="is given twice"):
            parse_flags(OPTIONS, tokens, "here")


def test_flags() -> None:
    tokens = ["--batch-size", "64", "--learning-rate=1e-3", "--no-shuffle", "--arch", "resnet50", "--note="]
    assert parse_flags(OPTIONS, tokens, "here") == {
        "batch_size": 64,
        "learning_rate": 0.001,
        "shuffle": False,
        "arch": "resnet50",
        "note": "",
    }
    assert parse_flags(OPTIONS, [], "here") == {}


@pytest.mark.parametrize(
    ("tokens", "value"),
    [(["--shuffle"], True), (["--no-shuffle"], False), (["--shuffle=no"], False), (["--shuffle=TRUE"], True)],
)
def test_bools(tokens: list[str], value: bool) -> None:
    assert parse_flags(OPTIONS, tokens, "here") == {"shuffle": value}


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["--batch-size"], r"--batch-size needs a value: a whole number \(default 128\)"),
        (["--batch-size", "--shuffle"], r"--batch-size '--shuffle'; it takes a whole number"),
        (["--batch-size", "6.5"], r"--batch-size '6.5'; it takes a whole number \(default 128\)"),
        (["--batch-size="], "--batch-size ''"),
        (["--learning-rate", "nan"], "expected a finite number"),
        (["--arch", "vgg"], "one of resnet18, resnet50"),
        (["--shuffle=perhaps"], "it takes true or false"),
        (["--no-shuffle=true"], "unknown option '--no-shuffle=true'"),
        (["--no-batch-size", "5"], "unknown option '--no-batch-size'"),
        (["batch-size", "5"], "unknown option 'batch-size'"),
        (["--"], "unknown option '--'"),
    ],
)
def test_wrong_flags(tokens: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_flags(OPTIONS, tokens, "after --")


def test_an_option_may_itself_begin_with_no() -> None:
    options = (Option(name="no_render", type="bool", default=False), Option(name="render", type="bool", default=True))
    assert parse_flags(options, ["--no-render"], "here") == {"no_render": True}
    assert parse_flags(options, ["--no-no-render"], "here") == {"no_render": False}


def test_descriptions_end_without_blanks() -> None:
    assert describe(OPTIONS).splitlines()[2] == "  --shuffle bool (default True)"


def test_an_unknown_workload_lists_those_there_are() -> None:
    with pytest.raises(InputError, match=r"unknown workload 'vea'.*package\.module:function"):
        Catalogue(workloads={}, data_sets={}).workload("vea", "here")


def test_with_classic_data_a_workload_reads_the_classic_form_of_its_set_where_there_is_one() -> None:
    def reads(data: str | DataBy | None) -> Workload:
        return Workload(
            name="one",
            unit="images",
            bound=None,
            data=data,
            options=(),
            precision="fp32",
            distributed=False,
            cpu_only=False,
            requires=(),
            missing=(),
            extra=None,
            ram_gib=None,
            classic_factor=1.0,
            legacy_2020=(),
            description="",
            origin="a:b",
            package="a",
            source_modules=(),
            source_sha256="",
        )

    def data_set(name: str, classic: str | None = None) -> DataSetInfo:
        return DataSetInfo(
            name=name, folder=name, scalable=True, classic=classic, files=1, bytes=1, description="", origin="a:B"
        )

    catalogue = Catalogue(
        workloads={
            "photos": reads("photos"),
            "digits": reads("digits"),
            "none": reads(None),
            "some": reads(DataBy(option="source", sets={"far": "photos", "near": "digits"})),
        },
        data_sets={one.name: one for one in (data_set("photos", "noise"), data_set("noise"), data_set("digits"))},
    )
    found = catalogue.classic()
    assert {name: one.data for name, one in found.workloads.items()} == {
        "photos": "noise",
        "digits": "digits",
        "none": None,
        "some": DataBy(option="source", sets={"far": "noise", "near": "digits"}),
    }
    some = found.workloads["some"]
    assert [some.data_set({"source": value}) for value in ("far", "near", "nowhere")] == ["noise", "digits", None]
    assert some.data_sets == {"noise": "--source far", "digits": "--source near"}
    assert found.workloads["photos"].data_set({}) == "noise"
    assert found.data_sets == catalogue.data_sets
    assert found.classic() == found
