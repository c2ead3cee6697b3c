"""The late steps of which a launch tells what it computed: the nonce draws them, so that they follow no habit."""

from __future__ import annotations

import hashlib

_POWERS = range(7, 33)
"""From 128 on, beyond the steps that are always told; no launch gets to the last."""


def late_steps(nonce: str | None, label: str) -> tuple[int, ...]:
    """One step between each power of 2 and the next: few, and some in every window. The same for all ranks."""
    return tuple(2**power + _draw(f"{nonce or ''}:{label}:{power}") % 2**power for power in _POWERS)


def _draw(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)
