"""What `mnb accept` and `mnb bids` decide on is verified first, as `mnb verify` does it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NoReturn

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU
from slice_attacks import multiplied
from tampering import Tamper, changing
from tender_attacks import TWICE
from test_money import node

from milabench_ng.analysis.summary.folder import encode_summary
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.alarms import alarms
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import build_report, make_report
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.checks.registry import RULES
from milabench_ng.verification.doubts.registry import DOUBTS
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.signing import make_key
from milabench_ng.verification.verified_results import Demands, check_results, require_different, same_runs
from milabench_ng.verification.verify import verify

WEIGHTS = {"standard.vae": {"weight": 8}, "standard.convnet": {"weight": 4}}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that keeps all rules, two keys, and a file that allows both."""
    place = tmp_path_factory.mktemp("checked")
    whole = make_records.plan("standard", {"vae": PER_GPU, "convnet": PER_GPU}, 2, 5)
    make_records.write_run(place / "results", whole, slices=24)
    make_records.write_run(place / "delivered", whole, lambda *at: 0.99 * make_records.steady(*at), 25, run_id="other")
    (place / "weights.json").write_text(json.dumps(WEIGHTS))
    allowed = []
    for name in ("a", "b"):
        allowed.append(f'{name}@example.org namespaces="mnb" {make_key(place / name, name)}')
    (place / "allowed").write_text("\n".join(allowed))
    return place


@pytest.fixture
def place(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "place"))


def edited(place: Path) -> Path:
    """A bundle with more items than were signed."""
    made = pack(place / "results", place / "edited.tar.gz", weights=place / "weights.json", key=place / "a").path
    files = tampering.members(made)
    name = next(name for name in files if ".vae.J0.0." in name)
    content = json.loads(files[name])
    multiplied(content, 1.3)
    files[name] = msgspec.json.encode(content)
    return tampering.repack(made, files)


def forged(place: Path) -> Path:
    """A folder whose counts were raised, without a word to the ledger."""
    folder = Path(shutil.copytree(place / "results", place / "forged"))
    for path in folder.glob("*.J*.json"):
        tampering.rewrite(path, lambda content: multiplied(content, 1.3))
    return folder


def bids(place: Path, **results: str) -> Path:
    """A bids file of nodes that cost the same."""
    offers: dict[str, Any] = {name: {"results": file, "price": 1000.0} for name, file in results.items()}
    file = place / "bids.json"
    (place / "base.json").write_text(encode_summary(node(100.0, 100.0, 2)))
    file.write_text(json.dumps({"reference": "base.json", "bids": offers, "weights": "weights.json"}))
    return file


def ranked(file: Path, capsys: Any, *asked: str) -> tuple[dict[str, str], list[str]]:
    """Which bids are refused, and why; the names of the others, by their rank."""
    assert call(["bids", str(file), *asked, "--format", "json"]) == 1
    made = json.loads(capsys.readouterr().out)
    return made["refused"], [row["name"] for row in made["rows"]]


