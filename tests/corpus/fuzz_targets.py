"""Every reader of files and words of others, as a function of bytes that may refuse them and nothing else.

A target returns for what it takes and raises MnbError for what it refuses; any other exception is a bug.
`scripts/fuzz` calls these with mutated inputs, `test_corpus` with what was found so far.
"""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import make_records
import msgspec

from milabench_ng.analysis.launch.traces import Traced, compare, decode_traces, encode_traces
from milabench_ng.analysis.scoring.scale import Scale, load_scale
from milabench_ng.analysis.scoring.weights import read_weights
from milabench_ng.analysis.summary.folder import decode_summary, encode_summary, load
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.datasets import manifest as manifests
from milabench_ng.model.catalogue import Catalogue, Legacy2020, Option, Range, Workload, parse_flags, resolve
from milabench_ng.model.errors import InputError, MnbError
from milabench_ng.model.files import decode_text, parse_json
from milabench_ng.model.memory_classes import choose_entries
from milabench_ng.model.plain import plain, plain_json, plain_lines
from milabench_ng.model.plan import Device, ResolvedOptions
from milabench_ng.model.planner import make_plan
from milabench_ng.model.profile import Profile, parse_profile
from milabench_ng.model.profile_2020 import convert_2020
from milabench_ng.model.units import parse_bytes, parse_bytes_per_second
from milabench_ng.present.render.tender_tables import tender_document
from milabench_ng.present.render.verification_tables import verification_document
from milabench_ng.present.writers import Form, write, write_report
from milabench_ng.records.ledger import Chain, check_chain, extend
from milabench_ng.records.names import LEDGER, MANIFEST, ResultFolder
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import ReportOptions, build_report, make_report
from milabench_ng.run.persistence.resuming import open_writer
from milabench_ng.run.persistence.run_progress import standing
from milabench_ng.run.planning.rerun import profile_of
from milabench_ng.tender.offers import compare_bids
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.rules_file import decode_rules, load_rules
from milabench_ng.verification.verify import verify

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FORMS: tuple[Form, ...] = ("table", "json", "csv", "markdown")
PRINTED = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
"""What a terminal would obey."""

_TEST = {
    "workload": "vae",
    "arguments": {"batch_size": 3, "note": "x"},
    "io": {"read": "1 MiB/s"},
    "require": "full",
    "partition_scheme": {"type": "per-gpu"},
}

_BIDS = {
    "reference": "base.json",
    "bids": {
        "acme": {"results": "base.json", "price": 9e4, "watts_load": 9e3, "watts_idle": 2e3},
        "umbra": {"results": "other.json", "price": 1e5, "maintenance_per_year": 500},
    },
    "currency": "EUR",
    "years": 4,
    "tariff_per_kwh": 0.1,
    "pue": 1.3,
    "utilization": 0.8,
    "budget": 1e6,
    "margin": 0.03,
}

OPTIONS = (
    Option(name="batch_size", type="int", default=128, range=Range(ge=1), meaning="images per step"),
    Option(name="learning_rate", type="float", default=0.1, range=Range(gt=0)),
    Option(name="shuffle", type="bool", default=True),
    Option(name="arch", type="str", default="resnet18", choices=("alexnet", "resnet18", "resnet50")),
    Option(name="max_count", type="int", default=0, range=Range(ge=0)),
    Option(name="image_size", type="int", default=224, range=Range(ge=32)),
    Option(name="workers", type="int", default=8, range=Range(ge=0)),
    Option(name="momentum", type="float", default=0.9),
    Option(name="max_seconds", type="float", default=600.0),
    Option(name="sample_duration", type="float", default=0.5),
    Option(name="seed", type="int", default=1234),
    Option(name="precision", type="str", default="fp32", choices=("fp32", "tf32", "amp")),
    Option(name="note", type="str", default=""),
)
CATALOGUE = Catalogue(
    workloads={
        name: Workload(
            name=name,
            unit="images",
            data=None,
            options=OPTIONS,
            precision="fp32",
            cpu_only=False,
            requires=(),
            missing=(),
            extra=None,
            ram_gib=None,
            source_modules=(),
            distributed=False,
            classic_factor=100 / 97,
            legacy_2020=(
                Legacy2020(
                    experiment=f"milarun.models.{name}:main",
                    options={"lr": "learning_rate"},
                    implied={"half": {"note": "half"}, "": {"batch_size": 64}},
                ),
            ),
            description="",
            origin="",
            package="",
            source_sha256="",
            bound="compute",
        )
        for name in ("vae", "convnet", "toy_reg", "toy_lstm", "loader", "scaling")
    },
    data_sets={},
)


