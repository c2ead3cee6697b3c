"""``mnb list``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from milabench_ng.catalogue import Catalogue, Workload
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.tables import heading, standard_output, table
from milabench_ng.orchestrator.asking import ask_catalogue, ask_profile
from milabench_ng.orchestrator.display import Display
from milabench_ng.plain import plain_lines
from milabench_ng.profile import Test


def list_tests(
    profile: Path | None = None,
    /,
    *,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=())] = False,
) -> int:
    """List what there is: workloads and data sets, or the tests of a profile.

    Example: mnb list profiles/standard.json

    Parameters
    ----------
    profile
        A JSON file of tests: list these and the workloads that they run.
    verbose
        Print of each workload the whole description and all options with type, default and meaning.
    """
    display = Display(Console(stderr=True))
    try:
        if profile is None:
            catalogue, tests = asyncio.run(ask_catalogue(display)), None
        else:
            request = NodeOptions().profile_request(profile)
            known = asyncio.run(ask_profile(request, display))
            catalogue, tests = known.catalogue, known.profile.tests
    finally:
        display.close()
    if tests is None:
        _print_workloads(catalogue)
        _print_data_sets(catalogue)
    else:
        _print_tests(tests)
    if verbose:
        chosen = catalogue.workloads if tests is None else dict.fromkeys(test.workload for test in tests.values())
        _print_descriptions(catalogue.workloads[name] for name in chosen)
    return 0


def _print_workloads(catalogue: Catalogue) -> None:
    rows = [
        (
            workload.name,
            workload.unit,
            workload.data or "-",
            workload.bound or "-",
            workload.precision,
            workload.package,
            workload.summary,
        )
        for workload in catalogue.workloads.values()
    ]
    headers = ("workload", "unit", "data set", "bound by", "precision", "package", "what it is")
    standard_output().print(table(headers, rows))


def _print_data_sets(catalogue: Catalogue) -> None:
    rows = [
        (one.name, one.folder, "yes" if one.scalable else "no", one.description.partition("\n")[0])
        for one in catalogue.data_sets.values()
    ]
    standard_output().print("", table(("data set", "folder", "scalable", "what it is"), rows), sep="\n")


def _print_tests(tests: Mapping[str, Test]) -> None:
    rows = [
        (
            name,
            test.workload,
            test.partition_scheme.type,
            f"{test.data_scale:g}",
            test.require or "-",
            " ".join(f"{option}={value}" for option, value in test.arguments.items()) or "-",
        )
        for name, test in tests.items()
    ]
    headers = ("test", "workload", "scheme", "data scale", "requires", "arguments")
    standard_output().print(table(headers, rows, right=("data scale",)))


def _print_descriptions(workloads: Iterable[Workload]) -> None:
    output = standard_output()
    for workload in workloads:
        rows = [
            (f"--{option.name.replace('_', '-')}", option.kind(), option.default, option.meaning)
            for option in workload.options
        ]
        description = workload.description.partition("\nOptions:\n")[0].rstrip()
        output.print("", heading(workload.name), plain_lines(description), sep="\n")
        output.print("", table(("option", "type", "default", "meaning"), rows), sep="\n")
