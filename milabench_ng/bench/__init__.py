"""What a workload uses: ``workload`` to declare itself, ``Bench`` to run on."""

from milabench_ng.bench.bench import Bench
from milabench_ng.bench.definition import Definition, workload
from milabench_ng.bench.ranges import Count, Fraction, FromZero, Rate, WholeNumber
from milabench_ng.model.catalogue import DataBy, Derived, FirstLoss, Legacy2020

__all__ = [
    "Bench",
    "Count",
    "DataBy",
    "Definition",
    "Derived",
    "FirstLoss",
    "Fraction",
    "FromZero",
    "Legacy2020",
    "Rate",
    "WholeNumber",
    "workload",
]
