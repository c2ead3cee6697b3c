"""Sessions of the guest's users, as a login makes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TELL = str(Path(__file__).with_name("tell.py"))
STATUS = 7


def session(user: str, *words: str, **environ: str) -> list[str]:
    """The command line that runs `tell.py` with these words in a new session of the user (pam_systemd makes it)."""
    passed = {"PYTHONPATH": os.environ["PYTHONPATH"], "PYTHONDONTWRITEBYTECODE": "1", **environ}
    settings = [f"--setenv={name}={value}" for name, value in passed.items()]
    login = ["systemd-run", "-q", "--wait", "--pipe", "-p", f"User={user}", "-p", "PAMName=login", *settings]
    return [*login, "--", sys.executable, TELL, *words]


def run(user: str, **environ: str) -> dict[str, object]:
    """What `tell.py` says there; its own exit status has to come through."""
    done = subprocess.run(session(user, **environ), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == STATUS, done.stdout + done.stderr
    return json.loads(done.stdout)
