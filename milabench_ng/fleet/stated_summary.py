"""Whether the summary that a node sent is that of its records."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Any

import msgspec

from milabench_ng.analysis.summary.folder import decode_summary, encode_summary
from milabench_ng.analysis.summary.summary import Summary
from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import short

_ALIKE = 1e-9
_ZERO = 1e-12
"""Smaller than any number that a summary is read for."""
_MOST_TOLD = 3
"""So many differences are told of a summary."""
_ABSENT = "nothing"


def unlike_its_records(stated: bytes, found: Summary) -> Iterator[str]:
    """In what the summary ``stated`` (JSON), which a node made of its records, is not that of the records, ``found``.

    Another machine computes logarithms with other last digits, so numbers may differ by a billionth. What is zero on
    one machine may be a rest of rounding on the other.
    """
    try:
        said = decode_summary(stated, "its summary")
    except InputError as error:
        yield str(error)
        return
    lay = msgspec.structs.replace(said.provenance, source=found.provenance.source)
    same_place = msgspec.structs.replace(said, provenance=lay)
    differences = _differences("", _as_json(same_place), _as_json(decode_summary(encode_summary(found).encode(), "")))
    for where, one, other in islice(differences, _MOST_TOLD):
        yield f"its summary says {short(repr(one))} of {where}, and its records {short(repr(other))}"


def _as_json(summary: Summary) -> Any:
    return msgspec.json.decode(msgspec.json.encode(summary))


def _differences(where: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            inner = f"{where}, {key}" if where else str(key)
            yield from _differences(inner, one.get(key, _ABSENT), other.get(key, _ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for place, (a, b) in enumerate(zip_longest(one, other, fillvalue=_ABSENT)):
            yield from _differences(f"{where} {place}", a, b)
    elif isinstance(one, int | float) and isinstance(other, int | float):
        if not math.isclose(one, other, rel_tol=_ALIKE, abs_tol=_ZERO):
            yield where, one, other
    elif one != other:
        yield where, one, other
