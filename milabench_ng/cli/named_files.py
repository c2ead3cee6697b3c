"""The files that a command line names: looked at before a command begins, so that no mistake shows after its work.

A parameter of a command says in its annotation what it names, `Reads` or `Writes`, and nobody else has to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import require_file
from milabench_ng.model.plain import plain
from milabench_ng.model.shipped import profile_file
from milabench_ng.records.output_files import check_target, check_target_folder


class Reads(msgspec.Struct, frozen=True):
    """Marks a parameter whose value names what a command reads."""

    require: Callable[[Path, str], None]
    """Raises InputError, which names the option if there is one, unless it is there and may be meant."""


class Writes(msgspec.Struct, frozen=True):
    """Marks a parameter whose value names what a command writes."""

    folder: bool = False


class Named(msgspec.Struct, frozen=True):
    """A file or folder that a command line names."""

    option: str
    """Empty for what stands without one."""
    path: Path
    use: Reads | Writes


def check_named(command: Callable[..., Any], given: Mapping[str, object]) -> None:
    """Raise InputError unless the files and folders among the arguments ``given`` to ``command`` can be used."""
    found = list(_named(command, given))
    for one in found:
        match one.use:
            case Reads(require):
                require(one.path, one.option)
            case Writes(folder=True):
                check_target_folder(one.path, one.option)
            case Writes():
                check_target(one.path, one.option, force=bool(given.get("force")))
    written = [one for one in found if isinstance(one.use, Writes)]
    for one, other in combinations(written, 2):
        if one.path.resolve() == other.path.resolve():
            both = " ".join(f"{each.option} {plain(each.path)}" for each in (one, other))
            raise InputError(f"{both}: the same file. Name two files")


def _named(command: Callable[..., Any], given: Mapping[str, object]) -> Iterator[Named]:
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        use = next((one for one in get_args(parameter.annotation) if isinstance(one, Reads | Writes)), None)
        if use is None:
            continue
        option = f"--{name.replace('_', '-')}" if parameter.kind is parameter.KEYWORD_ONLY else ""
        yield from (Named(option, Path(text), use) for text in _texts(given.get(name)))


def _texts(value: object) -> Iterator[str]:
    """The names in a value, which may be several, also several at each occurrence of an option."""
    if isinstance(value, tuple):
        for one in value:
            yield from _texts(one)
    elif value is not None:
        yield str(value)


def _results(path: Path, option: str) -> None:
    from milabench_ng.analysis.summary.folder import find_results

    find_results(str(path), option)


def _rules(path: Path, _: str) -> None:
    from milabench_ng.verification.rules_file import load_rules

    load_rules(path)


def _signers(path: Path, _: str) -> None:
    from milabench_ng.verification.signing import require_signers

    require_signers(path)


def _certificates(path: Path, option: str) -> None:
    require_file(path, "It should hold certificates (PEM)", option)


def _weights(path: Path, option: str) -> None:
    require_file(path, "It should hold weights by test, in JSON", option)


def _profile(path: Path, option: str) -> None:
    require_file(profile_file(path), "It should hold a profile, in JSON", option)


def _groups(path: Path, option: str) -> None:
    require_file(path, 'It should hold lines such as "rack1: gpu[001-016]"', option)


def _key(path: Path, _: str) -> None:
    from milabench_ng.verification.signing import require_key

    require_key(path)


READS_RESULTS = Reads(_results)
"""A result folder, a bundle, a summary, or the name of a shipped baseline."""
Results = Annotated[str, READS_RESULTS]
READS_RULES = Reads(_rules)
RulesFile = Annotated[str | None, READS_RULES]
SignersFile = Annotated[Path | None, Reads(_signers)]
CertificatesFile = Annotated[Path | None, Reads(_certificates)]
WeightsPath = Annotated[Path | None, Reads(_weights)]
ProfilePath = Annotated[Path | None, Reads(_profile)]
GroupsFile = Annotated[Path | None, Reads(_groups)]
KeyFile = Annotated[Path | None, Reads(_key)]
