"""Every rule of docs/reference/rules.md both ways: a sound folder keeps it, and what breaks it is found by its id."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import evidence_attacks
import make_records
import msgspec
import pytest
import tampering
from attacks import ATTACKS
from book_attacks import later, remove
from bundle_attacks import BUNDLES
from printing import text_of
from tampering import NONCE, WHOLE, Tamper, ours, record

from milabench_ng import __version__
from milabench_ng.analysis.launch.traces import Bands, ReferenceTrace, TraceBand
from milabench_ng.cli import call
from milabench_ng.model.shipped import find
from milabench_ng.model.units import GIB
from milabench_ng.present.render.verification_tables import verification_document
from milabench_ng.present.writers import write
from milabench_ng.records.origin import RECORD_SCHEMA
from milabench_ng.records.work import Work
from milabench_ng.verification.bundle import ClaimedScore, pack
from milabench_ng.verification.checks.check_score import precise_enough
from milabench_ng.verification.checks.registry import RULES
from milabench_ng.verification.doubts.doubt import CORPUS
from milabench_ng.verification.doubts.registry import DOUBTS
from milabench_ng.verification.findings import Ruling, Verification
from milabench_ng.verification.rules import Ceiling, DataRule, Pin, Rules
from milabench_ng.verification.signing import make_key
from milabench_ng.verification.verify import verify

WEIGHTS = b'{"standard.vae": {"weight": 8}, "standard.toy_reg": {"weight": 4}, "standard.scaling.2": {"weight": 2}}'
PROFILE = make_records.promise(WHOLE).profile
STRICT = Rules(
    name="strict",
    signed=True,
    signed_by=("vendor@example.org",),
    ceiling=Ceiling(peak_flops={"Test GPU": {"fp32": 1e12}}, flops_per_item={"standard.vae": 5e9}),
    profile=Pin(sha256=PROFILE.sha256),
    weights=Pin(sha256=hashlib.sha256(WEIGHTS).hexdigest()),
    nonce=NONCE,
    arguments={"vae": {"max_count": 0}},
    repeat=2,
    stopping=False,
    ledger=True,
    failure_rate=0.0,
    retries=0,
    resumes=0,
    sessions=1,
    isolation="full",
    data={"mnist": DataRule(kind="twin", scale=1.0, checksums=(make_records.CHECKSUM,), cache="cold")},
    storage_refused=("memory",),
    closed=True,
    marks_refused=True,
    every_gpu=True,
    gpus=2,
    whole_gpus=True,
    ecc=True,
    default_power=True,
    mitigations=True,
    throttled=0.005,
    foreign_refused=True,
    least_version=__version__,
    witnessed={"R28": "A. Smith, 2026-01-06", "R29": "A. Smith, 2026-01-06", "R30": "A. Smith, 2026-01-06"},
)
OF_FOLDER = msgspec.structs.replace(STRICT, signed=False, signed_by=(), weights=None)
"""The same of a plain folder, which nobody signed and which has no weights of its own."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three keys, a file that allows the first, and one that allows two."""
    place = tmp_path_factory.mktemp("keys")
    vendor, other, _ = (
        f'{name}@example.org namespaces="mnb" {make_key(place / name, name)}\n'
        for name in ("vendor", "other", "stranger")
    )
    (place / "allowed").write_text(vendor)
    (place / "both").write_text(vendor + other)
    return place


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with which nothing is wrong."""
    folder = tmp_path_factory.mktemp("sound") / "results"
    tampering.write_honest(folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(sound, tmp_path / "results"))


def packed(folder: Path, key: Path | None = None, weights: bytes = WEIGHTS) -> Path:
    """The bundle of a folder."""
    file = folder.with_name("weights.json")
    file.write_bytes(weights)
    return pack(folder, folder.with_name("b.tar.gz"), weights=file, key=key, force=True).path


def found(
    folder: Path, keys: Path, rules: Rules = STRICT, key: str = "vendor", weights: bytes = WEIGHTS
) -> Verification:
    """Pack and sign the folder like an honest vendor, and verify the bundle."""
    made = packed(folder, keys / key, weights)
    return verify(made, rules, allowed_signers=keys / "allowed")


def by_id(found: Verification) -> dict[str, Ruling]:
    return {ruling.id: ruling for ruling in found.rulings}


def test_a_sound_folder_keeps_every_rule(folder: Path, keys: Path) -> None:
    verification = found(folder, keys)
    assert {ruling.id: ruling.reasons for ruling in verification.rulings if ruling.result != "pass"} == {
        "R15": (),
        "R32": (),
        "R39": (),
    }
    assert verification.passed
    kept = f"PASS: all {len(RULES) - 3} checkable rules met. "
    assert verification.sentence == f"{kept}Rule set: strict. Signed by vendor@example.org. Not required: 3 rules"
    assert verification.facts["signed by"] == "vendor@example.org"


@pytest.mark.parametrize("case", ATTACKS)
def test_what_breaks_a_rule_is_found(case: str, folder: Path) -> None:
    rule, tamper, reason = ATTACKS[case]
    tamper(folder)
    verification = verify(folder, OF_FOLDER)
    told = tampering.told_by(verification, rule)
    assert told
    assert reason in told
    assert not (verification.passed and rule in by_id(verification))
    assert re.search(rf"\b{rule}\b", verification.sentence)


def test_an_attack_is_found_in_a_bundle_too(folder: Path, keys: Path) -> None:
    """Packed and signed like that of an honest vendor, which changes nothing of what is looked at."""
    _, tamper, _ = ATTACKS["slices of another device"]
    tamper(folder)
    of_folder, of_bundle = verify(folder, OF_FOLDER), found(folder, keys)
    assert of_bundle.doubts == of_folder.doubts != ()


@pytest.mark.parametrize("case", BUNDLES)
def test_what_breaks_a_rule_in_a_bundle_is_found(case: str, folder: Path, keys: Path) -> None:
    rule, tamper, reason = BUNDLES[case]
    made = packed(folder, keys / "vendor")
    tamper(made, keys)
    ruling = by_id(verify(made, STRICT, allowed_signers=keys / "both"))[rule]
    assert ruling.result == "fail"
    assert reason in "\n".join(ruling.reasons)


def test_a_key_of_nobody_who_may_sign_fails_without_rules_too(
    folder: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = packed(folder, keys / "other")
    assert call(["verify", str(made), "--allowed-signers", str(keys / "allowed")]) == 1
    said = capsys.readouterr().out
    assert "R2 (signed by an allowed signer): the key of the signature is not in" in said
    assert "No principal" not in said, "words of ssh-keygen"
    assert call(["verify", str(made)]) == 0


def test_r3_numbers_that_were_claimed(folder: Path) -> None:
    """A packing list that claims more than the slices give, signed by the vendor himself."""
    made = packed(folder)
    files = tampering.members(made)
    listed = json.loads(files["bundle.json"])
    listed["claim"]["tests"]["standard.vae"]["perf"] += 1
    listed["claim"]["per_node"] += 1
    files["bundle.json"] = msgspec.json.encode(listed)
    ruling = by_id(verify(tampering.repack(made, files), STRICT))["R3"]
    assert len(ruling.reasons) == 2
    assert ruling.reasons[1] == "standard.vae: perf was claimed as 104.0, and is 103.0"


def test_r22_a_launch_outside_its_reference_traces(folder: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report makes these marks; no record has them."""
    bands: Bands = {"gpu": {"fp32": {"1": TraceBand(2.0, 0.004)}}}
    of_vae = Work(options=make_records.arguments_of("vae"))
    arguments = of_vae.options_that_change("work", "numbers", "precision")
    trace = ReferenceTrace(arguments=arguments, data=("mnist", "twin", 1.0), losses=bands)
    monkeypatch.setattr("milabench_ng.analysis.summary.folder.load_traces", lambda _suite: {"standard.vae": trace})

    def computed(loss: float) -> Tamper:
        return record(lambda content: content["mnb"]["ranks"][0].update(losses={"1": loss}), "standard.vae.*")

    for path in folder.glob("standard.vae.*"):
        tampering.rewrite(path, lambda content: content["mnb"]["ranks"][0].update(losses={"1": 2.0}))
    computed(2.0)(folder)
    assert by_id(found(folder, keys))["R22"].result == "pass"
    computed(1.8)(folder)
    ruling = by_id(found(folder, keys))["R22"]
    assert ruling.reasons == ("standard.vae: outside the reference: loss 1.8 at step 1, expected 2 +- 0.004",)
    lenient = verify(folder, Rules())
    assert by_id(lenient)["R22"].result == "not required"
    assert tampering.told_by(lenient, "outside-traces") == ruling.reasons[0]


