"""Scores relative to a reference that the weights name, on numbers computed by hand and in bundles."""

from __future__ import annotations

import hashlib
import json
import re
import runpy
from pathlib import Path

import make_records
import msgspec
import pytest
import tampering
from make_records import PER_GPU
from rows import changed
from test_score import row, summary

from milabench_ng.analysis.scoring.reference import CLASSIC_UNIT, Reference
from milabench_ng.analysis.scoring.scale import Scale, load_scale, shipped_scale
from milabench_ng.analysis.scoring.score import score
from milabench_ng.analysis.scoring.weights import read_weights
from milabench_ng.analysis.summary.folder import encode_summary, load
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import Scheme, read_profile
from milabench_ng.model.stats import weighted_geometric_mean
from milabench_ng.present.render import as_json
from milabench_ng.present.render.first_screen import first_screen
from milabench_ng.present.render.statements import details
from milabench_ng.present.render.tables import other_tables
from milabench_ng.records.work import Work
from milabench_ng.report.report import Report
from milabench_ng.report.reporting import AS_USUAL, ReportOptions, build_report, make_report
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.verify import verify

BASELINES = Path(__file__).parents[2] / "baselines"
WEIGHTS = {"s.a": 1.0, "s.b": 3.0}
RUN = summary({"s.a": row(200.0, std=100.0), "s.b": row(32.0, unit="voxels")})
AT_ONE = summary({"s.a": row(50.0), "s.b": row(20.0, std=4.0, unit="voxels")}, devices=1)
RATIOS = (100 / 50, 32 / 16)


def against(made: Summary) -> Reference:
    return Reference(name="paper", file=Path("paper.json"), sha256="0" * 64, summary=made)


def test_a_reference_that_did_other_work_in_an_option_that_came_later_does_not_count() -> None:
    """`cv_train` had no option `autotune` when its reference was measured, and tuned."""

    def trained(made: Summary, workload: str = "cv_train", **options: bool) -> Summary:
        label = next(iter(WEIGHTS))
        work = Work(workload=workload, unit=made.tests[label].work.unit, options={"batch_size": 64, **options})
        work = msgspec.structs.replace(work, classic_factor=made.tests[label].work.classic_factor)
        return msgspec.structs.replace(
            made, tests=made.tests | {label: msgspec.structs.replace(made.tests[label], work=work)}
        )

    reference = against(trained(AT_ONE))
    assert score(trained(RUN, autotune=True), WEIGHTS, reference).status == "complete"
    found = score(trained(RUN, autotune=False), WEIGHTS, reference)
    assert found.status == "partial"
    assert "other work than the reference (autotune is False, there True)" in found.reasons[0]
    unnamed = score(trained(RUN, workload=""), WEIGHTS, against(trained(AT_ONE, autotune=False)))
    assert "other work than the reference (autotune is True, there False)" in unnamed.reasons[0]


def test_a_baseline_whose_version_named_no_workload_did_the_work_of_its_bundle() -> None:
    """The bundle has the name of the workload, and so what that version did without an option."""
    stored = BASELINES / "unet3d-h200.json"
    packed = make_report(BASELINES / "bundles" / "unet3d-2xH200-20261122.tar.gz", compare_to=[str(stored)])
    alone = make_report(stored)
    assert alone.score
    assert packed.score
    assert alone.score.reasons == packed.score.reasons != ()
    (told,) = (answer.fact.text for answer in first_screen(alone).answers if answer.name == "Score")
    assert "no score: 4 tests did other work than the reference" in told
    (with_itself,) = packed.comparisons
    assert with_itself.tests == with_itself.of == packed.score.of


def test_the_score_is_the_weighted_geometric_mean_of_the_ratios_per_device() -> None:
    made = score(RUN, WEIGHTS, against(AT_ONE))
    assert (made.status, made.unit) == ("complete", "x paper")
    assert made.per_device == pytest.approx((RATIOS[0] * RATIOS[1] ** 3) ** 0.25, rel=1e-12)
    assert made.per_node == pytest.approx(2 * (RATIOS[0] * RATIOS[1] ** 3) ** 0.25, rel=1e-12)
    plain = score(RUN, WEIGHTS, against(AT_ONE), penalize_variance=False)
    assert plain.per_device == pytest.approx(((200 / 50) * (32 / 20) ** 3) ** 0.25, rel=1e-12)