def profile(content: bytes) -> None:
    """A profile, of today or of 2020, up to its plan."""
    text = decode_text(content, "p.json")
    read = parse_profile("p", text, "p.json")
    made = read if isinstance(read, Profile) else convert_2020(read, CATALOGUE)
    arguments: dict[str, Any] = {}
    for name, test in made.tests.items():
        options = CATALOGUE.workload(test.workload, name).options
        values, classes = choose_entries(test.arguments, None, name)
        arguments[name] = ResolvedOptions(resolve(options, values, name), (), classes)
        for rate in (test.io.read, test.io.write) if test.io else ():
            if rate is not None:
                parse_bytes_per_second(rate, name)
    msgspec.json.encode(make_plan(made, arguments, [Device(index=0, kind="cpu")], 1))


def weights(content: bytes) -> None:
    """A file of weights, and a score with it."""
    with folder() as place:
        file = place / "w.json"
        file.write_bytes(content)
        scale = load_scale(read_weights(file, "standard"))
        show(build_report(_SUMMARY, "s", scale=Scale(weights=scale.weights, reference=scale.reference)))


def summary(content: bytes) -> None:
    """A stored summary, of today or of 2020: on its own, and as a baseline."""
    made = decode_summary(content, "s.json")
    again = decode_summary(encode_summary(made).encode(), "s.json")
    assert made.units != "true" or again == made
    weighted = dict.fromkeys([*made.tests, "standard.vae"], 1.0)
    show(
        build_report(
            made,
            "s.json",
            scale=Scale(weights=weighted),
            baselines=[("b", _SUMMARY)],
            options=ReportOptions(price=1000.0, price_per="gpu"),
        )
    )
    show(
        build_report(
            _SUMMARY,
            "s",
            scale=Scale(weights=weighted),
            baselines=[("s.json", made)],
            options=ReportOptions(penalize_variance=False),
        )
    )


def record(content: bytes) -> None:
    """A record in a result folder beside good ones: it is counted, and the rest is reported and verified."""
    with folder() as place:
        name = sorted(path.name for path in _RUN.glob("standard.vae.*"))[0]
        copy(place, but=name)
        (place / name).write_bytes(content)
        show(make_report(place))
        show_verified(place, _DEMANDING)
        (place / MANIFEST).unlink()
        show(make_report(place))


def manifest(content: bytes) -> None:
    """The manifest of a result folder, in its report and under the rules."""
    with folder() as place:
        copy(place, but=MANIFEST)
        (place / MANIFEST).write_bytes(content)
        show(make_report(place, compare_to=[str(_RUN)]))
        show_verified(place, _DEMANDING)


def ledger(content: bytes) -> None:
    """The ledger of a result folder: in its report, under the rules, and when the run is to go on."""
    with folder() as place:
        copy(place, but=LEDGER)
        (place / LEDGER).write_bytes(content)
        show(make_report(place))
        show_verified(place, Rules())
        _, lines = extend(Chain(), "2026-01-06T16:00:00Z", check_chain(content).events)
        (place / LEDGER).write_bytes(lines)  # the same events in a sound chain
        writer = open_writer(ResultFolder(place), None)
        standing(writer)
        writer.close()


def rules(content: bytes) -> None:
    """A buyer's rules, and what they say of a sound folder."""
    show_verified(_RUN, decode_rules(content, "r.json"))


def bids(content: bytes) -> None:
    """A file of bids beside the results that it names."""
    with folder() as place:
        for name in ("base", "other"):
            (place / f"{name}.json").write_text(encode_summary(msgspec.structs.replace(_SUMMARY, runs=(name,))))
        file = place / "bids.json"
        file.write_bytes(content)
        made = compare_bids(file)
    for form in FORMS:
        stream = io.StringIO()
        write(tender_document(made), form, stream)
        _safe(stream.getvalue())


