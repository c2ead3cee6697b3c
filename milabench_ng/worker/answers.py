"""Answers requests to the worker server in a forked child: the catalogue, and the preparation of datasets."""

from __future__ import annotations

import os
import signal
import socket
import traceback
from pathlib import Path
from typing import NoReturn

from milabench_ng.datasets import registry
from milabench_ng.datasets.base import Progress
from milabench_ng.datasets.pace import pace
from milabench_ng.datasets.prepare import (
    FoundDataset,
    check,
    free_bytes,
    locate,
    prepare,
    read_again,
    require_writable,
    to_generate,
)
from milabench_ng.fence.entry import EntryError, die_with
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.plain import whole_json
from milabench_ng.worker.code_on_disk import inspect_code
from milabench_ng.worker.discovery import builtin_workloads, describe, find_workload
from milabench_ng.worker.requests import (
    Answer,
    AnyRequest,
    Checked,
    CheckOptions,
    DataEstimate,
    DataProgress,
    DataRead,
    Describe,
    Described,
    Effort,
    EstimateData,
    InspectCode,
    Inspected,
    Prepare,
    Prepared,
    ReadData,
    ReadyDataset,
    Refused,
)


def import_everything() -> None:
    """Import everything that a worker needs, so that forked workers have it."""

    import milabench_ng.worker.ranks
    import milabench_ng.worker.session  # noqa: F401

    builtin_workloads()
    for entry in registry.BUILT_IN:
        entry.load()


def answer(request: AnyRequest, connection: socket.socket, server_pid: int) -> NoReturn:
    """Answer in this fork of ``server_pid``, which it dies with, then exit."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, _leave)
        die_with(server_pid, signal.SIGTERM)
        connection.sendall(whole_json(_reply_or_refusal(request, connection)))
        status = 0
    except (ConnectionError, EntryError, SystemExit):  # the orchestrator or the server has ended
        status = 0
    except BaseException:  # noqa: BLE001  # the last line of defence before os._exit, which would swallow it
        traceback.print_exc()
    finally:
        os._exit(status)


def _leave(*_: object) -> NoReturn:
    """The server has ended: unwind, so that half a dataset is removed."""
    raise SystemExit


def _reply_or_refusal(request: AnyRequest, connection: socket.socket) -> Answer:
    try:
        return _reply(request, connection)
    except MnbError as error:
        return Refused(id=request.id, message=str(error))


def _reply(request: AnyRequest, connection: socket.socket) -> Answer:
    match request:
        case Describe():
            return Described(id=request.id, catalogue=describe(request.asked))
        case CheckOptions():
            return _check(request)
        case EstimateData():
            return _estimate(request)
        case Prepare():
            return _prepare(request, connection)
        case InspectCode():
            return Inspected(id=request.id, code=inspect_code(request.wheels, request.largest))
        case ReadData():
            return _read(request, connection)
        case _:
            raise TypeError(f"{type(request).__name__} is answered by a worker")


def _check(request: CheckOptions) -> Answer:
    for test in request.tests:
        definition, _ = find_workload(test.workload)
        try:
            definition.check(test.arguments, test.devices)
        except InputError as error:
            raise InputError(f"{test.where}: {error}") from None
    return Checked(id=request.id)


def _estimate(request: EstimateData) -> Answer:
    root = Path(request.dataroot)
    found = [(registry.find(name), scale) for name, scale in request.sets]
    sizes = [(data_set, scale, to_generate(data_set, root, scale)) for data_set, scale in found]
    absent = [(data_set, scale, size) for data_set, scale, size in sizes if size is not None]
    for data_set, *_ in absent:
        data_set.libraries()  # raises if one is missing, before the first set is generated
    if absent:
        require_writable(root, [data_set.name for data_set, *_ in absent])
    slowness = pace(request.processes) / request.processes if absent else 0.0
    efforts = [
        Effort(
            name=data_set.name,
            scale=scale if data_set.scalable else 1.0,
            files=size.files,
            bytes=size.bytes,
            seconds=size.core_seconds * slowness,
        )
        for data_set, scale, size in absent
    ]
    return DataEstimate(id=request.id, efforts=tuple(efforts), free_bytes=free_bytes(root), processes=request.processes)


def _prepare(request: Prepare, connection: socket.socket) -> Answer:
    data_set = registry.find(request.data_set)
    root = Path(request.dataroot)

    progress = _progress(request, connection)
    found = locate(data_set, root, request.scale)
    located = prepare(data_set, root, request.scale, progress, request.processes)
    check(located)
    return Prepared(id=request.id, place=_place(located, data_set.name), generated=located.manifest != found.manifest)


def _read(request: ReadData, connection: socket.socket) -> Answer:
    data_set = registry.find(request.data_set)
    located = locate(data_set, Path(request.dataroot), request.scale)
    progress = _progress(request, connection)
    try:
        found = read_again(data_set, located, request.scale, progress, request.processes)
    except OSError as error:
        raise InputError(f"cannot read {data_set.name} in {located.path}: {error.strerror or error}") from None
    return DataRead(id=request.id, data=found)


def _progress(request: Prepare | ReadData, connection: socket.socket) -> Progress:
    def progress(done: int, total: int) -> None:
        found = DataProgress(id=request.id, name=request.data_set, done=done, total=total)
        connection.sendall(whole_json(found))

    return progress


def _place(located: FoundDataset, name: str) -> ReadyDataset:
    manifest = located.manifest
    return ReadyDataset(
        name=name,
        kind="real" if manifest is None else manifest.kind,
        scale=1.0 if manifest is None else manifest.scale,
        path=str(located.path),
        checksum=manifest.checksum if manifest else None,
        files=manifest.files if manifest else 0,
        bytes=manifest.bytes if manifest else 0,
    )