def test_another_file_under_a_shipped_name_shows_its_sum(tmp_path: Path) -> None:
    content = encode_summary(AT_ONE).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "unet3d-h100.json").write_bytes(content)
    header = {"reference": "unet3d-h100", "sha256": sha256}
    (tmp_path / "w.json").write_text(json.dumps({"*": header, "s.a": {"weight": 1}}))
    own = load_scale(read_weights(tmp_path / "w.json", "s")).reference
    assert own.unit == f"x unet3d-h100 (SHA-256 {sha256[:12]})"
    shipped = shipped_scale("unet3d").reference
    assert shipped.unit == "x unet3d-h100"


def test_the_reference_itself_has_one() -> None:
    assert score(AT_ONE, WEIGHTS, against(AT_ONE)).per_device == pytest.approx(1.0, rel=1e-12)


def test_without_a_reference_the_score_is_in_classic_units_to_the_last_digit() -> None:
    made = score(RUN, WEIGHTS)
    assert made.unit == CLASSIC_UNIT
    assert made.per_device == weighted_geometric_mean([100.0, 32.0], [1.0, 3.0])


def test_a_test_of_other_items_than_the_reference_does_not_count() -> None:
    other = summary({"s.a": row(50.0), "s.b": row(16.0, unit="images")})
    made = score(RUN, WEIGHTS, against(other))
    assert made.status == "partial"
    assert made.per_device == pytest.approx(2.0, rel=1e-12)
    assert made.reasons == ("s.b: counts voxels, but the reference counts images",)


def report(*baselines: tuple[str, Summary], options: ReportOptions = AS_USUAL) -> Report:
    return build_report(RUN, "run", Scale(weights=WEIGHTS, reference=against(AT_ONE)), baselines, options)


def test_the_report_says_the_unit_everywhere() -> None:
    made = report(("half", AT_ONE), options=ReportOptions(price=1000.0))
    told = {fact.name: fact.text for fact in (*first_screen(made).facts, *details(made, charged=True))}
    assert told["Score"].startswith("2.000 x paper per device   4.000 per node")
    assert "2.000 vs. 1.000 x paper per device" in told["scores with penalties, half"]
    assert told["vs half"].startswith("2.012 per device   ")
    assert "   4.024 per node (2 devices vs. 1)   " in told["vs half"]
    assert "   $250.0 per x paper" in told["Price"]
    assert CLASSIC_UNIT not in "".join(told.values())
    assert " points" not in "".join(told.values())
    assert made.price.rpp == pytest.approx(250.0, rel=1e-12)
    written = as_json.as_object(made)
    assert (written["score"]["unit"], written["baseline"]["unit"]) == ("x paper", "x paper")
    (parts,) = [section for section in other_tables(made) if section.key == "sub-scores"]
    assert "per device (x paper)" in [heading.header for heading in parts.headings]


def test_ratios_and_sub_scores_do_not_depend_on_the_reference() -> None:
    relative, classic = (
        report(("half", AT_ONE)),
        build_report(RUN, "run", scale=Scale(weights=WEIGHTS), baselines=[("half", AT_ONE)]),
    )
    (ours,), (theirs,) = relative.comparisons, classic.comparisons
    assert ours.ratio == pytest.approx(theirs.ratio, rel=1e-12)
    for one, other in zip(relative.sub_scores, classic.sub_scores, strict=True):
        assert one.labels == other.labels
        assert one.per_device is not None
        assert other.per_device is not None
    (unpunished, *_) = relative.sub_scores
    assert unpunished.per_device == pytest.approx(((200 / 50) * (32 / 20) ** 3) ** 0.25, rel=1e-12)


