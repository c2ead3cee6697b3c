"""Attacks on tests of certain kinds: beside company, with an I/O limit, with a loss scale."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tampering import Change, Tamper, rehash, rewrite


def limited(content: dict[str, Any]) -> None:
    if not any(share.get("io") for share in content["mnb"]["isolation"].values()):
        raise LookupError("a launch with an I/O share")


def io_share(factor: float | None = None, **changes: Any) -> Change:
    """The I/O share and its evidence ``factor`` times as large, or taken out; or parts of it changed."""

    def change(content: dict[str, Any]) -> None:
        for share in content["mnb"]["isolation"].values():
            own, edges = share["io"], [share[edge] for edge in ("requested", "effective", "effective_end")]
            if changes:
                own.update(changes)
            elif factor is None:
                share["io"] = None
            else:
                own.update({name: own[name] * factor for name in ("read_bytes_per_s", "probed_read_bytes_per_s")})
            for edge in () if changes else edges:
                edge["io"] = share["io"] and [{"device": own["device"], "read_bytes_per_s": own["read_bytes_per_s"]}]
                edge["io"] = edge["io"] or []

    return change


def chosen(folder: Path, wanted: Change) -> Iterator[Path]:
    """The records of launches that did not fail and for which ``wanted`` raises nothing."""
    for path in sorted(folder.glob("*.J*.json")):
        content = json.loads(path.read_bytes())
        try:
            wanted(content)
        except LookupError:
            continue
        if content["success"]:
            yield path


def where(wanted: Change, change: Change, *, first: bool = False) -> Tamper:
    """Change the records that are ``wanted``, or the first of them, and the ledger with them."""

    def tamper(folder: Path) -> None:
        paths = list(chosen(folder, wanted))
        if not paths:
            raise LookupError("no such launch")
        for path in paths[:1] if first else paths:
            rewrite(path, change)
        rehash(folder)

    return tamper


def of_company(content: dict[str, Any]) -> None:
    if content["mnb"]["launch"].get("role") != "company":
        raise LookupError("company")


def scaled(content: dict[str, Any]) -> None:
    if content["mnb"]["ranks"][0].get("skipped") is None or not content["mnb"]["ranks"][0]["gradient_norms"]:
        raise LookupError("a launch that trains with a loss scale")


def lost_early(content: dict[str, Any]) -> None:
    """It failed two seconds before the stop of its batch."""
    mnb = content["mnb"]
    content["success"] = False
    mnb |= {"failure": {"cause": "oom", "detail": "why"}, "window": None}
    for rank in mnb["ranks"]:
        rank["slices"] = [row for row in rank["slices"] if row[0] + row[1] < mnb["stop_s"] - 2]
    content["timings"] = {name: one for name, one in content["timings"].items() if name == "program"}


def skips_untold(content: dict[str, Any]) -> None:
    for rank in content["mnb"]["ranks"]:
        rank["skipped"] = None


ATTACKS: dict[str, tuple[str, Tamper, str]] = {
    "company that failed early": ("R17", where(of_company, lost_early), "failed (oom) before the stop, and it says"),
    "no I/O limit": ("R38", where(limited, io_share()), "its I/O limit differs from the profile"),
    "a larger I/O limit": ("R38", where(limited, io_share(4)), "its I/O limit differs from the profile"),
    "skipped steps left out": ("R33", where(scaled, skips_untold), "count of the steps that the loss scale of"),
}
"""By name: the rule that finds it, what is done, and part of the reason."""
