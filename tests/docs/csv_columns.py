"""The headers of a report as CSV that are not the headings of its tables. ``scripts/docs --reference`` writes them."""

from __future__ import annotations

import re

from pages import ROOT

from milabench_ng.present.render.columns import file_columns
from milabench_ng.report.reporting import make_report

PAGE = ROOT / "docs" / "reference" / "files.md"
_HEAD = "| header in CSV | heading |\n|---|---|\n"


def page() -> str:
    """The page with the table of today."""
    report = make_report(ROOT / "baselines" / "h200.json", compare_to=["v100"])
    other = (column for column in file_columns(report) if column.name != column.header)
    rows = "".join(f"| `{column.name}` | `{column.header}` |\n" for column in other)
    return re.sub(f"{re.escape(_HEAD)}(\\|.*\n)*", lambda _: _HEAD + rows, PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
