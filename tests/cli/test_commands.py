"""The real ``mnb``: in processes of its own, or in this one where only what it prints and its exit code count."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import make_records
import pytest

from milabench_ng.cli import app, call
from milabench_ng.cli.broken_pipe import until_unread
from milabench_ng.cli.command_list import COMMANDS as COMMAND_GROUPS
from milabench_ng.cli.other_characters import HANDLER
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.model.errors import InputError
from milabench_ng.model.shipped import names
from milabench_ng.model.units import parse_seconds
from milabench_ng.node import foreign_load
from milabench_ng.present.render.next_step import TENDER
from milabench_ng.records.isolation import Confinement
from milabench_ng.run.planning import readiness
from milabench_ng.verification.bundle import pack
from milabench_ng.verification.opening import load_result
from milabench_ng.verification.rules_file import load_rules
from tests.one_server import OneServer

REPOSITORY = Path(__file__).parents[2]
COMMANDS = ("jobs", "run", "rerun", "prepare", "summary", "report", "list", "doctor", "schema")
WORKLOADS = {"toy_reg", "toy_lstm", "vae", "loader", "convnet", "scaling"}
LONG = "x" * 300
"""A name that no file can have: every look at it fails."""
PROFILE = str(REPOSITORY / "profiles/quick.json")


def mnb(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``mnb`` to its end, where there is no terminal."""
    return subprocess.run(
        [sys.executable, "-m", "milabench_ng", *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], one_server: OneServer) -> Here:
    """Run ``mnb`` in this process: its exit code, and what it printed. An exception that it does not catch fails."""
    monkeypatch.chdir(REPOSITORY)

    def run(*arguments: str) -> tuple[int, str, str]:
        with one_server.lent():
            code = call(arguments)
        return (code, *capfd.readouterr())

    return run


def column(text: str, header: str, name: str | None = None) -> list[str]:
    """The cells in the column ``name`` (the first) of the table whose first header is ``header``."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    first = next(place for place, cells in enumerate(lines) if cells[0] == header and len(cells) > 1)
    at = lines[first].index(name or header)
    return [cells[at] for cells in itertools.takewhile(lambda cells: cells != [""], lines[first + 2 :])]


@pytest.fixture(scope="module")
def listed(one_server: OneServer) -> str:
    """All that is asked of ``mnb list``."""
    done = one_server.mnb("list", "--verbose", cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def planned(one_server: OneServer) -> str:
    """One dry run."""
    asked = ("--dry-run", "--repeat", "2", "--tenants", "1", "--", "--seed", "7")
    done = one_server.mnb("jobs", PROFILE, *asked, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_summary_and_an_example(here: Here, command: str) -> None:
    code, stdout, _ = here(command, "--help")
    assert code == 0
    assert f"Usage: mnb {command}" in stdout
    assert f"Example: mnb {command}" in stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["prepare", PROFILE, "--dataroot", LONG], "File name too long"),
        (["prepare", PROFILE, "--dataroot", "README.md"], "README.md: not a folder"),
        (["jobs", PROFILE, "--dataroot", "README.md/data"], "Not a directory"),
        (["verify", LONG], "xxx"),
        (["verify", LONG, "--allowed-signers", LONG], "xxx"),
        (["report", LONG], "xxx"),
        (["bids", LONG], "xxx"),
        (["report", "baselines/v100.json", "--html", f"{LONG}/page.html"], "xxx"),
        (["report", "baselines/v100.json", "--tables", f"{LONG}/tables"], "xxx"),
        (["report", "baselines/v100.json", "--compare", LONG], "xxx"),
        (["report", "baselines/v100.json", "--rules", LONG], "xxx"),
        (["accept", "v100", LONG], "xxx"),
        (["bundle", LONG, "--sign", LONG], "xxx"),
        (["resume", LONG], "xxx"),
        (["fleet", "status", LONG], "xxx"),
        (["rerun", f"{LONG}/r.json"], "xxx"),
        (["stamp", "request", LONG], "xxx"),
        (["run", "toy_reg", "-o", f"{LONG}/r.json"], "xxx"),
    ],
    ids=lambda given: " ".join(given)[:40] if isinstance(given, list) else given,
)
def test_a_path_that_cannot_be_is_exit_2_and_no_traceback(here: Here, arguments: list[str], named: str) -> None:
    """test_commands_table has what else is wrong."""
    code, stdout, stderr = here(*arguments)
    assert code == 2
    assert "Traceback" not in stdout + stderr
    assert named in stdout + stderr


@pytest.mark.parametrize("lost", [("stdout",), ("stderr",), ("stdout", "stderr")], ids="+".join)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["schema", "record"],
        ["report", "baselines/v100.json"],
        ["report", "baselines/v100.json", "--colour", "red"],
    ],
    ids=" ".join,
)
def test_a_command_whose_reader_is_gone_ends_quietly(arguments: list[str], lost: tuple[str, ...]) -> None:
    """Whoever printed: print, rich, the parser, or the interpreter's flush at its end."""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | dict.fromkeys(lost, writer)
    command = [sys.executable, "-m", "milabench_ng", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, text=True, check=False, timeout=60, **streams)
    os.close(writer)
    tells = "stderr" if arguments[-1] == "red" else "stdout"
    if tells in lost:
        assert (done.returncode, done.stdout or "", done.stderr or "") == (141, "", "")
    else:
        assert done.returncode in (0, 1, 2)
        assert done.stdout if tells == "stdout" else done.stderr


