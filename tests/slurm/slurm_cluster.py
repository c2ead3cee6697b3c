"""A Slurm cluster on this machine, for as long as a test needs it, listening on the loopback device only."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

BUILD = Path(__file__).with_name("build")
NODE = "mnbnode"
MEMORY_MIB = 14000
_PATIENCE_S = 30.0
_CONFIGURATION = """\
ClusterName=mnbtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
PluginDir={plugins}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.sock
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType={track}
TaskPlugin={task}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
KillWait=5
MessageTimeout=5
GresTypes=gpu
"""
_NODE = (
    "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory} Gres=gpu:2\n"
)
_CGROUPS = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=yes
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""


class Cluster(msgspec.Struct, frozen=True):
    """What a job needs to know of it."""

    folder: Path
    environment: Mapping[str, str]
    daemons: Mapping[str, int] = {}
    """The process of each node's slurmd."""

    def run(self, script: str, *options: str, limit_s: float = 300) -> tuple[int, str]:
        """A job with both CPUs; its exit status and all that it said."""
        said = self.folder / "job.txt"
        command = ["sbatch", "--wait", f"--output={said}", "--ntasks=2", *options, f"--wrap={script}"]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
        return done.returncode, (said.read_text() if said.exists() else "") + done.stderr


def build() -> Path:
    """Make what is missing; the folder with the programs. Raises CalledProcessError if it cannot be made."""
    return Path(subprocess.run([BUILD], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


@contextlib.contextmanager
def cluster(programs: Path, folder: Path, task: str, names: Sequence[str] = (NODE,)) -> Iterator[Cluster]:
    """munged, slurmctld and a slurmd for each node with these task plugins; stopped afterwards, their groups removed.

    One node has both CPUs and all memory; of several, each has one CPU, which they share.
    """
    libraries = programs / "usr/lib/x86_64-linux-gnu"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/slurm-wlm",
        "PATH": f"{programs}/usr/bin:{os.environ['PATH']}",
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    _configure(folder, task, libraries / "slurm-wlm", names)
    sbin = programs / "usr/sbin"
    of_munge = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
    files = [f"--{option}={folder / name}" for option, name in of_munge.items()]
    logs = [f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    commands = [
        [sbin / "munged", "--foreground", "--force", *files, *logs],
        [sbin / "slurmctld", "-D", "-f", folder / "slurm.conf"],
        *(
            [sbin / "slurmd", "-D", "-N", name, "-f", folder / "slurm.conf", "-d", sbin / "slurmstepd"]
            for name in names
        ),
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (folder / f"{Path(command[0]).name}.out").open("ab") as said:
                daemons.append(
                    subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
                )
            if len(daemons) == 1:
                _wait(lambda: (folder / "munge.sock").exists(), folder)
        _wait(lambda: _sinfo(environment).split() == ["idle"] * len(names), folder)
        pids = (daemon.pid for daemon in daemons[-len(names) :])
        yield Cluster(folder, environment, dict(zip(names, pids, strict=True)))
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):  # what runs in a job would outlive the daemons
            subprocess.run(
                ["scancel", "--user=root", "--full", "--signal=KILL"], env=environment, check=False, timeout=20
            )
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGCONT)
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(daemons):
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()  # a slurmd waits for its slurmctld
            daemon.wait(_PATIENCE_S)
        _remove_groups()


def _configure(folder: Path, task: str, plugins: Path, names: Sequence[str]) -> None:
    (folder / "state").mkdir(parents=True)
    folder.chmod(0o755)
    for number in range(2):  # Slurm wants character devices for GPUs; these are like /dev/null
        os.mknod(folder / f"nvidia{number}", 0o666 | 0o020000, os.makedev(1, 3))
    host, (port, *node_ports) = socket.gethostname(), _free_ports(1 + len(names))
    cpus, memory = (2, MEMORY_MIB) if len(names) == 1 else (1, MEMORY_MIB // len(names))
    nodes = (
        _NODE.format(node=name, host=host, port=node_port, cpus=cpus, memory=memory)
        for name, node_port in zip(names, node_ports, strict=True)
    )
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(
            host=host,
            port=port,
            plugins=plugins,
            folder=folder,
            task=task,
            track="proctrack/cgroup" if "task/cgroup" in task else "proctrack/linuxproc",
        )
        + "".join((*nodes, "PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"))
    )
    (folder / "cgroup.conf").write_text(_CGROUPS)
    gres = (f"NodeName={name} Name=gpu File={folder}/nvidia[0-1]\n" for name in names)
    (folder / "gres.conf").write_text("".join(gres))
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for made in sockets:
            made.bind(("127.0.0.1", 0))
        return [made.getsockname()[1] for made in sockets]


def _sinfo(environment: Mapping[str, str]) -> str:
    return subprocess.run(
        ["sinfo", "-h", "-N", "-o", "%T"], env=environment, capture_output=True, text=True, check=False
    ).stdout


def _wait(condition: object, folder: Path) -> None:
    assert callable(condition)
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.out"))
            sys.exit(f"the Slurm cluster does not start:\n{logs}")
        time.sleep(0.1)


def _remove_groups() -> None:
    """Slurm leaves the groups of its node; they are named after it."""
    for top in Path("/sys/fs/cgroup").glob(f"*/slurm_{NODE}"):
        for group in sorted((path for path in top.rglob("*/")), reverse=True):
            group.rmdir()
        top.rmdir()
