"""What a JSON file of ours is, by its keys, to say so where another kind is expected. Pure, but for `named`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from milabench_ng.model.errors import InputError
from milabench_ng.model.files import GZIP, LARGE, parse_json, read_bytes, refuse

FileKind = Literal["profile", "rules", "bids", "weights", "record", "manifest", "summary", "report", "fleet", "bundle"]

WORDS: dict[FileKind, tuple[str, str]] = {
    "profile": ("a profile", "Run it with mnb jobs"),
    "rules": ("a rules file", "Pass it with --rules"),
    "bids": ("a bids file", "Give it to mnb bids"),
    "weights": ("a weights file", "Pass it with --weights"),
    "record": ("the record of a launch", "Give its folder to mnb report, or run it again with mnb rerun"),
    "manifest": ("the manifest of a run", "Give its folder to mnb report or mnb resume"),
    "summary": ("a summary or a baseline", "Give it to mnb report, or compare with it (--compare)"),
    "report": ("a report as JSON, which no command reads", "Give the results that it was made from"),
    "fleet": ("the manifest of a fleet", "Give its folder to mnb report or mnb fleet status"),
    "bundle": ("a bundle", "Give it to mnb report or mnb verify"),
}
"""What each kind is, and what to do with it."""

_OF_RULES = frozenset(("signed", "window_s", "nonce", "repeat", "isolation", "data", "closed", "ledger", "every_gpu"))
"""Some of the keys of rules, which no other file has beside a schema."""


def kind_of(raw: Any) -> FileKind | None:
    """The kind of the file with this JSON value; None for what is none of ours."""
    if not isinstance(raw, dict):
        return None
    inside = [value for value in raw.values() if isinstance(value, dict)]
    found: dict[FileKind, bool] = {  # in this order: tests of a profile may have any names, and a record many keys
        "record": isinstance(raw.get("job_id"), str),
        "profile": any({"workload", "experiment"} & one.keys() for one in inside),
        "report": {"failures", "sub_scores"} <= raw.keys(),
        "summary": {"suite", "units", "tests"} <= raw.keys() or any({"n", "train"} <= one.keys() for one in inside),
        "bids": {"bids", "reference"} <= raw.keys(),
        "fleet": {"fleet_id", "nodes"} <= raw.keys(),
        "manifest": {"run_id", "plan"} <= raw.keys(),
        "rules": "schema" in raw and not _OF_RULES.isdisjoint(raw),
        "weights": any("weight" in one for one in inside),
    }
    return next((kind for kind, fits in found.items() if fits), None)


def refuse_other(raw: Any, wanted: FileKind, source: str) -> None:
    """Raise InputError if a JSON value is that of a file of ours of another kind than ``wanted``."""
    kind = kind_of(raw)
    if kind is not None and kind != wanted:
        what, use = WORDS[kind]
        refuse(source, f"this is {what}. {use}")


def named(path: Path) -> str:
    """What the file ``path`` is, in words; empty for what is none of ours."""
    with suppress(InputError):
        content = read_bytes(path, LARGE)
        kind = "bundle" if content.startswith(GZIP) else kind_of(parse_json(content, str(path), numbers="any"))
        return "" if kind is None else WORDS[kind][0]
    return ""
