"""`mnb tender`: the folder of a new tender, and the one to rehearse with, whose every command is run here."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.model.profile import read_profile
from milabench_ng.model.shipped import names
from milabench_ng.tender import demo
from milabench_ng.tender.bids import read_bids
from milabench_ng.tender.new_tender import usual_reference, vendor_command
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.rules_file import load_rules, profile_to_run
from milabench_ng.verification.signing import make_key

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tender") / "demo"
    assert call(["tender", "demo", str(folder)]) == 0
    return folder


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "acme", "acme")
    return tmp_path / "acme.pub"


def told(folder: Path) -> list[tuple[str, int]]:
    """The commands that a README prints, with the exit codes that it states."""
    text = (folder / "README.md").read_text()
    found = re.findall(r"Exit\s+code:\s+(\d+)\.\n\n```sh\n(mnb .+)\n```", text)
    assert len(found) == text.count("```sh")
    return [(command, int(code)) for code, command in found]


def test_every_command_of_the_rehearsal_does_what_its_readme_says(
    rehearsal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(rehearsal)
    said = {}
    for command, code in told(rehearsal):
        assert call(command.split()[1:]) == code, command
        said[command.split()[1:3][-1]] = capsys.readouterr().out
        assert code == 0 or "FAIL" in said[command.split()[2]] or command.startswith("mnb accept")
    assert len(told(rehearsal)) == len(demo.STEPS) == 4
    verdicts = {name: said[f"{name}.bundle.tar.gz"].split("\n")[0] for name in ("umbra",)}
    assert re.search(r"FAIL: 3 of \d+ rules broken \(R3, R13, R37\).* Signed by umbra", verdicts["umbra"])
    assert "nothing is ranked: fewer than 5 repeats" in said["bids.json"]
    assert (
        "next         ask all bidders, also the refused, for a new run: mnb jobs PROFILE-OF-THE-TENDER --repeat 5"
        in said["bids.json"]
    )
    assert "refused      umbra" in said["bids.json"]
    assert "R3 (numbers match the slices): " in said["bids.json"]
    assert "; and 2 more. Signed by umbra. To see every reason, run `mnb verify`" in said["bids.json"]
    assert "globex: RULES MET (all 23 checkable), but NOT COMPARABLE: ran in file order" in said["bids.json"]
    assert said["bids.json"].count("ran in file order") == 1, "the verdict and the mark say it once"
    assert "bids, in the order of their file" in said["bids.json"]
    first, following = said["acme.bundle.tar.gz"].split("\n")[:2]
    assert (
        first == "verdict     the delivered node does not meet the bid: the bid has 2 devices, the delivered node has 1"
    )
    assert following.startswith("next        have the vendor mend or replace the node")
    assert (
        "measure it again (mnb jobs PROFILE-OF-THE-TENDER --repeat 5 --sessions 3 --session-gap 6h), then run this"
        in following
    )
    assert said["acme.bundle.tar.gz"].count("(--order file)") == 1
    assert "it did not run on the delivered node" in said["acme.bundle.tar.gz"], "reasons of single tests stay"
    assert not re.search(r"inconclusive +inconclusive", said["acme.bundle.tar.gz"])
    assert (rehearsal / "bids.html").is_file()
    assert not list(rehearsal.glob("*.key*")), "the keys are thrown away"


@pytest.mark.root
@pytest.mark.parametrize(
    ("command", "size"), [("demo", "64k"), ("init --vendor acme=5", "12k")], ids=["rehearsal", "tender"]
)
def test_a_folder_that_does_not_fit_on_the_disk_stays_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, size: str
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "mnb-test", disk], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr}")
    try:
        verb, *options = command.split()
        assert call(["tender", verb, str(disk / "new"), *options]) == 2
        said = capsys.readouterr().err
        assert said == f"mnb: {disk}/new: No space left on device. Name another folder\n"
        assert list((disk / "new").iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_both_honest_bids_keep_the_rules(rehearsal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demands = ["--rules", str(rehearsal / "tender.json"), "--allowed-signers", str(rehearsal / "vendors.txt")]
    for name in ("acme", "globex"):
        assert call(["verify", str(rehearsal / f"{name}.bundle.tar.gz"), *demands]) == 0
        assert f"Signed by {name}" in capsys.readouterr().out


def test_what_init_writes_is_verified_and_ranked_as_it_is(
    rehearsal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bids of the rehearsal, under rules that they keep; whoever has signed is in the file of signers."""
    signers = dict(line.split(' namespaces="mnb" ') for line in (rehearsal / "vendors.txt").read_text().splitlines())
    vendors = []
    for name in ("acme", "globex"):
        (tmp_path / f"{name}.pub").write_text(signers[name])
        vendors += ["--vendor", f"{name}=70,000", "--key", f"{name}={tmp_path}/{name}.pub"]
    folder = tmp_path / "tender-2026-17"
    rules = ["--rules", str(rehearsal / "tender.json"), "--reference", "modern-h200"]
    assert call(["tender", "init", str(folder), *rules, *vendors]) == 0
    for name in ("acme", "globex"):
        shutil.copy(rehearsal / f"{name}.bundle.tar.gz", folder)
    monkeypatch.chdir(folder)
    capsys.readouterr()
    text = (folder / "README.md").read_text()
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert [line.split()[1] for line in commands] == ["verify", "verify", "bids"]
    for command in commands:
        assert call(command.split()[1:]) == 0, command
        said = capsys.readouterr().out
        assert "all 23 checkable" in said
        assert "Rule set: tender-2026-17." in said or command.startswith("mnb bids")


