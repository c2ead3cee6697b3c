"""What a user may have meant."""

from __future__ import annotations

import pytest

from milabench_ng.model.similar import did_you_mean

NAMES = (
    "vae",
    "loader",
    "v100",
    "lambda-v100",
    "lambda-h100",
    "lambda-h100-pcie",
    "quick",
    "interference-quick",
    "--per-gpu",
)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("quik", "quick"),
        ("h100", "lambda-h100"),  # the shortest name that holds it
        ("V100", "v100"),
        ("--gpu", "--per-gpu"),
        ("vea", "vae"),  # too short to be similar, but of the same letters
        ("laoder", "loader"),
        ("k", ""),  # too little to tell
        ("sausage", ""),
    ],
)
def test_the_name_that_was_meant(word: str, meant: str) -> None:
    assert did_you_mean(word, NAMES) == (f" (did you mean {meant!r}?)" if meant else "")
