"""Reference traces: bands by hand, and a report that flags what left them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest
from make_records import PER_GPU, manifest, plan, record, steady, write
from parts.trace_bands import FIRST, build, merge

from milabench_ng.analysis.launch import traces
from milabench_ng.analysis.launch.traces import (
    Compared,
    TraceBand,
    Traced,
    TracedNumbers,
    compare,
    decode_traces,
    encode_traces,
    strength,
)
from milabench_ng.analysis.summary.folder import load
from milabench_ng.model import shipped
from milabench_ng.model.errors import InputError
from milabench_ng.present.render.statements import details, told
from milabench_ng.records.marks import Mark
from milabench_ng.report.reporting import make_report

ROOT = Path(__file__).parents[2]
ARGUMENTS: dict[str, Any] = {"batch_size": 64}
TWIN = "imagenet (synthetic, scale 1)"


def seen(loss: float | None, digest: str = "a", precision: str = "fp32", *, tenant: int = 0, **changes: Any) -> Traced:
    made = {"arguments": ARGUMENTS, "data": ("imagenet", "twin", 1.0), "kind": "gpu", **changes}
    return Traced(
        label="try.net",
        precision=precision,
        losses=((f"{tenant}/0", "10", loss),),
        gradient_norms=(),
        digests={f"{precision}/0/0/100": digest},
        **made,
    )


def test_a_band_is_as_wide_as_the_launches_differ_and_no_narrower_than_the_precision_allows() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ())
    assert made.tests["try.net"].losses == {"gpu": {"fp32": {"10": TraceBand(2.0, pytest.approx(2 * 0.02 * 2), "0/0")}}}
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


def first_step(loss: float, norm: float | None, tenant: int = 0, **changes: Any) -> Traced:
    def at(number: float | None) -> TracedNumbers:
        return ((f"{tenant}/0", "1", number),)

    return msgspec.structs.replace(seen(None, **changes), losses=at(loss), gradient_norms=at(norm))


def of_tenants(*numbers: tuple[float, float | None], **changes: Any) -> Any:
    """The trace of tenants with these losses and gradient norms at step 1."""
    launches = [(first_step(*each, tenant, **changes), "k") for tenant, each in enumerate(numbers)]
    return build("try", launches, ()).tests["try.net"]


def test_tenants_that_agree_on_the_first_step_make_bands_as_narrow_as_arithmetic_allows() -> None:
    """Two tenants have one degree of freedom: by Student's t a millionth between them would become 1 %."""
    trace = of_tenants((2.0, 10.0), (2.000002, 10.00001))
    assert trace.losses["gpu"]["fp32"]["1"] == TraceBand(pytest.approx(2.000001), pytest.approx(2 * 0.002))
    assert trace.gradient_norms["gpu"]["fp32"]["1"] == TraceBand(pytest.approx(10.000005), pytest.approx(10 * 0.03))
    apart = of_tenants((2.0, 10.0), (2.0012, 10.00001))  # 0.0006 from the middle; a quarter of the floor is 0.001
    assert apart.losses["gpu"]["fp32"]["1"].tolerance == pytest.approx(2.0006 * 0.002)
    too_far = of_tenants((2.0, 10.0), (2.0022, 10.0), (2.0011, 10.0), (2.0011, 10.0))
    # Student's t at 1 - 0.00005 with three degrees of freedom, from a table: 28.000.
    expected = 28.000 * math.sqrt(2 * 0.0011**2 / 3) * math.sqrt(1 + 1 / 4)
    assert too_far.losses["gpu"]["fp32"]["1"].tolerance == pytest.approx(expected, rel=1e-4)


def test_later_bands_of_one_tenant_are_not_asked_of_others() -> None:
    """They read in their own order. The first batch is the same for all."""
    later = build("try", [(seen(2.0), "k")] * 2, ()).tests["try.net"]
    (mark,) = compare(seen(3.0), later, "other").deviations
    assert mark.text == "outside the reference: loss 3 at step 10, expected 2 +- 0.08"
    other = seen(3.0, tenant=1)
    assert compare(other, later, "other") == Compared(lacking=f"gpu, fp32, {TWIN} and these options")
    silent = msgspec.structs.replace(other, losses=(), steps={"1/0": 50})
    assert compare(silent, later, "other").deviations == ()
    assert [mark.kind for mark in compare(msgspec.structs.replace(silent, steps={"0/0": 50}), later, "k").deviations]
    first = build("try", [(first_step(2.0, 10.0), "k")] * 2, ()).tests["try.net"]
    assert compare(first_step(2.0, 10.0, tenant=1), first, "k").strength == "strong"
    assert compare(first_step(1.0, 10.0, tenant=1), first, "k").deviations