@pytest.mark.parametrize("arguments", [["report", "baselines/v100.json"], ["summary", "baselines/v100.json"]])
def test_standard_output_on_a_full_disk_is_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "milabench_ng", *arguments]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, cwd=REPOSITORY, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "mnb: standard output: No space left on device. The output is incomplete\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_error_on_a_full_disk_changes_no_exit_code(unbuffered: str) -> None:
    command = [sys.executable, "-m", "milabench_ng", "verify", "nothing"]
    with open("/dev/full", "wb") as full:
        environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, cwd=REPOSITORY, env=environ, stdout=subprocess.PIPE, stderr=full, timeout=60)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_terminal_without_our_characters_shows_others() -> None:
    command = [sys.executable, "-m", "milabench_ng", "report", "baselines/v100.json"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=REPOSITORY, env=ascii_only, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"mnb - " in done.stdout
    assert b"?" not in done.stdout


def test_a_character_that_looks_alike_is_printed_or_a_question_mark() -> None:
    assert "±2% · ▁▄█ ü".encode("ascii", HANDLER) == b"+-2% - _-# ?"


def test_the_help_is_grouped_by_what_one_wants_to_do(here: Here) -> None:
    _, text, _ = here("--help")
    assert [word for word in ("Prepare", "Run", "Read", "Tender") if f"\n{word}:\n" in text] == list(COMMAND_GROUPS)


def test_a_pipe_of_another_kind_that_breaks_is_a_bug() -> None:
    def broken() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        until_unread(broken)


def test_doctor_says_why_a_node_is_not_ready(here: Here) -> None:
    code, stdout, _ = here("doctor", "--format", "json")
    checkup = json.loads(stdout)
    assert code == (0 if checkup["ready"] else 1)
    assert checkup["ready"] is (not checkup["reasons"])
    assert checkup["conditions"]["settings"]["host"]["kernel"] == checkup["inventory"]["kernel"]
    assert "synchronized" in checkup["wall_clock"]
    again, text, _ = here("doctor")
    assert again == code
    last = text.splitlines()[-1]
    assert last == f"not ready  {checkup['reasons'][-1]}" if checkup["reasons"] else last.startswith("ready ")
    if checkup["ready"] and not checkup["inventory"]["gpus"]:
        assert last.endswith("for CPUs only: tenants get no GPU")


def test_doctor_in_one_table_and_as_markdown(here: Here) -> None:
    _, stdout, _ = here("doctor", "--format", "csv", "--rules", "standard")
    rows = list(csv.DictReader(stdout.splitlines()))
    told = {(row["part"], row["of"], row["what"]): row["value"] for row in rows}
    assert told["node", "", "host"] == socket.gethostname()
    assert told["fence", "memory", "can be held"] in ("yes", "no")
    assert told["rules", "R33", "result"] == "pass"
    _, stdout, _ = here("doctor", "--format", "markdown")
    lines = stdout.splitlines()
    assert lines[:4] == ["# mnb doctor", "", "## node", ""]
    assert f"- host: {socket.gethostname()}" in lines
    assert any(line.startswith("| controller | can be held |") for line in lines)


def test_list_in_every_form(here: Here) -> None:
    code, stdout, _ = here("list", "standard", "--format", "json")
    found = json.loads(stdout)
    assert (code, found["tests"]["vae"]["workload"], found["workloads"]["vae"]["unit"]) == (0, "vae", "images")
    _, stdout, _ = here("list", "standard", "--format", "csv")
    assert [row["test"] for row in csv.DictReader(stdout.splitlines())] == [*found["tests"]]
    _, stdout, _ = here("list", "standard", "--format", "csv", "--verbose")
    told = {(row["part"], row["of"], row["what"]): row["value"] for row in csv.DictReader(stdout.splitlines())}
    assert told["vae", "", "counts"] == "images"
    assert told["vae", "'--batch-size", "type"] == "int >= 1"
    assert "An item is one 28 x 28 image." in told["vae", "", "text"]
    _, stdout, _ = here("list", "--format", "markdown", "--verbose")
    lines = stdout.splitlines()
    assert "| dataset | folder | scalable | full size | description |" in lines
    assert "## vae" in lines
    assert "- counts: images" in lines


def test_all_shipped_baselines_are_listed(here: Here) -> None:
    code, stdout, _ = here("baseline", "list", "--format", "csv")
    rows = {row["name"]: row for row in csv.DictReader(stdout.splitlines())}
    assert (code, tuple(rows)) == (0, names("baselines"))
    assert (rows["v100"]["suite"], rows["v100"]["kind"]) == ("standard", "published")


def test_a_baseline_in_every_form(here: Here) -> None:
    code, stdout, _ = here("baseline", "show", "v100", "--format", "json")
    found = json.loads(stdout)
    assert (code, found["suite"], found["provenance"]["kind"]) == (0, "standard", "published")
    _, stdout, _ = here("baseline", "show", "v100", "--format", "csv")
    assert [row["test"] for row in csv.DictReader(stdout.splitlines())] == [*found["tests"]]
    _, stdout, _ = here("baseline", "show", "v100", "--format", "markdown")
    assert stdout.startswith("# mnb baseline show\n\n## standard (v100)\n")


@pytest.mark.parametrize("permitted", [True, False])
def test_doctor_says_what_a_user_without_groups_cannot_do(
    here: Here, monkeypatch: pytest.MonkeyPatch, permitted: bool
) -> None:
    free = Confinement(
        cgroup_namespace=False, groups_read_only=False, ipc_namespace=False, no_new_privs=True, capabilities=()
    )
    groups = {"cpuset": Controller(ok=permitted, parent="/sys/fs/cgroup")}
    monkeypatch.setattr(readiness, "confinement", lambda: free)
    monkeypatch.setattr(readiness, "probe", lambda _: Capabilities("v2", "6.1", root=False, controllers=groups))
    _, stdout, _ = here("doctor")
    could = next(line for line in stdout.splitlines() if line.startswith("tenants could"))
    assert ("write to cgroups" in could) is permitted


def test_doctor_is_not_ready_for_more_tenants_than_can_be(here: Here) -> None:
    code, stdout, _ = here("doctor", "--ram-total", "5GiB", "--tenants", "1", "--format", "json")
    assert code == 1
    checkup = json.loads(stdout)
    assert checkup["allocation"] is None
    assert any("needs at least 4 GiB" in reason for reason in checkup["reasons"])


def test_doctor_never_imports_torch() -> None:
    program = (
        "import sys; from milabench_ng.cli import call; call(['doctor', '--format', 'json']); "
        "print('torch' in sys.modules, 'milabench_ng.run.planning.readiness' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.split() == ["False", "True"]


def test_list_shows_workloads_and_data_sets(listed: str) -> None:
    assert set(column(listed, "workload")) >= WORKLOADS
    assert set(column(listed, "dataset")) >= {"mnist", "imagenet"}
    units = dict(zip(column(listed, "workload"), column(listed, "workload", "unit"), strict=True))
    assert units["vae"] == "images"
    assert units["toy_reg"] == "samples"


def test_list_verbose_shows_descriptions_and_options(listed: str) -> None:
    _, _, vae = listed.partition("\nvae\n")
    assert "An item is one 28 x 28 image." in vae
    options = column(vae, "option")
    assert {"--batch-size", "--learning-rate", "--max-count", "--seed", "--precision"} <= set(options)
    assert column(vae, "option", "default")[options.index("--batch-size")] == "128"


def test_output_without_a_terminal_is_plain(listed: str, planned: str) -> None:
    assert "\x1b" not in listed + planned


def test_a_dry_run_lists_the_batches_in_order(planned: str) -> None:
    tests = column(planned, "group", "test")
    once = [f"quick.{name}" for name in ("toy_reg", "toy_lstm", "vae", "loader", "convnet", "scaling.1")]
    assert tests == [*once, *once]
    assert column(planned, "group") == [str(number) for number in range(1, 13)]
    assert column(planned, "group", "run") == ["0"] * 6 + ["1"] * 6
    assert planned.count("seed=7") == 12


def test_a_dry_run_says_how_long_at_least_and_how_isolated(planned: str) -> None:
    assert "12 in 12 launch groups" in planned
    # 12 windows of 12 s; 5 s, 12 x 2 s and 12 x 1.6 s for the host pace are allowed
    assert "at least 3 min 12 s: 2 min 24 s of work and 48 s for startup" in planned
    assert "isolation" in planned
    assert "mnist" in planned
    assert "imagenet (scale 0.02)" in planned


def test_a_dry_run_says_which_suites_have_weights(here: Here, tmp_path: Path) -> None:
    profile = tmp_path / "both.json"
    entry = {"workload": "toy_lstm"}
    profile.write_text(json.dumps({"a": entry | {"suite": "standard"}, "b": entry | {"suite": "standart"}}))
    (tmp_path / "rules.json").write_text("{}")
    _, shown, told = here("jobs", str(profile), "--dry-run", "--rules", str(tmp_path / "rules.json"))
    assert told.count("importing torch") == 1, "also with rules there is one plan"
    said = "shipped weights of standard; none for standart: no weights are shipped for it (did you mean 'standard'?)"
    assert f"weights {said}" in " ".join(shown.split())


def test_a_dry_run_says_what_will_be_marked(here: Here, planned: str) -> None:
    assert "expected warnings options overridden: seed\n" in re.sub(" +", " ", planned)
    _, shown, _ = here("jobs", PROFILE, "--name", "vae", "--window", "1", "--data-scale", "0.5", "--dry-run")
    assert "expected warnings averaging window shortened to 1 s; no score: 1 of 7 weighted tests" in " ".join(
        shown.split()
    )


def test_a_dry_run_says_that_other_programs_keep_cpus_busy(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    read = iter([(0.0, 0.0, 0.0), (1.0, 0.0, 2.0)])
    monkeypatch.setattr(foreign_load, "cpu_seconds", lambda: next(read))
    _, shown, _ = here("jobs", PROFILE, "--name", "vae", "--dry-run")
    assert re.search(r"note +other programs keep \d", shown)


def test_only_a_batch_size_is_found_by_trial(here: Here, tmp_path: Path) -> None:
    """``moe`` also has the products of its experts chosen."""
    _, shown, _ = here("jobs", "modern-lite", "--name", "moe", "--dry-run", "-d", str(tmp_path))
    assert "expected warnings none\n" in re.sub(" +", " ", shown)


def test_a_dry_run_names_a_library_that_was_changed(tmp_path: Path) -> None:
    """One that mnb requires, as an earlier folder of the import path has it."""
    info = tmp_path / "threadpoolctl-9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: threadpoolctl\nVersion: 9.0\n")
    (tmp_path / "toy_part.py").write_text("VALUE = 2\n")
    (info / "RECORD").write_text("toy_part.py,sha256=AAAA,10\n")
    command = [sys.executable, "-m", "milabench_ng", "jobs", PROFILE, "--dry-run", "--name", "toy_reg"]
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}", "MNB_WHEELS": "threadpoolctl"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = f"threadpoolctl 9.0 was changed after installation ({tmp_path}/toy_part.py)"
    assert said in " ".join(done.stdout.split())


def test_a_dry_run_of_two_tenants_gives_disjoint_shares_and_runs_nothing(here: Here, tmp_path: Path) -> None:
    folder = str(tmp_path / "results")
    code, stdout, stderr = here("jobs", PROFILE, "--dry-run", "--name", "scaling", "--tenants", "2", "-o", folder)
    if code:
        assert "tenants" in stderr
        pytest.skip(f"this node has no room for two tenants: {stderr.strip()}")
    cpus = [set(expand(cell)) for cell in column(stdout, "device", "CPUs")]
    assert len(cpus) == 2
    assert all(cpus)
    assert not cpus[0] & cpus[1]
    assert column(stdout, "group", "devices") == ["0", "0+1"]
    assert not (tmp_path / "results").exists()


def expand(text: str) -> list[int]:
    """``"0-2,5"`` is 0, 1, 2, 5."""
    ends = [part.split("-") for part in text.split(",")]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]


