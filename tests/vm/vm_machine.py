"""Boots the guest that tests/vm/build makes, in pure emulation: every host has that, and its timings mean nothing."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

BUILD = Path(__file__).with_name("build")
NO_SYSTEMD = "init=/usr/local/sbin/mnb-boot"
# Two nodes of two cores of two threads; 1 GiB each.
_TOPOLOGY = [
    *("-smp", "8,sockets=2,cores=2,threads=2", "-m", "2G"),
    *("-object", "memory-backend-ram,id=m0,size=1G", "-numa", "node,nodeid=0,cpus=0-3,memdev=m0"),
    *("-object", "memory-backend-ram,id=m1,size=1G", "-numa", "node,nodeid=1,cpus=4-7,memdev=m1"),
]


def build() -> Path:
    """Make what is missing; the folder with disks, kernel and QEMU. Raises CalledProcessError if it cannot be made."""
    return Path(subprocess.run([BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def boot(folder: Path, checks: tuple[str, ...], *kernel: str, limit_s: float = 1500) -> tuple[int, str]:
    """Boot with these words for the kernel, run the checks in the guest; pytest's exit status there, and all it said.

    The disks are not changed. The status is 255 if the guest did not come to an end by itself.
    """
    tools = folder / "tools"
    words = ("root=/dev/vda rw console=ttyS0 loglevel=2 panic=-1", f"mnb.check={','.join(checks)}", *kernel)
    command = [
        *("nice", str(tools / "usr/bin/qemu-system-x86_64"), "-accel", "tcg,thread=multi"),
        *("-L", str(tools / "usr/share/qemu"), "-L", str(tools / "usr/share/seabios")),
        *("-cpu", "max,vendor=GenuineIntel", *_TOPOLOGY),
        *("-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-snapshot"),
        *("-drive", f"file={folder}/root.ext4,if=virtio,format=raw"),
        *("-drive", f"file={folder}/payload.ext4,if=virtio,format=raw"),
        *("-kernel", str(folder / "vmlinuz"), "-initrd", str(folder / "initrd"), "-append", " ".join(words)),
    ]
    libraries = ":".join(str(tools / place / "x86_64-linux-gnu") for place in ("usr/lib", "lib"))
    environ = {**os.environ, "LD_LIBRARY_PATH": libraries}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environ, text=True, errors="replace", **pipes) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
    status = re.search(r"^guest exit (\d+)\s*$", said, re.MULTILINE)
    return (int(status[1]) if status else 255), said
