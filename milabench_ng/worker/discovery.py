"""Finds workloads and datasets: built-in, installed through entry points of other packages, or named by path."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import milabench_ng.workloads
from milabench_ng import __version__
from milabench_ng.bench import Definition
from milabench_ng.datasets import registry
from milabench_ng.model import catalogue
from milabench_ng.model.builtin import GROUP, installed
from milabench_ng.model.errors import InputError
from milabench_ng.worker.trial import tried

OWN = f"milabench_ng {__version__}"
BUILT_IN_SETS = frozenset(entry.name for entry in registry.BUILT_IN)


def builtin_workloads() -> dict[str, Definition]:
    """This package's workloads by name, from the folders of all families."""
    modules = (
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(milabench_ng.workloads.__path__, f"{milabench_ng.workloads.__name__}.")
    )
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Definition)]
    return {definition.name: definition for definition in found}


def find_workload(name: str) -> tuple[Definition, str]:
    """The workload called ``name`` (built-in, installed or ``package.module:function``) and its package."""
    builtin = builtin_workloads()
    if name in builtin:
        return builtin[name], OWN
    entry = _entry(name)
    return _load(entry), _package(entry)


def describe(asked: Iterable[str] | None) -> catalogue.Catalogue:
    """The catalogue: all that is built in, and what is ``asked`` for of other packages, with its datasets.

    ``asked``: names of workloads, also as ``package.module:function``; None for all that is installed. What is broken
    has its reason there.
    """
    others = installed()
    workloads = {name: definition.describe(name, OWN) for name, definition in builtin_workloads().items()}
    broken: dict[str, str] = {}
    for name in others if asked is None else asked:
        if name in others or ":" in name:
            try:
                workloads[name] = _describe(name)
            except InputError as error:
                broken[name] = str(error)
    read = BUILT_IN_SETS.union(*(workload.data_sets for workload in workloads.values()))
    sets: dict[str, catalogue.DataSetInfo] = {}
    broken_sets: dict[str, str] = {}
    for name in registry.names() if asked is None else sorted(read):
        try:
            sets[name] = _describe_data_set(name)
        except InputError as error:
            broken_sets[name] = str(error)
    return catalogue.Catalogue(
        workloads=workloads, data_sets=sets, broken=broken, broken_sets=broken_sets, installed=others
    )


def _describe(name: str) -> catalogue.Workload:
    """A workload of another package. Raises InputError if it is broken."""
    entry = _entry(name)
    what = f"workload {name!r} ({registry.origin(entry)})"
    return tried(what, lambda: _load(entry).describe(name, _package(entry)), catalogue.Workload)


def _describe_data_set(name: str) -> catalogue.DataSetInfo:
    def info() -> catalogue.DataSetInfo:
        data_set = registry.find(name)
        return catalogue.DataSetInfo(
            name=name,
            folder=data_set.folder,
            scalable=data_set.scalable,
            classic=data_set.classic,
            files=data_set.size(1.0).files,
            bytes=data_set.size(1.0).bytes,
            description=(type(data_set).__doc__ or "").strip(),
            origin=f"{type(data_set).__module__}:{type(data_set).__qualname__}",
        )

    if name in BUILT_IN_SETS:
        return info()
    what = f"dataset {name!r} ({registry.origin(registry.entry(name))})"
    return tried(what, info, catalogue.DataSetInfo)


def _entry(name: str) -> EntryPoint:
    """The entry point of another package, or one made of ``package.module:function``."""
    found = tuple(entry_points(group=GROUP, name=name))
    if found and name in builtin_workloads():
        raise InputError(
            f"{_package(found[0])} declares a workload {name!r}, which is built in: a built-in name cannot be "
            "shadowed. Rename it, or uninstall that package"
        )
    if len(found) > 1:
        origins = " and ".join(map(registry.origin, found))
        raise InputError(f"two workloads are called {name!r}: {origins}; uninstall one")
    if found:
        return found[0]
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise catalogue.unknown_workload(name, {*builtin_workloads(), *installed()})
    return EntryPoint(name, name, GROUP)


def _load(entry: EntryPoint) -> Definition:
    try:
        value = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"workload {entry.name!r} ({registry.origin(entry)}) cannot be imported: {error}") from error
    if not isinstance(value, Definition):
        raise InputError(
            f"{registry.origin(entry)} is no workload: decorate the function with milabench_ng.bench.workload"
        )
    return value


def _package(entry: EntryPoint) -> str:
    """The distribution and its version; of what is named by its path, the package."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module.partition(".")[0]
