"""Compiling before the clock: told apart, and without a trace in what is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from recording import Recording, bench_on
from torch import nn

from milabench_ng.bench import Bench
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Phase

WHOLE = torch.compile


@pytest.fixture(autouse=True)
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """The graphs that were compiled; the compiler itself is left out."""
    found: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", lambda module: WHOLE(module, backend=keep))
    return found


def bench_and_channel() -> tuple[Bench, Recording]:
    channel = Recording(last=2)
    return bench_on(channel), channel


def test_the_phase_comes_before_build_and_is_no_part_of_it() -> None:
    bench, channel = bench_and_channel()
    since = bench._built_since
    bench.compile(bench.place(nn.Linear(4, 2)), torch.ones(3, 4))
    for _ in bench.measure([torch.ones(3, 4)]):
        pass
    phases = channel.all(Phase)
    assert [phase.name for phase in phases] == ["compile", "build"]
    assert bench._built_since == pytest.approx(since + phases[0].seconds)
    assert channel.log.index("wait for start") > channel.log.index(phases[1])


@pytest.mark.parametrize("training", [True, False])
def test_it_is_compiled_once_in_the_mode_that_is_measured(
    training: bool, compilations: list[torch.fx.GraphModule]
) -> None:
    bench, _ = bench_and_channel()
    module = bench.place(nn.Linear(4, 2)).train(training)
    function = bench.compile(module, torch.ones(3, 4))
    inputs = torch.randn(3, 4)
    with torch.inference_mode(not training):
        assert torch.equal(function(inputs), module(inputs))
    assert len(compilations) == 1


class Halves(nn.Module):
    """Twelve equal blocks, more than torch compiles of one piece of code again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(12))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            values = block(values)
        return values


def test_equal_parts_are_compiled_once_and_all_run_compiled(compilations: list[torch.fx.GraphModule]) -> None:
    bench, channel = bench_and_channel()
    module = bench.place(Halves())
    inputs = torch.randn(3, 4)
    expected = module(inputs)
    function = bench.compile(module, inputs, parts=module.blocks)
    assert len(compilations) == 2  # the first block's input has no gradient
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    for _ in bench.measure([()], count=1):  # nor again in a later step
        bench.step(function(inputs).sum(), optimizer)
    assert torch.equal(function(inputs), expected)
    assert len(compilations) == 2
    assert channel.one(Done).layer_dtype == "float32"


def test_it_leaves_weights_gradients_and_random_numbers() -> None:
    bench, _ = bench_and_channel()
    module = bench.place(nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
    before, state = [weight.clone() for weight in module.parameters()], torch.get_rng_state()
    bench.compile(module, torch.ones(3, 4))
    assert all(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
    assert all(weight.grad is None for weight in module.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_a_failing_compiler_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_graph: object, _inputs: object) -> None:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", lambda module: WHOLE(module, backend=failing))
    bench, _ = bench_and_channel()
    with pytest.raises(InputError, match=r"torch\.compile failed for Linear: .*no C\+\+ compiler.*without --compile"):
        bench.compile(bench.place(nn.Linear(4, 2)), torch.ones(3, 4))
