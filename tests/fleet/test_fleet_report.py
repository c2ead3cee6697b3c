"""The report on a fleet folder, in all forms."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from make_records import PER_GPU, plan, write_run

from milabench_ng.analysis.scoring.scale import Scale
from milabench_ng.analysis.summary.folder import encode_summary
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.cli.fleet_report import make_fleet_report
from milabench_ng.fleet import measuring
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.ledger import Collected, NodeLost, NodeStarted
from milabench_ng.fleet.manifest import encode_fleet_manifest
from milabench_ng.fleet.measuring import SessionOfNode
from milabench_ng.fleet.ran_profile import RanProfile
from milabench_ng.fleet.report import _shared_marks
from milabench_ng.fleet.summaries import summaries
from milabench_ng.present.render.cells import Fact
from milabench_ng.present.render.fleet_report_tables import fleet_facts
from milabench_ng.records.names import FLEET_MANIFEST, LEDGER, file_digest
from tests.fleet.conftest import Say
from tests.fleet.made_folders import session_folder, write_fleet, write_frame

NODES = tuple(f"gpu{number}" for number in range(1, 13))
RETESTS = {f"retest-{number}": ("gpu3", "gpu5", "gpu6", "gpu7") for number in (1, 2, 3)}


def slow(node: str, _: str, test: str) -> float:
    """``gpu3`` is 12 % slow in one test."""
    return 0.88 if (node, test) == ("gpu3", "convnet") else 1.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nodes, of which the last was not reached."""
    lost = NodeLost(node="gpu12", session="screen", reason="no route to host")
    return write_fleet(
        tmp_path_factory.mktemp("made") / "fleet", NODES, slow, retests=RETESTS, more=[lost], without=["gpu12"]
    )


def test_the_verdicts_come_first_with_the_false_alarms_that_are_expected(fleet: Path, say: Say) -> None:
    code, printed, _ = say("report", fleet)
    assert code == 1
    first, second, *_ = printed.splitlines()
    assert first.split(maxsplit=1) == ["verdict", "1 slow, 1 lost, 10 pass"]
    assert second.startswith("false alarms  fewer than 0.001 expected")
    rows = [line.split() for line in printed.splitlines() if line.startswith("gpu")]
    assert [row[:2] for row in rows] == [["gpu3", "slow"], ["gpu12", "lost"]]
    assert "convnet" in rows[0]
    assert "no route to host" in printed


def test_csv_has_a_row_for_every_node_with_its_ratio_in_every_test(fleet: Path, say: Say) -> None:
    code, printed, told = say("report", fleet, "--format", "csv")
    rows = {row["node"]: row for row in csv.DictReader(io.StringIO(printed))}
    assert (code, tuple(rows)) == (1, NODES)
    assert float(rows["gpu3"]["standard.convnet"]) == pytest.approx(0.88, abs=0.01)
    assert float(rows["gpu3"]["ratio"]) == pytest.approx(0.88, abs=0.01)
    assert (rows["gpu3"]["retests"], rows["gpu3"]["part"], rows["gpu4"]["verdict"]) == ("3", "GPU", "pass")
    assert rows["gpu12"]["standard.convnet"] == ""
    assert "mnb: verdict: 1 slow" in told


def test_json_is_the_whole_report(fleet: Path, say: Say) -> None:
    code, printed, _ = say("report", fleet, "--format", "json")
    whole = json.loads(printed)
    assert (code, whole["exit_code"], whole["schema"]) == (1, 1, 1)
    verdicts = {one["verdict"]["node"]: one["verdict"] for one in whole["report"]["lines"]}
    assert verdicts["gpu3"]["cause"]["test"] == "standard.convnet"
    assert verdicts["gpu12"] | {"verdict": "lost", "why": "no route to host"} == verdicts["gpu12"]


