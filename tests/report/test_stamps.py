"""Time stamps on the ledger: by a throw-away authority, and by the key of somebody with a clock."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import make_records
import msgspec
import pytest
import tampering
from tampering import WHOLE

from milabench_ng.cli import call
from milabench_ng.model.errors import InputError
from milabench_ng.records import ledger
from milabench_ng.records.reading import read_ledger
from milabench_ng.verification import stamping
from milabench_ng.verification import verify as verifying
from milabench_ng.verification.authority import UnfitReplyError, check_reply, read_certificates, read_reply
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.checks.check_stamps import drift, due, heads
from milabench_ng.verification.findings import Ruling
from milabench_ng.verification.rules import Rules, StampRule
from milabench_ng.verification.signing import make_key
from milabench_ng.verification.stamping import NAMESPACE, Stamp, add_stamp, read_stamps, request_stamp
from milabench_ng.verification.verify import verify

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
AUTHORITY = """
[req]
distinguished_name = name
prompt = no
x509_extensions = extensions
[name]
CN = throw-away authority
[extensions]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[tsa]
serial = {place}/serial
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256
ess_cert_id_alg = sha256
clock_precision_digits = 3
"""
DEMANDED = Rules(stamps=StampRule(delay_s=600.0))

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
CERTIFICATE = ("openssl", "req", "-x509", "-days", "2", *KEY)


class Keys(NamedTuple):
    """Who stamps, with the public side in files."""

    place: Path

    @property
    def authorities(self) -> Path:
        return self.place / "authority.pem"

    @property
    def allowed(self) -> Path:
        return self.place / "allowed"

    def reply(self, query: Path) -> Path:
        """The authority's reply."""
        answer = self.place / f"reply-{query.stem}.tsr"
        signed = ["-queryfile", query, "-signer", self.authorities, "-inkey", self.place / "authority.key"]
        command = ["openssl", "ts", "-reply", "-config", self.place / "authority.cnf", "-section", "tsa"]
        run(*command, *signed, "-out", answer)
        return answer

    def signature(self, text: Path) -> Path:
        """The buyer's signature."""
        answer = Path(shutil.copy(text, self.place / "asked.txt"))
        answer.with_name("asked.txt.sig").unlink(missing_ok=True)
        run("ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", self.place / "buyer", answer)
        return answer.with_name("asked.txt.sig")


def run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """An authority, and a buyer."""
    place = tmp_path_factory.mktemp("keys")
    (place / "authority.cnf").write_text(AUTHORITY.format(place=place))
    (place / "serial").write_text("01\n")
    made = ["-keyout", place / "authority.key", "-out", place / "authority.pem", "-config", place / "authority.cnf"]
    run(*CERTIFICATE, *made)
    public = make_key(place / "buyer", "buyer")
    (place / "allowed").write_text(f'buyer@example.org namespaces="{NAMESPACE}" {public}')
    return Keys(place)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "results"
    make_records.write_run(folder, WHOLE, slices=24)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """A folder with which nothing is wrong, and whose ledger is of now."""
    made = Path(shutil.copytree(sound, tmp_path / "results"))
    write(made, events_of(made), datetime.now(UTC))
    return made


def events_of(folder: Path) -> list[object]:
    return [event for _, event in tampering.ledger_events(folder)]


def write(folder: Path, events: list[object], utc: datetime, lines: int | None = None) -> None:
    """A ledger of the first ``lines`` events, all written at ``utc``; the same events have the same heads."""
    stamp = utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    tampering.write_events(folder, [(stamp, event) for event in events[:lines]])


def stamp(folder: Path, keys: Keys) -> None:
    """Have an authority stamp the head, and the buyer."""
    query, text = request_stamp(folder)
    add_stamp(folder, keys.reply(query))
    add_stamp(folder, keys.signature(text))


def run_stamped(folder: Path, keys: Keys, utc: datetime, points: list[str]) -> None:
    """Write the ledger again, stamped at these points."""
    events = events_of(folder)
    places = due(read_ledger(folder))
    for point in points:
        write(folder, events, utc, places[point] + 1)
        stamp(folder, keys)
    write(folder, events, utc)


def ruling(folder: Path, keys: Keys, rules: Rules = DEMANDED) -> Ruling:
    found = verify(folder, rules, allowed_signers=keys.allowed, authorities=keys.authorities)
    return {one.id: one for one in found.rulings}["R32"]