def written(folder: Path, made: Summary, labels: dict[str, float], **header: str) -> Path:
    """A weights file with a reference next to it."""
    content = encode_summary(made).encode()
    (folder / "paper.json").write_bytes(content)
    stated = {"reference": "paper", "sha256": hashlib.sha256(content).hexdigest()} | header
    file = folder / "weights.json"
    file.write_text(json.dumps({"*": stated} | {label: {"weight": weight} for label, weight in labels.items()}))
    return file


def test_weights_name_the_reference_and_pin_it(tmp_path: Path) -> None:
    file = written(tmp_path, AT_ONE, WEIGHTS)
    scale = load_scale(read_weights(file, "s"))
    assert scale.weights == WEIGHTS
    assert (scale.reference.name, scale.reference.summary.tests) == ("paper", AT_ONE.tests)
    assert shipped_scale("standard").reference is None
    assert shipped_scale("no-such-suite").reference is None


@pytest.mark.parametrize(
    ("header", "labels", "words"),
    [
        ({"sha256": "1" * 64}, WEIGHTS, "reference paper with SHA-256 111111111111: "),
        ({"reference": "nobody"}, WEIGHTS, "no such file next to the weights, and no such shipped baseline"),
        ({"reference": "../paper"}, WEIGHTS, "expected the name of a file next to the weights, without a folder"),
        ({"name": "x"}, WEIGHTS, 'Expected {"*": {"reference"'),
        ({}, {"s.a": 1.0, "s.c": 1.0}, "reference paper has no rate of s.c. Leave its weight out"),
    ],
)
def test_a_reference_that_cannot_be_used_is_an_error(
    header: dict[str, str], labels: dict[str, float], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as raised:
        load_scale(read_weights(written(tmp_path, AT_ONE, labels, **header), "s"))
    assert words in str(raised.value)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    make_records.write_run(folder, make_records.plan("standard", {"vae": PER_GPU}, 2, 2), slices=24)
    return folder


def test_a_bundle_holds_its_reference_and_is_verified_with_it(results: Path, tmp_path: Path) -> None:
    weights = written(tmp_path, load(results), {"standard.vae": 1.0})
    made = pack(results, tmp_path / "b.tar.gz", weights=weights)
    files = tampering.members(made.path)
    assert files["reference.json"] == (tmp_path / "paper.json").read_bytes()
    for file in (weights, tmp_path / "paper.json"):
        file.unlink()
    found = verify(made.path, Rules())
    assert found.facts["score"].endswith("(x paper), not with the shipped weights")
    assert [ruling for ruling in found.rulings if ruling.id in ("R1", "R3") and ruling.result != "pass"] == []


def test_a_claim_holds_though_another_reference_of_its_name_is_shipped_since(results: Path, tmp_path: Path) -> None:
    weights = written(tmp_path, load(results), {"standard.vae": 1.0}, reference="h200")
    (tmp_path / "paper.json").rename(tmp_path / "h200.json")
    made = pack(results, tmp_path / "b.tar.gz", weights=weights)
    files = tampering.members(made.path)
    as_then = re.sub(rb'"x h200 \(SHA-256 [0-9a-f]+\)"', b'"x h200"', files["bundle.json"])
    assert as_then != files["bundle.json"]
    files["bundle.json"] = as_then
    found = verify(tampering.repack(made.path, files), Rules())
    assert [one for one in found.rulings if one.id == "R3" and one.result != "pass"] == []


def test_another_reference_in_a_bundle_is_found(results: Path, tmp_path: Path) -> None:
    weights = written(tmp_path, load(results), {"standard.vae": 1.0})
    made = pack(results, tmp_path / "b.tar.gz", weights=weights)
    files = tampering.members(made.path)
    files["reference.json"] = files["reference.json"].replace(b'"mean": ', b'"mean":  ')
    with pytest.raises(InputError, match="reference paper with SHA-256"):
        verify(tampering.repack(made.path, files), Rules())


def test_a_claim_in_another_unit_is_found(results: Path, tmp_path: Path) -> None:
    weights = written(tmp_path, load(results), {"standard.vae": 1.0})
    made = pack(results, tmp_path / "b.tar.gz", weights=weights)
    files = tampering.members(made.path)
    files["bundle.json"] = files["bundle.json"].replace(b'"x paper"', b'"classic items/s"')
    (ruling,) = [one for one in verify(tampering.repack(made.path, files), Rules()).rulings if one.id == "R3"]
    assert ruling.reasons == ("unit was claimed as classic items/s, and is x paper",)


def test_groups_of_the_weights_have_sub_scores(tmp_path: Path) -> None:
    """Ratios 2 of a and 2 of b in one device's work; against AT_ONE per device a has 2 and b 2."""
    file = tmp_path / "w.json"
    file.write_text(
        json.dumps({"s.a": {"weight": 1, "group": "training"}, "s.b": {"weight": 3, "group": "host paths"}})
    )
    groups = read_weights(file, "s").groups
    assert groups == {"s.a": "training", "s.b": "host paths"}
    slow = summary({"s.a": row(25.0), "s.b": row(64.0, unit="voxels")})
    made = build_report(slow, "run", scale=Scale(weights=WEIGHTS, reference=against(AT_ONE), groups=groups))
    found = {part.name: (part.labels, part.weight_pct, part.per_device) for part in made.sub_scores}
    assert found["group training"] == (("s.a",), 25.0, pytest.approx(0.5, rel=1e-12))
    assert found["group host paths"] == (("s.b",), 75.0, pytest.approx(4.0, rel=1e-12))
    told = {fact.name: fact.text for fact in first_screen(made).facts}
    assert told["Parts"] == "training 0.5000   host paths 4.000"
    assert not [part for part in report().sub_scores if part.name.startswith("group ")]
    assert "Parts" not in {fact.name for fact in first_screen(report()).facts}
    compared = build_report(
        slow, "run", scale=Scale(weights=WEIGHTS, groups=groups), baselines=[("half", AT_ONE)]
    ).comparisons
    assert {part.name: part.ratio for part in compared[0].subsets}["group training"] == pytest.approx(0.5)


def test_weights_in_groups_have_the_score_without_each_test() -> None:
    """Ratios 2, 8 and 1 with weights 1, 2 and 1: the score is (2 * 8**2) ** 1/4."""
    weights = {"s.a": 1.0, "s.b": 2.0, "s.c": 1.0}
    run = summary({label: row(rate) for label, rate in zip(weights, (20.0, 80.0, 10.0), strict=True)})
    base = summary({label: row(10.0) for label in weights})
    groups = {"s.a": "one", "s.b": "one", "s.c": "other"}
    scale = Scale(weights=weights, reference=against(base), groups=groups)
    made = build_report(run, "run", scale=scale, baselines=[("base", base)])
    expected = {"without a": 64 ** (1 / 3), "without b": 2 ** (1 / 2), "without c": 128 ** (1 / 3)}
    scores = {part.name: (part.per_device, part.weight_pct) for part in made.sub_scores if part.name in expected}
    assert scores == {
        name: (pytest.approx(value, rel=1e-12), share)
        for (name, value), share in zip(expected.items(), (75.0, 50.0, 75.0), strict=True)
    }
    ratios = {part.name: part.ratio for part in made.comparisons[0].subsets if part.left_out}
    assert ratios == pytest.approx(expected, rel=1e-12)
    tables = {table.key: table.rows for table in other_tables(made)}
    assert [table_row[0] for table_row in tables["leave-one-out"]] == list(weights)
    assert [table_row[3] for table_row in tables["leave-one-out"]] == pytest.approx(list(expected.values()), rel=1e-12)
    assert not [name for name, *_ in (*tables["sub-scores"], *tables["sub-ratios-base"]) if name in expected]
    plain = build_report(run, "run", scale=Scale(weights=weights), baselines=[("base", base)])
    assert not expected.keys() & {part.name for part in (*plain.sub_scores, *plain.comparisons[0].subsets)}


@pytest.mark.parametrize(("scheme", "told"), [(Scheme.NORMAL, True), (Scheme.PER_GPU, False)])
def test_a_reference_of_another_size_is_told_where_tests_run_over_all_devices(scheme: Scheme, told: bool) -> None:
    """One device has the node's links to itself."""
    sharing = changed(RUN.tests["s.b"], scheme=scheme)
    run = msgspec.structs.replace(RUN, tests=RUN.tests | {"s.b": sharing})
    made = build_report(run, "run", Scale(weights=WEIGHTS, reference=against(AT_ONE)))
    said = [alarm.text for alarm in first_screen(made).alarms if alarm.name == "other size"]
    text = (
        "the score's reference node has 1 device, and this node has 2. Compare only with scores of nodes with 2 devices"
    )
    assert said == ([text] if told else [])


def test_a_group_needs_a_name(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text('{"s.a": {"weight": 1, "group": ""}}')
    with pytest.raises(InputError, match="group"):
        read_weights(file, "s")


def of_modern2(*tests: str, rate: float = 10.0) -> Summary:
    return msgspec.structs.replace(summary({f"modern2.{test}": row(rate) for test in tests}), suite="modern2")


def test_the_weights_of_modern2_are_made_of_a_measured_baseline(tmp_path: Path) -> None:
    """In one step, with its groups: 40, 30, 22 and 8 of 100; what stands in is planned instead."""
    root = Path(__file__).parents[2]
    script = runpy.run_path(str(root / "scripts" / "weigh"))
    tests = read_profile(root / "profiles" / "modern2.json").tests
    file = tmp_path / "modern2-one.json"
    file.write_text(encode_summary(of_modern2(*tests)))
    (tmp_path / "modern2.json").write_text(json.dumps(script["weigh"](file)))
    scale = load_scale(read_weights(tmp_path / "modern2.json", "modern2"))
    weights, groups = scale.weights or {}, scale.groups
    assert weights.keys() == {f"modern2.{test}" for test in tests}
    stands_in = {f"modern2.{test}": f"modern2.{one.instead_of}" for test, one in tests.items() if one.instead_of}
    assert all(weights[small] == weights[large] for small, large in stands_in.items())
    planned = {label: weight for label, weight in weights.items() if label not in stands_in}
    shares = {
        group: sum(weight for label, weight in planned.items() if groups[label] == group)
        for group in dict.fromkeys(groups.values())
    }
    assert shares == {"train": 40, "serve": 30, "whole node": 22, "move data": 8}
    assert scale.reference is not None
    run = of_modern2(*(label.removeprefix("modern2.") for label in planned), rate=20.0)
    twice = msgspec.structs.replace(run, unplanned=dict.fromkeys(stands_in, "this node can run the larger one"))
    made = build_report(twice, "run", scale=Scale(weights=weights, reference=scale.reference, groups=groups))
    assert (made.score.status, made.score.unit) == ("complete", "x modern2-one")
    assert made.score.per_device == pytest.approx(2.0)
    assert [part.per_device for part in made.sub_scores if part.name.startswith("group ")] == pytest.approx([2.0] * 4)
    file.write_text(encode_summary(of_modern2("moe")))
    with pytest.raises(InputError, match=r"without a rate of modern2\.llm_pretrain"):
        script["weigh"](file)


@pytest.mark.parametrize(("suite", "gpu"), [("cv", "h100"), ("modern2", "h200"), ("unet3d", "h100")])
def test_shipped_weights_are_made_of_the_shipped_baselines(suite: str, gpu: str) -> None:
    root = Path(__file__).parents[2]
    made = runpy.run_path(str(root / "scripts" / "weigh"))["weigh"](root / "baselines" / f"{suite}-{gpu}.json")
    assert made == json.loads((root / "weights" / f"{suite}.json").read_text())


def test_a_suite_with_weights_of_another_kind_is_refused() -> None:
    root = Path(__file__).parents[2]
    with pytest.raises(InputError, match="a baseline of standard; weights are known of cv, lambda, modern2, unet3d"):
        runpy.run_path(str(root / "scripts" / "weigh"))["weigh"](root / "baselines" / "h200.json")
