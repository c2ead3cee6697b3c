"""Profiles: JSON files of tests, read strictly.

A profile is an object of tests by name; ``"*"`` holds defaults that are merged into each of them (shallowly, as in
2020). Profiles of 2020 are recognised by their ``experiment`` keys and converted by ``profile_2020``.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from milabench_ng.model.batch_sizes import FRACTION
from milabench_ng.model.catalogue import Scalar
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import SMALL, convert_json, parse_json, read_text
from milabench_ng.model.known_files import refuse_other
from milabench_ng.model.memory_classes import check_classes
from milabench_ng.model.plain import short
from milabench_ng.model.similar import did_you_mean, meant_or_all
from milabench_ng.model.units import MIB, parse_bytes

PROFILE_SCHEMA = 1
TEST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*")
SUITE_NAME = re.compile(r"\w[\w .,+@=()-]*")
OtherSuite = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{TEST_NAME.pattern}$(?!\n)",
        description="a name of letters, digits, '_', '-' and '+', such as modern",
    ),
]
"""The name of a suite without a dot, so that it is the first part of a test's id."""
LONGEST_ID = 200
"""Bytes of ``suite.test``: with job id and date it becomes the name of a file, which has at most 255."""


MOST_TESTS = 10_000
"""Of a profile; some checks compare each with all others."""


class Scheme(StrEnum):
    """How a test is spread over the node's devices.

    ``per-gpu``: one launch per device, all at the same time. ``gpu-progression``: one launch over 1, 2, ... N
    devices, one after the other. ``normal``: one launch over all devices.
    """

    PER_GPU = "per-gpu"
    PROGRESSION = "gpu-progression"
    NORMAL = "normal"

    @property
    def spreads(self) -> bool:
        """Whether a launch may use several devices."""
        return self is not Scheme.PER_GPU

    @property
    def steps(self) -> bool:
        """Whether every number of devices has its own row in the summary."""
        return self is Scheme.PROGRESSION

    def label(self, test: str, devices: int) -> str:
        """The summary row of a launch of ``test`` over ``devices`` devices; each step of a progression has its own."""
        return f"{test}.{devices}" if self.steps else test

    def partitions(self, count: int) -> list[list[tuple[int, ...]]]:
        """For each batch of one run of a test: the positions, among ``count`` devices, that each launch uses."""
        everything = tuple(range(count))
        match self:
            case Scheme.PER_GPU:
                return [[(position,) for position in everything]]
            case Scheme.PROGRESSION:
                return [[everything[:k]] for k in range(1, count + 1)]
            case Scheme.NORMAL:
                return [[everything]]

    def places(self, count: int) -> int:
        """How many positions all launches of one run of a test use together."""
        return count * (count + 1) // 2 if self is Scheme.PROGRESSION else count


class PartitionScheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a test is spread over the node's devices."""

    type: Scheme = Scheme.PER_GPU


class IoShare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The I/O bandwidth that a tenant may use, such as ``"1000 MiB/s"``."""

    read: str | None = None
    write: str | None = None


class MemoryNeed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The memory that a test needs on its devices, in sizes such as ``"14GB"``; on the CPU it is RAM."""

    together: str = "0"
    """Of all its devices together, in equal parts."""
    each: str = "0"
    """Of each device besides."""


class TimeLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the watchdog waits, in seconds; limits that are not given follow from the plan."""

    ready: float | None = None
    """From the request to ``ready``."""
    silence: float | None = None
    """Between start and stop without a slice."""
    end: float | None = None
    """From the stop to the end of the process."""
    total: float | None = None
    """From the request to the end of the process."""


Neighbors = Literal["same", "none"] | tuple[str, ...]
"""What the other slots do while a test is measured on one: the same; nothing; or these tests, in turn.

Except with ``same``, the test visits one slot after the other.
"""

ByMemoryClass = dict[str, Scalar]
"""Values of an option by the device's memory, such as ``{"16GiB": 8, "80GiB": 64}``."""


class Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a profile."""

    __test__ = False  # not a pytest class

    workload: str
    """A built-in or installed workload, or ``package.module:function``."""
    arguments: dict[str, Scalar | ByMemoryClass] = {}
    """Options of the workload; one may be a table by memory class, see `memory_classes`."""
    partition_scheme: PartitionScheme = PartitionScheme()
    least_devices: Annotated[int, msgspec.Meta(ge=1)] = 1
    """With fewer devices the test is not planned, and has no weight."""
    device_counts: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] = ()
    """How many devices a launch can spread over, any number if empty: with another, the test is not planned, and has
    no weight."""
    least_memory: MemoryNeed | None = None
    """Where ``memory_fraction`` of a tenant's memory is less, the test is not planned, and has no weight."""
    least_capability: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """The compute capability that each device must have, such as 8.9, or 0 for any GPU: without it, the test is not
    planned, and has no weight."""
    instead_of: str | None = None
    """A larger test: where that is planned, this one is not."""
    require: Literal["full"] | None = None
    """``"full"``: refuse to run if the kernel does not enforce the fence."""
    io: IoShare | None = None
    limits: TimeLimits | None = None
    data_scale: float = 1.0
    """The size of the dataset twin relative to the real set."""
    memory_fraction: float = FRACTION
    """The part of its memory that a tenant may fill, if the batch size is automatic or by ``least_memory``."""
    neighbors: Neighbors = "same"
    role: Literal["measured", "neighbor"] = "measured"
    """``neighbor``: it runs only next to the tests that name it, and is never scored."""
    mix: str | None = None
    """Tests of one mix run at the same time on different slots, and change places until each has been on all."""
    suite: OtherSuite | None = None
    """The suite that it is scored in, if that is not the profile's."""


class Profile(msgspec.Struct, frozen=True, tag=True):
    """A profile as read: its tests in file order, with the defaults merged in."""

    suite: str
    tests: dict[str, Test]
    text: str
    source: str
    """The file's name, for errors."""
    warnings: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Hash of the file's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def id_of(self, name: str) -> str:
        """The id of the test ``name``: ``suite.test``."""
        return f"{self.tests[name].suite or self.suite}.{name}"

    def select(self, names: Sequence[str]) -> Profile:
        """The tests called ``names`` (all if empty), in file order."""
        unknown = [name for name in names if name not in self.tests]
        if unknown:
            meant = meant_or_all(unknown[0].removeprefix(f"{self.suite}."), self.tests)
            raise InputError(f"profile {self.suite}: no test {unknown[0]!r}{meant}")
        chosen = {name: test for name, test in self.tests.items() if not names or name in names}
        return msgspec.structs.replace(self, tests=chosen)


RawTests = dict[str, dict[str, Any]]


class Profile2020(msgspec.Struct, frozen=True, tag=True):
    """A profile of the 2020 tool: only a catalogue says what its tests mean (`convert_2020`)."""

    suite: str
    tests: RawTests
    text: str
    source: str

    def id_of(self, name: str) -> str:
        """The id of the test ``name``: ``suite.test``."""
        return f"{self.suite}.{name}"


AnyProfile = Profile | Profile2020


def name_of(test: str) -> str:
    """The name in its profile of the test with the id ``test``."""
    return test.rpartition(".")[2]


def suite_of(test: str) -> str:
    """The suite of the test with the id ``test``; empty if it names none."""
    return test.rpartition(".")[0]


def parse_profile(suite: str, text: str, source: str) -> AnyProfile:
    """The profile in ``text``. Raises InputError, which names ``source``, test, key and valid keys."""
    tests = _raw_tests(text, source)
    if any("experiment" in definition for definition in tests.values()):
        return Profile2020(suite, tests, text, source)
    return build_profile(suite, tests, text, source)


