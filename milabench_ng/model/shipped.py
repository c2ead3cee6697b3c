"""The files shipped with ``mnb``: profiles, weights, baselines, rules.

A checkout has them next to the package, an installed wheel inside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from milabench_ng.model.errors import InputError
from milabench_ng.model.plain import quoted, short
from milabench_ng.model.similar import meant_or_all

ShippedKind = Literal["profiles", "weights", "baselines", "baselines/rates", "baselines/traces", "rules"]

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE.parent, _PACKAGE / "share")


def find(kind: ShippedKind, name: str) -> Path | None:
    """The shipped file of that kind called ``name`` (without ``.json``), the checkout's first; None if missing."""
    if name not in names(kind):  # a suite's name may come from a file, and is not a path
        return None
    found = (place / kind / f"{name}.json" for place in _places())
    return next(path for path in found if path.is_file())


def names(kind: ShippedKind) -> tuple[str, ...]:
    return tuple(sorted({path.stem for place in _places() for path in (place / kind).glob("*.json")}))


def to_run(suite: str) -> str:
    """What `mnb jobs` takes to run ``suite``: its shipped profile, or a word in the place of one's own."""
    return suite if suite in names("profiles") else "PROFILE"


def baselines_of(suites: Collection[str]) -> tuple[str, ...]:
    """The shipped baselines of ``suites``: a name begins with the suite, or is only that of a GPU in `standard`."""
    known = names("profiles")
    first = {name: name.partition("-")[0] for name in names("baselines")}
    return tuple(name for name, word in first.items() if (word if word in known else "standard") in suites)


def bundle_file(name: str) -> Path:
    files = (place / "baselines" / "bundles" / f"{name}.tar.gz" for place in _places())
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise InputError(f"the bundle {name} is not in this installation; use a checkout, or install mnb again")
    return found


def profile_file(profile: Path) -> Path:
    """``profile`` itself if it exists and is no folder, otherwise the shipped profile of that name.

    Raises InputError, with the names of the shipped ones, if there is none.
    """
    return profile if os.path.lexists(profile) and not os.path.isdir(profile) else shipped_profile(profile)


def shipped_profile(name: Path) -> Path:
    """The shipped profile of that name, whatever files the working folder has. Raises InputError as above."""
    bare = len(name.parts) == 1 and not name.suffix
    found = find("profiles", name.name) if bare else None
    if found is None:
        shipped = names("profiles")
        meant = ". Run one profile at a time" if "," in name.name else meant_or_all(name.stem, shipped)
        if os.path.isdir(name):
            raise InputError(
                f"{short(name)}: a folder, and no shipped profile has that name. For results: mnb report {quoted(name)}"
            )
        raise InputError(f"{short(name)}: no such file, and no shipped profile has that name{meant}")
    return found


def _places() -> tuple[Path, ...]:
    """Where to look. A site-packages folder is not a checkout, even if it has a folder called ``weights``."""
    checkout, share = _PLACES
    return (checkout, share) if (checkout / "pyproject.toml").is_file() else (share,)