def test_prepare_knows_tests_that_need_several_devices(here: Here, tmp_path: Path) -> None:
    code, stdout, stderr = here("prepare", "modern-lite", "--name", "all_reduce", "-d", str(tmp_path))
    assert (code, stdout) == (0, "no dataset is needed\n"), stderr


def test_prepare_generates_once_and_says_where(here: Here, tmp_path: Path) -> None:
    arguments = ("prepare", PROFILE, "--name", "loader", "-d", str(tmp_path), "--data-scale", "0.001")
    code, first, stderr = here(*arguments)
    assert code == 0, stderr
    told = stderr.index("to generate: 1 dataset, 12.")
    assert "cores (estimated" in stderr
    assert "imagenet (scale 0.001): 110 files, 12." in stderr
    assert told < stderr.index("dataset imagenet is ready")
    assert (tmp_path / "scale-0.001/ImageNet").is_dir()
    code, again, stderr = here(*arguments)
    assert code == 0
    assert "to generate" not in stderr
    assert again == first
    assert column(again, "dataset") == ["imagenet"]
    assert str(tmp_path / "scale-0.001/ImageNet") in again
    assert "synthetic" in again
    code, stdout, _ = here(*arguments, "--format", "json")
    assert (code, [place["name"] for place in json.loads(stdout)["data_sets"]]) == (0, ["imagenet"])
    code, stdout, _ = here(*arguments, "--format", "csv")
    assert [row["data set"] for row in csv.DictReader(stdout.splitlines())] == ["imagenet"]