@pytest.mark.parametrize("written", [f"{__version__}0", f"0{__version__}", f"{__version__}.0"])
def test_a_version_is_compared_by_its_numbers(folder: Path, written: str) -> None:
    """Of a version that is not this one, little is asked."""
    evidence_attacks.version(written)(folder)
    tampering.proof("data", "after", lambda event: event["data"].update(differing=["train"]))(folder)
    found = by_id(verify(folder, Rules()))
    assert found["R33"].result == "pass"
    assert "session 1: mnist was damaged after the work: train" in found["R19"].reasons


def stopped_late(folder: Path, *batches: int) -> None:
    """The stop of these batches a second later, and what follows from it: two more slices, another window."""
    for path in sorted(folder.glob("standard.*.J*")):
        content = json.loads(path.read_bytes())
        number = content["mnb"]["batch"]
        if number in batches:
            launch = next(one for one in WHOLE.batches[number].launches if one.job_id == content["job_id"])
            late = make_records.record(launch, make_records.steady, 26, number, len(WHOLE.batches[number].launches) - 1)
            late["mnb"]["data"] = content["mnb"]["data"]
            path.write_bytes(msgspec.json.encode(late))
    make_records.write_ledger(folder, WHOLE)


def batches_of(test: str) -> list[int]:
    return [batch.number for batch in WHOLE.batches if batch.launches[0].test == test]


