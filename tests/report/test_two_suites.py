"""A profile with tests of two suites: each is scored by itself, from the report to the tender."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path
from typing import Any

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU
from printing import text_of

from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.analysis.summary.marked import Marked
from milabench_ng.analysis.summary.provenance import ReducedFolder, suites_of
from milabench_ng.analysis.summary.suites import by_suite
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.next_step import next_step
from milabench_ng.present.render.tender_facts import tender_facts
from milabench_ng.present.render.tender_tables import tender_document, tender_sections
from milabench_ng.present.writers import write, write_report
from milabench_ng.records.manifest import Manifest
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, make_report
from milabench_ng.tender.acceptance import accept
from milabench_ng.tender.offers import compare_bids
from milabench_ng.tender.tender import Tender
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.verified_results import Demands, check_results
from milabench_ng.verification.verify import verify

WEIGHTS = {
    "standard": {"standard.vae": 8.0, "standard.toy_reg": 4.0},
    "mine": {"mine.convnet": 3.0, "mine.dcgan": 1.0},
}
MARK = Marked(kind="resumed", what="hot", tests=("standard.vae",), devices=(), worst=None, limit=None, text="throttled")
NAMES = {label.partition(".")[2]: suite for suite, labels in WEIGHTS.items() for label in labels}


def two_suites(repeat: int = 5, nonce: str | None = None) -> make_records.Plan:
    return make_records.plan("both", dict.fromkeys(NAMES, PER_GPU), 2, repeat, nonce=nonce, suites=NAMES)


def faster_in_mine(launch: make_records.Launch, rank: int) -> float:
    """Faster in the suite mine, half as fast in the standard one."""
    return (1.5 if launch.suite == "mine" else 0.5) * make_records.steady(launch, rank)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two result folders, their weights, and the reference of the suite mine."""
    here = tmp_path_factory.mktemp("suites")
    make_records.write_run(here / "one", two_suites(), slices=24)
    make_records.write_run(here / "other", two_suites(nonce="n2"), faster_in_mine, 24, "other")
    weights = {label: {"weight": weight} for labels in WEIGHTS.values() for label, weight in labels.items()}
    (here / "weights.json").write_text(json.dumps(weights))
    return here


def reported(place: Path, *compare_to: str, price: float | None = None) -> Report:
    return make_report(
        place / "one", weights=place / "weights.json", compare_to=compare_to, options=ReportOptions(price=price)
    )


def test_the_suites_have_one_order_whatever_the_nonce() -> None:
    first = {nonce: two_suites(1, nonce).batches[0].launches[0].suite for nonce in ("a", "n2")}
    assert first == {"a": "mine", "n2": "standard"}
    for nonce in first:
        manifest = msgspec.convert(make_records.manifest(two_suites(1, nonce)), Manifest)
        assert suites_of(ReducedFolder(source="here", results=(), manifests=(manifest,))) == ("mine", "standard")


def test_each_suite_has_the_score_that_it_has_alone(place: Path) -> None:
    made = reported(place)
    assert made.score is None
    assert made.exit_code == 0
    summary = load(place / "one")
    assert (summary.suite, summary.suites) == ("both", ("mine", "standard"))
    for part in made.suites:
        suite = part.summary.suite
        alone = make_records.plan(suite, {name: PER_GPU for name, of in NAMES.items() if of == suite}, 2, 5)
        folder = place / f"alone-{suite}"
        make_records.write_run(folder, alone, slices=24)
        assert part.score == score(load(folder), WEIGHTS[suite])
        assert part.score.status == "complete"
    assert [line.scored.test for line in made.lines] == [
        "standard.vae",
        "standard.toy_reg",
        "mine.convnet",
        "mine.dcgan",
    ]
    assert [line.scored.weight for line in made.lines] == [8.0, 4.0, 3.0, 1.0]


