"""How far the host runs ahead of a GPU: when it sets marks on the stream, and which it waits for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from milabench_ng.bench import ahead


@pytest.mark.parametrize(
    ("interval_s", "waits", "steps"),
    [(0.0, False, [0, 1, 2, 3, 4, 5]), (0.0, True, [0, 1, 2, 3, 4, 5]), (0.01, False, [0, 3]), (0.01, True, [])],
)
def test_marks_are_an_interval_apart_and_needless_where_the_host_waits(
    monkeypatch: pytest.MonkeyPatch, interval_s: float, waits: bool, steps: list[int]
) -> None:
    """Steps take 4 ms. The mark that is set again is that before the last, so that the host is two marks ahead."""
    now, log = [100.0], list[tuple[str, int]]()

    def mark() -> SimpleNamespace:
        name = names.pop(0)
        return SimpleNamespace(
            synchronize=lambda: log.append(("wait", name)), record=lambda: log.append(("record", name))
        )

    names = [*range(ahead.MARKS)]
    monkeypatch.setattr(torch.cuda, "Event", mark)
    monkeypatch.setattr(ahead, "time", SimpleNamespace(monotonic=lambda: now[0]))
    host = ahead.Ahead.on(torch.device("cuda"), interval_s)
    marked = []
    for step in range(6):
        now[0] += 0.004
        if waits:
            host.waited()
        before = len(log)
        host.step()
        marked += [step] * (len(log) > before)
    assert marked == steps
    assert log == [(what, place % ahead.MARKS) for place in range(len(steps)) for what in ("wait", "record")]