def test_a_trace_is_of_as_many_ranks_as_made_it() -> None:
    """Ranks average their gradients, so that two make another norm than one."""
    one = build("try", [(first_step(2.0, 10.0), "k")] * 2, ()).tests["try.net"]
    both = first_step(2.0, 7.0, ranks=2)
    assert compare(both, one, "k") == Compared(lacking=f"gpu, fp32, 2 ranks, {TWIN} and these options")
    assert compare(both, msgspec.structs.replace(one, ranks=2), "k").deviations
    made = build("try", [(first_step(2.0, 10.0), "k"), (both, "k"), (both, "k")], ()).tests["try.net"]
    assert made == build("try", [(both, "k")] * 2, ()).tests["try.net"]  # the larger node


def test_a_number_around_zero_has_no_band() -> None:
    """A share of nothing is nothing, and the last digits of a loss that starts at zero would accuse."""
    made = build("try", [(first_step(0.0, 10.0), "k")] * 2, ()).tests["try.net"]
    assert made.losses == {"gpu": {"fp32": {}}}
    assert "1" in made.gradient_norms["gpu"]["fp32"]


def test_deviations_of_the_gradient_norm() -> None:
    trace = of_tenants((2.0, 10.0), (2.0, 10.0))
    assert compare(first_step(2.0, 10.2), trace, "k") == Compared(strength="strong")
    (mark,) = compare(first_step(2.0, 14.1), trace, "k").deviations
    assert mark.text == "outside the reference: gradient norm 14.1 at step 1, expected 10 +- 0.3"
    (mark,) = compare(first_step(2.0, None), trace, "k").deviations
    assert "gradient norm not finite at step 1" in mark.text


def test_a_skipped_step_of_a_scaled_mode_is_no_deviation_and_makes_the_comparison_weak() -> None:
    trace = of_tenants((2.0, 10.0), (2.0, 10.0), precision="amp")
    assert compare(first_step(2.0, 10.0, precision="amp"), trace, "k") == Compared(strength="strong")
    skipping = {"precision": "amp", "skipped": {"0/0": 1}}
    assert compare(first_step(2.0, None, **skipping), trace, "k") == Compared(strength="weak")
    (wrong,) = compare(first_step(1.0, None, **skipping), trace, "k").deviations
    assert wrong.text.startswith("outside the reference: loss 1 at step 1")
    (untold,) = compare(first_step(2.0, None, precision="amp"), trace, "k").deviations
    assert untold.text.startswith("outside the reference: gradient norm not finite at step 1")


@pytest.mark.parametrize("precision", FIRST)
def test_a_fixed_first_batch_makes_a_strong_trace_in_every_precision(precision: str) -> None:
    for norm in (10.0, 3.1, 12.4):  # 5 % of these, over them, is not always 5 %
        trace = of_tenants((2.0, norm), (2.0, norm), precision=precision)
        assert compare(first_step(2.0, norm, precision=precision), trace, "k").strength == "strong"


def test_strength_is_of_the_bands_of_the_first_step() -> None:
    def known(share: float, step: str = "1") -> dict[str, TraceBand]:
        return {step: TraceBand(-4.0, 4.0 * share)}

    assert strength(known(0.01), known(0.05)) == "strong"
    for losses, norms in [
        (known(0.011), known(0.05)),
        (known(0.01), known(0.051)),
        (known(0.01), {}),
        ({}, known(0.05)),
        (known(0.01, "2"), known(0.01, "2")),
        ({"1": TraceBand(0.0, 0.1)}, known(0.01)),
    ]:
        assert strength(losses, norms) == "weak"
    assert strength({}, {}) == "digest only"


def test_a_test_of_digests_alone_is_called_so() -> None:
    launches = [(first_step(loss, loss, tenant), "k") for tenant, loss in enumerate((-3.0, 4.0))]
    trace = build("try", [*launches, *launches], ()).tests["try.net"]
    assert compare(launches[0][0], trace, "k") == Compared(strength="digest only")
    assert compare(launches[0][0], trace, "other").lacking


