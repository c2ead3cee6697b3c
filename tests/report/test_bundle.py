"""Bundles: the same bytes each time, opened without trust, verified anywhere without torch."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

import make_records
import msgspec
import pytest
import tampering
from bundle_attacks import HOSTILE, add, in_bundle, one_file_less, other_unit
from make_records import PER_GPU
from tampering import members

from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.model.shipped import find, names
from milabench_ng.records.names import LEDGER
from milabench_ng.report.reporting import make_report
from milabench_ng.verification import opening
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.opening import opened
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.rules_file import decode_rules, load_rules
from milabench_ng.verification.verified_results import Demands, check_results
from milabench_ng.verification.verify import verify
from milabench_ng.worker.discovery import builtin_workloads

BUNDLES = Path(__file__).parents[2] / "baselines" / "bundles"
WHOLE = make_records.plan("quick", {"vae": PER_GPU}, 2, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_records.write_run(tmp_path / "results", WHOLE, slices=24)
    (tmp_path / "results" / "logs").mkdir()
    (tmp_path / "results" / "logs" / "quick.vae.J0.0.log").write_text("hello\n")
    return tmp_path / "results"


@pytest.fixture
def bundle(folder: Path) -> Path:
    return pack(folder, None).path


def test_the_same_folder_gives_the_same_bytes(folder: Path, bundle: Path) -> None:
    copy = Path(shutil.copytree(folder, folder.with_name("copy")))
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    assert bundle.name == "results.bundle.tar.gz"
    assert pack(copy, None).path.read_bytes() == bundle.read_bytes()
    held = members(bundle)
    assert next(iter(held)) == "bundle.json"
    assert {"weights.json", "results/run.json", "results/ledger.jsonl", "results/logs/quick.vae.J0.0.log"} < held.keys()
    assert len(held) == 7


def test_what_belongs_to_no_run_is_left_out(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    (folder / "link.json").symlink_to("/etc/passwd")
    (folder / "logs" / "quick.vae.J0.1.log").symlink_to("/etc/passwd")
    made = pack(folder, None)
    assert made.left_out == ("link.json", "logs/quick.vae.J0.1.log", "notes.txt")
    assert b"/bin/" not in b"".join(members(made.path).values())


def test_verified_on_another_machine_without_torch(bundle: Path, tmp_path: Path) -> None:
    """Another folder, another user's home, and an interpreter in which torch cannot be imported."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = Path(shutil.move(bundle, elsewhere / "from-vendor.tar.gz"))
    shutil.rmtree(tmp_path / "results")
    code = (
        "import sys; from milabench_ng.cli import call\n"
        "for name in ('torch', 'torchvision', 'pynvml'): sys.modules[name] = None\n"
        f"code = call(['verify', {str(moved)!r}, '--require', 'full', '--repeat', '1', '--format', 'json'])\n"
        "sys.exit(code)"
    )
    environ = {**os.environ, "HOME": str(elsewhere), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=elsewhere, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["passed"]
    assert {one["id"] for one in found["rulings"] if one["result"] == "open"} == {"R28", "R29", "R30"}
    assert os.listdir(elsewhere) == ["from-vendor.tar.gz"]


@pytest.mark.parametrize("case", HOSTILE)
def test_refused(case: str, bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tamper, message = HOSTILE[case]
    tamper(bundle)
    assert call(["verify", str(bundle)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (bundle.parent / "evil.json").exists()


def doubled(files: dict[str, bytes]) -> None:
    """Twice the items in every slice of one launch."""
    name = next(name for name in files if ".vae.J0.0." in name and name.endswith(".json"))
    record = json.loads(files[name])
    for rank in record["mnb"]["ranks"]:
        for row in rank["slices"]:
            row[2] *= 2
    files[name] = json.dumps(record).encode()


@pytest.mark.parametrize("change", [doubled, other_unit, one_file_less])
def test_a_damaged_bundle_is_named_wherever_it_is_read(
    change: Callable[[dict[str, bytes]], None], bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(["report", str(bundle), "--full"])
    assert "DAMAGED" not in capsys.readouterr().out
    in_bundle(change)(bundle, bundle)
    for form in ("table", "markdown", "csv"):
        assert call(["report", str(bundle), "--format", form]) == 1
        said = " ".join("".join(capsys.readouterr()).split())
        assert "DAMAGED" in said
        assert "Do not trust these numbers" in said
    assert call(["report", str(bundle), "--format", "json"]) == 1
    (what,) = json.loads(capsys.readouterr().out)["damage"]
    assert what.startswith("results/quick.vae.J0.0.")
    for command in (
        ["summary", str(bundle)],
        ["report", str(bundle.parent / "results"), "--compare", str(bundle)],
    ):
        assert call(command) == 2
        assert f"mnb: {bundle}: damaged: results/quick.vae.J0.0." in capsys.readouterr().err


def other_line(content: bytes) -> bytes:
    """One letter of the first attempt is another, and the chain is as it was."""
    return content.replace(b"quick.vae", b"quick.vaf", 1)


def cut(content: bytes) -> bytes:
    """Without the last record, as if it had never been."""
    lines = content.splitlines(keepends=True)
    return b"".join(lines[: max(place for place, line in enumerate(lines) if b'"Recorded"' in line)])


@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (cut, "the ledger has no attempt for it"),
        (other_line, "the line before it is not the original one"),
        (lambda _: b"", "it is empty"),
    ],
)
def test_a_changed_ledger_is_named_wherever_it_is_read(
    alter: Callable[[bytes], bytes], named: str, bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = bundle.parent / "results"
    ledger = folder / LEDGER
    ledger.write_bytes(alter(ledger.read_bytes()))
    assert call(["bundle", str(folder), "-o", str(bundle), "--force"]) == 0
    assert "breaks R13" in capsys.readouterr().out
    for source in (folder, bundle):
        assert call(["report", str(source)]) == 1
        said = " ".join("".join(capsys.readouterr()).split())
        assert named in said
        assert call(["summary", str(source)]) == 2
        assert named in capsys.readouterr().err


def test_a_record_that_was_forged_and_packed_again_is_damaged(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bundle.parent / "results"
    record = next(folder.glob("quick.vae.J0.0.*.json"))
    record.write_bytes(record.read_bytes() + b"\n")
    assert call(["bundle", str(folder), "-o", str(bundle), "--force"]) == 0
    assert f"{record.name}: the file was changed after it was recorded: breaks R13" in capsys.readouterr().out
    assert call(["report", str(bundle)]) == 1
    assert "DAMAGED" in capsys.readouterr().out


def test_a_record_that_is_gone_is_a_failed_launch_and_the_others_are_sound(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = next(folder.glob("quick.vae.J0.0.*.json"))
    record.unlink()
    assert make_report(folder).damage == ()
    assert call(["report", str(folder)]) == 1
    assert "DAMAGED" not in capsys.readouterr().out
    assert call(["bundle", str(folder)]) == 0
    assert f"{record.name}: recorded, and not there: breaks R13" in capsys.readouterr().out


def test_a_damaged_bundle_is_no_success() -> None:
    sound = make_report(Path(__file__).parents[2] / "baselines" / "h200.json")
    assert sound.exit_code == 0
    assert msgspec.structs.replace(sound, damage=("results/run.json was changed",)).exit_code == 1


def test_bombs_are_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("results/logs/a.log", b"\0" * (1 << 25))(bundle)
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"), opened(bundle):
        pass
    monkeypatch.setattr(opening, "MAX_FILE", 1 << 20)
    with pytest.raises(InputError, match=r"'results/logs/a\.log' has 33554432 bytes; at most 1048576"), opened(bundle):
        pass
    monkeypatch.setattr(opening, "MAX_FILES", 3)
    with pytest.raises(InputError, match="more than 3 files"), opened(bundle):
        pass


def test_a_header_that_promises_gigabytes_is_refused(bundle: Path) -> None:
    """The long name of a GNU header is read into memory before anybody sees it."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 24
    noise = os.urandom(1 << 16)
    bundle.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + noise * 256))
    with pytest.raises(InputError, match=r"larger than those of a bundle\. Ask for it again"), opened(bundle):
        pass


@pytest.mark.parametrize("layer", ["before", "after"])
def test_random_damage_is_found(layer: str, bundle: Path) -> None:
    """One bit changed before or after compression: refused, or a broken rule, or no file has changed."""
    packed, whole = bundle.read_bytes(), contents(bundle)
    content = gzip.decompress(packed) if layer == "before" else packed
    draw, found = random.Random(2026), 0
    for _ in range(50):
        damaged = bytearray(content)
        damaged[draw.randrange(len(damaged) - 10_240 if layer == "before" else len(damaged))] ^= 1 << draw.randrange(8)
        bundle.write_bytes(gzip.compress(bytes(damaged), 1) if layer == "before" else bytes(damaged))
        try:
            passed = verify(bundle, Rules()).passed
        except InputError as error:
            passed, message = False, str(error)
            assert len(message) > 20
        assert not passed or contents(bundle) == whole
        found += not passed
    assert found > 25


def test_changed_bytes_are_called_damage(bundle: Path) -> None:
    """Wherever they are behind the header of gzip. One bit in 4,000 changes nothing, such as the code of no symbol."""
    packed, draw = bundle.read_bytes(), random.Random(2027)
    for _ in range(20):
        changed = bytearray(packed)
        changed[draw.randrange(20, len(packed) - 8)] ^= 1 << draw.randrange(8)
        if _unpacked(changed) == _unpacked(packed):
            continue
        bundle.write_bytes(changed)
        with pytest.raises(InputError, match=r"damaged: its .* Ask for it again"), opened(bundle):
            pass


def _unpacked(content: bytes) -> bytes | None:
    """What gzip makes of it; None if it cannot be read."""
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return None


def contents(bundle: Path) -> dict[str, bytes]:
    """Its files."""
    with tarfile.open(bundle) as archive:
        return {one.name: file.read() for one in archive if (file := archive.extractfile(one))}


def test_a_run_that_goes_on_is_not_packed(folder: Path) -> None:

    with (folder / "run.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="the run is still in progress"):
            pack(folder, None)


def test_a_run_without_a_record_is_not_packed_and_one_with_some_says_what_is_left(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = sorted(folder.glob("*.J*.json"))
    first.unlink()
    make_records.write_ledger(folder, WHOLE)
    assert call(["bundle", str(folder)]) == 0
    assert "1 launch not run yet: breaks R12. To finish the run: mnb resume" in capsys.readouterr().out
    for path in others:
        path.unlink()
    with pytest.raises(InputError, match=r"no record in it\. To run its launches, run mnb resume"):
        pack(folder, None, force=True)


def test_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.with_name("b.tar.gz")
    assert call(["bundle", str(folder), "-o", str(out)]) == 0
    assert "files:   6 (" in capsys.readouterr().out
    assert call(["verify", str(out)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "verdict             PASS: all 17 checkable rules met. Unsigned. Not checkable: R28, R29, R30"
    )
    assert re.findall(r"^(Recomputed|Self-reported|Not checkable)\b", text, re.MULTILINE) == [
        "Recomputed",
        "Self-reported",
        "Not checkable",
    ]
    assert call(["verify", str(folder), "--repeat", "5", "--profile", "standard"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("verdict             FAIL: 2 of 18 rules broken (R6, R11)")
    assert "R11   FAIL    required repeats" in text
    assert call(["report", str(out)]) == 1  # six of seven tests are missing
    assert check_results(str(out), Demands()).summary.tests == check_results(str(folder), Demands()).summary.tests


def test_a_bundle_that_was_packed_before_its_suite_had_weights_claims_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_records.write_run(Path("res"), make_records.plan("unweighed", {"vae": make_records.PER_GPU}, 2, 1), slices=24)
    assert call(["bundle", "res", "-o", "b.tar.gz"]) == 0
    Path("weights.json").write_text('{"unweighed.vae": {"weight": 1}}')
    assert call(["verify", "b.tar.gz", "--weights", "weights.json"]) == 0
    assert "R3    pass " in capsys.readouterr().out


def test_the_verdict_names_marks_that_no_rule_refuses() -> None:
    marked = verify(BUNDLES / "unfenced-loader-2xH100-20261125.tar.gz", Rules())
    assert marked.passed
    assert marked.marks == ("NOT ISOLATED: isolation none",)
    assert re.match(
        r"RULES MET \(all \d+ checkable\), but NOT COMPARABLE: NOT ISOLATED: isolation none\. ", marked.sentence
    )
    many = msgspec.structs.replace(marked, marks=("a", "b", "c", "d", "e")).sentence
    assert ", but NOT COMPARABLE: a, b, c, and 2 more. " in many


def test_the_verdict_is_on_the_first_screen_of_the_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = folder.with_name("rules.json")
    rules.write_text('{"name": "mine", "repeat": 1, "isolation": "full"}')
    assert call(["report", str(folder), "--rules", str(rules), "--weights", str(weights(folder))]) == 0
    first = next(line for line in capsys.readouterr().out.splitlines() if line.startswith(("Rules ", "! ")))
    assert first.startswith("Rules  PASS: all 18 checkable rules met. Rule set: mine. Unsigned")
    tampering.rewrite(next(folder.glob("quick.vae.J0.0.*")), tampering.fence(tier="none"))
    assert (
        call(["report", str(folder), "--rules", str(rules), "--weights", str(weights(folder)), "--format", "json"]) == 1
    )
    found = json.loads(capsys.readouterr().out)
    assert call(["report", str(folder), "--rules", str(rules), "--weights", str(weights(folder))]) == 1
    worst = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("! "))
    assert worst.startswith("! RULES BROKEN  2 of 18 rules (R13, R16). R13 ")
    assert not found["rules"]["passed"]
    assert found["rules"]["verdict"].startswith("FAIL: 2 of 18 rules broken (R13, R16)")


def weights(folder: Path) -> Path:
    """Weights of the one test that there is."""
    path = folder.with_name("weights.json")
    path.write_text('{"quick.vae": {"weight": 1}}')
    return path


def test_shipped_rules() -> None:
    assert "standard" in names("rules")
    rules = load_rules("standard")
    assert (rules.isolation, rules.repeat, rules.closed) == ("full", 10, True)


@pytest.mark.parametrize(("rules", "profile"), [("standard", "standard"), ("procurement", "procurement")])
def test_shipped_rules_pin_all_that_the_profile_leaves_open(rules: str, profile: str) -> None:
    """Every option of every test: as the profile states it, else at its default."""
    pinned, catalogue = load_rules(rules).arguments, builtin_workloads()
    path = find("profiles", profile)
    tests = json.loads(path.read_text())
    assert pinned.keys() <= {"*", *tests}
    for name, test in tests.items():
        options = catalogue[test["workload"]].describe(test["workload"], "").options
        left_open = {option.name: option.default for option in options if option.name not in test["arguments"]}
        demanded = {key: value for key, value in (pinned["*"] | pinned.get(name, {})).items() if key in left_open}
        assert demanded == left_open, f"{name}: rules/{rules}.json pins {demanded}, the defaults are {left_open}"
        assert not pinned.get(name, {}).keys() - left_open.keys(), f"{name}: the rules pin what the profile states"


def test_rules_for_both_suites_are_those_for_one() -> None:
    """They differ in what the modern suite adds, and pin the weights of both suites."""
    one, both = load_rules("standard"), load_rules("procurement")
    assert one.ceiling.flops_per_item.items() <= both.ceiling.flops_per_item.items()
    assert one.arguments.items() <= both.arguments.items()
    assert both == msgspec.structs.replace(
        one,
        name="procurement",
        profile=Pin(name="procurement"),
        weights=None,
        suite_weights={suite: Pin(name=suite) for suite in ("standard", "modern2")},
        ceiling=both.ceiling,
        arguments=both.arguments,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"isolatoin": "full"}', "unknown key 'isolatoin'"),
        ('{"quote": {}}', "unknown key 'quote'. The keys of rules are in docs/reference/rules-file.md"),
        ('{"isolation": "strong"}', "isolation: unknown word 'strong'. Known: "),
        (
            '{"marks_accepted": {"foreign CPU": null}}',
            "marks_accepted: unknown word 'foreign CPU' (did you mean 'foreign CPU load'?)",
        ),
        ('{"stamps": {"delay": 3}}', "stamps: unknown key 'delay' (did you mean 'delay_s'?). The keys"),
        ('{"profile": "quick"}', 'profile: expected an object, got text. Write {"name": "quick"}'),
        ('{"repeat": -1}', "rules.json: repeat: expected a whole number of at least 0"),
        ('{"failure_rate": 1.5}', "failure_rate: expected a number of at most 1 (80% is 0.8)"),
        ('{"margin": -0.1}', "margin: expected a number of at least 0"),
        ('{"repeat": "ten"}', "repeat: expected a whole number or null, got text"),
        ('{"least_sessions": 3, "sessions": 2}', "least_sessions demands 3, and sessions accepts at most 2. Raise"),
        ('{"schema": 2}', "rules schema 2: this is mnb"),
        ("[" * 5000, "nested too deeply"),
        ('{"ceiling": {"peak_flops": {"X": {"fp32": 0}}, "flops_per_item": {}}}', "above 0"),
        ('{"witnessed": {"R99": "x"}}', "witnessed: no rule for a witness 'R99'. Known: R28, "),
        ('{"doubts_refused": ["beyond-peek"]}', "no doubt 'beyond-peek' (did you mean 'beyond-peak'?)"),
        ('{"profile": {"name": "standart"}}', "profile: no shipped profile 'standart' (did you mean 'standard'?)"),
        ('{"suite_weights": {"a": {"name": "standart"}}}', "suite_weights.a: no shipped weights 'standart' (did you"),
        (
            '{"profile": {"name": "quick"}, "arguments": {"toy_regg": {}}}',
            "no test 'toy_regg' (did you mean 'toy_reg'?)",
        ),
        ('{"profile": {"sha256": "abc"}}', "profile.sha256: expected a SHA-256 of 64 hexadecimal digits, as"),
        ('{"libraries": ["abc"]}', "libraries[0]: expected a SHA-256 of 64"),
        ('{"least_version": "v0.4"}', "least_version: expected a version, such as 0.3.0"),
    ],
)
def test_bad_rules_are_a_message(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_rules(text.encode(), "rules.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("rules.json: ")


def test_rules_that_pin_other_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = folder.with_name("rules.json")
    other.write_text('{"weights": {"sha256": "' + "0" * 64 + '"}}')
    assert call(["verify", str(folder), "--rules", str(other), "--weights", str(weights(folder))]) == 2
    assert "the rules pin 000000000000" in capsys.readouterr().err
