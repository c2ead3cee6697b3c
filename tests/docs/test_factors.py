"""The table of classic factors in docs/methodology/scores.md is the catalogue's."""

from __future__ import annotations

import re
from fractions import Fraction

from pages import ROOT

from milabench_ng.worker.discovery import describe

ROW = re.compile(r"^\| `(\w+)`[^|]*\| (\d+/\d+) \|", re.MULTILINE)


def test_the_table_of_classic_factors_is_the_catalogues() -> None:
    _, _, table = (ROOT / "docs/methodology/scores.md").read_text().partition("| workload | `classic_factor` |")
    written = {name: float(Fraction(factor)) for name, factor in ROW.findall(table.partition("\n\n")[0])}
    workloads = describe(()).workloads.values()
    assert written == {one.name: one.classic_factor for one in workloads if one.classic_factor != 1}
