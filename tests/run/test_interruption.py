"""The first signal stops a run even if nobody can be told."""

from __future__ import annotations

import asyncio
import os
import signal

from milabench_ng.run.execution.interruption import interruptions


def test_a_signal_strikes_although_telling_fails() -> None:
    """A closed terminal raises EIO. What is told holds during imports, too, when nothing is there to write."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        raise OSError(5, "Input/output error")

    async def struck() -> signal.Signals | None:
        async with interruptions(tell) as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            await interrupted.wait()
            return interrupted.by

    assert asyncio.run(struck()) is signal.SIGHUP
    (text,) = told
    assert "stopping" in text
    assert "writing" not in text