def test_stamps_are_due_at_the_start_after_each_run_and_at_the_end(folder: Path) -> None:
    chain = read_ledger(folder)
    places = due(chain)
    assert set(places) == {"the start", "run 0", "run 1", "the end"}
    assert (places["the start"], places["the end"]) == (1, len(chain.entries) - 1)
    lines = (folder / "ledger.jsonl").read_bytes().splitlines()
    assert list(heads(chain)) == [ledger.digest(line) for line in lines]


def test_a_run_that_was_stamped_in_time_keeps_the_rule(folder: Path, keys: Keys, tmp_path: Path) -> None:
    run_stamped(folder, keys, datetime.now(UTC), ["the start", "run 0", "run 1", "the end"])
    assert ruling(folder, keys) == msgspec.structs.replace(ruling(folder, keys), result="pass", reasons=())
    names = sorted(path.suffix for path in (folder / "stamps").iterdir())
    assert names == sorted([".tsq", ".tsr", ".txt", ".sig"] * 4)
    made = pack(folder, tmp_path / "b.tar.gz")
    assert made.left_out == ()
    assert ruling(made.path, keys).result == "pass"


@pytest.mark.parametrize("kind", ["authority", "buyer"])
def test_either_kind_is_enough(folder: Path, keys: Keys, kind: str) -> None:
    run_stamped(folder, keys, datetime.now(UTC), ["the start", "run 0", "run 1", "the end"])
    for path in (folder / "stamps").glob("*.sig" if kind == "authority" else "*.tsr"):
        path.unlink()
    assert ruling(folder, keys).result == "pass"


def test_a_run_without_stamps_breaks_it_only_if_they_are_demanded(folder: Path, keys: Keys) -> None:
    assert ruling(folder, keys, Rules()).result == "not required"
    assert ruling(folder, keys).reasons[0] == "no timestamp on the ledger after the start"


def test_stamps_that_come_late(folder: Path, keys: Keys) -> None:
    run_stamped(folder, keys, datetime.now(UTC) - timedelta(hours=1), ["the end"])
    reasons = ruling(folder, keys).reasons
    assert len(reasons) == 4
    assert "s late, but the rules allow 600 s" in reasons[0]


def test_lines_cut_off_after_a_stamp(folder: Path, keys: Keys) -> None:
    """The last run went badly: its lines are cut off, and it is done again."""
    events = events_of(folder)
    stamp(folder, keys)
    write(folder, [*events[:-3], *events[-2:]], datetime.now(UTC))
    assert "which this ledger never had: lines were cut off" in ruling(folder, keys, Rules()).reasons[0]


def test_many_stamps_of_no_head_are_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tuple(Stamp(head=f"{place:064x}", utc=datetime.now(UTC), by="buyer") for place in range(3))
    monkeypatch.setattr(verifying, "read_stamps", lambda *_: seen)
    told = {one.id: one for one in verify(folder, Rules()).rulings}["R32"].reasons
    assert told == ("buyer stamped the head 000000000000 and 2 more, which this ledger never had: lines were cut off",)


