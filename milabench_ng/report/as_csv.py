"""The tests of a report as CSV: one header line with units, full precision, nothing where nothing was measured."""

from __future__ import annotations

import csv
from typing import TextIO

from milabench_ng.report.columns import file_columns
from milabench_ng.report.report import Report
from milabench_ng.report.tender import Tender
from milabench_ng.report.tender_sections import tender_sections


def write(report: Report, stream: TextIO) -> None:
    """Write ``report`` to ``stream``."""
    chosen = file_columns(report)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*(column.header for column in chosen), "isolation", "score status"])
    status = report.score.status if report.score else ""
    for line in report.lines:
        cells = (column.value(line) for column in chosen)
        writer.writerow([*("" if cell is None else cell for cell in cells), report.isolation, status])


def write_tender(tender: Tender, stream: TextIO) -> None:
    """Write the bids of ``tender`` to ``stream``."""
    bids = tender_sections(tender)[0]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([heading.header for heading in bids.headings])
    writer.writerows(["" if cell is None else cell for cell in row] for row in bids.rows)