@pytest.mark.parametrize(
    ("version", "compared"), [("0.1.0", False), ("", False), ("0.2.0", True), ("0.10.0", True), ("1.0", True)]
)
def test_a_trace_holds_from_the_version_whose_workloads_it_is_of(version: str, compared: bool) -> None:
    trace = msgspec.structs.replace(of_tenants((2.0, 10.0), (2.0, 10.0)), since="0.2.0")
    found = compare(msgspec.structs.replace(first_step(9.0, 10.0), version=version), trace, "k")
    assert bool(found.deviations) == compared
    if not compared:
        assert found.lacking == f"mnb {version or 'of no version'}, before 0.2.0"


def test_a_trace_that_is_blind_to_less_work_is_weak_however_narrow_and_stays_so() -> None:
    trace = msgspec.structs.replace(of_tenants((2.0, 10.0), (2.0, 10.0)), blind="half of a batch moves nothing")
    assert compare(first_step(2.0, 10.0), trace, "k").strength == "weak"
    made = traces.Traces(suite="try", tests={"try.net": of_tenants((2.0, 10.0), (2.0, 10.0))})
    kept = traces.Traces(suite="try", tests={"try.net": trace})
    assert merge(made, kept).tests["try.net"].blind == trace.blind


def test_what_is_said_names_all_but_the_strong() -> None:
    rows = [
        ("a", ("compared: strong",)),
        ("b", ("compared: strong", "compared: weak")),
        ("c", ("compared: digest only", "no reference trace for x")),
        ("d", ("compared: strong",)),
        ("e", ("no reference trace for x",)),
        ("f", ("compared",)),
    ]
    assert told(rows) == (
        "5 of 6 tests compared: 2 strong, 1 weak (b), 1 digest only (c); no reference trace for x: c, e"
    )
    assert told(rows[-1:]) == "1 of 1 test compared"
    assert told([(str(n), (f"no reference trace for {n}",)) for n in range(6)]).endswith(
        "; 2 others without a reference"
    )


def test_traces_of_cpus_and_gpus_are_merged_and_what_is_new_wins() -> None:
    old = build("try", [(seen(2.0, kind=kind), "k") for kind in ("cpu", "cpu", "gpu", "gpu")], ("old",))
    new = build("try", [(seen(3.0, "b", kind="gpu"), "new")] * 2, ("new",))
    merged = merge(new, old)
    assert merged.made_from == ("old", "new")
    trace = merged.tests["try.net"]
    assert {kind: modes["fp32"]["10"].value for kind, modes in trace.losses.items()} == {"cpu": 2.0, "gpu": 3.0}
    assert set(trace.digests) == {"k", "new"}
    changed = build("try", [(seen(3.0, data=None), "k")] * 2, ())
    assert merge(changed, old).tests["try.net"] == changed.tests["try.net"]
    assert merge(msgspec.structs.replace(new, tests={}), old).tests == old.tests
    with pytest.raises(InputError, match="one suite at a time"):
        merge(new, msgspec.structs.replace(old, suite="other"))


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
    elsewhere = (msgspec.structs.replace(seen(2.0), digests={"fp32/1/0/100": "c"}), "k")
    anywhere = build("try", [(seen(2.0), "k"), (seen(2.0, "b"), "k"), elsewhere, elsewhere], ())
    assert anywhere.tests["try.net"].digests == {}  # one tenant shows that the others may differ, too


def test_deviations() -> None:
    trace = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()).tests["try.net"]
    assert compare(seen(2.07), trace, "k") == Compared(strength="weak")
    (far,) = compare(seen(2.09), trace, "k").deviations
    assert far.text == "outside the reference: loss 2.09 at step 10, expected 2 +- 0.08"
    assert "loss not finite at step 10" in compare(seen(None), trace, "k").deviations[0].text
    assert compare(seen(2.0, "b"), trace, "k").deviations == (Mark(kind="parameters outside the reference"),)
    assert compare(seen(2.0, "b"), trace, "newer") == Compared(strength="weak")  # other software, other digits


def test_what_has_no_reference_is_not_marked_and_named() -> None:
    trace = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()).tests["try.net"]
    for changes, lacking in [
        ({"kind": "cpu"}, "cpu, fp32, imagenet (synthetic, scale 1) and these options"),
        ({"precision": "amp"}, "gpu, amp, imagenet (synthetic, scale 1) and these options"),
        ({"data": ("imagenet", "twin", 0.5)}, "gpu, fp32, imagenet (synthetic, scale 0.5) and these options"),
        ({"data": None}, "gpu, fp32 and these options"),
        ({"arguments": {"batch_size": 32}}, "gpu, fp32, imagenet (synthetic, scale 1) and these options"),
    ]:
        # Other software: the digest, which is of one kind of device by its software key, has no say.
        assert compare(seen(9.0, "b", **changes), trace, "newer") == Compared(lacking=lacking)
    assert compare(seen(9.0), None, "k").sentence.startswith("no reference trace for gpu, fp32")