def test_a_broken_or_missing_package_stops_neither_list_nor_what_does_not_use_it(tmp_path: Path) -> None:
    """What does use it is exit 2 before anything is made, and names the extra to install."""
    package = tmp_path / "bad-0.1.dist-info"
    package.mkdir()
    (tmp_path / "mnb_bad.py").write_text("raise SystemExit(3)")
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 0.1\n")
    lines = ["[milabench_ng.workloads]", "worse = mnb_bad:worse", "[milabench_ng.datasets]", "worst = mnb_bad:Worst"]
    (package / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "mnb_needy.py").write_text(
        "from milabench_ng.bench import workload\n\n\n"
        "@workload(unit='grains', requires=('mnb_absent',), extra='dig')\n"
        "def needy(bench, *, size: int = 1):\n"
        '    """Needs."""\n'
    )
    tests = {"broken": "worse", "needy": "mnb_needy:needy", "easy": "toy_reg"}
    profile = tmp_path / "odd.json"
    profile.write_text(json.dumps({name: {"workload": workload} for name, workload in tests.items()}))

    def mnb(*words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "milabench_ng", *words]
        paths = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
        done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, listed, said = mnb("list")
    assert (code, "toy_reg" in listed, "worse" in listed) == (0, True, False)
    for what in ("workload 'worse' (mnb_bad:worse of bad 0.1)", "dataset 'worst' (mnb_bad:Worst of bad 0.1)"):
        assert f"left out: {what} ends the process that imports it (status 3)" in " ".join(said.split())
    for picked, *told in (
        ((), "test 'broken': workload 'worse' (mnb_bad:worse of bad 0.1) ends the process that imports it"),
        (("--name", "needy"), "test 'needy'", "needs mnb_absent", 'pip install "mnb_needy[dig]"'),
    ):
        code, _, said = mnb("jobs", str(profile), *picked, "-o", "out")
        assert (code, "Traceback" in said, (tmp_path / "out").exists()) == (2, False, False)
        assert [one for one in told if one not in " ".join(said.split())] == []
    assert mnb("jobs", str(profile), "--name", "easy", "--dry-run")[0] == 0


