"""Quotes of a TPM over nonce and ledger head, by tpm2-tools and a TPM in software (swtpm)."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import make_records
import pytest
import tampering
from tampering import WHOLE

from milabench_ng.cli import call
from milabench_ng.records.names import file_digest
from milabench_ng.report.verification.bundle import pack
from milabench_ng.report.verification.findings import Ruling
from milabench_ng.report.verification.quoting import extended, make_quote, qualification
from milabench_ng.report.verification.rules import QuoteRule, Rules
from milabench_ng.report.verification.verify import verify

HANDLE = "0x81010002"
LISTED = b"ima-ng data of one file"


def entry(data: bytes, number: int = 10, template: bytes = b"\1" * 20) -> bytes:
    """An entry of a binary IMA log."""
    name = b"ima-ng"
    sizes = [len(one).to_bytes(4, "little") + one for one in (name, data)]
    return number.to_bytes(4, "little") + template + b"".join(sizes)


def test_the_register_follows_from_the_log_entry_by_entry() -> None:
    def step(value: bytes, digest: bytes) -> bytes:
        return hashlib.sha256(value + digest).digest()

    first = step(bytes(32), hashlib.sha256(b"a").digest())
    violated = step(first, b"\xff" * 32)
    log = entry(b"a") + entry(b"of another register", number=11) + entry(b"b", template=bytes(20))
    assert list(extended(log)) == [first, violated]
    assert list(extended(log + b"cut")) == [first, violated]
    assert list(extended(b"")) == []


def test_what_is_signed_follows_from_nonce_and_head(folder: Path) -> None:
    chain = tampering.read_ledger(folder)
    wanted = hashlib.sha256(f"{tampering.NONCE}\n{chain.head}".encode()).hexdigest()
    assert qualification(chain) == wanted


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "results"
    make_records.write_run(folder, WHOLE, slices=24)
    make_records.write_ledger(folder, WHOLE)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "results"))


@pytest.fixture
def tpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A TPM with an attestation key, and something loaded; the SHA-256 of the key's file."""
    if shutil.which("swtpm") is None or shutil.which("tpm2_quote") is None:
        pytest.skip("swtpm or tpm2-tools is not installed")
    state, socket = tmp_path / "tpm", tmp_path / "tpm.socket"
    state.mkdir()
    served = [f"--{name}=type=unixio,path={path}" for name, path in (("server", socket), ("ctrl", f"{socket}.ctrl"))]
    command = ["swtpm", "socket", "--tpm2", f"--tpmstate=dir={state}", *served, "--flags=not-need-init,startup-clear"]
    with subprocess.Popen(command) as server:
        try:
            wait_for(socket)
            monkeypatch.setenv("TPM2TOOLS_TCTI", f"swtpm:path={socket}")
            yield made_key(tmp_path)
        finally:
            server.terminate()


def wait_for(socket: Path) -> None:
    deadline = time.monotonic() + 60
    while not socket.exists():
        assert time.monotonic() < deadline, "swtpm does not start"
        time.sleep(0.01)


def made_key(place: Path) -> str:
    """An attestation key as in docs/run-rules.md; a TPM without a resource manager forgets nothing by itself."""
    for command in (
        "tpm2_createek -G ecc -c 0x81010001 -u ek.pub",
        "tpm2_flushcontext -t",
        "tpm2_createak -C 0x81010001 -G ecc -g sha256 -s ecdsa -c ak.context",
        "tpm2_flushcontext -t",
        "tpm2_flushcontext -s",
        f"tpm2_evictcontrol -C o -c ak.context {HANDLE}",
        f"tpm2_readpublic -c {HANDLE} -f pem -o ak.pem",
    ):
        subprocess.run(command.split(), check=True, capture_output=True, cwd=place)
    run("tpm2_pcrextend", f"10:sha256={hashlib.sha256(LISTED).hexdigest()}")
    return file_digest((place / "ak.pem").read_bytes())


def run(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True)


def ruling(source: Path, rule: QuoteRule | None) -> Ruling:
    return {one.id: one for one in verify(source, Rules(quote=rule)).rulings}["R34"]


def logged(quote: Path, log: bytes) -> None:
    quote.with_name(f"{quote.name}.ima").write_bytes(log)


def test_a_quote_of_the_last_head_keeps_the_rule_also_in_a_bundle(
    folder: Path, tpm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["stamp", "quote", str(folder), "--key", HANDLE]) == 0
    (quote,) = (folder / "stamps").glob("*.quote")
    assert capsys.readouterr().out == f"quoted: {quote}\n"
    logged(quote, entry(LISTED) + entry(b"loaded after the quote"))
    read = hashlib.sha256(bytes(32) + hashlib.sha256(LISTED).digest()).hexdigest()
    demanded = QuoteRule(key=tpm, pcrs={"0": "0" * 64, "10": read}, ima=True)
    made = pack(folder, tmp_path / "b.tar.gz")
    assert made.left_out == ()
    assert [ruling(source, demanded).result for source in (folder, made.path)] == ["pass", "pass"]
    assert ruling(folder, None).result == "off"


