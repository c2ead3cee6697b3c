"""Formulas: numbers, names, + - * / and parentheses, and nothing else."""

from __future__ import annotations

import pytest

from milabench_ng.model.catalogue import Derived
from milabench_ng.model.errors import InputError
from milabench_ng.model.formula import LONGEST, evaluate, names

VALUES = {"rate": 300.0, "width": 224, "height": 160, "batch_size": 12}


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
    ],
)
def test_values(formula: str, value: float) -> None:
    assert evaluate(formula, VALUES) == pytest.approx(value, rel=1e-15)


def test_names() -> None:
    assert names("rate * width * width / (1e6 + height)") == {"rate", "width", "height"}
    assert names("1 + 2") == frozenset()
    assert names("log(width) + log") == {"width", "log"}


@pytest.mark.parametrize(
    "formula",
    [
        *("", "rate *", "rate width", "(rate", "rate\0", "\ud800", " rate", "rate; rate", "rate = 1"),
        *("rate ** 2", "rate // 2", "rate % 2", "-rate", "rate < 1", "rate if 1 else 2", "[rate]", "lambda: 1"),
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
        ("log", "unknown name 'log'; there are rate, width, height, batch_size"),
        ("rate * depth", "unknown name 'depth'; there are rate, width, height, batch_size"),
        ("1e308 * 10", "its value is inf; it must be finite"),
        ("1e999 - 1e999", "its value is nan; it must be finite"),
    ],
)
def test_a_formula_without_a_value(formula: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        evaluate(formula, VALUES)
    assert str(caught.value) == f"formula {formula!r}: {told}"


def test_only_numeric_options_have_values() -> None:
    options = {"width": 4, "scale": 0.5, "arch": "vgg16", "fast": True, "rate": 9.0, "none": None}
    assert Derived("MPx/s", "rate * width * scale").of(10.0, options) == 20.0
    for name in ("arch", "fast", "none"):
        with pytest.raises(InputError, match=rf"unknown name '{name}'; there are width, scale, rate$"):
            Derived("x", f"rate * {name}").of(1.0, options)
