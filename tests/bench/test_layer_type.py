"""The type that a model's own layers compute with, seen in the first step and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from recording import Recording, bench_on
from torch import Tensor, nn

from milabench_ng.bench.layer_type import LayerType
from milabench_ng.bench.precision import MODES
from milabench_ng.model.events import Done
from milabench_ng.records.precision_seen import TRAITS, layers_fit


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))


class LeavesTheMode(nn.Module):
    """A model that computes in fp32 whatever it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, batch: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            made: Tensor = self.layer(batch.float())
        return made


def layer_dtype(model: nn.Module, batch: Tensor, precision: str) -> str | None:
    """What is told at the end of two steps."""
    channel = Recording(last=2)
    bench = bench_on(channel, precision=precision)
    placed = bench.place(model)
    for moved in bench.measure([batch]):
        bench.infer(placed, moved)
    return channel.one(Done).layer_dtype


@pytest.mark.parametrize("precision", MODES)
def test_every_mode_shows_in_the_layers(precision: str) -> None:
    found = layer_dtype(network().eval(), torch.ones(2, 3, 4, 4), precision)
    assert found == TRAITS[precision].layers
    assert layers_fit(precision, found)


@pytest.mark.parametrize("precision", MODES)
def test_what_readers_know_of_a_mode_is_what_it_does(precision: str) -> None:
    mode, layer, traits = MODES[precision](torch.device("cpu")), nn.Linear(2, 2), TRAITS[precision]
    mode.cast(layer)
    assert (str(layer.weight.dtype), mode.scale.skips) == (f"torch.{traits.weights}", traits.skips)
    assert MODES.keys() == TRAITS.keys()


@pytest.mark.parametrize(("precision", "fits"), [("fp32", True), ("amp", False), ("bf16", False)])
def test_a_model_that_leaves_the_mode_is_found_out(precision: str, fits: bool) -> None:
    found = layer_dtype(LeavesTheMode(), torch.ones(2, 3), precision)
    assert found == "float32"
    assert layers_fit(precision, found) is fits


def test_a_model_without_layers_shows_nothing() -> None:
    assert layer_dtype(nn.BatchNorm1d(3), torch.ones(2, 3), "amp") is None
    assert layers_fit("amp", None)


def test_only_the_first_step_counts_and_nothing_is_left_after_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    watched = LayerType()
    watched.watch(model)
    model(torch.ones(1, 2))  # while the model is built, outside the mode
    assert watched.seen is None
    watched.begin()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    watched.end()
    assert watched.seen == "bfloat16"
    assert not any(layer._forward_hooks for layer in model)


def test_watching_does_not_import_the_compiler() -> None:
    """It takes seconds, and most launches do not compile."""
    program = (
        "import sys, torch\n"
        "from milabench_ng.bench.layer_type import LayerType\n"
        "watched, model = LayerType(), torch.nn.Linear(2, 2)\n"
        "watched.watch(model)\n"
        "watched.begin()\n"
        "model(torch.ones(1, 2))\n"
        "watched.end()\n"
        "print(watched.seen, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["float32", "False"]


@pytest.mark.parametrize("when", ["before the first step", "in the first step"])
def test_a_compiled_model_is_compiled_once_and_shows_its_type(when: str) -> None:
    compiled: list[str] = []

    def backend(graph: Any, _inputs: Any) -> Callable[..., Any]:
        compiled.append(graph.code)
        forward: Callable[..., Any] = graph.forward
        return forward

    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    watched = LayerType()
    watched.watch(model)
    fast = torch.compile(model, backend=backend, fullgraph=True)

    def run() -> None:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            fast(torch.ones(1, 2))

    if when == "before the first step":
        run()
    watched.begin()
    run()
    watched.end()
    run()
    assert watched.seen == "bfloat16"
    assert len(compiled) == 1
