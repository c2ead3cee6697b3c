"""One session of a run: opens and locks the folder, enters the ledger, ends the session."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType

import msgspec

from milabench_ng import __version__
from milabench_ng.fence.capabilities import Capabilities
from milabench_ng.fence.choosing import choose
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.files import LARGE, read_content
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.plan import Plan
from milabench_ng.model.units import counted, format_seconds, utc_now
from milabench_ng.node.inventory import read_inventory
from milabench_ng.node.kernel_files import kernel_text
from milabench_ng.records.borders import asked
from milabench_ng.records.ledger import (
    AnyLedgerEvent,
    Attempt,
    Chain,
    Rebooted,
    Resumed,
    Session,
    Started,
    check_chain,
    ended_by_itself,
    lost_attempts,
    of_last_session,
)
from milabench_ng.records.manifest import Manifest, encode_manifest
from milabench_ng.records.names import MANIFEST, ResultFolder
from milabench_ng.records.output_files import check_target_folder
from milabench_ng.records.separate_sessions import SESSION_GAP_H
from milabench_ng.records.spool_folder import continuation, last_spool, named_spools, own_spool
from milabench_ng.run.execution.interruption import Interruption
from milabench_ng.run.persistence.result_writer import ResultWriter
from milabench_ng.run.persistence.resuming import SessionDifference, check_plan, check_same, open_writer, read_manifest
from milabench_ng.run.persistence.run_progress import standing
from milabench_ng.run.planning.planned_run import TenantPlaces
from milabench_ng.run.planning.request import RunRequest

SETTLE_S = 5.0
"""How long the end of a run waits for a failing disk before it writes elsewhere."""
RETRY_S = 1.0
"""Between two attempts to write."""


class Unwritten(MnbError):  # noqa: N818  (what it holds, or says where it is)
    """Results that could not be written to their folder."""


class SessionName(msgspec.Struct, frozen=True):
    """The run, and the number of the orchestrator's start within it."""

    run_id: str
    session: int

    @property
    def group(self) -> str:
        """Name of what is the session's own: its groups may be made while a dead session's are still being removed."""
        return self.run_id if self.session == 1 else f"{self.run_id}-{self.session}"


class LedgerSession(msgspec.Struct, frozen=True):
    """A session that is in the ledger."""

    name: SessionName
    differences: tuple[str, ...]
    """Differences from the first session that the user accepted."""


def name_session(request: RunRequest) -> SessionName:
    """A new run, or the next session of the one in the folder."""
    if not request.resume:
        return SessionName(f"{utc_now():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}", 1)
    run_id = read_manifest(request.outdir).run_id
    try:
        chain = check_chain(read_content(ResultFolder(request.outdir).ledger, LARGE, os.O_NOFOLLOW))
    except InputError as error:
        raise InputError(f"{error}. Restore it, or start a new run in another folder") from None
    return SessionName(run_id, len(chain.sessions) + 1)


def check_node(request: RunRequest, places: TenantPlaces, capabilities: Capabilities) -> None:
    """Raise InputError if a resumed run would go on elsewhere, fenced otherwise or with other software.

    This is found before torch is imported.
    """
    if not request.resume:
        return
    replace, then, node = msgspec.structs.replace, read_manifest(request.outdir), read_inventory()
    backend, shares = choose(capabilities, places.isolation), places.allocation.shares
    now = replace(
        then,
        version=__version__,
        plan=replace(then.plan, devices=places.chosen.devices),
        inventory=node,
        software=node.versions,
        fence=replace(then.fence, backend=backend.NAME, tier=backend.tier(capabilities) or "none"),
        shares={slot: replace(shares[slot], cache=then.shares[slot].cache) for slot in shares.keys() & then.shares},
    )
    check_same(then, now, request.accept)


def check_work(request: RunRequest, planned: Plan) -> None:
    """Raise InputError if a resumed run would go on with another plan: found before data are made."""
    if request.resume:
        check_plan(read_manifest(request.outdir).plan, planned)


