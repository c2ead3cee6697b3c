"""What `mnb rerun` reads: records of an earlier version."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.records.origin import RECORD_SCHEMA
from milabench_ng.run.planning.rerun import profile_of

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
    (definition,) = json.loads(again.text).values()
    assert definition["workload"] == written["mnb"]["launch"]["workload"]
    assert again.tenants == written["mnb"]["neighbours"]["planned"] + 1


def test_tenants_that_had_parts_of_caches_have_them_again(old: Path) -> None:
    assert not profile_of(old).cache_shares
    written = json.loads(old.read_text())
    for share in written["mnb"]["isolation"].values():
        share["requested"]["cache"] = [{"cache": 0, "mask": 31}]
    old.write_text(json.dumps(written))
    assert profile_of(old).cache_shares


@pytest.mark.parametrize(
    ("schema", "said"), [(RECORD_SCHEMA + 1, "Update mnb"), (1, r"made by mnb 0.1, .*\. Use that version")]
)
def test_a_record_of_another_schema_is_refused(schema: int, said: str, old: Path) -> None:
    written = json.loads(old.read_text())
    written["mnb"]["schema"] = schema
    old.write_text(json.dumps(written))
    with pytest.raises(InputError, match=f"record schema {schema}.*{said}"):
        profile_of(old)