def test_late_stops_are_a_doubt_unless_they_are_few(folder: Path, keys: Path) -> None:
    """An orchestrator that is kept waiting for less than three seconds has no mark of it."""
    once, twice = batches_of("standard.vae")
    stopped_late(folder, once)
    assert tampering.told_by(found(folder, keys), "late-stops") == ""
    stopped_late(folder, twice)
    verification = found(folder, keys)
    assert "was stopped 1.0 s after the last launch of its launch group" in tampering.told_by(
        verification, "late-stops"
    )
    assert verification.passed


def test_a_run_that_is_interrupted_again_and_again_is_doubted(folder: Path, keys: Path) -> None:
    """What is measured again after an interruption costs nothing, so that slow batches could be left out."""

    def cut(content: dict[str, Any]) -> None:
        content["success"] = False
        content["mnb"]["failure"] = {"cause": "interrupted", "detail": "SIGINT", "traceback": None}

    for count, number in enumerate((batch.number for batch in WHOLE.batches[:3]), start=1):
        for path in folder.glob("*.J*.json"):
            if json.loads(path.read_bytes())["mnb"]["batch"] == number:
                tampering.rewrite(path, cut)
        told = tampering.told_by(found(folder, keys), "interrupted")
        assert told == ("" if count < 3 else f"3 of {len(WHOLE.batches)} launch groups were interrupted")


