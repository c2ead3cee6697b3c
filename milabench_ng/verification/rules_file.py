"""Reads files of rules, and refuses names of what there is not: one that is misspelled would demand nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import convert_json, parse_json, read_content, refuse
from milabench_ng.model.known_files import refuse_other
from milabench_ng.model.plain import plain
from milabench_ng.model.profile import Profile, read_profile
from milabench_ng.model.shipped import find, names, to_run
from milabench_ng.model.similar import did_you_mean, meant_or_all
from milabench_ng.records.origin import require_schema
from milabench_ng.verification.checks.check_arguments import unknown_tests
from milabench_ng.verification.checks.registry import RULES
from milabench_ng.verification.doubts.registry import DOUBTS
from milabench_ng.verification.folder_files import sha256_of
from milabench_ng.verification.rules import RULES_SCHEMA, Pin, Rules

Named = tuple[str, str, Iterable[str], Iterable[str]]
"""A key, what it names in words, what it says, and what there is."""


def load_rules(source: str | Path | None) -> Rules:
    """The rules in a file, or the shipped ones of that name (``standard``); without a source, no demands."""
    if source is None:
        return Rules()
    path = Path(source)
    if len(path.parts) == 1 and (not os.path.exists(path) or os.path.isdir(path)):  # such as results of that name
        path = find("rules", path.name.removesuffix(".json")) or path
    if not os.path.lexists(path):
        meant = did_you_mean(path.name, names("rules")) or f". Shipped rules: {', '.join(names('rules'))}"
        raise InputError(f"--rules {plain(source)}: no such file{meant}")
    return decode_rules(read_content(path), str(path))


def decode_rules(content: bytes, source: str) -> Rules:
    """Decode rules from JSON; ``source`` is for errors. Raises an InputError that names the key or keys."""
    advice = "the keys of rules are in docs/reference/rules-file.md"
    raw = parse_json(content, source)
    refuse_other(raw, "rules", source)
    for key in ("profile", "weights"):
        if isinstance(raw, dict) and isinstance(name := raw.get(key), str):
            refuse(source, f'{key}: expected an object, got text. Write {{"name": {json.dumps(name)}}}')
    rules = convert_json(raw, Rules, source, advice)
    require_schema(rules.schema, "rules", RULES_SCHEMA, source)
    if rules.sessions is not None and (rules.least_sessions or 0) > rules.sessions:
        raise InputError(
            f"{source}: no run can meet these rules: least_sessions demands {rules.least_sessions}, and sessions "
            f"accepts at most {rules.sessions}. Raise sessions, or lower least_sessions"
        )
    _require_known(rules, source)
    return rules


def _require_known(rules: Rules, source: str) -> None:
    """Raise InputError, which names the file ``source``, for a name that there is not."""
    for key, what, stated, known in _named(rules):
        for name in stated:
            if name not in known:
                refuse(source, f"{key}: no {what} {plain(repr(name))}{meant_or_all(name, known)}")
    shipped = pinned_profile(rules.profile)
    for why in unknown_tests(rules, shipped) if shipped else ():
        refuse(source, why)


def pinned_profile(pin: Pin | None) -> Profile | None:
    """The shipped profile that rules pin, by its name or its SHA-256; None if they pin none, or another file."""
    for name in names("profiles") if pin else ():
        path = find("profiles", name)
        if pin and path and (sha256_of(path) == pin.sha256.lower() if pin.sha256 else name == pin.name):
            return read_profile(path)
    return None


def profile_to_run(rules: Rules, suite: str) -> str:
    """What `mnb jobs` takes to run ``suite`` again as the rules accept it; a word in the place of the buyer's file."""
    shipped = pinned_profile(rules.profile)
    return shipped.suite if shipped else "PROFILE-OF-THE-TENDER" if rules.profile else to_run(suite)


def _named(rules: Rules) -> Iterator[Named]:
    yield "doubts_refused", "doubt", rules.doubts_refused, [doubt.name for doubt in DOUBTS]
    yield "witnessed", "rule for a witness", rules.witnessed, [rule.id for rule in RULES if rule.basis == "witness"]
    yield "profile", "shipped profile", _by_name(rules.profile), names("profiles")
    yield "weights", "shipped weights", _by_name(rules.weights), names("weights")
    for suite, pin in rules.suite_weights.items():
        yield f"suite_weights.{plain(suite)}", "shipped weights", _by_name(pin), names("weights")


def _by_name(pin: Pin | None) -> tuple[str, ...]:
    """The name of a file that is pinned by that alone: beside a SHA-256, it only tells people which one is meant."""
    return () if pin is None or pin.sha256 else (pin.name or "",)
