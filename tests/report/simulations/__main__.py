"""Run the simulations and print their tables. See ``scripts/simulate-decisions``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from simulations.decisions import DECISIONS, simulate
from simulations.finding import Finding


def main(arguments: Sequence[str]) -> int:
    """Print a table for each decision; 1 if a finding fails."""
    parser = argparse.ArgumentParser(
        prog="simulate-decisions", description="What decisions do where the truth is known."
    )
    parser.add_argument("--only", metavar="NAME", choices=tuple(DECISIONS), help=", ".join(DECISIONS))
    only = parser.parse_args(arguments).only
    chosen = [only] if only else list(DECISIONS)
    print(f"numpy {np.__version__}, python {sys.version.split()[0]}")
    with ProcessPoolExecutor() as pool:
        tables = dict(zip(chosen, pool.map(simulate, chosen, [DECISIONS[name].TRIALS for name in chosen]), strict=True))
    for name, findings in tables.items():
        _print(name, findings)
    failed = [one.what for findings in tables.values() for one in findings if not one.holds]
    print(f"\n{len(failed)} FAIL" if failed else "\nall PASS")
    return 1 if failed else 0


def _print(name: str, findings: Sequence[Finding]) -> None:
    print(f"\n## {name} ({DECISIONS[name].TRIALS:,} trials)\n\n| what | measured | limit | |\n|---|---:|---|---|")
    for one in findings:
        print(f"| {one.what} | {100 * one.measured:.1f}% | {one.limit} | {one.verdict} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
