"""Reads the options of a workload from its function's signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta
from msgspec.structs import replace

from milabench_ng.bench.options import COMMON
from milabench_ng.model import catalogue
from milabench_ng.model.catalogue import Option, Range
from milabench_ng.model.errors import InputError

Function = Callable[..., None]
_NAMES = {kind: name for name, kind in catalogue.type_names.items()}


def read_options(function: Function) -> tuple[Option, ...]:
    """The options of a workload: its keyword-only parameters, explained in the docstring's ``Options:`` section."""
    hints = get_type_hints(function, include_extras=True)
    meanings = _meanings(inspect.getdoc(function) or "")
    options = []
    where = f"workload {function.__module__}:{function.__qualname__}"
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise InputError(f"{where}: {parameter.name!r} is not keyword-only; put '*' after the first parameter")
        hint, allowed = _range(hints.get(parameter.name), where, parameter)
        kind, choices = _kind(hint, where, parameter)
        if parameter.name in {option.name for option in COMMON("fp32")}:
            raise InputError(f"{where}: option {parameter.name!r} is common to all workloads; rename yours")
        option = Option(
            name=parameter.name,
            type=kind,
            default=parameter.default,
            choices=choices,
            range=allowed,
            meaning=meanings.get(parameter.name, ""),
        )
        options.append(replace(option, default=option.check(parameter.default, f"{where}: default")))
    return tuple(options)


def _range(hint: object, where: str, parameter: inspect.Parameter) -> tuple[object, Range]:
    """The type in ``Annotated[int, Meta(ge=1)]``, and its range; any other annotation is a type without a range."""
    if get_origin(hint) is not Annotated:
        return hint, Range()
    kind, *notes = get_args(hint)
    bounds = {name: getattr(note, name, None) for note in notes for name in Range.__struct_fields__}
    if len(notes) != 1 or notes[0] != Meta(**bounds) or kind not in (int, float):
        raise InputError(
            f"{where}: option {parameter.name!r} is annotated {hint!r}. Write a range as one Meta of ge, gt, le and lt "
            "of an int or a float"
        )
    return kind, Range(**bounds)


def _kind(
    hint: object, where: str, parameter: inspect.Parameter
) -> tuple[Literal["int", "float", "bool", "str"], tuple[str, ...]]:
    if parameter.default is inspect.Parameter.empty:
        raise InputError(f"{where}: option {parameter.name!r} has no default; give it one")
    if get_origin(hint) is Literal and all(isinstance(choice, str) for choice in get_args(hint)):
        return "str", tuple(get_args(hint))
    if hint not in _NAMES:
        raise InputError(
            f"{where}: option {parameter.name!r} is annotated {hint!r}; use int, float, bool, str or a "
            "Literal of strings"
        )
    return _NAMES[hint], ()  # type: ignore[return-value]


def _meanings(docstring: str) -> dict[str, str]:
    """``{"batch_size": "images per step"}`` from the indented ``name: meaning`` lines below ``Options:``."""
    _, found, rest = docstring.partition("\nOptions:\n")
    meanings: dict[str, str] = {}
    name = ""
    for line in rest.splitlines() if found else ():
        if not line.startswith(" "):
            break
        entry = re.fullmatch(r" {4}(\w+): (.*)", line)
        if entry:
            name = entry[1]
            meanings[name] = entry[2]
        elif name:
            meanings[name] += " " + line.strip()
    return meanings