def test_launches_of_different_options_make_no_trace() -> None:
    with pytest.raises(InputError, match="differ in options or data"):
        build("try", [(seen(2.0), "k"), (seen(2.0, arguments={"batch_size": 32}), "k")], ())


def test_files_are_read_as_they_were_written_and_newer_ones_refused() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ("a node",))
    assert decode_traces(encode_traces(made), "here") == made
    for other in (b"1", b"4"):
        with pytest.raises(InputError, match="this version of mnb reads 2 and 3"):
            decode_traces(encode_traces(made).replace(b'"schema": 3', b'"schema": ' + other), "here")


def test_files_without_gradient_norms_are_read() -> None:
    made = build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ("a node",))
    old = encode_traces(made).replace(b'"schema": 3', b'"schema": 2').replace(b'"gradient_norms"', b'"others"')
    assert decode_traces(old, "here") == msgspec.structs.replace(
        made, tests={"try.net": msgspec.structs.replace(made.tests["try.net"], gradient_norms={})}
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"value": 2.0', b'"value": "2"', r"here: tests.*value: expected a number, got text"),
        (b'"value": 2.0', b'"value": NaN', "here: not JSON: NaN"),
        (b'"suite": "try"', b'"suite": "try", "suite": "try"', "'suite' appears twice"),
    ],
)
def test_bad_files_are_refused_with_file_and_place(old: bytes, new: bytes, message: str) -> None:
    content = encode_traces(build("try", [(seen(2.0), "k"), (seen(2.0), "k")], ()))
    assert old in content
    with pytest.raises(InputError, match=message):
        decode_traces(content.replace(old, new), "here")


def folder(place: Path, loss: float, *marks: dict[str, Any]) -> Path:
    """Two launches of a test, both with this loss and these marks."""
    place.mkdir()
    whole = plan("try", {"net": PER_GPU}, devices=2, repeat=1)
    for launch in whole.launches:
        made = record(launch, steady)
        made["mnb"]["ranks"][0] |= {"losses": {"1": loss}, "gradient_norms": {"1": 5.0}, "digests": {"100": "a"}}
        made["mnb"]["marks"] = list(marks)
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
    again = subprocess.run([*command, "--keep", str(target)], check=True, env={"PYTHONPATH": str(ROOT)}, stderr=PIPE)
    assert again.stderr == b"try.net gpu fp32: strong; step 1: 0.2 % 3 %\n"
    assert load(good).tests["try.net"].marks == ()
    (fact,) = (fact for fact in details(make_report(good)) if fact.name == "reference traces")
    assert fact.text == "1 of 1 test compared: 1 strong"
    (mark,) = load(bad).tests["try.net"].marks
    assert mark.text == "outside the reference: loss 3 at step 1, expected 2 +- 0.004"


def test_a_trace_is_made_of_marked_launches_where_the_mark_is_about_pace(tmp_path: Path) -> None:
    slow = folder(tmp_path / "slow", 2.0, {"kind": "throttled", "device": "0", "what": "heat", "value": 0.5})
    other = folder(tmp_path / "other", 3.0, {"kind": "options overridden", "what": "batch_size"})
    command = [sys.executable, str(ROOT / "scripts" / "traces"), str(slow), str(other)]
    made = subprocess.run(command, check=True, capture_output=True, env={"PYTHONPATH": str(ROOT)})
    assert decode_traces(made.stdout, "here").tests["try.net"].losses["gpu"]["fp32"]["1"].value == 2.0
    assert made.stderr.count(b"options overridden: batch_size") == 2
    assert b"throttled" not in made.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "baselines" / "traces").glob("*.json")), ids=lambda path: path.stem)
def test_the_shipped_traces_can_be_read(path: Path) -> None:
    assert traces.load_traces(path.stem)


def test_a_report_says_what_has_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "_places", lambda: (tmp_path,))
    made = make_report(folder(tmp_path / "results", 2.0))
    assert made.lines[0].row.marks == ()
    (fact,) = (fact for fact in details(made) if fact.name == "reference traces")
    assert fact.text.startswith("0 of 1 test compared; no reference trace for ")
    assert fact.text.endswith(": net")