def test_the_first_screen_has_the_scores_and_ratios_side_by_side(place: Path) -> None:
    made = reported(place, str(place / "other"), price=1000.0)
    names = [answer.name for answer in first_screen(made).answers]
    assert names == [
        "Node",
        *("vs other mine", "Score mine", "Price mine"),
        *("vs other standard", "Score standard", "Price standard"),
        "Valid",
    ]
    ratios = [part.comparisons[0].ratio for part in made.suites]
    assert ratios == pytest.approx([1 / 1.5, 2.0], rel=0.01)
    assert all(line.compared[0] is not None for line in made.lines)
    assert "NO SCORE" not in [alarm.name for alarm in first_screen(made).alarms]
    without = first_screen(make_report(place / "one"))  # of these tests, the shipped weights know none of mine
    assert [alarm.text.partition(": ")[0] for alarm in without.alarms if alarm.name == "NO SCORE"] == ["standard"]
    (told,) = (answer.parts for answer in without.answers if answer.name == "Score mine")
    assert told[0].startswith("suite 'mine' has no official weights"), "not by design, as in shipped suites"


@pytest.mark.parametrize("form", ["table", "markdown", "csv", "json"])
def test_every_form_names_both_suites(place: Path, form: str) -> None:
    text = text_of(write_report, reported(place, str(place / "other")), form)
    if form == "json":
        found = json.loads(text)
        assert found["score"] is None
        assert [(one["suite"], one["score"]["status"]) for one in found["suites"]] == [
            ("mine", "complete"),
            ("standard", "complete"),
        ]
    elif form == "csv":
        rows = list(csv.DictReader(StringIO(text)))
        assert [(row["test"], row["weight"], row["score status"]) for row in rows][2:] == [
            ("mine.convnet", "3.0", "complete"),
            ("mine.dcgan", "1.0", "complete"),
        ]
    else:
        assert "score of mine" in text
        assert "ratio of standard to" in text


def test_a_bundle_claims_each_score_and_holds_what_they_rest_on(place: Path, tmp_path: Path) -> None:
    made = pack(place / "one", tmp_path / "b.tar.gz", weights=place / "weights.json").path
    held = tampering.members(made)
    claim = json.loads(held["bundle.json"])["claim"]
    assert (claim["status"], claim["per_device"]) == (None, None)
    assert {suite: one["status"] for suite, one in claim["suites"].items()} == dict.fromkeys(WEIGHTS, "complete")
    assert {"weights-standard.json", "weights-mine.json"} < held.keys()
    found = verify(made, Rules(margin=0.5))
    assert [ruling.id for ruling in found.rulings if ruling.result == "fail"] == []
    assert "mine: complete" in found.facts["score"]
    content = json.loads(held["bundle.json"])
    content["claim"]["suites"]["mine"]["per_device"] *= 1.01
    held["bundle.json"] = msgspec.json.encode(content)
    raised = verify(tampering.repack(made, held), Rules())
    assert [ruling.id for ruling in raised.rulings if ruling.result == "fail"] == ["R3"]


def test_rules_pin_the_weights_of_each_suite_and_the_margin_of_each_score(place: Path, tmp_path: Path) -> None:
    made = pack(place / "one", tmp_path / "b.tar.gz", weights=place / "weights.json").path
    pins = {"standard": Pin(name="standard"), "mine": Pin(sha256="0" * 64)}
    rulings = {one.id: one.reasons for one in verify(made, Rules(suite_weights=pins, margin=1e-9)).rulings}
    assert [reason.split(" of SHA")[0] for reason in rulings["R7"]] == [
        "the weights of mine are",
        "the weights of standard are",
    ]
    assert [reason.split(" is known")[0] for reason in rulings["R15"]] == [
        "the score of mine",
        "the score of standard",
    ]


def test_weights_that_only_the_sender_knows_decide_nothing(place: Path, tmp_path: Path) -> None:
    """No weights of mine are shipped, and none are demanded: R15 asks for no score of it."""
    made = pack(place / "one", tmp_path / "b.tar.gz", weights=place / "weights.json").path
    for pins, asked in (({}, ["standard"]), ({"mine": Pin(sha256="0" * 64)}, ["mine", "standard"])):
        found = verify(made, Rules(suite_weights=pins, margin=1e-9))
        (reasons,) = [one.reasons for one in found.rulings if one.id == "R15"]
        assert [reason.split(" is known")[0] for reason in reasons] == [f"the score of {suite}" for suite in asked]
        mine = found.facts["weights"].split("; standard: ")[0]
        assert ("the sender's own" in mine) is not bool(pins)