@pytest.mark.parametrize("make", [edited, forged])
@pytest.mark.parametrize("side", [0, 1])
def test_accept_refuses_what_breaks_a_rule(make: Any, side: int, place: Path, capsys: Any) -> None:
    sides = [str(place / "results"), str(place / "delivered")]
    sides[side] = str(make(place))
    assert call(["accept", *sides, "--weights", str(place / "weights.json")]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{sides[side]}: FAIL: " in told.err
    assert "run `mnb verify` with the same rules" in told.err


def test_accept_prints_both_verdicts(place: Path, capsys: Any) -> None:
    sides = [str(place / "results"), str(place / "delivered")]
    assert call(["accept", *sides, "--weights", str(place / "weights.json")]) in (0, 4)
    lines = capsys.readouterr().out.splitlines()
    passed = [line.split()[0] for line in lines if ": PASS: all 16 checkable rules met. Unsigned" in line]
    assert passed == ["bid", "delivered"]


def test_a_run_is_not_compared_with_itself(place: Path, capsys: Any) -> None:
    packed = pack(place / "results", place / "same.tar.gz", weights=place / "weights.json").path
    assert call(["accept", str(place / "results"), str(packed), "--weights", str(place / "weights.json")]) == 2
    assert "delivered is the same run as bid" in capsys.readouterr().err
    assert call(["bids", str(bids(place, acme="results", umbra="same.tar.gz"))]) == 2
    assert "umbra is the same run as acme" in capsys.readouterr().err


def test_a_run_is_one_bid_as_its_bundle_and_as_its_summary(place: Path, capsys: Any) -> None:
    pack(place / "results", place / "same.tar.gz", weights=place / "weights.json")
    for name in ("results", "delivered"):
        assert call(["summary", str(place / name), "-o", str(place / f"{name}.json")]) == 0
    offers = bids(place, acme="same.tar.gz", umbra="results.json", globex="delivered.json")
    refused, rest = ranked(offers, capsys)
    assert refused.keys() == {"acme", "umbra"}
    assert "umbra is the same run as acme: they have the run id" in refused["umbra"]
    assert rest == ["globex"]


@pytest.mark.parametrize(("change", "trait"), TWICE.values(), ids=TWICE)
def test_a_delivery_is_no_copy_of_the_bid(change: Tamper, trait: str, place: Path) -> None:
    copy = Path(shutil.copytree(place / "results", place / "copy"))
    change(copy)
    bid, copied, other = (
        check_results(str(side), Demands()) for side in (place / "results", copy, place / "delivered")
    )
    assert same_runs({"bid": bid, "delivered": other}) == {}
    sides = {"bid": bid, "delivered": copied}
    assert trait in same_runs(sides)["delivered"]
    with pytest.raises(InputError, match="Each needs its own measurement"):
        require_different(sides)


def test_another_date_in_the_ledger_makes_no_other_run(place: Path, capsys: Any) -> None:
    shutil.copytree(place / "results", place / "copy")
    (_, first), *rest = tampering.ledger_events(place / "copy")
    tampering.write_events(place / "copy", [("2026-01-01T00:00:00.000000Z", first), *rest])
    assert call(["bids", str(bids(place, acme="results", umbra="copy"))]) == 2
    assert "umbra is the same run as acme" in capsys.readouterr().err


def test_an_unfenced_side_is_called_so(place: Path) -> None:
    tampering.records(tampering.fence(tier="none"))(place / "results")
    assert check_results(str(place / "results"), Demands()).sentence.endswith("; NOT ISOLATED")


def test_the_signature_is_demanded_of_the_bid_alone(place: Path, capsys: Any) -> None:
    rules = place / "rules.json"
    rules.write_text('{"signed": true, "signed_by": ["a@example.org"]}')
    signed = pack(place / "results", place / "bid.tar.gz", weights=place / "weights.json", key=place / "a").path
    asked = [str(signed), str(place / "delivered"), "--weights", str(place / "weights.json"), "--rules", str(rules)]
    assert call(["accept", *asked]) == 2
    assert "no allowed signers are given" in capsys.readouterr().err
    allowed = ["--allowed-signers", str(place / "allowed")]
    assert call(["accept", *asked, *allowed]) in (0, 4)
    unsigned = pack(place / "delivered", place / "delivered.tar.gz", weights=place / "weights.json").path
    assert call(["accept", asked[0], str(unsigned), *asked[2:], *allowed]) in (0, 4), "a bundle, as a folder"
    pack(place / "results", place / "bid.tar.gz", weights=place / "weights.json", key=place / "b", force=True)
    assert call(["accept", *asked, *allowed]) == 2
    assert (
        "R2 (signed by an allowed signer): b@example.org signed it, but a@example.org is required to"
        in capsys.readouterr().err
    )


def test_bids_refuse_what_breaks_a_rule_and_rank_the_others(place: Path, capsys: Any) -> None:
    edited(place)
    forged(place)
    assert call(["bids", str(bids(place, fine="results", forged="forged", edited="edited.tar.gz"))]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "verified fine: PASS: all 16 checkable rules" in told
    assert "refused forged: " in told
    assert "refused edited: " in told
    assert call(["bids", str(bids(place, forged="forged"))]) == 2
    assert "all bids are refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (lambda whole: whole[: len(whole) // 2], "not a bundle made by `mnb bundle`"),
        (lambda _: b'{"not": "a manifest"}', "straw: "),
        (lambda _: b"\x00\x01", "straw: "),
    ],
)
def test_a_bid_that_cannot_be_read_spoils_nobody_elses(content: Any, why: str, place: Path, capsys: Any) -> None:
    whole = pack(place / "results", place / "whole.tar.gz", weights=place / "weights.json").path
    (place / "straw").write_bytes(content(whole.read_bytes()))
    file = bids(place, a="whole.tar.gz", b="delivered", straw="straw")
    refused, names = ranked(file, capsys)
    assert (list(refused), sorted(names)) == (["straw"], ["a", "b"])
    assert why in refused["straw"]
    assert call(["bids", str(file)]) == 1
    assert "refused straw: " in " ".join(capsys.readouterr().out.split())
    assert call(["bids", str(bids(place, straw="straw"))]) == 2
    assert "all bids are refused" in capsys.readouterr().err


def absurd(*_: object, **__: object) -> NoReturn:
    """What arithmetic says to values that nobody measured."""
    raise ZeroDivisionError("float division by zero")


