"""The bounds of what is measured, as types: what an event may say, a record may hold, and a report may read.

One definition, so that what was accepted from a worker can be read back.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

LARGEST = 1e15
"""No measured number is larger; sums and squares of such numbers stay finite."""
SMALLEST = 1 / LARGEST
"""No measured rate except 0 is smaller; ratios of such rates and their logarithms stay finite."""
LAST_BUCKET = 1400
"""Of a histogram of latencies (`records.latency`)."""

Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Length = Annotated[float, Meta(gt=0, le=LARGEST)]
"""Length of a slice; other figures are divided by it."""
Moment = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Utc = Annotated[datetime, Meta(tz=True)]
Factor = Annotated[float, Meta(ge=1e-6, le=1e6)]
"""Items of 2020 per item."""
WholeNumber = Annotated[int, Meta(ge=0, le=10**15)]
Bucket = Annotated[int, Meta(ge=0, le=LAST_BUCKET)]
Latencies = tuple[tuple[Bucket, Annotated[int, Meta(ge=1, le=10**12)]], ...]
"""``((bucket, count), ...)`` in the order of the buckets: ``count`` latencies in each (`latency.bucket_of`)."""


class Spread(msgspec.Struct, frozen=True):
    """The samples of one quantity in the averaging window."""

    n: WholeNumber
    min: Moment
    mean: Moment
    max: Moment
    span_s: Amount
    """Time from the first sample to the last. A counter rose by ``max - min`` in it."""