@pytest.mark.parametrize("rules", names("rules"))
def test_init_changes_nothing_but_the_name_and_the_nonce(rules: str, tmp_path: Path, key: Path) -> None:
    folder = tmp_path / "made"
    given = ["--rules", rules, "--vendor", "acme=300000", "--key", f"acme={key}", "--nonce", "n1"]
    assert call(["tender", "init", str(folder), *given]) == 0
    shipped = load_rules(rules)
    assert load_rules(folder / "tender.json") == msgspec.structs.replace(shipped, name="made", nonce="n1")
    bids = read_bids(folder / "bids.json")
    assert bids.bids["acme"].signed_by == "acme"
    assert bids.reference == ("h200" if rules == "standard" else "acme.bundle.tar.gz")
    assert (folder / "vendors.txt").read_text().startswith('acme namespaces="mnb" ssh-ed25519 ')


@pytest.mark.parametrize(
    ("profile", "reference"),
    [
        (Pin(name="modern"), None),
        (Pin(name="modern", sha256="0" * 64), None),  # of another version, as in the rehearsal
        (Pin(sha256=read_profile(ROOT / "profiles" / "modern.json").sha256.upper()), None),
        (Pin(sha256="0" * 64), None),  # of the buyer's own suite
        (Pin(name="standard"), "h200"),
        (None, "h200"),
    ],
)
def test_the_usual_reference_ran_the_suite_that_the_rules_demand(profile: Pin | None, reference: str | None) -> None:
    assert usual_reference(Rules(profile=profile)) == reference


def test_the_profile_of_the_next_run_is_one_that_the_rules_accept() -> None:
    for pin, word in ((Pin(name="quick"), "quick"), (Pin(name="modern", sha256="0" * 64), "PROFILE-OF-THE-TENDER")):
        assert profile_to_run(Rules(profile=pin), "modern") == vendor_command(Rules(profile=pin))[2] == word
    assert profile_to_run(Rules(), "modern") == "modern"


def test_a_reference_is_named_as_the_bids_file_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "baselines" / "a100.json", tmp_path / "ours.json")
    for given, named in (
        ("v100", "v100"),
        ("ours.json", "../ours.json"),
        ("acme.bundle.tar.gz", "acme.bundle.tar.gz"),
    ):
        assert call(["tender", "init", f"made-{given}", "--vendor", "acme=3", "--reference", given]) == 0
        assert read_bids(tmp_path / f"made-{given}" / "bids.json").reference == named


