"""``mnb list``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from milabench_ng.cli.node_options import NodeOptions
from milabench_ng.cli.options import FormOption
from milabench_ng.cli.showing import shown
from milabench_ng.model.catalogue import Bound, Catalogue, Scalar, Workload
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import ByMemoryClass, Test
from milabench_ng.model.units import format_bytes
from milabench_ng.present.render.cells import number
from milabench_ng.present.render.sections import Document, Facts, Heading, Part, Section, facts, in_one_table, table
from milabench_ng.present.writers import write
from milabench_ng.run.execution.interruption import interruptible
from milabench_ng.run.planning.catalogue_queries import ask_catalogue, ask_profile
from milabench_ng.run.planning.refusals import tests_ahead

STRESSED: dict[Bound, str] = {
    "cpu": "the tenant's CPUs",
    "io": "the tenant's storage",
    "launch": "kernel-launch latency",
    "links": "links between devices and to the host",
    "gpu-compute": "device arithmetic",
    "gpu-memory": "device memory bandwidth",
}


def list_tests(
    profile: Path | None = None,
    /,
    *,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative=())] = False,
    form: FormOption = "table",
) -> int:
    """List workloads and datasets, or the tests of a profile.

    Example: mnb list standard

    Parameters
    ----------
    profile
        A JSON file of tests, or the name of a shipped profile, to list its tests and workloads.
    verbose
        Print the full description of each workload, with its options.
    """
    with shown() as bus:
        if profile is None:
            catalogue, tests = asyncio.run(interruptible(ask_catalogue(bus))), None
        elif str(profile) in ("datasets", "workloads") and not profile.exists():
            raise InputError(f"{profile}: not a profile. To list all workloads and datasets, write mnb list")
        else:
            request = NodeOptions().profile_request(profile)
            ahead = tests_ahead(request)
            if ahead and not verbose and form != "json":
                rows = _tests(ahead)
                write(Document(title="mnb list", parts=(rows,), table=rows, whole=None), form, sys.stdout)
                return 0
            known = asyncio.run(interruptible(ask_profile(request, bus)))
            catalogue, tests = known.catalogue, known.profile.tests
    chosen = [test.workload for test in tests.values()] if tests is not None else list(catalogue.workloads)
    workloads = {name: catalogue.workloads[name] for name in chosen}
    tables = (_tests(tests),) if tests is not None else (_workloads(workloads), _data_sets(catalogue))
    described = chain.from_iterable(_described(one, catalogue) for one in workloads.values()) if verbose else ()
    parts = (*tables, *described)
    whole = {"schema": 1, "tests": tests, "workloads": workloads, "data_sets": catalogue.data_sets}
    rows = in_one_table(parts) if verbose else tables[0]
    write(Document(title="mnb list", parts=parts, table=rows, whole=whole), form, sys.stdout)
    return 0


def _workloads(workloads: Mapping[str, Workload]) -> Section:
    rows = (
        (one.name, one.unit, _reads(one), one.bound, one.precision, _needs(one), one.package, one.summary)
        for one in workloads.values()
    )
    spared = (Heading(title, spare=at, key=key) for title, (at, key) in _SPARED.items())
    return table("", rows, "workload", "unit", *spared, Heading("description", key="what it is"))


_SPARED = {
    "dataset": (1, "data set"),
    "bottleneck": (2, "bound by"),
    "precision": (4, ""),
    "needs": (3, ""),
    "package": (5, ""),
}
"""Column heads: when each gives way, and its name in CSV."""


def _data_sets(catalogue: Catalogue) -> Section:
    rows = (
        (
            one.name,
            one.folder,
            "yes" if one.scalable else "no",
            format_bytes(one.bytes),
            one.description.partition("\n")[0],
        )
        for one in catalogue.data_sets.values()
    )
    folder, scalable = Heading("folder", spare=2), Heading("scalable", spare=1)
    return table(
        "",
        rows,
        Heading("dataset", key="data set"),
        folder,
        scalable,
        Heading("full size", number=True),
        Heading("description", key="what it is"),
    )


def _tests(tests: Mapping[str, Test]) -> Section:
    rows = (
        (name, test.workload, test.partition_scheme.type, test.data_scale, test.require, _arguments(test) or None)
        for name, test in tests.items()
    )
    scheme, scale = Heading("scheme", spare=1), Heading("data scale", "", number, True)
    return table("", rows, "test", "workload", scheme, scale, "requires", "arguments")


def _arguments(test: Test) -> str:
    return " ".join(f"{option}={_value(value)}" for option, value in test.arguments.items())


def _value(value: Scalar | ByMemoryClass) -> str:
    """A value as stated; a table by memory class as ``16GiB:8,80GiB:64``."""
    return ",".join(f"{size}:{one}" for size, one in value.items()) if isinstance(value, dict) else str(value)


def _needs(workload: Workload) -> str | None:
    """The modules that may be missing, and which of them are."""
    marked = (f"{name} (missing)" if name in workload.missing else name for name in workload.requires)
    return ", ".join(marked) or None


def _reads(workload: Workload) -> str | None:
    """The datasets, and with which option it reads them."""
    return ", ".join(f"{name} ({option})" if option else name for name, option in workload.data_sets.items()) or None


def _volumes(workload: Workload, catalogue: Catalogue) -> Iterator[str]:
    """How large its datasets are."""
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
        ("runs on", "CPU only" if workload.cpu_only else "the tenant's device"),
        ("needs", f"{_needs(workload)}: {workload.remedy}" if workload.missing else _needs(workload) or "-"),
        ("code", f"{workload.origin} of {workload.package}"),
    ]


def _described(workload: Workload, catalogue: Catalogue) -> Iterator[Part]:
    text = workload.description.partition("\nOptions:\n")[0].rstrip()
    yield Facts(title=workload.name, text=text, facts=facts("", _facts(workload, catalogue)).facts)
    rows = (
        (f"--{option.name.replace('_', '-')}", option.kind(), option.default, option.meaning)
        for option in workload.options
    )
    yield table("", rows, "option", "type", "default", "meaning")
