"""What a workload says about itself: its signature and docstring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta
from recording import Recording, bench_on

from milabench_ng.bench import Bench, Count, DataBy, Definition, Derived, FirstLoss, Fraction, Rate, workload
from milabench_ng.bench.options import COMMON, split
from milabench_ng.bench.signature import read_options
from milabench_ng.model.catalogue import Option, parse_flags, resolve
from milabench_ng.model.errors import InputError


@workload(unit="rows", precision="bf16", bound="io", classic_factor=2.0)
def sample(
    bench: Bench,
    *,
    size: int = 3,
    rate: float = 1,
    fast: bool = False,
    kind: Literal["a", "b"] = "b",
) -> None:
    """First line.

    Options:
        size: rows of
            the table.
        rate: per second: of all.
        fast: whether.

    After it:
        kind: is not an option's meaning.
    """
    seen.append((bench, size, rate, fast, kind))


seen: list[Any] = []


def test_options_are_the_keyword_only_parameters() -> None:
    assert isinstance(sample, Definition)
    assert sample.own_options == (
        Option(name="size", type="int", default=3, meaning="rows of the table."),
        Option(name="rate", type="float", default=1.0, meaning="per second: of all."),
        Option(name="fast", type="bool", default=False, meaning="whether."),
        Option(name="kind", type="str", default="b", choices=("a", "b"), meaning=""),
    )
    assert type(sample.own_options[1].default) is float


def test_the_catalogue_has_the_common_options_with_the_workloads_precision() -> None:
    described = sample.describe("sample", "tests 1")
    assert [option.name for option in described.options] == [
        *("size", "rate", "fast", "kind"),
        *("max_count", "max_seconds", "sample_duration", "seed", "workers", "precision"),
    ]
    assert described.options[-1].default == described.precision == "bf16"
    assert described.summary == "First line."
    assert described.origin == "test_definition:sample"
    assert (described.unit, described.classic_factor, described.distributed) == ("rows", 2.0, False)
    assert described.bound == "io"
    assert len(described.source_sha256) == 64


def test_resolved_options_are_what_the_function_is_called_with() -> None:
    resolved = resolve(sample.describe("sample", "").options, {"size": 5, "seed": 7}, "here")
    common, own = split(resolved)
    assert (common.seed, common.precision, common.max_count) == (7, "bf16", 0)
    bench = bench_on(Recording())
    sample(bench, **own)
    assert seen.pop() == (bench, 5, 1.0, False, "b")


def no_default(bench: Bench, *, size: int) -> None: ...
def positional(bench: Bench, size: int = 3) -> None: ...
def strange(bench: Bench, *, size: list[int] | None = None) -> None: ...
def bare(bench: Bench, *, size=3) -> None: ...  # type: ignore[no-untyped-def]
def numbers(bench: Bench, *, size: Literal[1, 2] = 1) -> None: ...
def wrong_default(bench: Bench, *, size: int = 0.5) -> None: ...  # type: ignore[assignment]
def wrong_choice(bench: Bench, *, size: Literal["s", "l"] = "m") -> None: ...  # type: ignore[assignment]
def out_of_range(bench: Bench, *, size: Count = 0) -> None: ...
def of_words(bench: Bench, *, size: Annotated[str, Meta(ge=1)] = "x") -> None: ...
def other_meta(bench: Bench, *, size: Annotated[int, Meta(multiple_of=2)] = 2) -> None: ...
def two_metas(bench: Bench, *, size: Annotated[int, Meta(ge=1), Meta(le=3)] = 2) -> None: ...
def other_note(bench: Bench, *, size: Annotated[int, "positive"] = 2) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_default, "'size' has no default; give it one"),
        (positional, "'size' is not keyword-only; put '\\*' after the first parameter"),
        (strange, "'size' is annotated .*; use int, float, bool, str or a Literal of strings"),
        (bare, "'size' is annotated None"),
        (numbers, "'size' is annotated"),
        (wrong_default, "size is 0.5; it takes a whole number"),
        (wrong_choice, "size is 'm'; it takes one of s, l"),
        (out_of_range, "default: size is 0; it takes a whole number, at least 1"),
        (of_words, "Write a range as one Meta"),
        (other_meta, "Write a range as one Meta"),
        (two_metas, "Write a range as one Meta"),
        (other_note, "Write a range as one Meta"),
    ],
)
def test_what_cannot_be_an_option_is_named(function: Callable[..., None], message: str) -> None:
    with pytest.raises(InputError, match=f"workload test_definition:{function.__name__}: .*{message}"):
        read_options(function)


def ranged(
    bench: Bench,
    *,
    size: Count = 3,
    rate: Rate = 1,
    drop: Fraction = 0.5,
    crop: Annotated[int, Meta(ge=32, lt=4096)] = 64,
) -> None: ...


def test_a_range_stands_in_the_annotation() -> None:
    options = {option.name: option for option in read_options(ranged)}
    assert {name: option.kind() for name, option in options.items()} == {
        "size": "int >= 1",
        "rate": "float > 0",
        "drop": "float >= 0 and <= 1",
        "crop": "int >= 32 and < 4096",
    }
    for name, good, bad in (("size", 1, 0), ("rate", 1e-9, 0.0), ("drop", 1, 1.01), ("crop", 4095, 4096)):
        assert resolve([options[name]], {name: good}, "here")[name] == good
        with pytest.raises(InputError, match=f"here: {name} is {bad}; it takes {options[name].wanted()} .default"):
            resolve([options[name]], {name: bad}, "here")
    with pytest.raises(InputError, match="here: size is 0; it takes a whole number, at least 1"):
        parse_flags(list(options.values()), ["--size", "0"], "here")


def test_no_common_option_takes_a_negative_number() -> None:
    for option in COMMON("fp32"):
        if option.type in ("int", "float"):
            with pytest.raises(InputError, match=f"{option.name} is -1"):
                option.check(-1, "here")


@pytest.mark.parametrize("name", [option.name for option in COMMON("fp32")])
def test_a_common_name_cannot_be_used_again(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def mine(bench, *, {name}: int = 3): ...", scope)
    with pytest.raises(InputError, match=f"option '{name}' is common to all workloads; rename yours"):
        read_options(scope["mine"])


def test_every_common_option_has_a_meaning() -> None:
    assert all(option.meaning for option in COMMON("fp32"))


def test_an_automatic_batch_is_declared_and_needs_its_option() -> None:
    @workload(unit="rows", auto_batch=True)
    def grows(bench: Bench, *, batch_size: Count = 4, depth: Count = 2) -> None:
        """First line."""

    described = {option.name: option for option in grows.describe("grows", "").options}
    assert [name for name, option in described.items() if option.auto] == ["batch_size"]
    assert resolve(tuple(described.values()), {"batch_size": "auto"}, "here")["batch_size"] == "auto"
    assert parse_flags(tuple(described.values()), ["--batch-size", "auto"], "here") == {"batch_size": "auto"}
    with pytest.raises(InputError, match=r"depth is 'auto'; it takes a whole number, at least 1 \(default 2\)"):
        resolve(tuple(described.values()), {"depth": "auto"}, "here")

    @workload(unit="rows", auto_batch=True)
    def lacks(bench: Bench, *, depth: Count = 2) -> None:
        """First line."""

    with pytest.raises(InputError, match="auto_batch needs an option 'batch_size' of type int"):
        lacks.describe("lacks", "")


def test_an_option_may_choose_the_data_set() -> None:
    @workload(unit="rows", data=DataBy(option="source", sets={"disk": "mnist"}))
    def choosing(bench: Bench, *, source: Literal["memory", "disk"] = "memory") -> None:
        """Read a dataset, or none."""

    described = choosing.describe("choosing", "tests 1")
    assert described.data_set({"source": "disk"}) == "mnist"
    assert described.data_set({"source": "memory"}) is None


@pytest.mark.parametrize(
    "chosen", [DataBy(option="src", sets={"disk": "mnist"}), DataBy(option="source", sets={"c": "mnist"})]
)
def test_a_choice_of_data_by_no_option_or_value_is_refused(chosen: DataBy) -> None:
    @workload(unit="rows", data=chosen)
    def choosing(bench: Bench, *, source: Literal["memory", "disk"] = "memory") -> None:
        """Read a dataset, or none."""

    with pytest.raises(InputError, match="needs an option"):
        choosing.describe("choosing", "tests 1")


def pictures(bench: Bench, *, width: int = 2, scale: float = 1.0, kind: str = "a", fast: bool = False) -> None: ...


def test_derived_units_are_in_the_catalogue() -> None:
    units = (Derived("MPx/s", "rate * width * scale / 1e6"), Derived("x", "rate * workers"))
    declared = workload(unit="images", derived=units)(pictures)
    assert declared.describe("pictures", "").derived == units
    assert sample.describe("sample", "").derived == ()


@pytest.mark.parametrize(
    ("derived", "told"),
    [
        (
            [("x", "rate * height")],
            "derived unit 'x' = 'rate * height' has no value for height. Known: rate, devices, peak_tflops, ",
        ),
        (
            [("x", "kind * fast")],
            "Known: rate, devices, peak_tflops, peak_gb_per_s, peak_fp8_tflops, peak_fp4_tflops, width",
        ),
        ([("x", "rate ** 2")], "formula 'rate ** 2': only numbers, names"),
        ([("x", "rate"), ("x", "rate")], "a derived unit is declared twice for the same options: x, x"),
    ],
)
def test_a_bad_formula_is_refused_when_the_workload_is_declared(derived: list[tuple[str, str]], told: str) -> None:
    with pytest.raises(InputError) as caught:
        workload(unit="images", derived=tuple(Derived(*each) for each in derived))(pictures)
    assert told in str(caught.value)


def test_a_curve_is_over_a_numeric_option() -> None:
    good = workload(unit="images", derived=(Derived("x", "rate / width", curve_over="width"),))(pictures)
    assert good.describe("pictures", "").derived[0].curve_over == "width"
    with pytest.raises(InputError, match="'x' is a curve over 'kind', which is no numeric option"):
        workload(unit="images", derived=(Derived("x", "rate / width", curve_over="kind"),))(pictures)


def test_the_first_loss_is_over_the_workloads_own_options() -> None:
    declared = workload(unit="images", first_loss=FirstLoss("log(width) * scale"))(pictures)
    found = declared.describe("pictures", "").first_loss
    assert found is not None
    assert found.of({"width": 1, "scale": 0.5}) == 0.0
    for formula, told in (
        ("log(height)", "has no value for height. Known: width, scale, fast$"),
        ("width **", "formula"),
    ):
        with pytest.raises(InputError, match=told):
            workload(unit="images", first_loss=FirstLoss(formula))(pictures)


@pytest.mark.parametrize(
    ("declared", "most_items", "trains"),
    [
        ({}, "batch_size", True),
        ({"most_items": "2 * batch_size * devices", "trains": False}, "2 * batch_size * devices", False),
    ],
)
def test_an_item_is_one_of_the_batch_and_what_learns_trains_unless_it_says_otherwise(
    declared: dict[str, Any], most_items: str, trains: bool
) -> None:
    @workload(unit="images", **declared)
    def learns(_bench: Bench, *, batch_size: int = 8, learning_rate: float = 0.1) -> None:
        """Learn."""

    found = learns.describe("learns", "")
    assert (found.most_items, found.trains) == (most_items, trains)


def test_the_most_items_are_over_the_workloads_own_options_and_its_devices() -> None:
    assert workload(unit="images")(pictures).describe("pictures", "").most_items is None
    with pytest.raises(
        InputError, match=r"most_items = 'rate' has no value for rate. Known: devices, width, scale, fast$"
    ):
        workload(unit="images", most_items="rate")(pictures)
    with pytest.raises(InputError, match=r"no option 'width' has the choice 'large'$"):
        workload(unit="images", most_items="1 + (width == 'large')")(pictures)


def test_no_option_may_hide_the_rate() -> None:
    with pytest.raises(InputError, match=r"option 'rate' would hide the rate"):
        workload(unit="rows", derived=(Derived("x", "rate"),))(sample.function)


def test_formulas_may_use_what_the_workload_notes_and_the_devices() -> None:
    units = (Derived("GB/s", "width / 1e9 / save_s * 2 * (devices - 1) / devices"),)
    workload(unit="images", derived=units, notes=("save_s",))(pictures)
    with pytest.raises(InputError, match=r"has no value for save_s"):
        workload(unit="images", derived=units)(pictures)
    with pytest.raises(InputError, match=r"option 'width' would hide the width"):
        workload(unit="images", derived=units, notes=("width",))(pictures)


def test_a_rule_over_options_is_asked_before_the_function_runs() -> None:
    def divides(*, width: int, heads: int) -> None:
        if width % heads:
            raise InputError(f"--width {width}: no multiple of {heads}")

    ran: list[int] = []

    @workload(unit="items", fits=divides)
    def attends(_bench: Bench, *, width: int = 8, heads: int = 2, layers: int = 1) -> None:
        """Attend."""
        ran.append(width * layers * heads)

    nowhere = bench_on(Recording())
    attends(nowhere, width=8, heads=4, layers=1)
    with pytest.raises(InputError, match="--width 9: no multiple of 4"):
        attends(nowhere, width=9, heads=4, layers=1)
    assert ran == [32]
    attends.check({"width": "auto", "heads": 3, "layers": 1})  # not found yet
    with pytest.raises(InputError, match="pace_only names heads, which is no option"):
        workload(unit="rows", pace_only=("heads", "size"))(sample.function)
    with pytest.raises(InputError, match="fits takes heads, width, which is no option"):

        @workload(unit="items", fits=divides)
        def other(_bench: Bench, *, size: int = 8) -> None:
            """Do nothing of it."""
