"""What the makers of published baselines share: the table, the work of a row, a summary, its file."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Collection, Mapping
from pathlib import Path

from milabench_ng.analysis.summary.folder import encode_summary
from milabench_ng.analysis.summary.summary import Departure, Origin, Provenance, Stat, Summary, TestSummary
from milabench_ng.model.catalogue import Scalar, Workload
from milabench_ng.model.profile import Test, read_profile
from milabench_ng.records.work import DataRead, Work

ROOT = Path(__file__).resolve().parents[2]
UNTIMED = Departure(what="the wait for data was not timed", decides=False)


def table(doc: str | None) -> list[dict[str, str]]:
    """The rows of the CSV file that the command line names; ``doc`` is the help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    with open(parser.parse_args().table, encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def tests_of(suite: str) -> Mapping[str, Test]:
    """The tests of a shipped profile."""
    return read_profile(ROOT / "profiles" / f"{suite}.json").tests


def work_of(
    workload: Workload, options: Mapping[str, Scalar | None], data: tuple[DataRead, ...], but: Collection[str]
) -> Work:
    """What ran, with all of its options ``but`` those that were not recorded or that the original lacks."""
    return Work(
        unit=workload.unit,
        classic_factor=workload.classic_factor,
        derived=workload.derived,
        bound=workload.bound,
        data=data,
        precision=(str(options["precision"]),),
        options={key: value for key, value in options.items() if key not in but},
    )


def one_figure(rate: float, work: Work, origin: Origin, departures: tuple[Departure, ...]) -> TestSummary:
    """A row of which only a rate is published."""
    stat = Stat.of([rate])
    return TestSummary(n=1, failures=0, train=stat, pergpu={"0": stat}, work=work, origin=origin, departures=departures)


def one_gpu(
    suite: str,
    gpu: str,
    tests: Mapping[str, TestSummary],
    source: str,
    software: dict[str, str],
    notes: tuple[str, ...],
) -> Summary:
    """The baseline of one GPU, of ``tests`` by their names in the profile, in its order."""
    return Summary(
        suite=suite,
        units="true",
        devices=1,
        models={"0": gpu},
        provenance=Provenance(kind="published", source=source, hardware=f"1 x {gpu}", software=software, notes=notes),
        has_plan=False,
        tests={f"{suite}.{name}": tests[name] for name in tests_of(suite) if name in tests},
    )


def write(name: str, made: Summary) -> None:
    """Write ``baselines/NAME.json``, and print its path."""
    target = ROOT / "baselines" / f"{name}.json"
    target.write_text(encode_summary(made), encoding="utf-8")
    print(target)
