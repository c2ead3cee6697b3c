"""``mnb prepare``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.options import DataRoot, FormOption, Several, Switch
from milabench_ng.cli.showing import shown
from milabench_ng.model.units import format_bytes
from milabench_ng.present.render.cells import number, whole
from milabench_ng.present.render.sections import Document, Facts, Heading, table
from milabench_ng.present.writers import write
from milabench_ng.records.record import kind_word
from milabench_ng.run.planning.catalogue_queries import have_ready
from milabench_ng.run.planning.refusals import tests_ahead
from milabench_ng.worker.requests import ReadyDataset


def prepare(
    profile: Path,
    /,
    *,
    name: Several = (),
    dataroot: DataRoot = None,
    data_scale: float | None = None,
    classic_data: Switch = False,
    form: FormOption = "table",
) -> int:
    """Generate the missing synthetic datasets of a profile, and print where each dataset is.

    `mnb jobs` does this itself. Exit code: 0, or 2 for bad input or a full disk.

    Example: mnb prepare standard -d /scratch/mnb

    Parameters
    ----------
    profile
        A JSON file of tests (also of milabench 2020), or the name of a shipped profile, as in `mnb jobs`.
    name
        Only what this test reads. May be repeated.
    data_scale
        Size of the synthetic datasets relative to the real ones (above 0, at most 1), instead of the profile's.
    classic_data
        Use the noise images of milabench 2020 instead of ImageNet, as in `mnb jobs`.
    """
    options = NodeOptions(dataroot=dataroot, data_scale=data_scale, classic_data=classic_data)
    request = msgspec.structs.replace(options.profile_request(profile), names=name)
    tests_ahead(request)
    with shown() as bus:
        places = asyncio.run(have_ready(request, bus))
    write(_document(places), form, sys.stdout)
    return 0


def _document(places: tuple[ReadyDataset, ...]) -> Document:
    rows = (
        (place.name, place.kind, place.scale, *_size(place), place.checksum or None, str(place.path))
        for place in places
    )
    scale, files = Heading("scale", "", number, True), Heading("files", "", whole, True)
    size = Heading("size", number=True)
    made = table(
        "",
        rows,
        Heading("dataset", key="data set"),
        Heading("kind", show=kind_word),
        scale,
        files,
        size,
        "checksum (SHA-256)",
        "path",
    )
    parts = (made,) if places else (Facts(text="no dataset is needed"),)
    return Document(title="mnb prepare", parts=parts, table=made, whole={"schema": 1, "data_sets": places})


def _size(place: ReadyDataset) -> tuple[int | None, str | None]:
    """Real sets are not counted."""
    return (place.files, format_bytes(place.bytes)) if place.kind != "real" else (None, None)