def test_more_stamps_than_anybody_needs_are_refused_before_any_is_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would start two programs."""
    monkeypatch.setattr(stamping, "_of_signer", None)
    names = [f"stamps/{place:064x}.txt.sig" for place in range(stamping.MOST_STAMPS + 1)]
    with pytest.raises(InputError, match="stamps/ holds 2001 stamps, at most 2000 are checked: keep those soon after"):
        read_stamps(folder, names, folder / "allowed", None)


def test_many_problems_are_told_briefly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tuple(Stamp(head=f"{place:064x}", problem=f"why {place}") for place in range(5))
    monkeypatch.setattr(verifying, "read_stamps", lambda *_: seen)
    told = {one.id: one for one in verify(folder, DEMANDED).rulings}["R32"].reasons
    assert told[0] == "no timestamp on the ledger after the start (why 0; why 1; why 2; and 2 more)"


def test_a_clock_that_was_set_forward(folder: Path, keys: Keys) -> None:
    run_stamped(folder, keys, datetime.now(UTC) + timedelta(hours=1), ["the start"])
    assert "line 2 of the ledger says that it is younger than its stamp" in ruling(folder, keys, Rules()).reasons[0]


def test_stamps_by_nobody_who_counts(folder: Path, keys: Keys, tmp_path: Path) -> None:
    stamp(folder, keys)
    allowed = tmp_path / "allowed"
    allowed.write_text(f"other@example.org {make_key(tmp_path / 'other', 'other')}")
    run(*CERTIFICATE, "-subj", "/CN=other", "-keyout", tmp_path / "k", "-out", tmp_path / "c")
    names = [f"stamps/{path.name}" for path in (folder / "stamps").iterdir()]
    problems = {one.problem.partition(":")[0] for one in read_stamps(folder, names, allowed, tmp_path / "c")}
    assert problems == {f"the key of the signature is not in {allowed}", f"no authority in {tmp_path / 'c'} made it"}
    unknown = {one.problem for one in read_stamps(folder, names, None, None)}
    assert unknown == {
        "--allowed-signers FILE was not given",
        "the certificate of its authority was not given (--tsa-certs)",
    }


def test_a_slow_clock_is_found_by_the_growth_of_the_delays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each delay is allowed; a clock that loses a quarter makes them grow, however late somebody stamps."""
    chain, noise = read_ledger(make_stepwise(folder, 12, 60.0)), random.Random(2)
    lines = [(head, datetime.fromisoformat(entry.utc)) for head, entry in zip(heads(chain), chain.entries, strict=True)]
    for slow, said in ((0.25, "the node's clock loses"), (0.0, "")):
        late = [slow * (utc - lines[0][1]).total_seconds() + noise.uniform(0, 30) for _, utc in lines]
        seen = tuple(
            Stamp(head=head, utc=utc + timedelta(seconds=by), by="authority")
            for (head, utc), by in zip(lines, late, strict=True)
        )
        monkeypatch.setattr(verifying, "read_stamps", lambda *_, seen=seen: seen)
        told = {one.id: one for one in verifying.verify(folder, DEMANDED).rulings}["R32"].reasons
        assert [said in why for why in told if "clock loses" in why] == ([True] if said else [])


