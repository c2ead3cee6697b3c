"""Reference traces: bands by hand, and a report that flags what left them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from make_records import PER_GPU, manifest, plan, record, steady, write

from milabench_ng import shipped
from milabench_ng.errors import InputError
from milabench_ng.report import traces
from milabench_ng.report.folder import load
from milabench_ng.report.traces import Band, Traced, build, decode_traces, deviations, encode_traces

ROOT = Path(__file__).parents[2]
ARGUMENTS: dict[str, Any] = {"batch_size": 64}


def seen(loss: float | None, digest: str = "a", precision: str = "fp32", **changes: Any) -> Traced:
    made = {"arguments": ARGUMENTS, "data": ("imagenet", "twin", 1.0), **changes}
    return Traced(
        label="try.net", precision=precision, losses=(("10", loss),), digests={f"{precision}/0/0/100": digest}, **made
    )


def test_a_band_is_as_wide_as_the_launches_differ_and_no_narrower_than_the_precision_allows() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ())
    assert made.tests["try.net"].losses == {"fp32": {"10": Band(2.0, pytest.approx(2 * 0.02 * 2))}}
    made = build("try", [(seen(1.9), "k"), (seen(2.1), "k"), (seen(10.0, precision="bf16"), "k")], ())
    assert made.tests["try.net"].losses["fp32"]["10"].tolerance == pytest.approx(6 * 0.1)
    assert made.tests["try.net"].losses["bf16"]["10"].tolerance == pytest.approx(2 * 0.05 * 10)


def test_a_loss_near_zero_has_the_tolerance_of_a_tenth_of_the_first_one() -> None:
    first = msgspec.structs.replace(seen(0.0), losses=(("1", 5.0), ("10", 0.0)))
    assert build("try", [(first, "k")] * 2, ()).tests["try.net"].losses["fp32"]["10"].tolerance == pytest.approx(0.02)


def test_a_digest_counts_where_two_agree_and_none_differs() -> None:
    agreed = build("try", [(seen(2.0), "k"), (seen(2.0), "k"), (seen(2.0), "other")], ())
    assert agreed.tests["try.net"].digests == {"k": {"fp32/0/0/100": "a"}}
    differing = build("try", [(seen(2.0), "k"), (seen(2.0, "b"), "k")], ())
    assert differing.tests["try.net"].digests == {}


def test_deviations() -> None:
    trace = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()).tests["try.net"]
    assert deviations(seen(2.07), trace, "k") == ()
    (far,) = deviations(seen(2.09), trace, "k")
    assert far == "outside the reference: loss 2.09 at step 10, expected 2 +- 0.08"
    assert "loss not finite at step 10" in deviations(seen(None), trace, "k")[0]
    assert deviations(seen(2.0, "b"), trace, "k") == (
        "outside the reference: parameters differ from those that this software makes",
    )
    assert deviations(seen(2.0, "b"), trace, "newer") == ()  # other software, other digits
    assert deviations(seen(9.0, precision="amp"), trace, "k") == ()  # no band for that
    assert deviations(seen(9.0, arguments={"batch_size": 32}), trace, "k") == ()
    assert deviations(seen(9.0, data=("imagenet", "twin", 0.5)), trace, "k") == ()


def test_launches_of_different_options_make_no_trace() -> None:
    with pytest.raises(InputError, match="differ in options or data"):
        build("try", [(seen(2.0), "k"), (seen(2.0, arguments={"batch_size": 32}), "k")], ())


def test_files_are_read_as_they_were_written_and_newer_ones_refused() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ("a node",))
    assert decode_traces(encode_traces(made), "here") == made
    with pytest.raises(InputError, match="reads up to 1"):
        decode_traces(encode_traces(made).replace(b'"schema": 1', b'"schema": 2'), "here")


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
    assert load(bad).tests["try.net"].marks == ("outside the reference: loss 3 at step 1, expected 2 +- 0.04",)


@pytest.mark.parametrize("path", sorted((ROOT / "baselines" / "traces").glob("*.json")), ids=lambda path: path.stem)
def test_the_shipped_traces_can_be_read(path: Path) -> None:
    assert traces.load_traces(path.stem)