def _raw_tests(text: str, source: str) -> RawTests:
    """The tests with the defaults merged in."""
    if len(text) > SMALL:  # that of a manifest
        raise InputError(f"{source}: larger than the {SMALL // MIB} MiB that a profile may have")
    raw = parse_json(text.encode(), source)
    if not isinstance(raw, dict):
        raise InputError(f"{source}: must be an object of tests, not {type(raw).__name__}. See mnb schema profile")
    refuse_other(raw, "profile", source)
    if len(raw) > MOST_TESTS:
        raise InputError(f"{source}: {len(raw):,} tests. A profile has at most {MOST_TESTS:,}")
    defaults = raw.pop("*", {})
    if not isinstance(defaults, dict):
        raise InputError(
            f"{source}: '*' must be an object of defaults, not {type(defaults).__name__}. See mnb schema profile"
        )
    tests: RawTests = {}
    for name, definition in raw.items():
        if not TEST_NAME.fullmatch(name):
            raise InputError(f"{source}: test name {short(repr(name))}: use letters, digits, '_', '-' and '+'")
        if not isinstance(definition, dict):
            raise InputError(
                f"{source}: test {name!r} must be an object, not {type(definition).__name__}. See mnb schema profile"
            )
        tests[name] = {**defaults, **definition}
    if not tests:
        raise InputError(f'{source}: no tests. Add one, such as {{"vae": {{"workload": "vae"}}}}')
    return tests


def read_profile(path: Path) -> Profile:
    """The profile in a file of today's form. Raises InputError for anything else."""
    text = read_text(path)
    return build_profile(path.stem, _raw_tests(text, str(path)), text, str(path))


def build_profile(suite: str, tests: RawTests, text: str, source: str, warnings: tuple[str, ...] = ()) -> Profile:
    """Build a typed profile; an unknown key or a wrong type is an error that names file, test, key and valid keys."""
    typed: dict[str, Test] = {}
    if not SUITE_NAME.fullmatch(suite):
        raise InputError(
            f"{source}: the file's name is the suite's, and results are named after it: begin with a letter, a digit "
            "or '_', then also ' .,+@=()-'"
        )
    for name, stated in tests.items():
        where, definition = f"{source}: test {short(repr(name))}", _renamed(stated)
        _check_keys(definition, Test, where)
        test = convert_json(definition, Test, where)
        if len(f"{test.suite or suite}.{name}".encode()) > LONGEST_ID:
            raise InputError(f"{where}: suite and test name have more than {LONGEST_ID} bytes together")
        if not 0 < test.data_scale <= 1:
            raise InputError(f"{where}: data_scale is {test.data_scale}; expected above 0 and at most 1")
        if not 0 < test.memory_fraction <= 1:
            raise InputError(f"{where}: memory_fraction is {test.memory_fraction}; expected above 0 and at most 1")
        for key, size in msgspec.structs.asdict(test.least_memory or MemoryNeed()).items():
            parse_bytes(size, f"{where}: least_memory: {key}")
        if test.instead_of is not None and (test.instead_of not in tests or test.instead_of == name):
            raise InputError(f"{where}: instead_of {short(repr(test.instead_of))} is not another test of this profile")
        for limit, seconds in msgspec.structs.asdict(test.limits or TimeLimits()).items():
            if seconds is not None and not 0 < seconds < math.inf:
                raise InputError(f"{where}: limits: {limit}: expected a number of seconds above 0, got {seconds}")
        typed[name] = test
    _check_devices(typed, source)
    check_neighbors(typed, source)
    return Profile(suite, typed, text, source, warnings)


def _renamed(definition: dict[str, Any]) -> dict[str, Any]:
    """``neighbors`` and ``neighbor``, which profiles of before 0.3.0 call ``company``."""
    made = {"neighbors" if key == "company" else key: value for key, value in definition.items()}
    return made | {"role": "neighbor"} if made.get("role") == "company" else made