def test_a_rule_or_doubt_that_cannot_compute_is_a_finding(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, doubt = msgspec.structs.replace(RULES[2], check=absurd), msgspec.structs.replace(DOUBTS[0], look=absurd)
    monkeypatch.setattr("milabench_ng.verification.checks.registry.RULES", (*RULES[:2], rule, *RULES[3:]))
    monkeypatch.setattr("milabench_ng.verification.doubts.registry.DOUBTS", (doubt,))
    made = verify(place / "results", Rules())
    told = "ZeroDivisionError: float division by zero"
    why = f"it has values that nothing can be computed from ({told}); if the file is sound, this is a bug in mnb"
    assert [(one.id, one.reasons) for one in made.having("fail")] == [("R3", (why,))]
    assert [(one.name, one.reasons) for one in made.doubts] == [(doubt.name, (why,))]


def test_files_that_nothing_follows_from_are_refused_by_name(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milabench_ng.verification.verify.facts", absurd)
    assert call(["verify", str(place / "results")]) == 2
    assert f"{place / 'results'}: it has values that nothing can be computed from" in capsys.readouterr().err
    assert call(["accept", str(place / "results"), str(place / "delivered")]) == 2
    assert "results: it has values" in capsys.readouterr().err


def test_a_bid_that_nothing_follows_from_spoils_nobody_elses(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_fails(summary: Summary, name: str, *rest: Any, **more: Any) -> Report:
        return absurd() if name == "straw" else build_report(summary, name, *rest, **more)

    monkeypatch.setattr("milabench_ng.tender.offers.build_report", one_fails)
    refused, names = ranked(bids(place, a="results", straw="delivered"), capsys)
    assert (list(refused), names) == (["straw"], ["a"])
    assert "nothing can be computed from" in refused["straw"]


def test_a_folder_without_a_manifest_spoils_nobody_elses(place: Path, capsys: Any) -> None:
    (place / "straw").mkdir()
    (place / "straw" / "run.json").write_text("[]")
    refused, names = ranked(bids(place, a="results", straw="straw"), capsys)
    assert (list(refused), names) == (["straw"], ["a"])


def test_one_run_as_two_bids_spoils_nobody_elses(place: Path, capsys: Any) -> None:
    pack(place / "results", place / "same.tar.gz", weights=place / "weights.json")
    refused, names = ranked(bids(place, acme="results", umbra="same.tar.gz", other="delivered"), capsys)
    assert (list(refused), names) == (["acme", "umbra"], ["other"])
    assert "acme is the same run as umbra" in refused["acme"]


def test_a_summary_is_not_verifiable(place: Path, capsys: Any) -> None:
    (place / "b200.json").write_text(encode_summary(node(9999.0, 9999.0)))
    call(["bids", str(bids(place, fine="results", b200="b200.json"))])
    assert "verified b200: not verifiable: no slices" in " ".join(capsys.readouterr().out.split())
    (place / "rules.json").write_text('{"repeat": 1}')
    refused, names = ranked(bids(place, fine="results", b200="b200.json"), capsys, "--rules", str(place / "rules.json"))
    assert (list(refused), names) == (["b200"], ["fine"])


def test_a_bid_is_signed_by_its_own_vendor(place: Path, capsys: Any) -> None:
    """Otherwise one vendor could sign another's results."""
    file = bids(place, fine="results", own="own.tar.gz", taken="taken.tar.gz")
    with changing(file) as content:
        for name, key in (("own", "a"), ("taken", "b")):
            pack(place / "results", place / f"{name}.tar.gz", weights=place / "weights.json", key=place / key)
            content["bids"][name]["signed_by"] = "a@example.org"
        del content["bids"]["fine"]
    assert call(["bids", str(file)]) == 2
    said = capsys.readouterr().err
    assert "bid 'own': signed_by names its signer, and no keys are given. Pass --allowed-signers FILE" in said
    call(["bids", str(file), "--allowed-signers", str(place / "allowed"), "--format", "json"])
    made = json.loads(capsys.readouterr().out)
    assert list(made["refused"]) == ["taken"]
    assert (
        "R2 (signed by an allowed signer): b@example.org signed it, but a@example.org is required to"
        in made["refused"]["taken"]
    )


def test_a_bound_is_the_evaluators_word(place: Path, capsys: Any) -> None:
    """A bid whose tests are said to be bound by the GPU would be allowed for less variance between machines."""
    found = []
    for bound in ("cpu", "gpu-compute"):
        tests = {label: row.bound_by(bound) for label, row in node(100.0, 100.0, 2).tests.items()}
        made = msgspec.structs.replace(node(100.0, 100.0, 2), tests=tests)
        (place / "one.json").write_text(encode_summary(made))
        call(["bids", str(bids(place, one="one.json", other="one.json")), "--format", "json"])
        found.append(json.loads(capsys.readouterr().out)["rows"][0]["ratio_interval"])
    assert found[0] == found[1] is not None


def test_one_stray_file_is_named_and_passed_over(place: Path) -> None:
    (place / "results" / "notes.json").write_text('{"who": "me"}')
    (place / "results" / "broken.json").write_text("{")
    made = verify(place / "results", Rules())
    assert made.passed
    assert made.facts["passed over"] == "broken.json, notes.json"


def test_a_long_name_fakes_no_line(place: Path) -> None:
    name = "n" + " " * 170 + "verdict PASS of 30 rules"
    tampering.rewrite(place / "results" / "run.json", lambda content: content["inventory"].update(hostname=name))
    assert verify(place / "results", Rules()).facts["node"].startswith("n verdict PASS of 30 rules: 2 x")


def test_signers(place: Path) -> None:
    """An unknown key breaks R2 as soon as the buyer says who may sign; so does a folder, which nobody signed."""

    def r2(source: Path, allowed: str | None) -> tuple[str, tuple[str, ...]]:
        signers = None if allowed is None else place / allowed
        return next((one.result, one.reasons) for one in verify(source, Rules(), allowed_signers=signers).rulings[1:2])

    signed = pack(place / "results", place / "s.tar.gz", weights=place / "weights.json", key=place / "b").path
    (place / "only-a").write_text((place / "allowed").read_text().splitlines()[0] + "\n")
    (place / "anybody").write_text(f'* namespaces="mnb" {(place / "b.pub").read_text()}')
    assert r2(signed, None)[0] == "open"
    assert r2(signed, "allowed")[0] == "pass"
    assert r2(signed, "only-a")[0] == "fail"
    assert r2(place / "results", "allowed") == (
        "fail",
        ("a plain folder is not signed. Pack it with `mnb bundle --sign KEY`",),
    )
    result, reasons = r2(signed, "anybody")
    assert result == "pass"
    assert "lets this key sign for anybody" in reasons[0]


def test_allowed_signers_are_read_as_ssh_keygen_reads_them(place: Path) -> None:
    """Names in a row, a key on several lines, options, remarks, and line ends of other systems."""
    signed = pack(place / "results", place / "s.tar.gz", weights=place / "weights.json", key=place / "a").path
    own, other = (" ".join((place / f"{name}.pub").read_text().split()[:2]) for name in ("a", "b"))

    def r2(*lines: str, end: str = "\n", by: str = "acme") -> tuple[str, tuple[str, ...]]:
        (place / "vendors").write_bytes("".join(line + end for line in lines).encode())
        found = verify(signed, Rules(signed_by=(by,)), allowed_signers=place / "vendors")
        return found.rulings[1].result, found.rulings[1].reasons

    assert r2("# vendors", "", f"umbra {other}", f'acme namespaces="mnb" {own} a remark', end="\r\n") == ("pass", ())
    assert r2(f"acme,boss {own}", by="boss") == ("pass", ())
    assert r2(f'git namespaces="git" {own}', f'acme namespaces="mnb" {own}') == ("pass", ())
    assert r2(f'acme valid-before="20200101" {own}', f"acme {own}") == ("pass", ())
    assert "acme or boss signed it, but umbra is required to" in r2(f"acme {own}", f"boss {own}", by="umbra")[1]
    assert "key has expired" in r2(f'acme valid-before="20200101" {own}')[1][0]
    assert "key is not yet valid" in r2(f'acme valid-after="29990101" {own}')[1][0]
    assert "not permitted for use in signature namespace" in r2(f'acme namespaces="git" {own}')[1][0]
    assert "is not in" in r2(f"acme {other}")[1][0]


def test_other_weights_are_called_so(place: Path) -> None:
    """Without a word on weights, R7 demands nothing."""
    made = pack(place / "results", place / "w.tar.gz", weights=place / "weights.json").path
    told = verify(made, Rules()).facts
    assert told["weights"].endswith("; not the shipped weights")
    assert told["score"].endswith("not with the shipped weights")
    for source, differ in ((made, True), (place / "results", False)):
        said = [fact.text for fact in alarms(make_report(source)) if fact.name == "weights"]
        assert any("the bundle has other weights" in text for text in said) is differ
    assert "shipped" not in verify(place / "results", Rules()).facts["weights"]


def test_a_profile_that_is_not_shipped_and_a_missing_fence_are_facts(place: Path) -> None:
    made = verify(place / "results", Rules()).facts
    assert made["profile"].endswith("; not the shipped profile")
    assert made["isolation"] == "full"
    tampering.record(lambda content: content["mnb"]["isolation"]["0"].update(tier="affinity"), "*.vae.J0.0.*")(
        place / "results"
    )
    assert verify(place / "results", Rules()).facts["isolation"] == "affinity: NOT ISOLATED"
