"""Types of a model's parameters: those that its precision mode makes, which no narrower one replaces."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.records.precision_seen import TRAITS
from milabench_ng.records.record import Record
from milabench_ng.verification.evidence import Evidence

_NEARLY_ALL = 0.9
"""Of the parameters: 0.9976 in our convnet in `half_master`, all of them in every other honest launch that we have."""
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Other floating-point types have one byte or less."""


def odd_types(evidence: Evidence) -> Iterator[str]:
    """Launches whose parameters have types that their mode does not make, and whose workload makes none itself."""
    for name, record in evidence.named():
        declared = evidence.declared.get(record.mnb.launch.workload)
        if declared is not None and not declared.own_types:
            yield from (f"{name}: {why}" for why in _odd(record))


def _odd(record: Record) -> Iterator[str]:
    seen = record.mnb.precision
    traits = TRAITS.get(seen.requested) if seen else None
    found = {name: many for name, many in (seen.dtypes if seen else {}).items() if "float" in name and many}
    if seen is None or traits is None or not found:
        return
    wanted = traits.weights
    in_fp8 = record.mnb.launch.arguments.get("fp8") is True
    own = {name for name in found if name == wanted or (in_fp8 and name.startswith("float8"))}
    narrow = sorted(name for name in found.keys() - own if _BYTES.get(name, 1) < _BYTES[wanted])
    if narrow:
        yield f"{seen.requested} was asked for, and parameters are {', '.join(narrow)}"
        return
    part = sum(found[name] for name in own) / sum(found.values())
    if part < _NEARLY_ALL:
        yield f"{seen.requested} was asked for, and {part:.0%} of its parameters are {wanted}"