def test_a_stop_may_be_late_if_the_orchestrator_stood_still(folder: Path, keys: Path) -> None:
    stopped_late(folder, *(batch.number for batch in WHOLE.batches))
    assert tampering.told_by(found(folder, keys), "late-stops")

    def paused(content: dict[str, Any]) -> None:
        content["mnb"]["marks"] = [{"kind": "orchestrator paused", "value": 10.0, "limit": 3.0}]

    for path in folder.glob("standard.*.J*"):
        tampering.rewrite(path, paused)
    make_records.write_ledger(folder, WHOLE)
    verification = found(folder, keys)
    assert tampering.told_by(verification, "late-stops") == ""
    assert by_id(verification)["R36"].result == "pass"


def test_a_slice_of_no_length_is_no_record(folder: Path, keys: Path) -> None:
    """Everything divides by it."""
    record(lambda content: content["mnb"]["ranks"][0]["slices"][-10].__setitem__(1, 0.0))(folder)
    assert "not a readable record" in " ".join(by_id(found(folder, keys))["R12"].reasons)


@pytest.mark.parametrize(
    ("schema", "version", "said"),
    [
        (0, "0.0.9", f"record schema 0: mnb writes {RECORD_SCHEMA}"),
        (RECORD_SCHEMA + 1, "9.0.0", f"record schema {RECORD_SCHEMA + 1}: this is mnb"),
        (RECORD_SCHEMA, "0.0.9", f"made by another version of mnb, 0.0.9, schema {RECORD_SCHEMA}; this is mnb"),
        (RECORD_SCHEMA, __version__, "or made before that release"),
        (None, None, f"record schema None: mnb writes {RECORD_SCHEMA}"),
    ],
)
def test_a_record_that_lacks_a_field_says_which_version_made_it(
    folder: Path, keys: Path, schema: int | None, version: str | None, said: str
) -> None:
    def age(content: dict[str, Any]) -> None:
        del content["mnb"]["bound"]
        content["mnb"] |= {"schema": schema, "version": version}

    record(age)(folder)
    reasons = " ".join(by_id(found(folder, keys))["R12"].reasons)
    assert "not a readable record" in reasons
    assert said in reasons
    assert "has no record" not in reasons


def test_r7_changed_weights(folder: Path, keys: Path) -> None:
    heavier = WEIGHTS.replace(b'"weight": 8', b'"weight": 80')
    assert by_id(found(folder, keys, weights=heavier))["R7"].result == "fail"


def test_r15_an_incomplete_score_and_one_of_too_few_repeats(folder: Path, keys: Path) -> None:
    known = msgspec.structs.replace(STRICT, margin=0.5)
    assert by_id(found(folder, keys, known))["R15"].reasons == ("the score has no interval: fewer than 5 repeats",)
    remove("standard.vae.J0.0.*")(folder)
    assert "invalid" in by_id(found(folder, keys, known))["R15"].reasons[0]


def test_r15_a_score_of_five_repeats_and_its_interval(tmp_path: Path, keys: Path) -> None:
    """All of the strict rules at once, as far as one test of one nonce keeps them."""
    five = tmp_path / "five" / "results"
    plan = make_records.plan("standard", {"vae": make_records.PER_GPU}, 2, 5, nonce=NONCE)
    make_records.write_run(five, plan, slices=24)
    tampering.records(lambda content: content["mnb"]["data"].update(name="mnist"))(five)
    make_records.write_ledger(five, plan)
    alone = b'{"standard.vae": {"weight": 8}}'
    strict = msgspec.structs.replace(
        STRICT,
        profile=Pin(sha256=make_records.promise(plan).profile.sha256),
        weights=Pin(sha256=hashlib.sha256(alone).hexdigest()),
        repeat=5,
    )
    wide, narrow = (msgspec.structs.replace(strict, margin=margin) for margin in (0.5, 1e-6))
    kept, broken = found(five, keys, wide, weights=alone), found(five, keys, narrow, weights=alone)
    assert kept.passed, kept.sentence
    assert by_id(kept)["R15"].result == "pass"
    assert [ruling.id for ruling in broken.having("fail")] == ["R15"]
    assert "the rules require ±0.0%" in by_id(broken)["R15"].reasons[0]


