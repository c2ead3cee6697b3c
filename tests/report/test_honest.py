"""No rule breaks on honest folders but those that a shortened run cannot keep: tables say which, and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import honest
import msgspec
import pytest

from milabench_ng.verification.doubts.doubt import CORPUS
from milabench_ng.verification.doubts.registry import DOUBTS
from milabench_ng.verification.findings import Verification
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import load_rules
from milabench_ng.verification.verify import verify

NAMES = tuple(path.name.removesuffix(".tar.gz") for path in (*honest.MEASURED, *honest.BUNDLES))

UNKEPT = {
    "R2": "unsigned",
    "R6": "it is of another profile than the rules pin",
    "R7": "so are the weights of its suite",
    "R8": "only some tests of the profile ran (--name)",
    "R11": "it has fewer repeats and sessions than the rules ask for",
    "R15": "of so few repeats no interval, and of some tests no whole score",
    "R19": "the data of its suite are smaller than the rules ask for, or an older version did not read them twice",
    "R21": "another version or commit of mnb made it, and only that one can compare the code",
    "R33": "an older version of mnb made it than the rules ask for",
}
"""What the shipped rules ask for and a short, unsigned run of another profile cannot keep."""
UNFENCED = {"R16": "it was to run without the fence", "R22": "its records say so"}
OWN: dict[str, dict[str, str]] = {
    "cv-1xH200-20261122": {
        "R22": "its GPU during one test, and its record says so",
        "R26": "the processes of that run were on its GPU",
    },
    "interference-recom-2xH200-20261126": {"R22": "nobody's CPU time beside `process_storm`, and its records say so"},
    "modern-1xH200-20261124": {"R22": "it ran in the order of the file, and says so"},
    "quick-4xH200-20261127": {"R10": "its pictures are smaller than the rules ask for"},
    "unfenced-loader-2xH100-20261125": UNFENCED,
    "unfenced-toy_lstm-2xH100-20261125": UNFENCED,
}
"""What a folder says against itself."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return honest.unpacked(tmp_path_factory.mktemp("honest"))


@pytest.fixture(scope="module")
def unasked(corpus: dict[str, Path]) -> dict[str, Verification]:
    """What is found where nobody demands anything."""
    return {name: verify(source, Rules()) for name, source in corpus.items()}


def broken(found: Verification) -> set[str]:
    return {ruling.id for ruling in found.having("fail")}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_rule_breaks_that_nobody_asked_for(name: str, unasked: dict[str, Verification]) -> None:
    assert broken(unasked[name]) == set()
    assert len(unasked[name].having("pass")) >= 10


@pytest.mark.slow
def test_the_doubts_say_how_often_honest_folders_show_them(
    corpus: dict[str, Path], unasked: dict[str, Verification]
) -> None:
    shown = Counter(doubt.name for found in unasked.values() for doubt in found.doubts)
    assert {doubt.name: doubt.honest for doubt in DOUBTS} == {doubt.name: shown[doubt.name] for doubt in DOUBTS}
    assert len(corpus) == CORPUS


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_rules_break_only_where_the_run_falls_short(name: str, corpus: dict[str, Path]) -> None:
    excused = UNKEPT.keys() | OWN.get(name, {}).keys()
    assert broken(verify(corpus[name], load_rules("standard"))) - excused == set()


def test_a_standard_run_keeps_the_shipped_rules_but_for_its_repeats(corpus: dict[str, Path]) -> None:
    """One repeat has no interval (R15), and only the commit that ran can compare the code (R21)."""
    asked = msgspec.structs.replace(
        load_rules("standard"), repeat=1, least_sessions=1, signed=False, margin=None, marks_accepted={}
    )
    standard = corpus["standard-2xH200-20261124"]
    assert broken(verify(standard, asked)) - {"R21"} == {"R22"}
    accepted = msgspec.structs.replace(asked, marks_accepted={"prefetched items": 0.05})
    assert broken(verify(standard, accepted)) - {"R21"} == set()


@pytest.mark.slow
def test_a_run_of_some_tests_says_so_once(unasked: dict[str, Verification]) -> None:
    assert unasked["modern-fsdp3b-2xH200-20261124"].facts["tests"] == "1 of 16 tests of the profile"
