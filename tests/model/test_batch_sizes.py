"""The order in which batch sizes are tried, and the one that is found."""

from __future__ import annotations

import pytest

from milabench_ng.model.batch_sizes import largest_fitting, next_size, sizes_for
from milabench_ng.model.catalogue import AUTO, Option, Range
from milabench_ng.model.errors import InputError

OPTION = Option(name="batch_size", type="int", default=8, range=Range(ge=1), auto=True)
SIZES = sizes_for(OPTION)


def search(largest: int, sizes: tuple[int, ...] = SIZES) -> list[int]:
    """The sizes tried where all up to ``largest`` fit."""
    tried: dict[int, bool] = {}
    while (size := next_size(tried, sizes)) is not None:
        assert size not in tried
        tried[size] = size <= largest
    assert largest_fitting(tried) == max((size for size in sizes if size <= largest), default=None)
    return list(tried)


def test_the_series_is_the_powers_of_two_and_what_is_halfway() -> None:
    assert SIZES[:12] == (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    assert SIZES[-3:] == (32768, 49152, 65536)


def test_the_range_of_the_option_limits_the_series() -> None:
    limited = Option(name="batch_size", type="int", default=8, range=Range(ge=3, le=10))
    assert sizes_for(limited) == (3, 4, 6, 8, 10)
    assert search(1 << 20, (3, 4, 6, 8)) == [3, 6, 8]
    only = Option(name="batch_size", type="int", default=5, range=Range(ge=5, le=5))
    assert sizes_for(only) == (5,)


@pytest.mark.parametrize(
    ("largest", "tried"),
    [
        (0, [1]),
        (1, [1, 2]),
        (2, [1, 2, 4, 3]),
        (3, [1, 2, 4, 3]),
        (5, [1, 2, 4, 8, 6]),
        (97, [1, 2, 4, 8, 16, 32, 64, 128, 96]),
    ],
)
def test_sizes_double_until_one_does_not_fit_and_then_what_is_between_is_tried(largest: int, tried: list[int]) -> None:
    assert search(largest) == tried


def test_every_largest_size_is_found() -> None:
    for largest in (*range(300), 65535, 65536, 1 << 20):
        search(largest)


def test_a_size_that_fails_below_one_that_fits_ends_the_search() -> None:
    """As an allocation may that failed for another reason: the order is not for granted."""
    assert next_size({1: True, 2: True, 4: False, 3: True}, SIZES) is None
    assert next_size({2: False, 4: True}, SIZES) is None


def test_auto_is_a_value_of_an_option_that_takes_it() -> None:
    assert (OPTION.check(AUTO, "t"), OPTION.parse("auto", "t"), OPTION.parse("8", "t")) == (AUTO, AUTO, 8)
    assert OPTION.kind() == "int >= 1 or auto"
    plain = Option(name="batch_size", type="int", default=8, range=Range(ge=1))
    for refused in (lambda: plain.check(AUTO, "t"), lambda: plain.parse("auto", "t")):
        with pytest.raises(InputError, match=r"it takes a whole number, at least 1 \(default 8\)"):
            refused()