def test_r15_a_wide_interval() -> None:
    claimed = ClaimedScore(status="complete", unit="", per_device=100.0, per_node=100.0, low=98.0, high=102.0, why="")
    assert precise_enough(claimed, 0.03) == ""
    assert precise_enough(claimed, 0.01) == "is known to ±2.0%, but the rules require ±1.0%"


def test_names_in_records_do_not_steer_the_terminal(folder: Path, keys: Path) -> None:
    record(lambda content: content.update(hostname="\x1b]0;mine\x07node\n"))(folder)
    text = text_of(write, verification_document(found(folder, keys)), "table")
    assert "\x1b" not in text
    assert "it was made on '\\x1b]0;mine\\x07node\\n'" in text


@pytest.mark.parametrize("rule", ["R28", "R29", "R30"])
def test_witnesses(rule: str, folder: Path, keys: Path) -> None:
    nobody = msgspec.structs.replace(STRICT, witnessed={})
    verification = found(folder, keys, nobody)
    assert by_id(verification)[rule].result == "open"
    assert verification.passed


def test_every_rule_is_broken_by_some_test() -> None:
    own_tests = {"R1", "R2", "R3", "R7", "R15", "R21", "R28", "R29", "R30", "R31", "R32", "R39"}
    attacked = {finder for finder, _, _ in ATTACKS.values()}
    assert {rule.id for rule in RULES} == (attacked - {doubt.name for doubt in DOUBTS}) | own_tests
    assert [rule.id for rule in RULES] == [f"R{number}" for number in range(1, 40) if number != 34]


def test_the_document_lists_every_rule_with_its_kind_and_keys() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "rules.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| R\d+ ", line)]
    assert [(row[0], row[1]) for row in rows] == [(rule.id, rule.basis) for rule in RULES]
    named = {key for row in rows for key in re.findall("`(\\w+)`", row[3].rstrip(" |") if len(row) > 3 else "")}
    assert named == set(Rules.__struct_fields__) - {"schema", "name", "doubts_refused"}


def test_a_version_that_writes_a_ledger_must_have_left_one(folder: Path) -> None:
    (folder / "ledger.jsonl").unlink()
    assert "writes one in every run" in by_id(verify(folder, Rules()))["R13"].reasons[0]


@pytest.mark.parametrize(("most", "result"), [(0.05, "pass"), (None, "pass"), (0.02, "fail")])
def test_a_mark_is_accepted_by_name(most: float | None, result: str, folder: Path) -> None:
    """Prefetched items follow from the slices; a record of an earlier version has no mark of them."""
    _, tamper, _ = ATTACKS["backlog worked off"]
    tamper(folder)
    refused = verify(folder, Rules(marks_refused=True))
    assert "3.89% of the window's items were prefetched before it (limit 2%" in by_id(refused)["R22"].reasons[0]
    accepted = Rules(marks_refused=True, marks_accepted={"prefetched items": most})
    assert by_id(verify(folder, accepted))["R22"].result == result


def test_rules_on_gpus_do_not_fall_silent_without_conditions(folder: Path, keys: Path) -> None:
    for path in folder.glob("standard.*.json"):
        tampering.rewrite(path, ours(conditions={}))
    make_records.write_ledger(folder, WHOLE)
    verification = by_id(found(folder, keys))
    assert [verification[rule].result for rule in ("R24", "R25", "R26")] == ["fail"] * 3


