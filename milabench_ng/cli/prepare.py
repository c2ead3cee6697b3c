"""``mnb prepare``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.options import DataRoot, Several, Switch
from milabench_ng.cli.showing import shown
from milabench_ng.cli.tables import standard_output, table
from milabench_ng.orchestrator.planning.catalogue_queries import have_ready
from milabench_ng.requests import Place
from milabench_ng.units import format_bytes


def prepare(
    profile: Path,
    /,
    *,
    name: Several = (),
    dataroot: DataRoot = None,
    data_scale: float | None = None,
    classic_data: Switch = False,
) -> int:
    """Prepare the data sets of a profile: generate missing twins, and print where each set is.

    `mnb jobs` does this itself. Exit code: 0, or 2 for bad input or a full disk.

    Example: mnb prepare standard -d /scratch/mnb

    Parameters
    ----------
    profile
        A JSON file of tests (those of 2020 are converted), or the name of a shipped one, as in `mnb jobs`.
    name
        Only what this test reads; may be repeated.
    data_scale
        Size of the twins relative to the real sets, above 0 and at most 1, instead of the profile's.
    classic_data
        Use the noise images of 2020 instead of ImageNet, as in `mnb jobs`.
    """
    options = NodeOptions(dataroot=dataroot, data_scale=data_scale, classic_data=classic_data)
    request = msgspec.structs.replace(options.profile_request(profile), names=name)
    with shown() as bus:
        places = asyncio.run(have_ready(request, bus))
    _print(places)
    return 0


def _print(places: tuple[Place, ...]) -> None:
    if not places:
        print("no data set is needed")
        return
    rows = [
        (place.name, place.kind, f"{place.scale:g}", *_size(place), place.checksum or "-", place.path)
        for place in places
    ]
    headers = ("data set", "kind", "scale", "files", "size", "checksum (SHA-256)", "path")
    standard_output().print(table(headers, rows, right=("scale", "files", "size")))


def _size(place: Place) -> tuple[str, str]:
    """Real sets are not counted."""
    return (f"{place.files:,}", format_bytes(place.bytes)) if place.kind != "real" else ("-", "-")