def test_the_weights_that_a_buyer_gives_are_held_against_those_of_the_bundle(place: Path, tmp_path: Path) -> None:
    """They are not read further: the bundle says what scores it."""
    made = pack(place / "one", tmp_path / "b.tar.gz", weights=place / "weights.json").path
    nowhere = {"*": {"reference": "nowhere", "sha256": "0" * 64}, "mine.convnet": {"weight": 3}}
    file = tmp_path / "w.json"
    file.write_text(json.dumps(nowhere))
    rulings = {one.id: one.reasons for one in verify(made, Rules(), weights=file).rulings}
    assert [reason.split(" of SHA")[0] for reason in rulings["R7"]] == ["the weights of mine are"]
    file.write_text('{"other.convnet": {"weight": 3}}')
    with pytest.raises(InputError, match=r"other\.convnet: the suites are mine and standard"):
        verify(place / "one", Rules(), weights=file)


def test_bids_are_ranked_by_each_suite(place: Path, tmp_path: Path) -> None:
    bids = {name: {"results": str(place / name), "price": 1000.0} for name in ("one", "other")}
    file = tmp_path / "bids.json"
    asked = {"reference": str(place / "one"), "weights": str(place / "weights.json"), "bids": bids}
    file.write_text(json.dumps(asked))
    made = compare_bids(file)
    assert [one.suite for one in made.each] == ["mine", "standard"]
    ratios = [{row.name: row.ratio for row in one.rows} for one in made.each]
    assert ratios[0] == pytest.approx({"one": 1.0, "other": 1.5}, rel=0.01)
    assert ratios[1] == pytest.approx({"one": 1.0, "other": 0.5}, rel=0.01)
    for form in ("table", "markdown", "csv", "json"):
        assert "mine" in text_of(write, tender_document(made), form)
    assert call(["bids", str(file), "--html", str(tmp_path / "bids.html")]) == made.exit_code
    assert "bids by mine and by standard" in (tmp_path / "bids.html").read_text()
    file.write_text(json.dumps(asked | {"reference": "h200"}))
    with pytest.raises(InputError, match="the reference h200 has no mine"):
        compare_bids(file)


def tender_of(place: Path, file: Path, **terms: float) -> Tender:
    price = {"price": 1000.0, "watts_load": 500.0, "watts_idle": 100.0}
    bids = {name: {"results": str(place / name), **price} for name in ("one", "other")}
    asked = {"reference": str(place / "one"), "weights": str(place / "weights.json"), "bids": bids}
    file.write_text(json.dumps(asked | terms))
    return compare_bids(file)


def test_what_decides_in_each_suite_is_side_by_side(place: Path, tmp_path: Path) -> None:
    """With a tariff that is the cost over the years; marks count where they are."""
    made = tender_of(place, tmp_path / "bids.json", tariff_per_kwh=0.2)
    assert all(one.by_ownership for one in made.each)
    mine, standard = made.each
    marked = [msgspec.structs.replace(row, marks=(MARK,), why="no value") for row in standard.rows]
    made = msgspec.structs.replace(mine, further=(msgspec.structs.replace(standard, rows=tuple(marked)),))
    found = {row["bid"]: row for row in csv.DictReader(StringIO(text_of(write, tender_document(made), "csv")))}
    for one in made.each:
        for row in one.rows:
            cost = found[row.name][f"{one.suite}: cost per reference node ($)"]
            assert float(cost) == pytest.approx(row.owned_per_reference)
            assert found[row.name][f"{one.suite}: marked"] == ("marked" if row.marks else "no")
            assert found[row.name][f"{one.suite}: marks"] == ("throttled" if row.marks else "")
            assert found[row.name][f"{one.suite}: why no ratio or interval"] == row.why
    headers = [heading.title for heading in tender_sections(made)[0].headings]
    assert "mine: cost per reference node" in headers
    assert not {"standard: warnings", "standard: marks"} & {*headers}  # the lines above the table say it


