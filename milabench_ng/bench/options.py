"""The options common to all workloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from milabench_ng.bench.precision import MODES
from milabench_ng.model.catalogue import Option, Range, Scalar


def COMMON(precision: str) -> tuple[Option, ...]:  # noqa: N802  # a constant but for one default
    """The common options; ``precision`` is the workload's own default."""
    return (
        Option(
            name="max_count",
            type="int",
            default=0,
            range=Range(ge=0),
            meaning="minimum number of items; 0: one full window",
        ),
        Option(
            name="max_seconds",
            type="float",
            default=600.0,
            range=Range(gt=0),
            meaning="stop this many seconds after the start",
        ),
        Option(
            name="sample_duration",
            type="float",
            default=0.5,
            range=Range(gt=0),
            meaning="minimum length of a slice in seconds",
        ),
        Option(
            name="seed",
            type="int",
            default=1234,
            range=Range(ge=0),
            meaning="of weights and, plus the tenant's number, data order",
        ),
        Option(
            name="workers",
            type="int",
            default=8,
            range=Range(ge=0),
            meaning="loader processes, at most the tenant's CPUs",
        ),
        Option(name="precision", type="str", default=precision, choices=tuple(MODES), meaning="arithmetic mode"),
    )


@dataclasses.dataclass(frozen=True)
class CommonOptions:
    """The common options with their values."""

    max_count: int
    max_seconds: float
    sample_duration: float
    seed: int
    workers: int
    precision: str


def split(arguments: Mapping[str, Scalar | None]) -> tuple[CommonOptions, dict[str, Scalar | None]]:
    """The common options among ``arguments``, and the workload's own."""
    names = {field.name for field in dataclasses.fields(CommonOptions)}
    common = CommonOptions(**{name: arguments[name] for name in names})  # type: ignore[arg-type]
    return common, {name: value for name, value in arguments.items() if name not in names}
