"""The options common to all workloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from milabench_ng.bench.precision import MODES
from milabench_ng.model.catalogue import Option, Range, Scalar


def _option(default: Scalar, meaning: str, choices: tuple[str, ...] = (), **bounds: float) -> Any:
    what = {"range": Range(**bounds), "choices": choices, "meaning": meaning}
    return dataclasses.field(default=default, metadata=what)


@dataclasses.dataclass(frozen=True)
class CommonOptions:
    """The common options with their values."""

    max_count: int = _option(0, "minimum number of items; 0: one full window", ge=0)
    max_seconds: float = _option(600.0, "stop this many seconds after the start", gt=0)
    sample_duration: float = _option(0.5, "minimum length of a slice in seconds", gt=0)
    seed: int = _option(1234, "of weights and, plus the tenant's number, data order", ge=0)
    workers: int = _option(8, "loader processes, at most the tenant's CPUs", ge=0)
    precision: str = _option("fp32", "arithmetic mode", tuple(MODES))


def COMMON(precision: str) -> tuple[Option, ...]:  # noqa: N802  # a constant but for one default
    """The common options; ``precision`` is the workload's own default."""
    defaults = vars(CommonOptions(precision=precision))
    return tuple(
        Option(name=each.name, type=each.type, default=defaults[each.name], **each.metadata)  # type: ignore[arg-type]
        for each in dataclasses.fields(CommonOptions)
    )


def split(arguments: Mapping[str, Scalar | None]) -> tuple[CommonOptions, dict[str, Scalar | None]]:
    """The common options among ``arguments``, and the workload's own."""
    names = {field.name for field in dataclasses.fields(CommonOptions)}
    common = CommonOptions(**{name: arguments[name] for name in names})  # type: ignore[arg-type]
    return common, {name: value for name, value in arguments.items() if name not in names}