def test_a_fact_told_twice_in_one_suite_is_not_one_of_both(place: Path, tmp_path: Path) -> None:
    mine, standard = tender_of(place, tmp_path / "bids.json").each
    rows = [msgspec.structs.replace(row, marks=(MARK, MARK)) for row in standard.rows]
    marked = msgspec.structs.replace(standard, rows=tuple(rows))
    names = [fact.name for fact in tender_facts(msgspec.structs.replace(mine, further=(marked,)))]
    assert [name for name in names if name.startswith("mark")] == ["mark, standard"] * 2


def test_a_delivered_node_must_keep_every_score(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = ["--weights", str(place / "weights.json"), "--format", "json", "--guarantee", "0.97"]
    assert call(["accept", str(place / "one"), str(place / "other"), *weights]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["score"]["name"], found["score"]["verdict"]) == ("score of mine", "keeps")
    assert [(one["name"], one["verdict"]) for one in found["further_scores"]] == [("score of standard", "breaks")]


@pytest.mark.parametrize(
    ("weights", "slow", "verdict", "scores"),
    [
        (WEIGHTS, 1.0, "keeps", ["keeps", "keeps"]),
        (WEIGHTS | {"mine": None}, 1.0, "keeps", ["keeps", "no score"]),
        (WEIGHTS | {"mine": None}, 0.5, "breaks", ["keeps", "no score"]),  # a test of it does
        (dict.fromkeys(WEIGHTS), 1.0, "inconclusive", ["no score", "no score"]),
        (WEIGHTS | {"mine": {"mine.vit": 1.0}}, 1.0, "inconclusive", ["keeps", "inconclusive"]),
    ],
)
def test_a_suite_without_weights_has_no_score_to_keep(
    weights: dict[str, Any], slow: float, verdict: str, scores: list[str], tmp_path: Path
) -> None:
    """Its tests can break the guarantee; without any score, nothing can keep it."""

    def loaded(name: str, convnet: float) -> Summary:
        def rate(launch: make_records.Launch, _: int) -> float:
            noise = 1e6 * (1 + 0.002 * (-1) ** launch.run)
            return noise * (convnet if launch.test == "mine.convnet" else 1.0)

        make_records.write_run(tmp_path / name, two_suites(6), rate, 30, name)
        return load(tmp_path / name)

    made = accept(loaded("bid", 1.0), loaded("delivered", slow), weights, 0.6)
    assert (made.verdict, [one.verdict for one in made.scores]) == (verdict, scores)
    told = next(one.why for one in made.scores if one.name == "score of mine")
    assert told == ("no weights: judged by its tests alone" if scores[1] == "no score" else told)
    assert bool(made.characteristic) == ("keeps" in scores)


def test_a_baseline_of_both_suites_reads_as_it_was_written(place: Path) -> None:
    summary = load(place / "one")
    stored = decode_summary(encode_summary(summary).encode(), "stored.json")
    assert [part.tests for part in by_suite(stored)] == [part.tests for part in by_suite(summary)]
    for suites in (("standard", "mine", "cv"), ("standard",)):
        with pytest.raises(InputError, match="not a summary that mnb wrote"):
            decode_summary(encode_summary(msgspec.structs.replace(summary, suites=suites)).encode(), "s.json")


def test_a_baseline_of_another_suite_is_refused(place: Path) -> None:
    with pytest.raises(
        InputError, match=r"--compare unet3d-h200: it ran unet3d, and .*one mine and standard; name one"
    ):
        reported(place, "unet3d-h200")
    mine, standard = reported(place, "v100").suites
    assert (len(mine.comparisons), len(standard.comparisons)) == (0, 1)


def test_what_to_do_next_names_a_baseline_that_did_the_same_work(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = reported(place)  # its tests of `standard` are not those of the shipped baselines
    assert next_step(made).endswith("--compare OTHER")
    monkeypatch.setattr("milabench_ng.present.render.next_step.comparable_baseline", lambda _: "v100")
    assert next_step(made).endswith("--compare v100")


def test_the_page_has_both_suites(place: Path, tmp_path: Path) -> None:
    given = [str(place / "one"), "--weights", str(place / "weights.json"), "--compare", str(place / "other")]
    assert call(["report", *given, "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(text in page for text in ("Score standard", "Score mine", "score of mine"))


def test_a_folder_of_several_suites_is_whole(place: Path) -> None:
    found = check_results(str(place / "one"), Demands())
    assert found.verification.passed
