"""No rule breaks on honest folders but those that a shortened run cannot keep: tables say which, and why."""

from __future__ import annotations

from pathlib import Path

import honest
import pytest

from milabench_ng.report.verification.rules import Rules, load_rules
from milabench_ng.report.verification.verify import verify

NAMES = tuple(path.name.removesuffix(".tar.gz") for path in (*honest.MEASURED, *honest.BUNDLES))

ACCUSED: dict[str, set[str]] = {
    "modern-2xH200-20261124": {"R4"},
    "modern-fsdp3b-2xH200-20261124": {"R8"},
    "standard-2xH200-20261124": {"R4"},
    "interference-loader-2xH200-20261125": {"R8"},
    "interference-toy_lstm-2xH200-20261125": {"R8"},
    "lambda-rest-1xH200-20261123": {"R8"},
    "standard-2xH200-20261122": {"R8"},
    "standard-rest-2xH200-20261122": {"R8"},
}
"""False accusations that are still made."""

UNKEPT = {
    "R2": "nobody signed it",
    "R6": "it is of another profile than the rules pin",
    "R7": "so are the weights of its suite",
    "R8": "only some tests of the profile ran (--name)",
    "R11": "it has fewer repeats and sessions than the rules ask for",
    "R15": "of so few repeats there is no interval, and of some tests no whole score",
    "R19": "the data of its suite are smaller than the rules ask for, or an older version did not read them twice",
    "R21": "another version or commit of mnb made it, and only that one can compare the code",
    "R33": "an older version of mnb made it than the rules ask for",
}
"""What the shipped rules ask for and a short, unsigned run of another profile cannot keep."""
OWN: dict[str, dict[str, str]] = {
    "cv-1xH200-20261122": {
        "R22": "another run had its GPU during one test, and its record says so",
        "R26": "the processes of that run were on its GPU",
    },
    "modern-1xH200-20261124": {"R22": "it ran in the order of the file, and says so"},
}
"""What a folder says against itself."""
ACCUSED_BY_PROCUREMENT: dict[str, set[str]] = {name: {"R5", "R31"} for name in NAMES} | {
    "standard-2xH200-20261124": {"R4", "R31"},
    "modern-2xH200-20261124": {"R4", "R5", "R31"},
    "standard-2xH200-20261122": {"R31"},
    "standard-rest-2xH200-20261122": {"R31"},
}
"""False accusations of rules/procurement.json that are still made."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return honest.unpacked(tmp_path_factory.mktemp("honest"))


def broken(source: Path, rules: Rules) -> set[str]:
    return {ruling.id for ruling in verify(source, rules).having("fail")}


@pytest.mark.parametrize("name", NAMES)
def test_no_rule_breaks_that_nobody_asked_for(name: str, corpus: dict[str, Path]) -> None:
    assert broken(corpus[name], Rules()) == ACCUSED.get(name, set())


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_rules_break_only_where_the_run_falls_short(name: str, corpus: dict[str, Path]) -> None:
    excused = UNKEPT.keys() | OWN.get(name, {}).keys()
    assert broken(corpus[name], load_rules("procurement")) - excused == ACCUSED_BY_PROCUREMENT.get(name, set())
