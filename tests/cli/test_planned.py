"""What a dry run says of an I/O share."""

from __future__ import annotations

import pytest

from milabench_ng.cli.show_plan import io_text
from milabench_ng.model.units import MIB
from milabench_ng.records.isolation import IoEvidence


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (
            IoEvidence(
                method="io.max", device="254:0", disk="vda", read_bytes_per_s=10 * MIB, write_bytes_per_s=5 * MIB
            ),
            "reads 10 MiB/s, writes 5 MiB/s for each tenant, enforced by io.max on vda",
        ),
        (
            IoEvidence(method="readers", device="", disk="", read_bytes_per_s=10 * MIB),
            "reads 10 MiB/s for each tenant, enforced by the dataset's readers",
        ),
        (
            IoEvidence(method="none", device="", disk="", write_bytes_per_s=5 * MIB),
            "writes 5 MiB/s for each tenant, not enforced: no isolation",
        ),
    ],
)
def test_the_share_and_what_holds_it(share: IoEvidence, expected: str) -> None:
    assert io_text(share) == expected
