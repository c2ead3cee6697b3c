"""The first signal stops a run even if nobody can be told."""

from __future__ import annotations

import asyncio
import os
import signal

from milabench_ng.run.execution.interruption import interruptions


def test_a_signal_strikes_although_telling_fails() -> None:
    """A closed terminal raises EIO."""

    def tell(_: str) -> None:
        raise OSError(5, "Input/output error")

    async def struck() -> signal.Signals | None:
        async with interruptions(tell) as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            await interrupted.wait()
            return interrupted.by

    assert asyncio.run(struck()) is signal.SIGHUP


def test_what_is_told_holds_before_there_is_anything_to_keep() -> None:
    """During imports nothing is written, and nothing is there to write."""
    told: list[str] = []

    async def struck() -> None:
        async with interruptions(told.append) as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            await interrupted.wait()

    asyncio.run(struck())
    (text,) = told
    assert "stopping" in text
    assert "writing" not in text
