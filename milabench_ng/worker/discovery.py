"""Finds workloads and data sets: built-in, installed through entry points of other packages, or named by path."""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Collection, Iterable

import milabench_ng.workloads
from milabench_ng import __version__, catalogue
from milabench_ng.bench import Definition
from milabench_ng.datasets import registry
from milabench_ng.errors import InputError

GROUP = "milabench_ng.workloads"
OWN = f"milabench_ng {__version__}"


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
    installed = _installed(builtin)
    if name in installed:
        return _load(installed[name]), _distribution(installed[name])
    module, _, function = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        known = ", ".join(sorted((*builtin, *installed)))
        raise InputError(f"unknown workload {name!r}; there are {known}, or name your own as package.module:function")
    return _load(importlib.metadata.EntryPoint(name, name, GROUP)), module.partition(".")[0]


def describe(foreign: Iterable[str]) -> catalogue.Catalogue:
    """The catalogue: all built-in and installed workloads, and those of ``foreign``."""
    builtin = builtin_workloads()
    workloads = {name: definition.describe(name, OWN) for name, definition in builtin.items()}
    for name, entry in _installed(builtin).items():
        workloads[name] = _load(entry).describe(name, _distribution(entry))
    for name in foreign:
        definition, package = find_workload(name)
        workloads[name] = definition.describe(name, package)
    found = {name: registry.find(name) for name in registry.names()}
    sets = {
        name: catalogue.DataSetInfo(
            name=name,
            folder=data_set.folder,
            scalable=data_set.scalable,
            classic=data_set.classic,
            files=data_set.size(1.0).files,
            bytes=data_set.size(1.0).bytes,
            description=(type(data_set).__doc__ or "").strip(),
            origin=f"{type(data_set).__module__}:{type(data_set).__qualname__}",
        )
        for name, data_set in found.items()
    }
    return catalogue.Catalogue(workloads=workloads, data_sets=sets)


def _installed(builtin: Collection[str]) -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of other packages, by name. Duplicate and built-in names raise InputError."""
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        if entry.name in builtin:
            raise InputError(
                f"{_distribution(entry)} declares a workload {entry.name!r}, which is built in: a built-in name cannot "
                "be shadowed; rename it or uninstall that package"
            )
        if entry.name in found:
            raise InputError(
                f"two workloads are called {entry.name!r}: {found[entry.name].value} of "
                f"{_distribution(found[entry.name])} and {entry.value} of {_distribution(entry)}; uninstall one"
            )
        found[entry.name] = entry
    return found


def _load(entry: importlib.metadata.EntryPoint) -> Definition:
    try:
        value = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"workload {entry.name!r} ({entry.value}) cannot be imported: {error}") from error
    if not isinstance(value, Definition):
        raise InputError(f"{entry.value} is no workload: decorate the function with milabench_ng.bench.workload")
    return value


def _distribution(entry: importlib.metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown"
