"""Formulas: numbers, names, + - * /, comparisons with a text and parentheses, and nothing else."""

from __future__ import annotations

import pytest

from milabench_ng.model.catalogue import Derived
from milabench_ng.model.errors import InputError
from milabench_ng.model.formula import LONGEST, choices, evaluate, names

VALUES = {"rate": 300.0, "width": 224, "height": 160, "batch_size": 12, "way": "both", "shared": True, "none": None}
NUMBERS = "rate, width, height, batch_size, shared"


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("rate", 300.0),
        ("7", 7.0),
        ("rate * width * height / 1e6", 10.752),
        ("rate / batch_size", 25.0),
        ("batch_size / rate", 0.04),
        ("2 + 3 * 4 - 10 / 5", 12.0),
        ("(2 + 3) * (4 - 10) / 5", -6.0),
        ("rate - 100 - 50", 150.0),
        ("log(rate)", 5.703782474656201),
        ("log(32768) + 2048 * 0.0002", 10.806807708399178),
        ("2 * log(log(rate) + 1)", 3.8053438311110828),
        ("width * (1 + (way == 'both'))", 448.0),
        ("width * (1 + (way == 'in') + (none == 'in'))", 224.0),
        ("width / (1 + shared * (batch_size - 1))", 224 / 12),
    ],
)
def test_values(formula: str, value: float) -> None:
    assert evaluate(formula, VALUES) == pytest.approx(value, rel=1e-15)


def test_names() -> None:
    assert names("rate * width * width / (1e6 + height)") == {"rate", "width", "height"}
    assert names("1 + 2") == frozenset()
    assert names("log(width) + log") == {"width", "log"}
    assert names("width * (way == 'both')") == {"width", "way"}
    assert choices("width * (way == 'both') + (way == 'in')") == {("way", "both"), ("way", "in")}


@pytest.mark.parametrize(
    "formula",
    [
        *("", "rate *", "rate width", "(rate", "rate\0", "\ud800", " rate", "rate; rate", "rate = 1"),
        *("rate ** 2", "rate // 2", "rate % 2", "-rate", "rate < 1", "rate if 1 else 2", "[rate]", "lambda: 1"),
        *("way == width", "way == 1", "'both' == way", "way == 'in' == 'in'", "way != 'in'", "f(way) == 'in'"),
        *(
            "__import__('os')",
            "rate.real",
            "rate[0]",
            "f(rate)",
            "log()",
            "log(1, 2)",
            "log(x=1)",
            "m.log(1)",
            "'rate'",
            "True * 2",
            "1j",
            "rate := 1",
            "...",
        ),
    ],
)
def test_everything_else_is_refused(formula: str) -> None:
    for read in (names, lambda text: evaluate(text, VALUES)):
        with pytest.raises(InputError, match=r"^formula ['\"].*['\"]: (only numbers|it cannot be read)"):
            read(formula)


def test_a_long_formula_is_refused_before_it_is_read() -> None:
    assert evaluate("+".join("1" * (LONGEST // 2)), {}) == LONGEST // 2
    with pytest.raises(InputError, match=rf"it has {LONGEST + 1} characters; at most {LONGEST} are allowed"):
        names("(" * (LONGEST + 1))


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("rate / (width - 224)", "it divides by zero"),
        ("log(width - 224)", "only positive numbers have a logarithm"),
        *((name, f"unknown name '{name}'; there are {NUMBERS}") for name in ("log", "depth", "way", "none")),
        ("(depth == 'both')", f"unknown name 'depth'; there are {NUMBERS}"),
        ("1e308 * 10", "its value is inf; it must be finite"),
        ("1e999 - 1e999", "its value is nan; it must be finite"),
    ],
)
def test_a_formula_without_a_value(formula: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(formula, VALUES)
    assert str(caught.value) == f"formula {formula!r}: {told}"


def test_a_derived_unit_is_over_all_options_but_its_rate_is_the_measured_one() -> None:
    options = {"width": 4, "scale": 0.5, "arch": "vgg16", "rate": 9.0}
    assert Derived("MPx/s", "rate * width * scale * (arch == 'vgg16')").of(10.0, options) == 20.0
