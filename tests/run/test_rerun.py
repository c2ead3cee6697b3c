"""What `mnb rerun` reads: records of an earlier version."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from milabench_ng.cli import call
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Device
from milabench_ng.model.shipped import find
from milabench_ng.records.origin import RECORD_SCHEMA
from milabench_ng.run.planning.rerun import profile_of, refuse_other_devices

STORED = Path(__file__).parents[1] / "data" / "stored" / "0.2.0" / "run.bundle.tar.gz"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A record that 0.2.0 wrote."""
    with tarfile.open(STORED) as bundle:
        bundle.extractall(tmp_path, filter="data")
    return next(tmp_path.glob("results/*.J*.json"))


def test_a_record_of_an_earlier_version_runs_again(old: Path) -> None:
    written = json.loads(old.read_text())
    again = profile_of(old)
    definition = json.loads(again.text)[again.test]
    assert f"{again.suite}.{again.test}" == written["mnb"]["launch"]["test"]
    assert definition["workload"] == written["mnb"]["launch"]["workload"]
    assert again.tenants == written["mnb"]["neighbours"]["planned"] + 1


def test_what_ran_as_shipped_runs_again_by_the_shipped_profile(old: Path) -> None:
    """Its results are then not told to differ from those of the suite."""
    written = json.loads(old.read_text())
    launch = written["mnb"]["launch"]
    launch |= {"test": "quick.toy_reg", "workload": "toy_reg", "overrides": [], "data_scale": 0.02}
    launch["arguments"] = dict(read_builtin()["toy_reg"].defaults)
    old.write_text(json.dumps(written))
    assert profile_of(old).text == find("profiles", "quick").read_text()  # type: ignore[union-attr]
    for change in ({"data_scale": 0.5}, {"arguments": launch["arguments"] | {"degree": 7}}):
        old.write_text(json.dumps(written | {"mnb": written["mnb"] | {"launch": launch | change}}))
        assert json.loads(profile_of(old).text)["toy_reg"]["data_scale"] == (launch | change)["data_scale"]


def test_a_folder_that_is_packed_has_to_be_unpacked_first(tmp_path: Path) -> None:
    """So are the results of the nodes of a fleet."""
    (tmp_path / "screen.tar.gz").touch()
    with pytest.raises(InputError, match=r"screen does not exist\. Unpack it: tar -xzf .*/screen\.tar\.gz"):
        profile_of(tmp_path / "screen" / "standard.vae.J0.0.20260106-160000-123456.json")


def test_tenants_that_had_parts_of_caches_have_them_again(old: Path) -> None:
    assert not profile_of(old).cache_shares
    written = json.loads(old.read_text())
    for share in written["mnb"]["isolation"].values():
        share["requested"]["cache"] = [{"cache": 0, "mask": 31}]
    old.write_text(json.dumps(written))
    assert profile_of(old).cache_shares


def test_a_record_of_gpus_does_not_run_silently_on_cpus(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written = json.loads(old.read_text())
    gpu = {"index": 0, "kind": "gpu", "uuid": "GPU-0", "name": "NVIDIA H200"}
    written["mnb"]["devices"] = [gpu | {"index": place} for place in range(2)]
    old.write_text(json.dumps(written))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert call(["rerun", str(old), "-o", str(tmp_path / "again")]) == 2
    said = capfd.readouterr().err
    assert "recorded on 2 x NVIDIA H200, and this run would use 2 CPU partitions." in said
    assert "--tenants 2" in said
    assert not (tmp_path / "again").exists()


def test_devices_of_the_same_kind_are_not_refused() -> None:
    gpus = tuple(Device(index=place, kind="gpu", name="NVIDIA H200") for place in range(2))
    cpus = (Device(index=0, kind="cpu"),)
    refuse_other_devices(Path("r.json"), gpus[:1], gpus)
    refuse_other_devices(Path("r.json"), cpus, cpus)
    with pytest.raises(InputError, match=r"recorded on 1 CPU partition, .* 2 x NVIDIA H200.* --gpus 0,1"):
        refuse_other_devices(Path("r.json"), cpus, gpus)


@pytest.mark.parametrize(
    ("schema", "said"), [(RECORD_SCHEMA + 1, "Update mnb"), (1, r"made by mnb 0.1, .*\. Use that version")]
)
def test_a_record_of_another_schema_is_refused(schema: int, said: str, old: Path) -> None:
    written = json.loads(old.read_text())
    written["mnb"]["schema"] = schema
    old.write_text(json.dumps(written))
    with pytest.raises(InputError, match=f"record schema {schema}.*{said}"):
        profile_of(old)
