"""``mnb list``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.catalogue import Bound, Catalogue, Scalar, Workload
from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.showing import shown
from milabench_ng.cli.tables import facts, heading, standard_output, table
from milabench_ng.orchestrator.execution.interruption import interruptible
from milabench_ng.orchestrator.planning.catalogue_queries import ask_catalogue, ask_profile
from milabench_ng.plain import plain_lines
from milabench_ng.profile import ByMemoryClass, Test
from milabench_ng.units import format_bytes

STRESSED: dict[Bound, str] = {
    "cpu": "the tenant's CPUs",
    "io": "the tenant's storage",
    "launch": "the latency of launching kernels",
    "links": "the links of the devices to each other and to the host",
    "gpu-compute": "the arithmetic of the device",
    "gpu-memory": "the bandwidth of the device's memory",
}


def list_tests(
    profile: Path | None = None,
    /,
    *,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=())] = False,
) -> int:
    """List workloads and data sets, or the tests of a profile.

    Example: mnb list standard

    Parameters
    ----------
    profile
        A JSON file of tests, or the name of a shipped one: list these and the workloads that they run.
    verbose
        Print each workload's whole description, what it counts, stresses, reads and needs, and all its options.
    """
    with shown() as bus:
        if profile is None:
            catalogue, tests = asyncio.run(interruptible(ask_catalogue(bus))), None
        else:
            request = NodeOptions().profile_request(profile)
            known = asyncio.run(interruptible(ask_profile(request, bus)))
            catalogue, tests = known.catalogue, known.profile.tests
    if tests is None:
        _print_workloads(catalogue)
        _print_data_sets(catalogue)
    else:
        _print_tests(tests)
    if verbose:
        chosen = catalogue.workloads if tests is None else dict.fromkeys(test.workload for test in tests.values())
        _print_descriptions((catalogue.workloads[name] for name in chosen), catalogue)
    return 0


def _print_workloads(catalogue: Catalogue) -> None:
    rows = [
        (
            workload.name,
            workload.unit,
            _reads(workload),
            workload.bound or "-",
            workload.precision,
            _needs(workload),
            workload.package,
            workload.summary,
        )
        for workload in catalogue.workloads.values()
    ]
    headers = ("workload", "unit", "data set", "bound by", "precision", "needs", "package", "what it is")
    spare = ("package", "precision", "needs", "bound by", "data set")
    standard_output().print(table(headers, rows, spare=spare))


def _print_data_sets(catalogue: Catalogue) -> None:
    rows = [
        (
            one.name,
            one.folder,
            "yes" if one.scalable else "no",
            format_bytes(one.bytes),
            one.description.partition("\n")[0],
        )
        for one in catalogue.data_sets.values()
    ]
    headers = ("data set", "folder", "scalable", "full size", "what it is")
    made = table(headers, rows, right=("full size",), spare=("folder", "scalable"))
    standard_output().print("", made, sep="\n")


def _print_tests(tests: Mapping[str, Test]) -> None:
    rows = [
        (
            name,
            test.workload,
            test.partition_scheme.type,
            f"{test.data_scale:g}",
            test.require or "-",
            " ".join(f"{option}={_value(value)}" for option, value in test.arguments.items()) or "-",
        )
        for name, test in tests.items()
    ]
    headers = ("test", "workload", "scheme", "data scale", "requires", "arguments")
    standard_output().print(table(headers, rows, right=("data scale",), spare=("scheme",)))


def _value(value: Scalar | ByMemoryClass) -> str:
    """A value as stated; a table by memory class as ``16GiB:8,80GiB:64``."""
    return ",".join(f"{size}:{one}" for size, one in value.items()) if isinstance(value, dict) else str(value)


def _needs(workload: Workload) -> str:
    """The modules that may be missing, and which of them are."""
    marked = (f"{name} (missing)" if name in workload.missing else name for name in workload.requires)
    return ", ".join(marked) or "-"


def _reads(workload: Workload) -> str:
    """The data sets, and with which option it reads them."""
    return ", ".join(f"{name} ({option})" if option else name for name, option in workload.data_sets.items()) or "-"


def _volumes(workload: Workload, catalogue: Catalogue) -> Iterator[str]:
    """How large its data sets are."""
    for name, option in workload.data_sets.items():
        data = catalogue.data_sets.get(name)
        when = f" with {option}" if option else ""
        size = f"{data.files:,} files, {format_bytes(data.bytes)} in full size" if data else "broken"
        yield f"{name}{when}: {size}"


def _facts(workload: Workload, catalogue: Catalogue) -> list[tuple[str, str]]:
    """What a test of the workload counts, needs and stresses."""
    ram = "not stated" if workload.ram_gib is None else f"about {workload.ram_gib:g} GiB, without page cache"
    return [
        ("counts", workload.unit),
        *(("also in", f"{each.unit}: {each.formula}") for each in workload.derived),
        ("stresses", STRESSED[workload.bound] if workload.bound else "not stated"),
        ("reads", ", ".join(_volumes(workload, catalogue)) or "nothing"),
        ("RAM per tenant", ram),
        ("runs on", "the CPU alone" if workload.cpu_only else "the tenant's device"),
        ("needs", f"{_needs(workload)}: {workload.remedy}" if workload.missing else _needs(workload)),
        ("code", f"{workload.origin} of {workload.package}"),
    ]


def _print_descriptions(workloads: Iterable[Workload], catalogue: Catalogue) -> None:
    output = standard_output()
    for workload in workloads:
        rows = [
            (f"--{option.name.replace('_', '-')}", option.kind(), option.default, option.meaning)
            for option in workload.options
        ]
        description = workload.description.partition("\nOptions:\n")[0].rstrip()
        output.print("", heading(workload.name), plain_lines(description), sep="\n")
        output.print("", facts(_facts(workload, catalogue)), sep="\n")
        output.print("", table(("option", "type", "default", "meaning"), rows), sep="\n")
