"""Points that a script looks at on a node, each with what came of it in one line."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TypeVar

from milabench_ng.model.errors import MnbError

T = TypeVar("T")


class Skipped(Exception):  # noqa: N818  (not an error)
    """The point cannot be looked at here, for this reason."""


class Failed(Exception):  # noqa: N818  (the finding, not an error of ours)
    """The point is not as it should be."""


def options(doc: str | None) -> argparse.Namespace:
    """What the command line asks for; ``doc`` is the help."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ram-total", help="RAM to divide, such as 250GiB: for VMs whose MemTotal grows with use")
    parser.add_argument("--only", default="", metavar="WORDS", help="only the points whose name holds these words")
    return parser.parse_args()


def look_at(points: Mapping[str, Callable[[T], str]], only: str, node: T) -> bool:
    """Look at each point whose name holds ``only``, and print what came of it; whether none failed."""
    held = True
    for name, point in points.items():
        if only not in name:
            continue
        try:
            verdict, said = "PASS", point(node)
        except Skipped as reason:
            verdict, said = "SKIP", str(reason)
        except (Failed, MnbError) as finding:
            verdict, said, held = "FAIL", str(finding), False
        print(f"{verdict}  {name}: {said}", flush=True)
    return held
