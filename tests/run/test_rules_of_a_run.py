"""`mnb jobs --rules`: what would break a tender is refused at the start, and the results are verified at the end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from milabench_ng.cli import call
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.preflight import broken_by_plan, broken_by_request, plan_of
from milabench_ng.node.storage import read_storage
from milabench_ng.records.series import decode_series
from milabench_ng.run.planning.dry_run import DryRun
from milabench_ng.run.planning.request import RunRequest
from milabench_ng.verification.rules import Pin, Rules
from milabench_ng.verification.rules_file import load_rules
from tests.one_server import Done, OneServer

SMALL = {"name": "small", "signed": True, "window_s": 0.5, "repeat": 2, "nonce": "n1", "ledger": True}
QUICK = ("--window", "0.5", "--tenants", "1")


Mnb = Callable[..., Done]


@pytest.fixture
def mnb(tmp_path: Path, one_server: OneServer, monkeypatch: pytest.MonkeyPatch) -> Mnb:
    """Run `mnb jobs` on one small test, with these rules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trial.json").write_text('{"toy_reg": {"workload": "toy_reg"}}')

    def run(rules: dict[str, object], *options: str) -> Done:
        (tmp_path / "small.json").write_text(json.dumps(rules))
        asked = ("jobs", "trial.json", *QUICK, "--rules", "small.json", "-o", "results", *options)
        return one_server.mnb(*asked, cwd=tmp_path)

    return run


def test_what_the_command_or_the_node_breaks_is_refused_before_torch_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("milabench_ng.cli.preflight.plan_of", lambda _: pytest.fail("a plan needs a worker"))
    Path("small.json").write_text(json.dumps(SMALL | {"gpus": 8, "arguments": {"toy_regg": {}}}))
    Path("trial.json").write_text('{"toy_reg": {"workload": "toy_reg"}}')
    assert call(["jobs", "trial.json", *QUICK, "--rules", "small.json", "-o", "results"]) == 2
    told = capfd.readouterr().err.splitlines()
    assert told[0] == "mnb: this run would break rules of 'small':"
    assert told[-1] == "nothing was run. When these are met, mnb checks the others"
    assert told[1:4] == [
        "  R10 arguments: profile trial has no test 'toy_regg' (did you mean 'toy_reg'?). Correct the rules",
        "  R9 no nonce was given. Pass --nonce n1",
        "  R11 the rules require 2 repeats of each test, but this run makes 1. Raise --repeat or --sessions",
    ]
    assert any(line.startswith("  R23 found ") for line in told)
    Path("small.json").write_text(json.dumps({"window_s": 0.5, "gpus": 8}))
    assert call(["jobs", "trial.json", *QUICK, "--rules", "small.json", "-o", "results"]) == 2
    assert "  R23 found " in capfd.readouterr().err
    assert not Path("results").exists()


def test_what_the_plan_breaks_is_refused(mnb: Mnb, tmp_path: Path) -> None:
    done = mnb({"name": "small", "window_s": 0.5, "marks_refused": True})
    assert done.returncode == 2
    told = done.stderr[done.stderr.index("mnb: this run") :].splitlines()
    assert told[-1] == "nothing was run"
    assert (
        "  R22 the run would get a comparability warning that the rules refuse: averaging window shortened to 0.5 s"
        in told
    )
    assert not (tmp_path / "results").exists()


def test_a_run_ends_with_the_verdict_and_its_exit_code(mnb: Mnb) -> None:
    """The folder is neither signed nor stamped yet, and nobody asks for that; later rules may break all the same."""
    kept = mnb(SMALL, "--repeat", "2", "--nonce", "n1")
    assert kept.returncode == 0
    assert "RULES MET (all 18 checkable)" in " ".join(kept.stdout.split())
    assert call(["resume", "results", "--rules", "small.json"]) == 0, "and so does a run that is resumed"
    Path("small.json").write_text(json.dumps(SMALL | {"repeat": 3}))
    assert call(["resume", "results", "--rules", "small.json"]) == 1


def test_the_telemetry_of_every_launch_group_is_kept_and_vouched_for(
    mnb: Mnb, capfd: pytest.CaptureFixture[str]
) -> None:
    assert mnb(SMALL, "--repeat", "2", "--nonce", "n1").returncode == 0
    first, second = sorted(Path("results/series").iterdir())
    made = decode_series(first.read_bytes(), first.name)
    assert (made.batch, made.labels) == (0, ("trial.toy_reg",))
    host, tenant = made.telemetry["host:node"], made.telemetry["tenant:0"]
    assert made.requested_s <= host.time_s[0] < host.time_s[-1]
    assert len(tenant.values["current_mib"]) == len(tenant.time_s) > 2
    first.write_bytes(second.read_bytes())
    second.unlink()
    assert call(["verify", "results", "--rules", "small.json"]) == 1
    told = capfd.readouterr().out
    assert f"{first.name}: the file was changed after it was recorded" in " ".join(told.split())
    assert f"{second.name}: the telemetry of a launch group was kept, and is not there" in " ".join(told.split())