def traces(content: bytes) -> None:
    """Reference traces, and a launch against each of them."""
    made = decode_traces(content, "t.json")
    assert decode_traces(encode_traces(made), "t.json") == made
    for label, trace in made.tests.items():
        key = next(iter(trace.digests), "")
        seen = Traced(
            label=label,
            arguments=trace.arguments,
            data=trace.data,
            kind="gpu",
            precision="fp32",
            losses=tuple(("0/0", step, loss) for step in ("1", "10", "100") for loss in (2.0, None)),
            gradient_norms=tuple(("0/0", step, norm) for step in ("1", "10") for norm in (5.0, None)),
            digests={"fp32/0/0/100": "a"},
        )
        found = compare(seen, trace, key)
        _safe(plain("".join((*(mark.text for mark in found.deviations), found.sentence))))  # as every form writes it


def again(content: bytes) -> None:
    """A record that is to be run again."""
    with folder() as place:
        file = place / "r.json"
        file.write_bytes(content)
        found = profile_of(file)
        profile(json.dumps({found.test: json.loads(found.text)[found.test]}).encode())  # others are of shipped suites


def data_manifest(content: bytes) -> None:
    """The manifest of a dataset."""
    with folder() as place:
        (place / manifests.MANIFEST).write_bytes(content)
        manifests.read(place)


def data_listing(content: bytes) -> None:
    """The listing of a dataset."""
    with folder() as place:
        (place / manifests.LISTING).write_bytes(content)
        manifests.read_listing(place)


def words(content: bytes) -> None:
    """What a user writes: options after ``--``, sizes and bandwidths; one a line."""
    text = content.decode(errors="surrogateescape")
    for parse in (parse_bytes, parse_bytes_per_second):
        refusing(lambda parse=parse: parse(text, "--size"))  # type: ignore[misc]
    arguments = parse_flags(OPTIONS, text.split("\n"), "here")
    resolve(OPTIONS, arguments, "here")


def text(content: bytes) -> None:
    """Anything at all: the JSON reader in both ways, and what the terminal gets of it."""
    loose = content.decode(errors="surrogateescape")
    for made in (plain(loose), plain_lines(loose), plain_json(loose)):
        made.encode()
        assert not set(made) & set(PRINTED)
    refusing(lambda: parse_json(content, loose, numbers="any"))
    parse_json(content, loose)


TARGETS: dict[str, Callable[[bytes], None]] = {
    made.__name__: made
    for made in (
        *(profile, weights, summary, record, manifest, ledger, rules, bids, traces),
        *(again, data_manifest, data_listing, words, text),
    )
}


def refusing(call: Callable[[], object]) -> None:
    """Call it; it may refuse."""
    try:
        call()
    except InputError as error:
        _safe(str(error))


def check(name: str, content: bytes) -> bool:
    """Run one target; whether it took the input. What is refused is refused in a message that is safe to print."""
    try:
        TARGETS[name](content)
    except MnbError as error:
        _safe(str(error))
        return False
    return True


def show(made: Report) -> None:
    """Write the report in all forms, and see that no form lets anything through to the terminal."""
    for form in FORMS:
        stream = io.StringIO()
        write_report(made, form, stream)
        _safe(stream.getvalue())


def show_verified(place: Path, demanded: Rules) -> None:
    """The same of the verdict of rules."""
    made = verify(place, demanded)
    for form in FORMS:
        stream = io.StringIO()
        write(verification_document(made), form, stream)
        _safe(stream.getvalue())


def _safe(printed: str) -> None:
    shown = plain_lines(printed)
    shown.encode()
    assert shown == printed, f"not fit for a terminal: {printed[:500]!r}"


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder in memory, where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mnb-corpus-", dir=memory if memory.is_dir() else None) as place:
        yield Path(place)


def copy(place: Path, but: str) -> None:
    """The good result folder without one of its files."""
    for path in _RUN.iterdir():
        if path.name != but:
            shutil.copyfile(path, place / path.name)


def _make_run() -> Path:
    place = Path(tempfile.mkdtemp(prefix="mnb-corpus-"))
    schemes = {"vae": make_records.PER_GPU, "scaling": make_records.PROGRESSION}
    make_records.write_run(place, make_records.plan("standard", schemes, 2, 1), slices=40)
    return place


_RUN = _make_run()
_SUMMARY: Summary = load(_RUN)
_DEMANDING = load_rules("standard")