def make_stepwise(folder: Path, lines: int, step_s: float) -> Path:
    """The first lines of a ledger, written one after another."""
    begin, events = datetime.now(UTC) - timedelta(seconds=lines * step_s), events_of(folder)[:lines]
    dates = [(begin + timedelta(seconds=step_s * at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for at in range(len(events))]
    tampering.write_events(folder, list(zip(dates, events, strict=True)))
    return folder


def test_random_delays_are_no_drift() -> None:
    draw = random.Random(1)
    found = [drift({600.0 * at: draw.uniform(0, 600) for at in range(12)}) for _ in range(300)]
    assert sum(rate is not None for rate in found) <= 1
    assert drift({600.0 * at: 60.0 * at for at in range(12)}) == pytest.approx(0.1)
    assert drift({0.0: 0.0, 60.0: 100.0, 120.0: 200.0}) is None  # too few


def test_idle_time_between_batches_has_a_cap(folder: Path, keys: Keys) -> None:
    short = Rules(stamps=StampRule(delay_s=600.0, idle_s=60.0))
    assert not any("nothing ran" in why for why in ruling(folder, keys).reasons)
    assert any(
        "nothing ran for 86 s before launch group 1, but the rules allow 60 s" in why
        for why in ruling(folder, keys, short).reasons
    )


def test_another_time_in_a_signed_text(folder: Path, keys: Keys) -> None:
    _, text = request_stamp(folder)
    add_stamp(folder, keys.signature(text))
    text.write_text(text.read_text().replace("20", "19", 1))
    (one,) = read_stamps(folder, [f"stamps/{text.name}.sig"], keys.allowed, None)
    assert one.utc is None
    assert one.problem


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00+23:59", "2026-11-22T10:00:00", "yesterday"])
def test_a_date_that_is_none_is_a_problem_of_the_stamp(folder: Path, keys: Keys, date: str) -> None:
    _, text = request_stamp(folder)
    text.write_text(re.sub(r"\d{4}-\d\d-\d\dT\S+", date, text.read_text(), count=1))
    signature = keys.signature(text)
    shutil.copy(signature, text.with_name(f"{text.name}.sig"))
    (one,) = read_stamps(folder, [f"stamps/{text.name}.sig"], keys.allowed, None)
    assert (one.utc, bool(one.problem)) == (None, True)


def test_answers_to_nothing_are_refused(folder: Path, keys: Keys, tmp_path: Path) -> None:
    query, text = request_stamp(folder)
    reply, signature = keys.reply(query), keys.signature(text)
    shutil.rmtree(folder / "stamps")
    (folder / "stamps").mkdir()
    (tmp_path / "odd").write_bytes(b"odd")
    for answer, said in (
        (reply, "no (such )?request"),
        (signature, "no (such )?request"),
        (tmp_path / "odd", "neither"),
    ):
        with pytest.raises(InputError, match=said):
            add_stamp(folder, answer)
    with pytest.raises(InputError, match="no ledger"):
        request_stamp(tmp_path)
    (tmp_path / "ledger.jsonl").touch()  # as before the first launch group
    with pytest.raises(InputError, match=r"no launch group has begun.* Ask again in a minute"):
        request_stamp(tmp_path)


def test_a_reply_is_of_one_head_and_one_authority(folder: Path, keys: Keys) -> None:
    query, _ = request_stamp(folder)
    reply, known = keys.reply(query).read_bytes(), read_certificates(keys.authorities.read_bytes())
    head, utc = read_reply(reply)
    assert head == query.stem == read_ledger(folder).head
    assert abs(datetime.now(UTC) - utc) < timedelta(minutes=1)
    assert check_reply(reply, head, known) == utc
    with pytest.raises(UnfitReplyError, match="Mismatch between messages"):
        check_reply(reply, "0" * 64, known)


def test_a_reply_that_grants_nothing_is_no_stamp() -> None:
    with pytest.raises(UnfitReplyError):
        read_reply(bytes.fromhex("30053003020102"))  # PKIStatusInfo: rejection


def test_a_changed_reply_is_refused_or_says_the_same(folder: Path, keys: Keys) -> None:
    query, _ = request_stamp(folder)
    reply, known = keys.reply(query).read_bytes(), read_certificates(keys.authorities.read_bytes())
    utc, draw = check_reply(reply, query.stem, known), random.Random(3)
    for _ in range(1000):
        changed = bytearray(reply)
        changed[draw.randrange(len(reply))] = draw.randrange(256)
        end = draw.choice([None, draw.randrange(len(reply))])
        with contextlib.suppress(UnfitReplyError):
            assert check_reply(bytes(changed[:end]), query.stem, known) == utc


def test_without_the_extra_commands_say_how_to_install_it(
    folder: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query, _ = request_stamp(folder)
    reply = keys.reply(query)
    monkeypatch.delitem(sys.modules, "milabench_ng.verification.authority")
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    missing = "timestamps by an authority: the package rfc3161_client is not installed"
    needed = f'{missing}. Run: pip install "milabench_ng[stamps]"'
    for command in (["request", str(folder)], ["add", str(folder), str(reply)]):
        assert call(["stamp", *command]) == 2
        assert needed in " ".join(capsys.readouterr().err.split())
    shutil.copytree(folder, other := folder.with_name("other"), ignore=lambda *_: ["stamps"])
    assert call(["stamp", "request", str(other)]) == 2
    assert not (other / "stamps").exists(), "refused before anything is written"
    assert call(["stamp", "add", str(folder), str(keys.signature(query.with_suffix(".txt")))]) == 0
    shutil.copy(reply, query.with_suffix(".tsr"))
    for given, code in ((["--tsa-certs", str(keys.authorities)], 2), ([], 0)):
        assert call(["verify", str(folder), *given]) == code
    assert needed in " ".join(capsys.readouterr().err.split())


def test_a_file_without_certificates_is_named(folder: Path, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    query, _ = request_stamp(folder)
    shutil.copy(keys.reply(query), query.with_suffix(".tsr"))
    assert call(["verify", str(folder), "--tsa-certs", str(folder / "run.json")]) == 2
    assert "run.json: no certificates (PEM): " in capsys.readouterr().err


def test_the_command(folder: Path, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["stamp", "request", str(folder)]) == 0
    assert "to be signed" in capsys.readouterr().out
    (query,) = (folder / "stamps").glob("*.tsq")
    assert call(["stamp", "add", str(folder), str(keys.reply(query))]) == 0
    assert query.with_suffix(".tsr").exists()
    assert call(["stamp", "add", str(folder), str(folder / "run.json")]) == 2