def test_list_says_what_a_workload_needs_and_stresses(listed: str) -> None:
    needs = dict(zip(column(listed, "workload"), column(listed, "workload", "needs"), strict=True))
    assert (needs["atari"], needs["minigrid"], needs["vae"]) == ("gymnasium, ale_py", "gymnasium, minigrid", "-")
    described = listed[listed.index("\natari\n") :]
    for line in (
        "counts          environment steps",
        "stresses        the tenant's CPUs",
        "reads           nothing",
        "code            milabench_ng.workloads.standard.atari:atari of milabench_ng",
    ):
        assert line in described
    assert "reads           imagenet: 110,000 files, 11.5 GiB in full size" in listed


def test_the_run_that_is_named_next_is_what_the_shipped_rules_ask() -> None:
    _, bound, _ = app.parse_args(TENDER)
    rules = load_rules("standard")
    assert rules.profile
    assert bound.args == (Path(rules.profile.name or ""),)
    asked = bound.kwargs["asked"]
    assert asked.sessions >= (rules.least_sessions or 0)
    assert parse_seconds(asked.session_gap, "--session-gap") >= 3600 * rules.session_gap_h
    assert asked.repeat * asked.sessions >= (rules.repeat or 0)


@pytest.mark.parametrize("closed", [1, 2])
def test_a_stream_that_is_closed_takes_nothing(closed: int) -> None:
    command = [sys.executable, "-m", "milabench_ng", "report", "baselines/h200.json"]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) is (closed == 2)