def test_rules_that_only_the_results_can_break_decide_the_exit_code(mnb: Mnb) -> None:
    """A ceiling that every rate exceeds."""
    low = {"flops_per_item": {"trial.toy_reg": 1e30}, "peak_flops": {"cpu": {"fp32": 1.0}}, "slack": 1.0}
    done = mnb({"window_s": 0.5, "name": "low", "ceiling": low})
    assert done.returncode == 1
    assert "Verdict RULES BROKEN: 1 of " in " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def standard(one_server: OneServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRequest, DryRun]:
    """A run of the shipped profile as the shipped rules ask for it."""
    root = tmp_path_factory.mktemp("standard")
    asked = NodeOptions(dataroot=root, output=root / "results").profile_request(Path("standard"))
    request = msgspec.structs.replace(asked, repeat=5, sessions=3, session_gap_s=6 * 3600.0)
    with one_server.lent(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("milabench_ng.cli.preflight.require_space", lambda *_: None)
        plan = plan_of(request)
    assert isinstance(plan, DryRun)
    return request, plan


def broken(request: RunRequest, plan: DryRun, **changed: object) -> list[str]:
    """The shipped rules that a command breaks by itself; how this node marks and stores results is another matter."""
    rules = msgspec.structs.replace(load_rules("standard"), marks_refused=False, storage_refused=())
    asked = msgspec.structs.replace(request, **changed)
    return [f"{rule} {why}" for rule, why in (*broken_by_request(rules, asked), *broken_by_plan(rules, asked, plan))]


def test_the_command_of_the_guide_breaks_none_of_the_shipped_rules(standard: tuple[RunRequest, DryRun]) -> None:
    assert broken(*standard) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"names": ("vae",)}, "R8 the rules require all tests of the profile. Leave out --name"),
        (
            {"repeat": 3},
            "R11 the rules require 10 repeats of each test, but this run makes 9. Raise --repeat or --sessions",
        ),
        (
            {"session_gap_s": 60.0},
            "R11 the rules need 3 sessions, 6 h apart. Pass --sessions 3 --session-gap 6h",
        ),
        ({"sessions": 6}, "R14 the run has 6 sessions, but the rules accept at most 5. Lower --sessions"),
        ({"pass_environment": ("LD_LIBRARY_PATH",)}, "R31 the rules accept only listed settings. Leave out --pass-env"),
    ],
)
def test_options_that_break_the_shipped_rules(
    standard: tuple[RunRequest, DryRun], changed: dict[str, object], why: str
) -> None:
    (found,) = broken(*standard, **changed)
    assert found.startswith(why)


def test_results_on_storage_that_the_rules_refuse(standard: tuple[RunRequest, DryRun]) -> None:
    request, _ = standard
    kind = read_storage(request.outdir).kind
    (found,) = broken_by_request(Rules(storage_refused=(kind,), window_s=0), request)
    assert found[0] == "R20"
    assert found[1].startswith(f"{request.outdir} is on ")
    assert found[1].endswith(f"({kind}), which the rules refuse. Name another folder for the results with -o")
    other = msgspec.structs.replace(request, outdir=Path("/proc/results"))
    assert not [*broken_by_request(Rules(storage_refused=(kind,), window_s=0), other)]


def test_another_profile_and_other_arguments_break_the_shipped_rules(
    standard: tuple[RunRequest, DryRun], one_server: OneServer
) -> None:
    request, _ = standard
    lite = NodeOptions(dataroot=request.dataroot, output=request.outdir).profile_request(Path("standard-5gb"))
    other = msgspec.structs.replace(request, profile=lite.profile, flags=("--learning-rate", "7"))
    with one_server.lent(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("milabench_ng.cli.preflight.require_space", lambda *_: None)
        plan = plan_of(msgspec.structs.replace(other, names=("vae",)))
    assert isinstance(plan, DryRun)
    r6, r10 = broken(other, plan)
    wanted = hashlib.sha256(request.profile.text.encode()).hexdigest()
    assert r6.startswith("R6 the profile is of SHA-256 ")
    assert r6.endswith(f", but the rules require {wanted[:12]}. Run mnb jobs standard")
    assert r10 == "R10 vae: learning_rate is 7.0, but the rules require 0.001"


def test_a_profile_that_is_not_shipped_comes_from_the_buyer(standard: tuple[RunRequest, DryRun]) -> None:
    pinned = Rules(profile=Pin(name="standard", sha256="7E" * 32))
    [(rule, why)] = broken_by_request(pinned, standard[0])
    assert rule == "R6"
    assert why.endswith(
        ", but the rules require 7e7e7e7e7e7e. Ask the buyer for that file, which is not the standard of this mnb, and "
        "name it"
    )