def test_without_a_quote_the_rule_is_broken_only_if_it_is_demanded(folder: Path) -> None:
    assert ruling(folder, None).result == "off"
    assert ruling(folder, QuoteRule(key="0" * 64)).reasons[0].startswith("no TPM quoted the last head")


def test_files_of_a_bidder_that_cannot_be_read_break_the_rule_and_nothing_else(folder: Path) -> None:
    head = tampering.read_ledger(folder).head
    (folder / "stamps").mkdir()
    for part in ("", ".signature", ".key"):
        (folder / "stamps" / f"{head}.quote{part}").write_bytes(b"x")
    with (folder / "stamps" / f"{head}.quote.pcrs").open("wb") as large:
        large.truncate(1 << 30)
    assert ruling(folder, None).result == "off"
    (why,) = ruling(folder, QuoteRule(key="0" * 64)).reasons
    assert why.startswith("the quote of the last head does not count: ")


def test_quotes_that_do_not_count(folder: Path, tpm: str) -> None:
    quote = make_quote(folder, HANDLE)

    def reason(rule: QuoteRule = QuoteRule(key=tpm)) -> str:  # noqa: B008
        return " ".join(ruling(folder, rule).reasons)

    assert "another machine made it" in reason(QuoteRule(key="0" * 64))
    assert "PCR 7 is 000000000000, ffffffffffff is demanded" in reason(QuoteRule(key=tpm, pcrs={"7": "f" * 64}))
    assert "(IMA) is not there" in reason(QuoteRule(key=tpm, ima=True))
    logged(quote, entry(b"another file"))
    assert "PCR 10 does not follow from the log" in reason()
    quote.with_name(f"{quote.name}.ima").unlink()
    for part, change, said in CHANGES:
        path = quote.with_name(f"{quote.name}{part}")
        before = path.read_bytes()
        change(path)
        assert said in reason(), part
        path.write_bytes(before)
    assert reason() == ""


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


CHANGES: tuple[tuple[str, Callable[[Path], None], str], ...] = (
    (".pcrs", lambda path: flip(path, 0), "are not those that were quoted"),
    (".pcrs", lambda path: path.write_bytes(path.read_bytes()[:-32]), "no quote of the PCRs 0 to 10"),
    (".signature", lambda path: flip(path, -1), "the key beside it did not sign it"),
    (".signature", Path.unlink, "is missing"),
    (".key", lambda path: path.write_bytes(b"no key"), "the key beside it did not sign it"),
    ("", lambda path: flip(path, 0), "no quote of the PCRs 0 to 10"),
    ("", lambda path: flip(path, 60), "the key beside it did not sign it"),
)


def test_a_quote_of_another_head_or_nonce(folder: Path, tpm: str) -> None:
    quote = make_quote(folder, HANDLE)
    events = tampering.ledger_events(folder)
    tampering.write_events(folder, events[:-1])
    assert "no TPM quoted the last head" in ruling(folder, QuoteRule(key=tpm)).reasons[0]
    head = tampering.read_ledger(folder).head
    for path in (folder / "stamps").iterdir():
        path.rename(path.with_name(path.name.replace(quote.stem, head)))
    assert "for this nonce and head" in ruling(folder, QuoteRule(key=tpm)).reasons[0]


def test_after_a_resumption_the_last_head_is_quoted_anew_and_only_its_quote_read(
    folder: Path, tpm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = tampering.ledger_events(folder)
    for end in (len(events) - 1, len(events)):
        tampering.write_events(folder, events[:end])
        make_quote(folder, HANDLE)
    asked = tmp_path / "bin" / "tpm2_checkquote"
    asked.parent.mkdir()
    asked.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {shutil.which(asked.name)} "$@"\n')
    asked.chmod(0o755)
    monkeypatch.setenv("PATH", str(asked.parent), prepend=":")
    assert len(list((folder / "stamps").glob("*.quote"))) == 2
    assert ruling(folder, QuoteRule(key=tpm)).result == "pass"
    (once,) = (tmp_path / "asked").read_text().splitlines()
    assert tampering.read_ledger(folder).head in once


@pytest.mark.usefixtures("tpm")
def test_a_key_that_the_tpm_does_not_have(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["stamp", "quote", str(folder), "--key", "0x81010099"]) == 2
    assert "tpm2_readpublic: " in capsys.readouterr().err
    assert not (folder / "stamps").exists()