@pytest.mark.parametrize("rules", names("rules"))
@pytest.mark.parametrize("nonce", [None, "a nonce"])
def test_the_command_for_vendors_asks_for_what_the_rules_do(rules: str, nonce: str | None, tmp_path: Path) -> None:
    given = ["--rules", rules, "--vendor", "acme=3", *(["--nonce", nonce] if nonce else [])]
    assert call(["tender", "init", str(tmp_path / "made"), *given]) == 0
    readme = (tmp_path / "made" / "README.md").read_text()
    (line,) = (line for line in readme.splitlines() if line.startswith("mnb jobs "))
    words = shlex.split(line)
    stated = dict(zip(words[3::2], words[4::2], strict=True))
    demanded = load_rules(tmp_path / "made" / "tender.json")
    assert (words[2], stated["--rules"]) == (demanded.profile.name, "tender.json")
    assert int(stated["--repeat"]) * int(stated["--sessions"]) >= (demanded.repeat or 0)
    assert (demanded.least_sessions or 0) <= int(stated["--sessions"]) <= (demanded.sessions or 0)
    assert stated["--session-gap"] == f"{demanded.session_gap_h:g}h"
    assert stated.get("--nonce") == nonce == demanded.nonce


def test_init_asks_at_a_terminal(tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(("acme", "", "300000", str(key), "umbra", "231000", "", ""))
    monkeypatch.setattr("rich.prompt.Prompt.ask", lambda *_, **__: next(answers))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert call(["tender", "init", str(tmp_path / "made")]) == 0
    assert {name: bid.price for name, bid in read_bids(tmp_path / "made" / "bids.json").bids.items()} == {
        "acme": 300_000,
        "umbra": 231_000,
    }
    assert (tmp_path / "made" / "vendors.txt").read_text().splitlines()[1].startswith("# the key is missing: umbra ")


def test_questions_that_end_without_an_answer_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Ended())
    assert call(["tender", "init", str(tmp_path / "made")]) == 2
    assert capsys.readouterr().err == ("mnb: the questions ended without an answer. Give --vendor NAME=PRICE instead\n")
    assert not (tmp_path / "made").exists()


class Ended(io.StringIO):
    """A terminal at which somebody typed Ctrl-D."""

    def isatty(self) -> bool:
        return True


def test_what_cannot_be_a_tender_is_refused_and_nothing_is_written(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    private = key.with_suffix("")
    for given, why in (
        ([], "a tender needs a vendor and a price. Try --vendor acme=300000"),
        (["--vendor", "acme"], "--vendor 'acme': expected NAME=VALUE"),
        (["--vendor", "acme=3", "--vendor", "acme=4"], "--vendor: a vendor is named twice"),
        (["--vendor", "acme=dear"], "--vendor acme: expected an amount"),
        (["--vendor", "../acme=3"], "a name of letters"),
        (["--vendor", "acme=3", "--key", f"umbra={key}"], "--key umbra: no vendor of that name"),
        (["--vendor", "acme=3", "--key", "acme=none.pub"], "--key acme=none.pub: no such file. Leave it out if"),
        (["--vendor", "acme=3", "--key", f"acme={private}"], "this is a private key. Give the public one"),
        (["--vendor", "acme=3", "--reference", "h300"], "--reference h300: no such file or folder, and no shipped"),
        (["--vendor", "acme=3", "--reference", "h300"], "(did you mean"),
        (["--vendor", "acme=3", "--reference", "lambda-a100"], "Name results of standard, such as a100, h200"),
        (
            ["--vendor", "acme=3", "--reference", "h200", "--rules", "procurement"],
            "no weighted test of modern2, so no bid could be ranked. Name results of standard and modern2, or leave",
        ),
        (["--vendor", "acme=3", "--rules", "none"], "no such file. Shipped rules: procurement"),
    ):
        assert call(["tender", "init", str(made), *given]) == 2
        assert why in capsys.readouterr().err
        assert not made.exists()
    for command in (["init", str(tmp_path), "--vendor", "acme=3"], ["demo", str(tmp_path)]):
        assert call(["tender", *command]) == 2
        assert "the folder is not empty. Name a new one" in capsys.readouterr().err