def tidy() -> None:
    """Remove the folder that all targets share."""
    shutil.rmtree(_RUN)


def seeds() -> dict[str, list[bytes]]:
    """Good inputs of each target, to begin with: those that the project has, and those that it makes."""
    records = [path.read_bytes() for path in sorted(_RUN.glob("standard.*.json"))[:1]]
    old = sorted((ROOT / "tests" / "data" / "milarun2020").rglob("*.json"))
    of_2020 = [path.read_bytes() for path in old if path.stat().st_size < 100_000]
    return {
        "profile": [path.read_bytes() for path in (ROOT / "profiles").glob("*.json")]
        + [
            json.dumps({"*": {"data_scale": 0.5}, "a": _TEST}).encode(),
            b'{"a": {"experiment": "milarun.models.vae:main", "arguments": {"--max-count": 9, "half": true}}}',
        ],
        "weights": [path.read_bytes() for path in (ROOT / "weights").glob("*.json")],
        "summary": [encode_summary(_SUMMARY).encode(), *(p.read_bytes() for p in (ROOT / "baselines").glob("*.json"))],
        "record": [*records, *(content for content in of_2020 if b'"timings"' in content)],
        "manifest": [(_RUN / MANIFEST).read_bytes()],
        "ledger": [(_RUN / LEDGER).read_bytes()],
        "rules": [path.read_bytes() for path in (ROOT / "rules").glob("*.json")],
        "bids": [json.dumps(_BIDS).encode(), json.dumps(_BIDS | {"nodes": 2, "budget": None}).encode()],
        "traces": [path.read_bytes() for path in (ROOT / "baselines" / "traces").glob("*.json")],
        "again": records,
        "data_manifest": [
            msgspec.json.encode(
                manifests.TwinManifest(
                    name="mnist",
                    seed=1,
                    generator=1,
                    scale=1.0,
                    files=2,
                    bytes=10,
                    checksum="0" * 64,
                    libraries={"numpy": "2"},
                    created="2026-01-06T16:00:00+00:00",
                )
            )
        ],
        "data_listing": [json.dumps([["raw/images", 5, "0" * 64], ["raw/labels", 5, "1" * 64]]).encode()],
        "words": [b"--batch-size\n64\n--no-shuffle\n--note=x\n--learning-rate\n1e-3", b"512 MiB", b"1000MiB/s"],
        "text": [b'{"a": [1, 2.5, "x", null, true]}'],
    }


NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**64), 10**400, 1e308, 1e-308, -0.0, 1e15, 1e200),
    *("", "x", "../x", "/etc/passwd", ".", "a/b", "nan", "\x1b[31m", "a\nb", "[red]", "\x9b2J", "\u202e", "\0", "²"),
    *("x" * 300, "=1+1", "standard.vae.²", "standard.vae.99999999999", "\ud800", "J0.0"),
    *([], {}, [[]], {"": None}, [None] * 3, float("nan"), float("inf"), float("-inf")),
)


def mutate(content: bytes, chance: random.Random) -> bytes:
    """Another JSON text: one value or some are replaced, removed, doubled or given another's name.

    Of JSON lines, one is changed.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        lines = content.splitlines(keepends=True)
        if len(lines) < 2:
            return content
        at = chance.randrange(len(lines))
        return b"".join([*lines[:at], mutate(lines[at], chance) + b"\n", *lines[at + 1 :]])
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        value = _change(value, chance)
    made = json.dumps(value)
    if chance.random() < 0.05 and '"' in made:
        at = chance.randrange(len(made))
        made = made[:at] + chance.choice(["[" * 200, '{"a":1,"a":2}', "1e999", "NaN", "", made, "\\ud800"]) + made[at:]
    return made.encode()


def _change(value: Any, chance: random.Random) -> Any:
    """Go down a random way and change what is there."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        changed = dict(value)
        match chance.randrange(12):
            case 0:
                del changed[key]
            case 1:
                changed[str(chance.choice(NASTY))] = changed.pop(key)
            case _:
                changed[key] = _change(value[key], chance)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        match chance.randrange(10):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[:at] + value[at:][::-1]
            case _:
                return [*value[:at], _change(value[at], chance), *value[at + 1 :]]
    return chance.choice(NASTY)