def test_r5_knows_what_the_data_sheets_say(folder: Path, keys: Path) -> None:
    """102 to 106 items/s: H100 SXM does 67e12 FLOP/s in fp32."""
    rules = msgspec.structs.replace(STRICT, ceiling=Ceiling(flops_per_item={"standard.vae": 67e12 / 105}))
    unknown = by_id(found(folder, keys, rules))["R5"]
    assert unknown.result == "fail"
    assert "the peak of Test GPU in fp32 is not known; state it in the rules" in unknown.reasons[0]
    everywhere_named(folder, "NVIDIA H100 80GB HBM3")
    ruling = by_id(found(folder, keys, rules))["R5"]
    assert ruling.reasons == (
        "standard.vae J1.1: 106 items/s x 6.38e+11 FLOP are 1.01 x the peak of NVIDIA H100 80GB HBM3 in fp32",
    )
    slower = msgspec.structs.replace(rules, ceiling=Ceiling(flops_per_item={"standard.vae": 67e12 / 200}))
    ruling = by_id(found(folder, keys, slower))["R5"]
    launches, others = (len([*folder.glob(f"standard.{name}.*.json")]) for name in ("vae", "*"))
    assert ruling.result == "pass"
    assert ruling.reasons == (f"looked at in {launches} of {others} launches, whose FLOP and peak are known",)


def test_a_ceiling_of_whose_tests_none_ran_cannot_be_checked(folder: Path) -> None:
    def r5(**flops: float) -> tuple[str, tuple[str, ...]]:
        rules = Rules(ceiling=Ceiling(flops_per_item=dict(flops.items())))
        return next((one.result, one.reasons) for one in verify(folder, rules).rulings if one.id == "R5")

    nothing = ("open", ("the rules know no FLOP count of what ran",))
    assert r5(**{"standart.vae": 1e9}) == r5() == nothing


def test_r10_options_of_a_test_that_the_profile_has_not(folder: Path) -> None:
    """The rules may be of several profiles, unless they pin this one: nobody is accused."""
    asked = {"arguments": {"vaee": {"max_count": 0}}}
    for pin, result in ((None, "open"), (Pin(sha256=PROFILE.sha256), "open"), (Pin(sha256="0" * 64), "pass")):
        r10 = by_id(verify(folder, Rules(profile=pin, **asked)))["R10"]
        assert r10.result == result
        assert ("no test 'vaee' (did you mean 'vae'?)" in "".join(r10.reasons)) == (result == "open")


