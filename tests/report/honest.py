"""The corpus of honest folders: what was measured, and the bundles that are shipped. No rule may break there."""

from __future__ import annotations

import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURED = tuple(sorted((ROOT / "tests" / "data" / "honest").glob("*.tar.gz")))
BUNDLES = tuple(sorted((ROOT / "baselines" / "bundles").glob("*.tar.gz")))


def unpacked(place: Path) -> dict[str, Path]:
    """The corpus by name: the measured folders, unpacked below ``place``, and the bundles as they are."""
    for path in MEASURED:
        with tarfile.open(path) as archive:
            archive.extractall(place, filter="data")
    folders = {path.name.removesuffix(".tar.gz"): place / path.name.removesuffix(".tar.gz") for path in MEASURED}
    return folders | {path.name.removesuffix(".tar.gz"): path for path in BUNDLES}
