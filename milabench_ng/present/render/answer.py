"""The answer to one question of the first screen. Pure."""

from __future__ import annotations

import msgspec

from milabench_ng.present.render.cells import Fact, Tone


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question; the first part is what one looks for."""

    name: str
    parts: tuple[str, ...]
    tone: Tone = "plain"

    @property
    def fact(self) -> Fact:
        """The answer as one statement."""
        return Fact(self.name, "   ".join(self.parts), self.tone)