@pytest.mark.parametrize(
    ("suite", "result", "told"),
    [("standard", "pass", ""), ("standart", "fail", "the shipped profile standard under another name")],
)
def test_r6_a_shipped_profile_under_another_name(suite: str, result: str, told: str, tmp_path: Path) -> None:
    """To the byte; but all that knows its tests by suite knows none of them."""
    path = find("profiles", "standard")
    make_records.write_run(tmp_path, make_records.plan(suite, {"vae": make_records.PER_GPU}, 1, 1), slices=30)
    profile = {"text": path.read_text(), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    tampering.rewrite(tmp_path / "run.json", lambda content: content["profile"].update(profile))
    for pin in (Pin(name="standard"), Pin(sha256=profile["sha256"])):
        made = verify(tmp_path, Rules(profile=pin))
        assert by_id(made)["R6"].result == result
        assert ("under the name standart" in "".join(by_id(made)["R6"].reasons)) == (result == "fail")
        assert made.facts["profile"].partition("; ")[2] == told
    assert by_id(verify(tmp_path, Rules()))["R6"].result == "not required"


def everywhere_named(folder: Path, name: str) -> None:
    """Devices of another name, in the plan and in the records."""
    for path in (folder / "run.json", *folder.glob("standard.*.json")):
        named = path.read_bytes().replace(b"Test GPU", name.encode())
        path.write_bytes(named.replace(b'"memory_bytes":1,', b'"memory_bytes":%d,' % (80 * GIB)))
    make_records.write_ledger(folder, tampering.plan_of(folder))


def test_r20_a_disk_whose_file_was_deleted_lies_nobody_knows_where(folder: Path) -> None:
    def deleted(content: dict[str, Any]) -> None:
        root = content["storage"]["dataroot"]
        root["rests_on"] = [root | {"path": "/x (deleted)", "filesystem": "unknown", "kind": "other"}]

    tampering.manifest(deleted)(folder)
    found = {ruling.id: ruling for ruling in verify(folder, STRICT).rulings}["R20"]
    assert (found.result, found.reasons) == ("open", ("it is unknown where /x (deleted) is stored",))


def test_a_lost_neighbour_that_the_record_marks_breaks_only_what_refuses_marks(folder: Path) -> None:
    """A launch that fails ends the comparability of its neighbours, and they say so: that is honest."""

    def marked(content: dict[str, Any]) -> None:
        content["mnb"]["neighbours"] = {"planned": 1, "alive_at_stop": 0, "lost": [{"job_id": "1.0", "cause": "oom"}]}
        content["mnb"]["marks"] = [{"kind": "neighbours lost", "what": "1", "value": 1}]

    tampering.record(marked)(folder)
    assert by_id(verify(folder, Rules()))["R17"].result == "pass"
    assert "neighbors lost" in by_id(verify(folder, Rules(marks_refused=True)))["R22"].reasons[0]


def dated(content: dict[str, Any], by_s: float) -> None:
    """A clock that is set during a launch."""
    after = content["mnb"]["conditions"]["after"]
    after["utc"] = later(after["utc"], by_s)


def test_a_step_of_the_clock_by_ntp_is_no_doubt(folder: Path) -> None:
    """Launches of 12 s: chrony and ntpd step a clock that is off by tenths of a second."""
    tampering.record(lambda content: dated(content, 0.1))(folder)
    tampering.record(lambda content: dated(content, -1.5), "*.toy_reg.J0.0.*")(folder)
    found = verify(folder, Rules(marks_refused=True))
    assert (found.doubts, by_id(found)["R17"].result, by_id(found)["R22"].result) == ((), "pass", "pass")


def test_a_run_that_says_that_its_clock_was_set_is_not_doubted(folder: Path) -> None:
    def told(content: dict[str, Any]) -> None:
        dated(content, 5.0)
        content["mnb"]["marks"] = [{"kind": "clock set", "value": 5.0, "limit": 2.0}]

    tampering.record(told)(folder)
    found = verify(folder, Rules(marks_refused=True))
    assert (found.doubts, by_id(found)["R17"].result) == ((), "pass")
    assert by_id(found)["R22"].reasons == (
        "standard.vae J1.1: the node's clock was changed by 5 s during the launch group (limit 2 s)",
    )


def test_a_clock_that_was_set_without_a_mark_of_it(folder: Path) -> None:
    tampering.record(lambda content: dated(content, 5.0))(folder)
    found = verify(folder, Rules(marks_refused=True))
    assert [doubt.name for doubt in found.doubts] == ["clock-steps"]
    assert by_id(found)["R22"].reasons == (
        (
            "standard.vae J1.1: the node's clock was changed by 5 s during the launch group (limit 2 s), but the "
            "record has no such warning"
        ),
    )


def test_a_session_whose_clock_ran_slow_is_doubted(folder: Path) -> None:
    """By 1 %: no launch shows it, and the session does."""

    def slow(content: dict[str, Any]) -> None:
        for edge in content["mnb"]["conditions"].values():
            edge["utc"] = later(edge["utc"], 0.02 * (edge["time_s"] - make_records.BEGIN_S))
        begun_s = content["mnb"]["start_s"] - make_records.BEGIN_S
        content["mnb"]["started_utc"] = later(content["mnb"]["started_utc"], 0.02 * begun_s)

    tampering.records(slow)(folder)
    (doubt,) = verify(folder, Rules()).doubts
    assert doubt.name == "clock-steps"
    between = [reason for reason in doubt.reasons if reason.startswith("between launch groups ")]
    assert len(between) == 1  # of the first batch and the last: no two in a row show it


def test_a_doubt_breaks_nothing_unless_the_rules_refuse_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of slices is all that is wrong: the sums and the claims of the bundle follow from it."""
    _, copied, why = ATTACKS["slices of another device"]
    copied(folder)
    rules = Rules(doubts_refused=("copied-slices",))
    lenient, strict = verify(folder, Rules()), verify(folder, rules)
    assert (lenient.passed, strict.passed) == (True, False)
    assert lenient.sentence.startswith("PASS with 1 doubt (copied-slices): ")
    assert "copied-slices: standard.vae" in strict.sentence
    assert call(["verify", str(folder), "--format", "csv"]) == 0
    assert capsys.readouterr().err == f"mnb: verdict: {lenient.sentence}\n"  # for which CSV has no place
    assert call(["verify", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert why in shown
    assert f"0 of {CORPUS} honest results show it" in shown
    (folder.parent / "strict.json").write_bytes(msgspec.json.encode(rules))
    assert call(["verify", str(folder), "--rules", str(folder.parent / "strict.json"), "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["passed"], told["doubts"][0]["name"], told["doubts"][0]["refused"]) == (False, "copied-slices", True)


def test_the_verdict_in_every_form(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ATTACKS["slices of another device"][1](folder)
    (folder.parent / "strict.json").write_bytes(msgspec.json.encode(Rules(signed=True)))

    def printed(form: str) -> str:
        assert call(["verify", str(folder), "--rules", str(folder.parent / "strict.json"), "--format", form]) == 1
        return capsys.readouterr().out

    whole = json.loads(printed("json"))
    rows = {row["rule"]: row for row in csv.DictReader(printed("csv").splitlines())}
    assert [*rows] == [rule.id for rule in RULES] + ["copied-slices"]
    assert {row: rows[row]["rests on"] for row in ("R2", "R28", "copied-slices")} == {
        "R2": "recomputed",
        "R28": "witness",
        "copied-slices": "doubt",
    }
    assert [rows[row]["result"] for row in ("R2", "R3", "R5", "R28", "copied-slices")] == [
        *("fail", "pass", "not required", "open", "doubt")
    ]
    assert rows["copied-slices"]["reasons"] == "; ".join(whole["doubts"][0]["reasons"])
    table, markdown = printed("table").splitlines(), printed("markdown").splitlines()
    assert table[0] == f"verdict             {whole['verdict']}"
    assert table[table.index("Not checkable from these files") + 1].strip().split("  ") == [
        *("rule", "result", "requirement")
    ]
    assert markdown[0] == "# mnb verify"
    assert markdown[2].startswith("- verdict: FAIL: ")
    assert "| R2 | FAIL | signed by an allowed signer |" in markdown
    assert "|  |  | - a plain folder is not signed. Pack it with \\`mnb bundle --sign KEY\\` |" in markdown


def test_rules_that_refuse_a_doubt_that_there_is_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / "rules.json").write_text('{"doubts_refused": ["copied"]}')
    for command in (["verify", str(folder)], ["report", str(folder)], ["doctor"]):
        assert call([*command, "--rules", str(folder.parent / "rules.json")]) == 2
        assert "no doubt 'copied' (did you mean 'copied-slices'?)" in capsys.readouterr().err


def test_without_rules_only_what_needs_none_is_checked(folder: Path) -> None:
    def older(content: dict[str, Any]) -> None:
        content["version" if "plan" in content else "mnb"] = (
            "0.0.1" if "plan" in content else content["mnb"] | {"version": "0.0.1"}
        )

    for path in folder.glob("*.json"):
        tampering.rewrite(path, older)
    (folder / "ledger.jsonl").unlink()
    verification = verify(folder, Rules())
    assert verification.passed
    assert {ruling.id for ruling in verification.having("open")} == {"R1", "R13", "R28", "R29", "R30", "R33"}
    assert {"R2", "R6", "R7", "R9", "R14", "R21"} <= {ruling.id for ruling in verification.having("not required")}