def test_racks_have_a_table_of_their_own(fleet: Path, say: Say, tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.write_text("rack1: gpu1,gpu2 gpu3  # the first\n\nrack2: gpu4 gpu5\n")
    _, printed, _ = say("report", fleet, "--groups", groups)
    table = printed[printed.index("\ngroups\n") :]
    rows = {line.split()[0]: line.split()[1:7] for line in table.splitlines() if line.startswith(("rack", "no group"))}
    assert rows["rack1"] == ["3", "1", "0", "0", "0", "2"]
    assert rows["rack2"] == ["2", "0", "0", "0", "0", "2"]


def test_the_median_of_two_nodes_is_between_them(fleet: Path, say: Say, tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.write_text("rack1: gpu3 gpu4\n")
    _, printed, _ = say("report", fleet, "--groups", groups, "--format", "json")
    ratios = {
        one["verdict"]["node"]: one["verdict"]["ratio"]["value"]
        for one in json.loads(printed)["report"]["lines"]
        if one["verdict"]["ratio"]
    }
    _, printed, _ = say("report", fleet, "--groups", groups)
    row = next(line for line in printed[printed.index("\ngroups\n") :].splitlines() if line.startswith("rack1"))
    assert float(row.split()[-1]) == pytest.approx((ratios["gpu3"] + ratios["gpu4"]) / 2, abs=0.001)
    assert ratios["gpu3"] < 0.95 < ratios["gpu4"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("rack1 gpu1\n", "line 1: expected GROUP: NODES"),
        ("rack1: gpu1\nrack2: gpu1\n", "line 2: gpu1 is also in rack1"),
        ("rack1: cpu1\n", "no node of the fleet is in a group"),
    ],
)
def test_groups_that_cannot_be_are_refused(fleet: Path, say: Say, tmp_path: Path, lines: str, why: str) -> None:
    (tmp_path / "groups").write_text(lines)
    code, _, told = say("report", fleet, "--groups", tmp_path / "groups")
    assert code == 2
    assert why in told


def test_options_of_one_nodes_results_are_refused_and_those_of_a_fleet_elsewhere(
    fleet: Path, say: Say, tmp_path: Path
) -> None:
    assert say("report", fleet, "--rules", "standard")[::2] == (
        2,
        f"mnb: --rules: not for a fleet. Report on one of its nodes: mnb report {fleet}/nodes/gpu1/screen\n",
    )
    (tmp_path / "groups").write_text("")
    code, _, told = say("report", fleet / "nodes" / "gpu1" / "screen", "--groups", tmp_path / "groups")
    assert (code, "is no fleet folder" in told) == (2, True)
    assert say("report", fleet, "--margin", "0%")[0] == 2
    assert f"{fleet}: a fleet, whose report is of its nodes alone" in say("report", tmp_path, fleet)[2]


def test_a_wider_margin_lets_a_slow_node_pass(fleet: Path, say: Say) -> None:
    _, printed, _ = say("report", fleet, "--margin", "20%")
    assert printed.splitlines()[0].split(maxsplit=1)[1] == "1 lost, 11 pass"


def test_scores_and_prices_are_by_the_worst_the_median_and_the_sum(say: Say, tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path / "fleet", NODES[:4], lambda node, *_: 0.5 if node == "gpu2" else 1.0)
    weights = tmp_path / "weights.json"
    weights.write_text(
        json.dumps({f"standard.{test}": {"weight": 1} for test in ("convnet", "fast_style", "wlm", "toy_reg", "vae")})
    )
    code, printed, told = say("report", fleet, "--weights", weights, "--price", 1000, "--format", "json")
    assert code == 3, told
    report = json.loads(printed)["report"]
    score = report["score"]
    assert (score["worst_node"], score["nodes"], score["of"]) == ("gpu2", 4, 4)
    worst = [test["worst"] / test["median"] for test in report["tests"]]
    least = [min(ratios) for ratios in zip(*(line["ratios"] for line in report["lines"]), strict=True)]
    assert worst == pytest.approx(least), "a node has one ratio to the median, also of an even number of nodes"
    assert score["worst"] / score["median"] == pytest.approx(0.5, abs=0.02)
    assert score["total"] / score["median"] == pytest.approx(3.5, abs=0.1)
    _, printed, _ = say("report", fleet, "--weights", weights, "--price", 1000)
    assert "price / score   by the worst node" in printed
    weights.write_text('{"standard.convmet": {"weight": 1}}')
    code, _, told = say("report", fleet, "--weights", weights)
    assert (code, "standard.convmet: no such test" in told) == (2, True)


def test_the_score_of_some_tests_is_none(fleet: Path, say: Say) -> None:
    """5 of the 19 weighted tests."""
    lines = json.loads(say("report", fleet, "--format", "json")[1])["report"]["lines"]
    assert {line["per_node"] for line in lines} == {None}
    _, printed, _ = say("report", fleet, "--price", 1000)
    assert "price / score  none: no node ran all weighted tests" in printed
    assert "price / score" not in say("report", fleet)[1]


def test_a_long_reason_takes_one_short_line_and_files_have_all_of_it(say: Say, tmp_path: Path) -> None:
    reason = "mnb jobs ended with status 2: " + "x " * 150 + "\nmkdir: Read-only file system"
    write_frame(tmp_path / "fleet", NODES[:1], [NodeLost(node="gpu1", session="screen", reason=reason)])
    for words in (("report",), ("fleet", "status")):
        lines = say(*words, tmp_path / "fleet")[1].splitlines()
        (line,) = [line for line in lines if line.startswith("gpu1")]
        assert "mnb jobs ended with status 2" in line
        assert " x mkdir: Read-only file system" in line
        assert max(map(len, lines)) < 320
        assert json.dumps(reason)[1:-1] in say(*words, tmp_path / "fleet", "--format", "json")[1]
        assert "x " * 150 in say(*words, tmp_path / "fleet", "--format", "csv")[1]


def test_hours_are_those_of_gpus(fleet: Path, say: Say, tmp_path: Path) -> None:
    _, printed, _ = say("report", fleet)
    (told,) = [line.split(maxsplit=2)[2] for line in printed.splitlines() if line.startswith("GPU time")]
    assert re.fullmatch(r"\d+ (min \d+ s|h \d+ min) in launches", told)
    on_cpus = write_fleet(tmp_path / "fleet", NODES[:1])
    manifest = session_folder(on_cpus, NODES[0], "screen") / "run.json"
    manifest.write_text(manifest.read_text().replace('"Test GPU"', '"CPU"'))
    _, printed, _ = say("report", on_cpus)
    assert "GPU time" not in printed
    assert "1 node, standard" in printed


@pytest.mark.parametrize(
    ("launcher", "retests", "step"),
    [
        ("ssh", 3, "retest gpu3: mnb fleet resume"),
        ("ssh", 0, "retest gpu3: run the fleet again with --retests 3; it ran with --retests 0"),
        ("none", 0, "retest gpu3: run the profile again there and on three others, as retest-1 and retest-2. Then "),
    ],
)
def test_what_is_suspicious_and_not_retested_has_a_next_step(
    fleet: Path, launcher: str, retests: int, step: str
) -> None:
    made = make_fleet_report(fleet, weights=None, price=None, groups=None, margin=None)
    assert "next" not in {fact.name for fact in fleet_facts(made)}
    nodes = tuple(
        msgspec.structs.replace(one, verdict="inconclusive", why="suspicious, and not retested")
        if one.node == "gpu3"
        else one
        for one in made.verdict.nodes
    )
    once = msgspec.structs.replace(
        made,
        verdict=msgspec.structs.replace(made.verdict, nodes=nodes),
        manifest=msgspec.structs.replace(made.manifest, launcher=launcher, retests=retests),
    )
    (told,) = [fact.text for fact in fleet_facts(once) if fact.name == "next"]
    assert told.startswith(step)


def test_a_warning_that_all_nodes_have_is_told(fleet: Path) -> None:
    made = make_fleet_report(fleet, weights=None, price=None, groups=None, margin=None)
    assert made.marks == ()
    warned = msgspec.structs.replace(made, marks=("CPU quota", "clock set"))
    assert Fact("warnings", "on all nodes: CPU quota, clock set", "fair") in list(fleet_facts(warned))
    first, second = (
        SessionOfNode(
            node=node,
            session="screen",
            tests={},
            traits={},
            other_profile="",
            marks=marks,
            per_node=None,
            unit="",
            device_hours=0,
        )
        for node, marks in (("a", ("MPS", "CPU quota")), ("b", ("CPU quota", "clock set")))
    )
    assert _shared_marks((first, second)) == ("CPU quota",)
    assert _shared_marks(()) == ()


def test_what_differs_between_nodes_is_listed_with_the_nodes(say: Say, tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path / "fleet", NODES[:5])
    manifest = session_folder(fleet, "gpu4", "screen") / "run.json"
    manifest.write_text(manifest.read_text().replace('"6.18"', '"6.12"'))
    _, printed, _ = say("report", fleet)
    assert [line.split() for line in printed.splitlines() if "6.1" in line] == [
        ["kernel", "6.18", "4", "-"],
        ["6.12", "1", "gpu4"],
    ]


def test_nodes_of_another_profile_are_not_compared_and_not_verified(say: Say, tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path / "fleet", NODES[:5])
    write_run(session_folder(fleet, "gpu4", "screen"), plan("standard", {"vae": PER_GPU}, 2, 2))
    code, printed, _ = say("report", fleet)
    (why,) = (line for line in printed.splitlines() if line.startswith("gpu4 "))
    assert code == 3
    assert re.search(r"inconclusive +0  it ran the profile standard \(\w{12}\), and its fleet standard \(\w{12}\)", why)
    assert ["profile", "standard"] in [line.split()[:2] for line in printed.splitlines()]
    assert printed.splitlines()[0].split(maxsplit=1)[1] == "1 inconclusive, 4 pass"
    verified = say("verify", fleet)[1]
    assert "gpu4 screen: it ran the profile" in verified
    assert ["gpu4", "screen", "FAIL"] in [line.split()[:3] for line in verified.splitlines()]


def test_a_retest_that_was_cut_off_accuses_nobody(say: Say, tmp_path: Path) -> None:
    """It is left to run again; the launches that it lacks are no failures of the node."""
    cut = NodeLost(node="gpu5", session="retest-2", reason="ssh lost the connection")
    folder = write_fleet(tmp_path / "fleet", NODES[:8], retests=RETESTS, more=[cut])
    manifest = msgspec.structs.replace(FleetFolder.read(folder).manifest, retests=3)
    (folder / FLEET_MANIFEST).write_bytes(encode_fleet_manifest(manifest))
    there = session_folder(folder, "gpu5", "retest-2")
    lines = (there / LEDGER).read_bytes().splitlines(keepends=True)
    (there / LEDGER).write_bytes(b"".join(lines[:-6]))
    for record in there.glob("*.J1.*.json"):
        record.unlink()
    code, printed, _ = say("report", folder)
    assert (code, printed.splitlines()[0].split(maxsplit=1)[1]) == (0, "8 pass")
    code, printed, _ = say("fleet", "status", folder)
    assert "retests   left: retest-2 of gpu5\n" in printed
    assert f"next      mnb fleet resume {folder}" in printed


def test_results_that_cannot_be_read_make_a_node_lost(say: Say, tmp_path: Path) -> None:
    fleet = write_fleet(tmp_path / "fleet", NODES[:6])
    (session_folder(fleet, "gpu2", "screen") / "run.json").write_text("{")
    code, printed, _ = say("report", fleet)
    assert (code, printed.splitlines()[0].split(maxsplit=1)[1]) == (1, "1 lost, 5 pass")
    assert "its results cannot be read" in printed


def test_numbers_that_nothing_follows_from_cost_their_node_only(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_fleet(tmp_path / "fleet", ("a", "b"))
    reduced = measuring._reduced

    def absurd(node: str, session: str, summary: Summary, scale: Scale, asked: RanProfile) -> SessionOfNode:
        return reduced(node, session, summary if node == "b" else 1 / 0, scale, asked)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "_reduced", absurd)
    code, printed, _ = say("report", folder)
    assert (code, "1 lost, 1 inconclusive" in printed) == (1, True)
    assert "a screen: it has values that nothing can be computed from (ZeroDivisionError" in " ".join(printed.split())


def test_a_summary_that_came_with_its_session_counts_by_its_hash(tmp_path: Path) -> None:
    folder = write_fleet(tmp_path / "fleet", NODES[:2])
    anew = [one.summary for one in summaries(FleetFolder.read(folder))]
    assert all(anew)
    stated = anew[0]
    assert stated is not None
    file = session_folder(folder, NODES[0], "screen").with_name("screen.summary.json")
    file.write_text(encode_summary(msgspec.structs.replace(stated, devices=7)))
    devices = [one.summary and one.summary.devices for one in summaries(FleetFolder.read(folder))]
    assert devices == [2, 2], "the ledger of the fleet knows nothing of it"
    collected = Collected(
        node=NODES[0], session="screen", sha256="", ledger_sha256="", summary_sha256=file_digest(file.read_bytes())
    )
    write_frame(folder, NODES[:2], [collected])
    fleet = FleetFolder.read(folder)
    assert [one.summary and one.summary.devices for one in summaries(fleet)] == [7, 2]
    assert fleet.strangers == ()


def test_nodes_whose_command_was_interrupted_are_cut_off_and_not_lost(say: Say, tmp_path: Path) -> None:
    write_frame(tmp_path / "fleet", NODES[:3], [NodeStarted(node=node, session="screen") for node in NODES[:2]])
    code, printed, _ = say("report", tmp_path / "fleet")
    facts = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert (code, facts["verdict"]) == (3, "no node has results")
    assert facts["cut"] == "off       3 nodes: gpu1, gpu2, gpu3. mnb fleet resume goes on with them"
    _, printed, _ = say("fleet", "status", tmp_path / "fleet")
    assert [line.split()[2:4] for line in printed.splitlines() if line.startswith("gpu1")] == [["cut", "off"]]


def test_the_page_has_a_heat_map_and_all_nodes(fleet: Path, say: Say, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    page = tmp_path / "fleet.html"
    say("report", fleet, "--html", page)
    text = page.read_text()
    assert "12 nodes, standard" in text
    assert "<title>gpu3 convnet 0.8" in text
    assert text.count('data-key="gpu') > len(NODES)
