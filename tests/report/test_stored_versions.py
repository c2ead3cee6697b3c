"""Results that earlier versions wrote, with what those versions printed of them: today's code says the same.

Each folder below ``tests/data/stored`` was made by the real ``mnb`` of its version and is never edited: a bundle of two
tests, twice, on two CPU tenants, and the output of ``report``, ``summary``, ``verify`` and ``baseline build``.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from printing import text_of
from tampering import changing

from milabench_ng.analysis.summary.folder import encode_summary, load, load_baseline
from milabench_ng.analysis.summary.summary import SUMMARY_SCHEMA
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.verification_tables import verification_document
from milabench_ng.present.writers import write, write_report
from milabench_ng.records.ledger import LEDGER_SCHEMA
from milabench_ng.records.origin import RECORD_SCHEMA
from milabench_ng.report.reporting import make_report
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verified_results import Demands, check_results
from milabench_ng.verification.verify import verify

STORED = Path(__file__).parents[1] / "data" / "stored"
VERSIONS = ("0.2.0",)
RESULTS = Path("results")
BUNDLE = Path("run.bundle.tar.gz")

At = tuple[str | int, ...]
"""The place of a value in JSON: keys and indices."""

STATISTICS = {
    ("score", "interval"): "of the score without the bias of few repeats, instead of around the printed one",
    ("sub_scores", "*", "interval"): "as that of the score",
    ("gpus", "overall"): "slow beyond doubt by a t test, instead of far from the median in robust deviations",
    ("schema",): "the JSON of `mnb report` is schema 3",
    ("tests", "*", "interval"): "of five repeats or more; below, the range of the repeats",
    ("tests", "*", "why"): "says so",
    ("score", "why"): "the same",
    ("sub_scores", "*", "name"): "in plain English",
    ("sub_scores", "*", "why"): "the same",
    ("tests", "*", "estimated"): "whether it is, instead of the estimate",
    ("tests", "*", "band"): "bands of estimates are made by a script",
}
"""What is defined anew since 0.2.0."""

VERDICTS = {
    ("facts", "profile"): "says whether it is the one that is shipped now",
    ("facts", "attempts"): "one session is no sessions",
    ("facts", "launches"): "counts launches, not records",
    ("facts", "score"): "has the digits of mnb report",
    ("verdict",): "counts the rules, and says whether it is signed",
    ("rulings", "*", "basis"): "proven is called recomputed",
    ("facts", "signed by"): "in plain English",
    ("rulings", "*", "title"): "in plain English; R4, R5 and R25 look at something else",
    ("rulings", "*", "reasons"): "in plain English",
    ("rulings", 3): "what R4 said of windows R35 says now",
    ("rulings", 7): "tests that are not in the plan break R8 only where the profile is required",
}
"""What verification says in other words, or by other rules, since 0.2.0."""
_RESULTS = {"unknown": "open", "off": "not required"}
"""What results of rules were called in 0.2.0."""


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stored version, with its bundle, and its result folder as it was, in the current folder."""
    name = str(request.param)
    unpack(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return name


def unpack(name: str, place: Path) -> None:
    content = (STORED / name / BUNDLE).read_bytes()
    place.mkdir(exist_ok=True)
    (place / BUNDLE).write_bytes(content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(place, filter="data")


def leaves(value: Any, at: At = ()) -> Iterator[tuple[At, Any]]:
    """Every number, text, null and empty list or object in ``value``, with its place."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [leaf for key, each in inside for leaf in leaves(each, (*at, key))]
    yield from found or [(at, value)]


def is_below(at: At, pattern: At) -> bool:
    return len(at) >= len(pattern) and all(want in ("*", have) for want, have in zip(pattern, at, strict=False))


def said_otherwise(version: str, printed: str, today: str) -> set[At]:
    """Where what a version printed has another value today, or none. What it did not print is new and no matter."""
    now = dict(leaves(json.loads(today)))
    before = leaves(json.loads((STORED / version / printed).read_bytes()))
    words = ((at, _RESULTS.get(value, value) if at[-1:] == ("result",) else value) for at, value in before)
    return {at for at, value in words if at not in now or now[at] != value}


def reported(source: Path) -> str:
    return text_of(write_report, make_report(source), "json")


def verified(source: Path) -> str:
    return text_of(write, verification_document(verify(source, Rules())), "json")


def renewed(found: set[At]) -> bool:
    """Whether all of it is what was defined anew since."""
    return all(any(is_below(at, each) for each in STATISTICS) for at in found)


def test_report_prints_the_same(version: str) -> None:
    found = said_otherwise(version, "report.json", reported(RESULTS))
    assert not found or renewed(found), found


def test_summary_holds_the_same(version: str) -> None:
    found = said_otherwise(version, "summary.json", encode_summary(load(RESULTS)))
    assert not found or renewed(found), found


def test_verify_finds_the_same_in_the_folder_and_in_the_bundle(version: str) -> None:
    for stored, source in (("verify-folder.json", RESULTS), ("verify.json", BUNDLE)):
        found = said_otherwise(version, stored, verified(source))
        assert all(any(is_below(at, each) for each in VERDICTS) for at in found), found
        assert any(is_below(at, ("rulings", "*", "basis")) for at in found)


@pytest.mark.parametrize("stored", ["summary.json", "baseline.json"])
def test_a_stored_summary_is_read_with_all_its_numbers(version: str, stored: str) -> None:
    read = load_baseline(str(STORED / version / stored))
    found = said_otherwise(version, stored, encode_summary(read))
    assert not found or renewed(found), found
    assert make_report(STORED / version / stored).score == make_report(RESULTS).score


@pytest.mark.usefixtures("version")
def test_a_bundle_has_the_summary_of_its_folder() -> None:
    assert check_results(str(BUNDLE), Demands()).summary.tests == load(RESULTS).tests


def test_sentences_of_marks_stay_what_they_were(version: str) -> None:
    before = json.loads((STORED / version / "report.json").read_bytes())["marks"]
    now = json.loads(reported(RESULTS))["marks"]
    texts = list(before) if isinstance(before, dict) else [mark["text"] for mark in before]
    assert [mark["text"] for mark in now] == texts != []


@pytest.mark.parametrize("pattern", STATISTICS, ids=str)
def test_what_is_listed_as_renewed_really_is(pattern: tuple[str, ...], tmp_path: Path, monkeypatch: Any) -> None:
    found: set[At] = set()
    for version in VERSIONS:
        unpack(version, tmp_path / version)
        monkeypatch.chdir(tmp_path / version)
        found |= said_otherwise(version, "report.json", reported(RESULTS))
        found |= said_otherwise(version, "summary.json", encode_summary(load(RESULTS)))
    assert any(is_below(at, pattern) for at in found)


def rewrite(path: Path, schema: int, *keys: str) -> None:
    """Make the JSON file one of another schema."""
    with changing(path) as whole:
        inner = whole
        for key in keys:
            inner = inner[key]
        inner["schema"] = schema


@pytest.mark.usefixtures("version")
def test_a_newer_record_is_refused_and_counts_as_failed() -> None:
    path = next(RESULTS.glob("quick.vae.J0.0.*"))
    rewrite(path, RECORD_SCHEMA + 1, "mnb")
    (failed,) = load(RESULTS).tests["quick.vae"].failed
    assert f"record schema {RECORD_SCHEMA + 1}: this is mnb" in failed.detail
    assert "Update mnb" in failed.detail
    reasons = [reason for ruling in verify(RESULTS, Rules()).rulings if ruling.id == "R12" for reason in ruling.reasons]
    assert any("Update mnb" in reason and path.name in reason for reason in reasons)


@pytest.mark.usefixtures("version")
def test_a_newer_manifest_is_refused() -> None:
    rewrite(RESULTS / "run.json", 99)
    for read in (load, lambda folder: verify(folder, Rules())):
        with pytest.raises(InputError, match=r"run\.json: .*manifest schema 99: this is mnb .*. Update mnb"):
            read(RESULTS)


@pytest.mark.parametrize(
    ("schema", "told"), [(SUMMARY_SCHEMA + 1, r".*. Update mnb"), (1, r"made by mnb 0\.1, .*\. Use that version")]
)
def test_a_summary_of_another_schema_is_refused(version: str, schema: int, told: str) -> None:
    path = Path("summary.json")
    path.write_bytes((STORED / version / path).read_bytes())
    rewrite(path, schema)
    with pytest.raises(InputError, match=rf"^summary\.json: summary schema {schema}: {told}$"):
        load_baseline(str(path))


@pytest.mark.usefixtures("version")
def test_a_newer_ledger_is_named() -> None:
    path = RESULTS / "ledger.jsonl"
    old, new = (f'"event":"Started","schema":{number}'.encode() for number in (1, LEDGER_SCHEMA + 1))
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    (ruling,) = [ruling for ruling in verify(RESULTS, Rules()).rulings if ruling.id == "R13"]
    assert f"ledger schema {LEDGER_SCHEMA + 1}: " in ruling.reasons[0]
    assert ruling.reasons[0].endswith(". Update mnb")
