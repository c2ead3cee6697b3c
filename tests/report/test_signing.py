"""Signing with keys that need more than a file."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.verification.signing import make_key, sign


def test_a_key_with_a_passphrase_is_answered_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "never")
    key = tmp_path / "my key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "a secret", "-f", str(key)], check=True)
    with pytest.raises(InputError, match=f"run this again: ssh-add '{key}'"):
        sign(b"content", key)


@pytest.mark.parametrize("named", ["my key", "my key.pub"])
def test_a_key_that_others_may_read_is_answered_with_what_to_do(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "my key"
    make_key(key, "me")
    key.chmod(0o644)
    with pytest.raises(InputError, match="too open") as refused:
        sign(b"content", tmp_path / named)
    assert "0644" in str(refused.value)
    advice = shlex.split(str(refused.value).rpartition(": ")[2])
    assert advice == ["chmod", "600", str(key)]
    subprocess.run(advice, check=True)
    assert sign(b"content", key).startswith(b"-----BEGIN SSH SIGNATURE-----")