@contextmanager
def opened(request: RunRequest, tell: Callable[[str], None]) -> Iterator[ResultWriter]:
    """The writer of the request's folder: a new one, or with ``--resume`` the existing one. It says to ``tell`` what
    the user should know."""
    made = not os.path.lexists(request.outdir)
    # The user's own links in the path are followed here; none is from here on.
    folder = ResultFolder(request.outdir.resolve()) if request.resume else make_folder(request.outdir)
    writer = open_writer(folder, request.spool, tell)
    try:
        yield writer
    finally:
        writer.close()
        if not writer.chain.events:  # the run never began
            with suppress(OSError):
                folder.ledger.unlink()
                folder.logs.rmdir()
                if made:
                    folder.path.rmdir()


def make_folder(path: Path) -> ResultFolder:
    """Make an empty result folder. Raises InputError if ``path`` is not empty or cannot be made."""
    refuse_outdir(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        folder = ResultFolder(path.resolve())
        folder.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {path}: {error.strerror}. Name another folder") from None
    return folder


def refuse_folders(request: RunRequest) -> None:
    """Raise InputError for a result folder, or a spool folder, that a new run cannot use."""
    refuse_outdir(request.outdir)
    if request.spool is not None:
        check_target_folder(request.spool, "--spool")


def refuse_outdir(path: Path) -> None:
    """Raise InputError for what cannot become a result folder, or holds more than what a run that never began left."""
    check_target_folder(path, "-o")
    folder = ResultFolder(path.resolve())
    entries = folder.path.iterdir() if folder.path.is_dir() else ()
    taken = [entry.name for entry in entries if not _is_empty_part(entry, folder)]
    if taken:
        said = f"-o {path}: already contains {taken[0]!r}"
        if os.path.lexists(path / MANIFEST):
            raise InputError(f"{said}. Name a new folder, or resume the run in it: mnb resume {quoted(path)}")
        raise InputError(f"{said}. Name a new folder")


def _is_empty_part(entry: Path, folder: ResultFolder) -> bool:
    """Whether a run that never began left this."""
    return not entry.is_symlink() and (entry == folder.logs or (entry == folder.ledger and not entry.stat().st_size))


def begin(
    request: RunRequest, writer: ResultWriter, manifest: Manifest, name: SessionName, command_line: tuple[str, ...]
) -> LedgerSession:
    """Enter the session in the ledger. Raises InputError if a resumed run would differ, or nothing can be written."""
    session = Session(
        number=name.session,
        hostname=socket.gethostname(),
        boot_id=kernel_text(Path("/proc/sys/kernel/random/boot_id")) or "unknown",
        pid=os.getpid(),
        command_line=command_line,
        spool=None if writer.spool is None else str(writer.spool),
    )
    if not request.resume:
        writer.promise(encode_manifest(manifest), *first_events(manifest, session))
        return LedgerSession(name, ())
    first = read_manifest(request.outdir)
    found = check_same(first, manifest, request.accept)
    events = writer.chain.events
    if not events:  # killed after the manifest, before the ledger's first line
        writer.promise(encode_manifest(first), *first_events(first, session))
        return LedgerSession(name, ())
    done = standing(writer)
    missing = sum((launch.label, launch.job_id) not in done for launch in asked(first.plan, events).measured)
    before = writer.chain.sessions[-1]
    planned = missing > 0 and request.sessions > 1 and ended_by_itself(events)
    writer.promise(encode_manifest(first), *later_events(before, session, missing, found, planned=planned))
    accepted = [text for event in writer.chain.events if isinstance(event, Resumed) for text in event.accepted]
    return LedgerSession(name, tuple(dict.fromkeys(accepted)) if found else ())


def counts_with_the_last(chain: Chain, sessions: int, now: datetime) -> str:
    """That a session that begins ``now`` and the one before, of a run of several ``sessions``, count as one; empty if
    they do not. Pure."""
    begun = [entry.utc for entry in chain.entries if isinstance(entry.what, Attempt)]
    if sessions == 1 or not begun or not ended_by_itself(chain.events):
        return ""
    since = now - datetime.fromisoformat(begun[-1])
    if since >= timedelta(hours=SESSION_GAP_H):
        return ""
    later = format_seconds(since.total_seconds())
    return (
        f"session {len(chain.sessions) + 1} begins {later} after the last launch of the one before: they count as "
        f"one, since they are less than {SESSION_GAP_H:g} h apart"
    )


async def settle(
    writer: ResultWriter,
    name: SessionName,
    interrupted: Interruption,
    _kind: type[BaseException] | None,
    error: BaseException | None,
    _trace: TracebackType | None,
) -> None:
    """Write everything at the end of a session, which ``error`` ended if it is not None.

    Raises Unwritten if the folder does not take it all; the error says where the rest is, or holds it.
    """
    cancelled = isinstance(error, asyncio.CancelledError)
    elsewhere = await _elsewhere(writer, name, interrupted, at_once=cancelled)
    if elsewhere and error is not None and not cancelled and not isinstance(error, MnbError):
        error.add_note(elsewhere)
    elif elsewhere:
        ending = f"{interrupted.error() if cancelled else error}\n" if error else ""
        raise Unwritten(f"{ending}{elsewhere}") from None


def with_last_spool(request: RunRequest, name: SessionName, tell: Callable[[str], None]) -> RunRequest:
    """``request``, with what earlier sessions saved brought back; not what others put there.

    Raises InputError if it names another spool, and so would leave results behind.
    """
    if not request.resume:
        return request
    ledger = read_content(ResultFolder(request.outdir).ledger, LARGE, os.O_NOFOLLOW)
    chain = check_chain(ledger)
    given, left = named_spools(chain), last_spool(chain, name.run_id)
    if left is None and request.spool is None and given and lost_attempts(of_last_session(chain.events)):
        tell(
            f"{plain(given[0])} was the --spool of an earlier session, and holds no results now. If they are "
            "elsewhere, press Ctrl-C and name that folder (--spool). Launches whose results are lost count as failed"
        )
    if left is None or request.spool == left or (request.spool and request.spool.is_file()):
        return request
    if request.spool is None:
        return msgspec.structs.replace(request, spool=left)
    if continuation(ledger, left):
        raise InputError(
            f"--spool {plain(request.spool)}: the results of an earlier session are in {plain(left)}. Leave out "
            f"--spool, which brings them back. To give them up, move {plain(left)} away: the launches then run again, "
            "and their lost attempts count as failed"
        )
    return request


async def _elsewhere(writer: ResultWriter, name: SessionName, interrupted: Interruption, *, at_once: bool) -> str:
    """Where unwritten results were saved; as a last resort, the results as text. Empty if everything is written.

    Retries until a signal, and for at least `SETTLE_S`, unless ``at_once``.
    """
    folder, began_s = writer.folder.path, time.monotonic()
    place = writer.spool or own_spool(name.run_id)
    back = f"free some space, then run: mnb resume {quoted(folder)} --spool"
    with suppress(asyncio.CancelledError):  # by a second signal
        while not writer.flush():
            late = at_once or time.monotonic() - began_s >= SETTLE_S
            files = counted(writer.waiting, "unsaved file")
            if (late or interrupted.is_set()) and writer.rescue(place):
                return f"cannot write to {folder}. {place} holds {files}. To bring them back, {back} {quoted(place)}"
            if late and interrupted.is_set():
                break
            if late:
                writer.tell_once(
                    f"cannot write to {folder} or {place}. mnb holds {files} in memory and keeps retrying. Free some "
                    "space. A signal (Ctrl-C) stops the retries and prints the files"
                )
            await asyncio.sleep(RETRY_S)
        else:
            return ""
    return (
        f"cannot write to {folder} or {place}. The lines below hold {counted(writer.waiting, 'unsaved file')}. Save "
        f"them as FILE, {back} FILE\n{writer.printed()}"
    )


def first_events(manifest: Manifest, session: Session) -> tuple[AnyLedgerEvent, ...]:
    started = Started(
        run_id=manifest.run_id,
        version=manifest.version,
        plan_sha256=manifest.plan.sha256,
        profile_sha256=manifest.profile.sha256,
        launches=len(manifest.plan.launches),
        order=manifest.plan.order,
        nonce=manifest.plan.nonce,
        stopping=manifest.stopping,
    )
    return started, session


def later_events(
    before: Session, session: Session, missing: int, accepted: Collection[SessionDifference], *, planned: bool
) -> tuple[AnyLedgerEvent, ...]:
    """The first events of a later session; ``planned``: nothing went wrong before, and the plan has more of them."""
    rebooted = Rebooted(before=before.boot_id, after=session.boot_id)
    resumed = Resumed(missing=missing, accepted=tuple(map(str, accepted)))
    if before.boot_id != session.boot_id:
        return session, rebooted, resumed
    return (session,) if planned and not accepted else (session, resumed)