def test_a_run_whose_streams_are_closed_is_a_run_like_any_other(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "milabench_ng", "run", "toy_reg", "-o", str(tmp_path / "toy.json")]
    words = ["sh", "-c", 'exec "$@" 0>&- 1>&- 2>&-', "sh", *command, "--window", "0.5", "--tenants", "1"]
    assert subprocess.run(words, cwd=REPOSITORY, check=False, timeout=300).returncode == 0
    assert json.loads((tmp_path / "toy.json").read_bytes())["success"]


def test_a_current_folder_that_was_deleted_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", sys.executable, "-c", DELETED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "mnb: the current folder was deleted (No such file or directory). Start mnb in another folder\n"
    )


DELETED = """
import sys
sys.argv = ["mnb", "doctor"]
from milabench_ng.cli import main
main()
"""
STREAMS = """
import os, socket, sys
from milabench_ng.cli import open_standard_streams
open_standard_streams()
made = [socket.socket(), open(os.devnull)]
kept = all(os.get_inheritable(number) for number in range(3))
os._exit(0 if kept and min(one.fileno() for one in made) > 2 and None not in (sys.stdin, sys.stdout, sys.stderr) else 1)
"""


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_no_socket_takes_the_place_of_a_stream_that_is_closed(closed: str) -> None:
    shut = " ".join(f"{number}>&-" for number in closed.split())
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {shut}', "sh", sys.executable, "-c", STREAMS], cwd=REPOSITORY, check=False
    )
    assert done.returncode == 0


def test_a_full_disk_is_not_blamed_on_the_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, room = tmp_path / "run", tmp_path / "room"
    make_records.write_run(run, make_records.plan("quick", {"toy_reg": make_records.PER_GPU}, 1, 2))
    pack(run, tmp_path / "run.tar.gz")
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # EFBIG, as SIGXFSZ is ignored
    try:
        with pytest.raises(InputError, match=r"cannot be unpacked in .*room: File too large.*TMPDIR"):
            load_result(tmp_path / "run.tar.gz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(room.iterdir())
