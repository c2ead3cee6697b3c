"""Reads the code and the data of a session, before its first batch and after its last."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import milabench_ng
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.sources import loaded_elsewhere
from milabench_ng.model.units import format_bytes
from milabench_ng.node.edge import Edge
from milabench_ng.records.ledger import AnyLedgerEvent, CodeSeen, DataSeen
from milabench_ng.records.proof import DataProof
from milabench_ng.run.execution.libraries import LOOKED_AT, changed, compared
from milabench_ng.run.execution.preparing import Needed
from milabench_ng.run.execution.waiting import in_thread
from milabench_ng.run.execution.worker_server import WorkerServer
from milabench_ng.run.planning.request import RunRequest

GIT_S = 10.0
"""How long git may take to name a commit."""
_COMMIT = re.compile("[0-9a-f]{40,64}")
Proving = Coroutine[Any, Any, tuple[AnyLedgerEvent, ...]]


async def prove(
    edge: Edge, request: RunRequest, wanted: Iterable[Needed], server: WorkerServer, tell: Callable[[str], None]
) -> tuple[AnyLedgerEvent, ...]:
    """The ledger's events of what lies on disk now; ``tell`` is told what reading it cost.

    Raises InputError for a dataset that is damaged before the work. What a look at the wheels finds then is told, and
    proves nothing; after the work they are read.
    """
    await server.ready()
    code = await server.inspect(compared(), LOOKED_AT if edge == "before" else None)
    for text in changed(code):
        tell(text)
    if edge == "before":
        code = msgspec.structs.replace(code, wheels={}, strays=())
    own = loaded_elsewhere(Path(milabench_ng.__file__).parent)
    commit = await known_commit(Path(milabench_ng.__file__).parents[1], tell)
    code = msgspec.structs.replace(
        code, elsewhere=tuple(sorted({*code.elsewhere, *own})), commit=commit or msgspec.UNSET
    )
    read = [] if request.trust_data else [await _read(name, scale, request, server) for name, scale in wanted]
    said = [f"the code in {code.seconds:.1f} s"] if edge == "after" else []
    said += [f"{one.name} ({format_bytes(one.bytes)}) in {one.seconds:.1f} s" for one in read]
    if said:
        tell(f"checked against its checksums {edge} the work: {', '.join(said)}")
    for one in read:
        _judge(edge, one, request, tell)
    return (CodeSeen(edge=edge, code=code), *(DataSeen(edge=edge, data=one) for one in read))


async def known_commit(root: Path, tell: Callable[[str], None]) -> str | None:
    """The commit whose checkout ``root`` is; None if it is none, or ``tell`` was told why that is unknown."""
    try:
        async with asyncio.timeout(2 * GIT_S):  # a git that hangs in the kernel cannot be killed
            return await in_thread(partial(checked_out, root))
    except (MnbError, TimeoutError) as error:
        tell(f"the commit of the checkout in {root} is unknown: {str(error) or 'git hangs'}")
        return None


def checked_out(root: Path) -> str | None:
    """The commit whose checkout the folder ``root`` is; None if it is none. Raises MnbError if git does not tell.

    Git is told where the repository lies: neither its variables nor a repository around ``root`` may lead it astray,
    and it does not ask who owns this one, whose code runs anyway.
    """
    if not (root / ".git").exists():
        return None
    git = shutil.which("git")
    if git is None:
        raise MnbError("git is not installed")
    command = [git, f"--git-dir={root / '.git'}", "rev-parse", "--verify", "HEAD"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=GIT_S, check=False, env=environ, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MnbError(f"git: {error}") from None
    found = done.stdout.decode(errors="replace").strip()
    if not _COMMIT.fullmatch(found):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise MnbError(f"git: {said[0] if said else f'exit status {done.returncode}'}")
    return found


async def _read(name: str, scale: float, request: RunRequest, server: WorkerServer) -> DataProof:
    return await server.read(name, request.dataroot, scale, len(os.sched_getaffinity(0)))


def _judge(edge: Edge, read: DataProof, request: RunRequest, tell: Callable[[str], None]) -> None:
    if not read.differing:
        return
    found = f"dataset {read.name} (scale {read.scale:g}) below {request.dataroot} differs from its checksum"
    if edge == "before":
        raise InputError(f"{found}: {', '.join(read.differing)}. Delete it, and mnb generates it again")
    tell(f"{found} after the work: {', '.join(read.differing)}; these results cannot be verified")
