"""``mnb stamp``: time stamps on the ledger of a run, by files that travel."""

from __future__ import annotations

from pathlib import Path

import cyclopts

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import plain
from milabench_ng.verification.stamping import NAMESPACE, add_stamp, request_stamp

stamp = cyclopts.App(name="stamp", help="Timestamp the ledger of a run with a third party.")


@stamp.command
def request(folder: Path, /) -> int:
    """Write a request for a timestamp on the latest ledger hash, also during the run.

    Writes two files: a request for a time-stamping authority (RFC 3161), and a text for somebody to sign.

    Exit code: 0, or 2 for bad input.

    Example: mnb stamp request results

    Parameters
    ----------
    folder
        A result folder of `mnb jobs`.
    """
    query, text = request_stamp(folder)
    print(f"for an authority: {plain(query)}")
    print(f"to be signed:     {plain(text)} (ssh-keygen -Y sign -n {NAMESPACE} -f KEY)")
    return 0


@stamp.command
def add(folder: Path, /, *answers: Path) -> int:
    """Store the answers with their requests. `mnb bundle` packs them, `mnb verify` checks them.

    Exit code: 0, or 2 for a file that answers no request.

    Example: mnb stamp add results reply.tsr

    Parameters
    ----------
    folder
        A result folder of `mnb jobs`.
    answers
        Replies of an authority, or signatures by ssh-keygen.
    """
    if not answers:
        raise InputError("mnb stamp add: no answer given. Example: mnb stamp add results reply.tsr")
    for answer in answers:
        print(f"added: {plain(add_stamp(folder, answer))}")
    return 0
