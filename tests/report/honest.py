"""The corpus of honest folders: what was measured, and the bundles that are shipped. No rule may break there."""

from __future__ import annotations

import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURED = tuple(sorted((ROOT / "tests" / "data" / "honest").glob("*.tar.gz")))
BUNDLES = tuple(sorted((ROOT / "baselines" / "bundles").glob("*.tar.gz")))


def unpacked(place: Path) -> dict[str, Path]:
    """The corpus by name: the measured folders, unpacked below ``place``, and the bundles as they are."""
    measured, bundles = ({path.name.removesuffix(".tar.gz"): path for path in paths} for paths in (MEASURED, BUNDLES))
    return {name: results_in(path, place / name) for name, path in measured.items()} | bundles


def results_in(bundle: Path, place: Path) -> Path:
    """The result folder in a bundle, or in an archive of a folder, unpacked below ``place``."""
    with tarfile.open(bundle) as archive:
        archive.extractall(place, filter="data")
    return next(place.glob("*/run.json")).parent
