"""Attacks on a tender: one run handed in twice, as two bids or as bid and delivery."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import tampering
from tampering import Tamper, records


def other_id(folder: Path) -> None:
    """Another id of the run, in all of its files."""
    own = json.loads((folder / "run.json").read_bytes())["run_id"]
    for path in (path for path in folder.iterdir() if path.suffix in (".json", ".jsonl")):
        path.write_text(path.read_text().replace(own, "20260107-160000-fedcba"))
    tampering.rehash(folder)


def other_slices(folder: Path) -> None:
    """Slices some nanoseconds longer or shorter."""
    draw = random.Random(5)

    def change(content: dict[str, Any]) -> None:
        for rank in content["mnb"]["ranks"]:
            for row in rank["slices"]:
                row[1] += draw.uniform(-2e-9, 2e-9)

    records(change)(folder)


TWICE: dict[str, tuple[Tamper, str]] = {
    "one run twice, with another id": (other_id, "slices of the same lengths"),
    "one run twice, with other slices": (other_slices, "the run id"),
}
"""By name: what is done to the second, and what it still has in common with the first."""
