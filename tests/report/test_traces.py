"""Reference traces: bands by hand, and a report that flags what left them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from make_records import PER_GPU, manifest, plan, record, steady, write

from milabench_ng import shipped
from milabench_ng.errors import InputError
from milabench_ng.records.marks import Mark
from milabench_ng.report import traces
from milabench_ng.report.facts import header
from milabench_ng.report.folder import load
from milabench_ng.report.report import make_report
from milabench_ng.report.traces import Band, Compared, Traced, build, compare, decode_traces, encode_traces

ROOT = Path(__file__).parents[2]
ARGUMENTS: dict[str, Any] = {"batch_size": 64}


def seen(loss: float | None, digest: str = "a", precision: str = "fp32", *, tenant: int = 0, **changes: Any) -> Traced:
    made = {"arguments": ARGUMENTS, "data": ("imagenet", "twin", 1.0), "kind": "gpu", **changes}
    return Traced(
        label="try.net",
        precision=precision,
        losses=((f"{tenant}/0", "10", loss),),
        digests={f"{precision}/0/0/100": digest},
        **made,
    )


def test_a_band_is_as_wide_as_the_launches_differ_and_no_narrower_than_the_precision_allows() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ())
    assert made.tests["try.net"].losses == {"gpu": {"fp32": {"10": Band(2.0, pytest.approx(2 * 0.02 * 2))}}}
    half = [(seen(10.0, precision="bf16"), "k")] * 2
    tenants = [(seen(loss, tenant=tenant), "k") for tenant, loss in enumerate((2.01, 1.99, 2.01, 1.99))]
    losses = build("try", [*tenants, *half], ()).tests["try.net"].losses["gpu"]
    # Student's t at 1 - 0.00005 with three degrees of freedom, from a table: 28.000.
    expected = 28.000 * math.sqrt(4 / 3 * 0.01**2) * math.sqrt(1 + 1 / 4)
    assert losses["fp32"]["10"].tolerance == pytest.approx(expected, rel=1e-4)
    assert losses["bf16"]["10"].tolerance == pytest.approx(2 * 0.05 * 10)


def test_repeats_of_a_tenant_do_not_count_as_other_tenants() -> None:
    """They begin from the same seed: many of them say no more of another tenant than one does."""
    tenants = [(seen(loss, tenant=tenant), "k") for tenant, loss in enumerate((2.01, 1.99, 2.01, 1.99))]
    once, often = (build("try", tenants * times, ()).tests["try.net"].losses for times in (1, 30))
    assert often["gpu"]["fp32"]["10"].tolerance == pytest.approx(once["gpu"]["fp32"]["10"].tolerance)


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param((2.0,), id="one launch"),
        pytest.param((-3.0, 4.0, -2.0, 5.0), id="tenants that do different things"),
        pytest.param((2.0, 2.1), id="two tenants that differ"),
    ],
)
def test_a_band_that_says_nothing_is_none(losses: tuple[float, ...]) -> None:
    launches = [(seen(loss, tenant=tenant), "k") for tenant, loss in enumerate(losses)]
    assert build("try", launches, ()).tests["try.net"].losses == {"gpu": {"fp32": {}}}


def test_a_loss_near_zero_has_the_tolerance_of_a_tenth_of_the_first_one() -> None:
    first = msgspec.structs.replace(seen(0.0), losses=(("0/0", "1", 5.0), ("0/0", "10", 0.0)))
    assert build("try", [(first, "k")] * 2, ()).tests["try.net"].losses["gpu"]["fp32"]["10"].tolerance == pytest.approx(
        0.02
    )


def test_a_digest_counts_where_two_agree_and_none_differs() -> None:
    agreed = build("try", [(seen(2.0), "k"), (seen(2.0), "k"), (seen(2.0), "other")], ())
    assert agreed.tests["try.net"].digests == {"k": {"fp32/0/0/100": "a"}}
    differing = build("try", [(seen(2.0), "k"), (seen(2.0, "b"), "k")], ())
    assert differing.tests["try.net"].digests == {}


def test_deviations() -> None:
    trace = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()).tests["try.net"]
    assert compare(seen(2.07), trace, "k") == Compared()
    (far,) = compare(seen(2.09), trace, "k").deviations
    assert far.text == "outside the reference: loss 2.09 at step 10, expected 2 +- 0.08"
    assert "loss not finite at step 10" in compare(seen(None), trace, "k").deviations[0].text
    assert compare(seen(2.0, "b"), trace, "k").deviations == (Mark(kind="parameters outside the reference"),)
    assert compare(seen(2.0, "b"), trace, "newer") == Compared()  # other software, other digits


def test_what_has_no_reference_is_not_marked_and_named() -> None:
    trace = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()).tests["try.net"]
    for changes, lacking in [
        ({"kind": "cpu"}, "cpu, fp32, imagenet (twin, scale 1) and these options"),
        ({"precision": "amp"}, "gpu, amp, imagenet (twin, scale 1) and these options"),
        ({"data": ("imagenet", "twin", 0.5)}, "gpu, fp32, imagenet (twin, scale 0.5) and these options"),
        ({"data": None}, "gpu, fp32 and these options"),
        ({"arguments": {"batch_size": 32}}, "gpu, fp32, imagenet (twin, scale 1) and these options"),
    ]:
        # Other software: the digest, which is of one kind of device by its software key, has no say.
        assert compare(seen(9.0, "b", **changes), trace, "newer") == Compared(lacking=lacking)
    assert compare(seen(9.0), None, "k").sentence.startswith("no reference for gpu, fp32")


def test_launches_of_different_options_make_no_trace() -> None:
    with pytest.raises(InputError, match="differ in options or data"):
        build("try", [(seen(2.0), "k"), (seen(2.0, arguments={"batch_size": 32}), "k")], ())


def test_files_are_read_as_they_were_written_and_newer_ones_refused() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ("a node",))
    assert decode_traces(encode_traces(made), "here") == made
    for other in (b"1", b"3"):
        with pytest.raises(InputError, match="this version of mnb reads 2"):
            decode_traces(encode_traces(made).replace(b'"schema": 2', b'"schema": ' + other), "here")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"value": 2.0', b'"value": "2"', r"here: Expected `float`, got `str` - at `\$.tests.*value`"),
        (b'"value": 2.0', b'"value": NaN', "here: not JSON: NaN"),
        (b'"suite": "try"', b'"suite": "try", "suite": "try"', "'suite' stands twice"),
    ],
)
def test_bad_files_are_refused_with_file_and_place(old: bytes, new: bytes, message: str) -> None:
    content = encode_traces(build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()))
    assert old in content
    with pytest.raises(InputError, match=message):
        decode_traces(content.replace(old, new), "here")


def folder(place: Path, loss: float) -> Path:
    """Two launches of a test, both with this loss."""
    place.mkdir()
    whole = plan("try", {"net": PER_GPU}, devices=2, repeat=1)
    for launch in whole.launches:
        made = record(launch, steady)
        made["mnb"]["ranks"][0] |= {"losses": {"1": loss}, "digests": {"100": "a"}}
        write(place, made)
    (place / "run.json").write_bytes(msgspec.json.encode(manifest(whole) | {"software_key": "k"}))
    return place


def test_a_report_marks_what_left_the_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `scripts/traces` makes them and `mnb report` reads them."""
    good, bad = folder(tmp_path / "good", 2.0), folder(tmp_path / "bad", 3.0)
    target = tmp_path / "baselines" / "traces" / "try.json"
    command = [sys.executable, str(ROOT / "scripts" / "traces"), str(good), "-o", str(target)]
    subprocess.run(command, check=True, env={"PYTHONPATH": str(ROOT)})
    monkeypatch.setattr(shipped, "_places", lambda: (tmp_path,))
    assert load(good).tests["try.net"].marks == ()
    (fact,) = (fact for fact in header(make_report(good)) if fact.name == "reference traces")
    assert fact.text == "1 of 1 tests compared"
    (mark,) = load(bad).tests["try.net"].marks
    assert mark.text == "outside the reference: loss 3 at step 1, expected 2 +- 0.04"


@pytest.mark.parametrize("path", sorted((ROOT / "baselines" / "traces").glob("*.json")), ids=lambda path: path.stem)
def test_the_shipped_traces_can_be_read(path: Path) -> None:
    assert traces.load_traces(path.stem)


def test_a_report_says_what_has_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_places", lambda: (tmp_path,))
    made = make_report(folder(tmp_path / "results", 2.0))
    assert made.lines[0].row.marks == ()
    (fact,) = (fact for fact in header(made) if fact.name == "reference traces")
    assert fact.text.startswith("0 of 1 tests compared; no reference for ")
    assert fact.text.endswith(": net")
