"""Which libraries are not as they were installed: a look of a second or two before the work, a proof after it."""

from __future__ import annotations

import os

from milabench_ng.model.units import MIB
from milabench_ng.records.proof import CodeProof

WHEELS_VARIABLE = "MNB_WHEELS"
"""Which distributions are compared, for development: R31 names the variable."""
LOOKED_AT = 4 * MIB
"""Before the work, larger files are compared by their size alone: reading gigabytes takes many seconds."""


def compared() -> tuple[str, ...] | None:
    """The distributions to compare; None for all."""
    only = os.environ.get(WHEELS_VARIABLE)
    return None if only is None else tuple(only.split())


def changed(code: CodeProof) -> tuple[str, ...]:
    """What is not as it was installed, each with its remedy."""
    return tuple(
        f"{name} {wheel.version} was changed after installation ({wheel.differing[0]}). A closed-division "
        "tender refuses that. Reinstall it, and run again"
        for name, wheel in code.wheels.items()
        if wheel is not None and wheel.differing
    )
