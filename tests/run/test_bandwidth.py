"""I/O shares from the profile and the command line to the record, and back to a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milabench_ng.fence import io
from milabench_ng.fence.backends import affinity, none
from milabench_ng.fence.capabilities import Capabilities, Controller
from milabench_ng.fence.choosing import Backend, choose
from milabench_ng.fence.probing.probe import probe
from milabench_ng.model.catalogue import Catalogue
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import IoShare, Profile, build_profile
from milabench_ng.model.units import MIB
from milabench_ng.records.marks import Mark
from milabench_ng.run.planning.request import ResolvedRequest, RunRequest, io_shares
from milabench_ng.run.planning.rerun import profile_of

V1 = Capabilities("v1", "6.1", True, {"blkio": Controller(True)})


def shares(given: IoShare, names: tuple[str, ...] = (), backend: Backend = none) -> dict[str, tuple[object, ...]]:
    """Read and write rates and the override mark by test, of a profile with one limited and one free test."""
    tests = {"limited": {"workload": "a", "io": {"read": "2MiB/s"}}, "free": {"workload": "b"}}
    request = RunRequest(
        profile=Profile("s", {}, "", "s.json"),
        names=names,
        io=given,
        dataroot=Path("/proc"),
        outdir=Path(),
    )
    profile = build_profile("s", tests, "", "s.json")
    resolved = ResolvedRequest(
        request=request,
        catalogue=Catalogue(workloads={}, data_sets={}),
        profile=profile,
        tests=profile.select(names).tests,
        arguments={},
    )
    found = io_shares(resolved, V1, backend)
    return {name: (one.read_bytes_per_s, one.write_bytes_per_s, one.override) for name, one in found.items()}


def test_the_command_line_comes_before_the_profile() -> None:
    assert shares(IoShare()) == {"s.limited": (2 * MIB, None, False)}
    assert shares(IoShare(read="2MiB/s"))["s.limited"] == (2 * MIB, None, False)
    both = {"s.limited": (2 * MIB, 3 * MIB, True), "s.free": (None, 3 * MIB, True)}
    assert shares(IoShare(write="3MiB/s")) == both
    assert shares(IoShare(), names=("free",)) == {}


def test_writes_that_nobody_can_hold_are_refused_with_the_tests_name() -> None:
    assert shares(IoShare(), backend=affinity) == {"s.limited": (2 * MIB, None, False)}
    with pytest.raises(InputError, match=r"^s\.json: test 'limited': an I/O limit of 3 MiB/s for writes was requested"):
        shares(IoShare(write="3MiB/s"), backend=affinity)


@pytest.mark.root
def test_a_run_probes_its_share_and_its_records_say_so(run_profile, data_root: Path) -> None:  # type: ignore[no-untyped-def]
    capabilities = probe()
    backend = choose(capabilities, "auto")
    if io.method(capabilities, backend) is None or io.whole_disk(data_root) is None:
        pytest.skip(f"back end {backend.NAME} cannot limit I/O below {data_root} here")
    trial = run_profile({"toy": {"workload": "toy_reg", "io": {"read": "10 MiB/s"}}, "free": {"workload": "toy_reg"}})
    for record in trial.of("toy"):
        [isolation] = record.mnb.isolation.values()
        assert isolation.io.read_bytes_per_s == isolation.requested.io[0].read_bytes_per_s == 10 * MIB
        assert isolation.effective.io == isolation.effective_end.io == isolation.requested.io
        assert 0 < isolation.io.probed_read_bytes_per_s <= 1.1 * 10 * MIB
        assert (record.success, Mark(kind="I/O share overridden") in record.mnb.marks) == (True, False)
    for record in trial.of("free"):
        [isolation] = record.mnb.isolation.values()
        assert (isolation.io, isolation.requested.io, isolation.effective.io) == (None, (), ())
    [file, *_] = sorted(trial.folder.glob("trial.toy.*.json"))
    again = json.loads(profile_of(file).text)
    assert again["toy"]["io"] == {"read": f"{10 * MIB} B/s"}


def test_readers_hold_what_the_kernel_cannot(run_profile) -> None:  # type: ignore[no-untyped-def]
    test = {"workload": "vae", "io": {"read": "24 MiB/s"}, "arguments": {"batch_size": 16}}
    trial = run_profile({"vae": test}, isolation="affinity", tenants=1)
    assert any(
        note.startswith("trial.vae: its readers enforce the I/O limit, not the kernel: ") for note in trial.notes
    )
    [record] = trial.records
    [isolation] = record.mnb.isolation.values()
    assert (isolation.io.method, isolation.requested.io) == ("readers", ())
    assert isolation.io.reader_bytes > 40 * MIB, "mnist is read whole when it is opened"
    assert 0 < isolation.io.reader_bytes_per_s <= 1.01 * 24 * MIB
    assert record.mnb.start_to_ready_s > isolation.io.reader_bytes / (24 * MIB) - 0.1
    assert Mark(kind="I/O share held by readers") in record.mnb.marks
    assert "tenant:0" in record.mnb.telemetry
