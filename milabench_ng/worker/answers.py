"""What the worker server answers in a forked child: the catalogue, and the preparation of data sets."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

from milabench_ng.datasets import registry
from milabench_ng.datasets.prepare import Located, check, locate, prepare
from milabench_ng.errors import MnbError
from milabench_ng.requests import (
    Answer,
    AnyRequest,
    Describe,
    Described,
    Estimated,
    Place,
    Prepare,
    Prepared,
    Progress,
    Refused,
)
from milabench_ng.worker.discovery import builtin_workloads, describe


def import_everything() -> None:
    """Import all that a worker needs, so that a forked one has it."""

    import milabench_ng.worker.ranks
    import milabench_ng.worker.session  # noqa: F401

    builtin_workloads()
    for name in registry.names():
        registry.find(name)


def answer(request: AnyRequest, connection: socket.socket) -> NoReturn:
    """Answer in this process, which ends afterwards."""
    status = 1
    try:
        reply = _describe(request) if isinstance(request, Describe) else _prepare(request, connection)
        connection.sendall(msgspec.json.encode(reply))
        status = 0
    except MnbError as error:
        connection.sendall(msgspec.json.encode(Refused(id=request.id, message=str(error))))
        status = 0
    except BaseException:  # noqa: BLE001  # the last line of defence before os._exit, which would swallow it
        traceback.print_exc()
    finally:
        os._exit(status)


def _describe(request: Describe) -> Answer:
    return Described(id=request.id, catalogue=describe(request.foreign))


def _prepare(request: AnyRequest, connection: socket.socket) -> Answer:
    assert isinstance(request, Prepare)
    data_set = registry.find(request.data_set)
    root = Path(request.dataroot)

    def progress(done: int, total: int) -> None:
        connection.sendall(msgspec.json.encode(Progress(id=request.id, name=data_set.name, done=done, total=total)))

    found = locate(data_set, root, request.scale)
    if found.kind == "absent":
        size = data_set.size(request.scale)
        connection.sendall(
            msgspec.json.encode(
                Estimated(
                    id=request.id,
                    name=data_set.name,
                    files=size.files,
                    bytes=size.bytes,
                    seconds=size.core_seconds / request.processes,
                )
            )
        )
    located = prepare(data_set, root, request.scale, progress, request.processes)
    check(located)
    return Prepared(id=request.id, place=_place(located, data_set.name), generated=located.manifest != found.manifest)


def _place(located: Located, name: str) -> Place:
    manifest = located.manifest
    return Place(
        name=name,
        kind="real" if manifest is None else manifest.kind,
        scale=1.0 if manifest is None else manifest.scale,
        path=str(located.path),
        checksum=manifest.checksum if manifest else None,
        files=manifest.files if manifest else 0,
        bytes=manifest.bytes if manifest else 0,
    )
