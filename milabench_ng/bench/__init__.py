"""What a workload uses: ``workload`` to declare itself, ``Bench`` to run on."""

from milabench_ng.bench.bench import Bench
from milabench_ng.bench.definition import Definition, workload
from milabench_ng.bench.ranges import Count, Fraction, FromZero, Rate, WholeNumber
from milabench_ng.catalogue import Classic, DataBy, Derived, FirstLoss

__all__ = [
    "Bench",
    "Classic",
    "Count",
    "DataBy",
    "Definition",
    "Derived",
    "FirstLoss",
    "Fraction",
    "FromZero",
    "Rate",
    "WholeNumber",
    "workload",
]
