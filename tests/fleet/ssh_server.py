"""A server of ssh on this machine with keys and a port of its own, for as long as a test needs it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups {startups}
SetEnv OMP_NUM_THREADS=1 HOME={folder}
"""
"""All nodes share the CPUs of this machine. What the user's shell begins with, such as pyenv, takes seconds a login."""
_CLIENT = """\
Host away
    HostName 127.0.0.1
    Port 1
Host *
    HostName 127.0.0.1
    Port {port}
    IdentityFile {folder}/user
    UserKnownHostsFile {folder}/known
    StrictHostKeyChecking no
"""


@contextlib.contextmanager
def ssh_server(folder: Path, startups: int = 1000) -> Iterator[Sequence[str]]:
    """Options of ssh by which every name but ``away`` leads to this machine.

    ``startups``: connections that may begin at once.
    """
    assert SSHD is not None
    folder.mkdir()
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "server").write_text(_SERVER.format(port=port, folder=folder, startups=startups))
    (folder / "client").write_text(_CLIENT.format(port=port, folder=folder))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd gives up its rights there
    log = (folder / "log").open("wb")
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(folder / "server")], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield ("-F", str(folder / "client"))
    finally:
        server.terminate()
        server.wait()
        log.close()
