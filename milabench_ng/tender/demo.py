"""A small tender to rehearse with: signed bundles made of shipped ones. Two bids are honest, one was edited.

Every number was measured but those of the edited bid: one of its tests counts a fifth more than was done. The keys are
thrown away after they have signed.
"""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from pathlib import Path

import msgspec

from milabench_ng.model.shipped import bundle_file
from milabench_ng.tender.new_tender import BIDS, DEMANDS, NewTender, Vendor, filled, write_tender
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.opening import opened
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.signing import make_key

DELIVERED = "delivered"
TWO_GPUS, ONE_GPU = "modern-2xH200-20261124", "modern-1xH200-20261124"
EDITED_TEST = "modern.llm_decode"
EDITED_BY = 1.2


class Part(msgspec.Struct, frozen=True):
    """A vendor's part in the rehearsal."""

    vendor: str
    bundle: str
    """The shipped one that the bid is made of."""
    price: float
    edited: bool = False


CAST = (Part("acme", TWO_GPUS, 70_000), Part("globex", ONE_GPU, 38_000), Part("umbra", TWO_GPUS, 55_000, edited=True))


class Step(msgspec.Struct, frozen=True):
    """A command of the README."""

    command: str
    exit_code: int
    shows: str


STEPS = (
    Step(f"mnb verify acme.bundle.tar.gz {DEMANDS}", 0, "An honest bid: the first line says `PASS`."),
    Step(
        f"mnb verify umbra.bundle.tar.gz {DEMANDS}",
        1,
        f"An edited one: `{EDITED_TEST}` counts a fifth more than was done. Totals and slices disagree (R3), the "
        "records are not those of the ledger (R13), and its options do not allow so many items (R37). The signature is "
        "right: umbra signed what it had edited.",
    ),
    Step(
        f"mnb bids {BIDS} {DEMANDS} --html bids.html",
        1,
        "umbra is refused, here and in the page `bids.html`. acme and globex are compared, and nothing is ranked: "
        "these runs have two and three repeats, and a rank takes five: `--repeat 5`. The rules pin the profile of "
        "these runs, which may differ from today's `modern`: in a real tender, the buyer sends it with the rules.",
    ),
    Step(
        f"mnb accept acme.bundle.tar.gz {DELIVERED} {DEMANDS}",
        1,
        "A delivery that breaks the guarantee: two GPUs were bid, and the node that came has one.",
    ),
)


def write_demo(folder: Path) -> None:
    """Write the rehearsal into a folder that is empty or not there: all of it, or nothing."""
    with filled(folder) as place, tempfile.TemporaryDirectory(prefix="mnb-demo-") as scratch:
        work = Path(scratch)
        made = work / "tender"
        keys = {part.vendor: work / f"{part.vendor}.key" for part in CAST}
        vendors = tuple(
            Vendor(name=part.vendor, price=part.price, key=make_key(keys[part.vendor], part.vendor)) for part in CAST
        )
        write_tender(made, NewTender(rules=_rules(), vendors=vendors, reference="modern-h200"), _readme())
        for part, vendor in zip(CAST, vendors, strict=True):
            results = _results(part, work / part.vendor)
            pack(results, made / vendor.bundle, key=keys[part.vendor])
        _results(Part("", ONE_GPU, 0), made / DELIVERED)
        for file in filter(Path.is_file, made.rglob("*")):
            target = place / file.relative_to(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


def _rules() -> Rules:
    """What both honest bids keep. The profile is the one that they ran, which later versions may have changed."""
    with opened(bundle_file(TWO_GPUS)) as there:
        manifest = there.folder.manifest
    return Rules(
        name="demo",
        signed=True,
        profile=Pin(name="modern", sha256=manifest.profile.sha256 if manifest else None),
        repeat=2,
        ledger=True,
        failure_rate=0.01,
        isolation="full",
        storage_refused=("memory",),
        every_gpu=True,
    )


def _results(part: Part, place: Path) -> Path:
    """The result folder of a part, in ``place``."""
    with opened(bundle_file(part.bundle)) as there:
        shutil.copytree(there.place, place)
    if part.edited:
        for file in place.glob(f"{EDITED_TEST}.*.json"):
            file.write_bytes(_edited(file.read_bytes()))
    return place


def _edited(content: bytes) -> bytes:
    """A record whose slices count more items than were done."""
    record = msgspec.json.decode(content)
    for rank in record["mnb"]["ranks"]:
        for one in rank["slices"]:
            one[2] = round(EDITED_BY * one[2])
    return msgspec.json.encode(record)


def _readme() -> str:
    steps = "\n".join(
        f"{textwrap.fill(f'{number}. {step.shows} Exit code: {step.exit_code}.', 100)}\n\n```sh\n{step.command}\n```\n"
        for number, step in enumerate(STEPS, 1)
    )
    return f"""\
# A tender to rehearse with

Three vendors bid for nodes: acme, globex and umbra. Each sent a signed bundle. The bundles are made of runs that were
measured on NVIDIA H200, umbra's was edited afterwards, and the prices and keys are made up. Nothing here needs a GPU.

Run these commands in this folder, in about two minutes.

{steps}
In a real tender, `mnb tender init` writes such a folder with your rules, vendors and prices.
"""
