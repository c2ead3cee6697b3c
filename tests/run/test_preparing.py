"""What is said before datasets are generated: totals, by hand; and a signal while progress comes in."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from milabench_ng.model.errors import InputError
from milabench_ng.model.units import GIB
from milabench_ng.run.display.wording import estimate_text
from milabench_ng.run.execution.interruption import Interrupted, Interruption
from milabench_ng.run.execution.preparing import require_space
from milabench_ng.run.execution.worker_server import WorkerServer
from milabench_ng.worker.requests import DataEstimate, DataProgress, Effort


def estimated(free_gib: float) -> DataEstimate:
    efforts = (
        Effort(name="imagenet", scale=1.0, files=110_000, bytes=12 * GIB, seconds=540.0),
        Effort(name="coco", scale=0.5, files=60_000, bytes=10 * GIB, seconds=60.0),
    )
    return DataEstimate(id=1, efforts=efforts, free_bytes=int(free_gib * GIB), processes=16)


def test_all_sets_together_must_fit() -> None:
    require_space(estimated(22.0), Path("/data"))
    with pytest.raises(InputError) as caught:
        require_space(estimated(21.9), Path("/data"))  # each of the two would fit
    message = str(caught.value)
    for part in ("22.0 GiB in /data", "21.9 GiB are free", "imagenet (scale 1) 12.0 GiB", "--data-scale"):
        assert part in message


def test_the_totals_come_first_and_are_called_an_estimate() -> None:
    total, *each = estimate_text(estimated(100.0)).splitlines()
    assert total.startswith("to generate: 2 datasets, 22.0 GiB (100.0 GiB are free), about 10 min")
    assert "on 16 cores (estimated" in total
    assert [line.split()[0] for line in each] == ["imagenet", "coco"]


def test_a_signal_is_heeded_at_the_very_moment_of_an_answer() -> None:
    """Preparing data goes on for minutes if the answer swallows it (`asyncio.wait_for` of Python 3.11 does)."""

    async def struck(turns: int) -> bool:
        server, interruption = WorkerServer({}), Interruption()
        server._answers[1] = answers = asyncio.Queue()

        async def listen() -> None:
            while True:
                await server._next_answer(1, 60.0)

        listening = asyncio.create_task(interruption.unless(listen()))
        await asyncio.sleep(0.01)
        interruption.strike(signal.SIGTERM)
        for _ in range(turns):  # of the event loop
            await asyncio.sleep(0)
        answers.put_nowait(DataProgress(id=1, name="imagenet", done=1, total=2))
        ended, _ = await asyncio.wait({listening}, timeout=5.0)
        listening.cancel()
        return bool(ended) and isinstance(listening.exception(), Interrupted)

    assert [asyncio.run(struck(turns)) for turns in range(5)] == [True] * 5