def _check_devices(tests: Mapping[str, Test], source: str) -> None:
    """Refuse numbers of devices that a partition scheme has no launches over."""
    for name, test in tests.items():
        where = f"{source}: test {short(repr(name))}"
        if test.partition_scheme.type.steps and test.least_devices > 1:
            raise InputError(
                f"{where}: least_devices {test.least_devices}, and partition scheme "
                f"{test.partition_scheme.type.value!r} begins with one device. Use normal"
            )
        if test.device_counts and test.partition_scheme.type is not Scheme.NORMAL:
            raise InputError(
                f"{where}: device_counts, and partition scheme {test.partition_scheme.type.value!r} uses other "
                "numbers of devices. Use normal"
            )


def check_neighbors(tests: Mapping[str, Test], source: str) -> None:
    """Refuse neighbors and mixes that cannot be. Raises InputError that names the test and says what to do."""
    named = {name for test in tests.values() if isinstance(test.neighbors, tuple) for name in test.neighbors}
    for name, test in tests.items():
        where = f"{source}: test {short(repr(name))}"
        unknown = [one for one in test.neighbors if one not in tests] if isinstance(test.neighbors, tuple) else []
        if unknown:
            meant = did_you_mean(unknown[0], tests)
            raise InputError(f"{where}: neighbors: no test {short(repr(unknown[0]))} in this profile{meant}")
        special = test.neighbors != "same" or test.mix is not None or test.role == "neighbor" or name in named
        if special and test.partition_scheme.type.spreads:
            raise InputError(
                f"{where}: partition scheme {test.partition_scheme.type.value!r} uses all devices, which leaves no "
                "slot for neighbors. Use per-gpu."
            )
        if test.neighbors != "same" and (test.mix is not None or test.role == "neighbor"):
            raise InputError(
                f"{where}: it has neighbors of its own, and it is in a mix or a neighbor itself. Choose one."
            )
        if test.role == "neighbor" and name not in named:
            raise InputError(
                f"{where}: its role is neighbor, but no test names it. Name it in the neighbors of a test."
            )
    mixes = Counter(test.mix for test in tests.values() if test.mix is not None)
    for mix, count in mixes.items():
        if count == 1:
            raise InputError(f"{source}: mix {short(repr(mix))} has one test. A mix needs two or more")


def _check_keys(definition: dict[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    """Refuse unknown keys, unknown words and values that no argument can have, and say which ones are valid."""
    hints = _hints(kind)
    for key, value in definition.items():
        if key not in hints:
            raise InputError(f"{where}: unknown key {short(repr(key))}{meant_or_all(key, hints)}")
        kinds = get_args(hints[key]) or (hints[key],)
        words = [word for word in map(_words, (hints[key], *kinds)) if word]
        listed = isinstance(value, list) and any(get_origin(kind) is tuple for kind in kinds)
        if words and value not in words[0] and not listed and not (value is None and type(None) in kinds):
            valid = ", ".join(map(repr, words[0]))
            raise InputError(f"{where}: {key} is {short(repr(value))}; it takes one of {valid}")
        for inner in kinds:
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and isinstance(value, dict):
                _check_keys(value, inner, f"{where}: {key}")
    for option, value in _items(definition.get("arguments")):
        for one in value.values() if isinstance(value, dict) else (value,):
            if not isinstance(one, Scalar):
                raise InputError(
                    f"{where}: argument {short(repr(option))} is {short(repr(value))}; "
                    "it must be a bool, a number or a string, or a table of them by memory class"
                )
        if isinstance(value, dict):
            check_classes(value, f"{where}: argument {short(repr(option))}")


@functools.cache  # it takes milliseconds, and an untrusted profile may have thousands of tests
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The types of a struct's fields, by name."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in msgspec.structs.fields(kind)}


def _words(kind: object) -> tuple[object, ...]:
    """The words that a value of ``kind`` may be; empty if ``kind`` is not a choice of words."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(member.value for member in kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else []
