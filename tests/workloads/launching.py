"""Runs workloads in this process, on small data, and keeps what they tell."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recording import Recording, bench_on
from torch import Tensor, nn
from torch.optim import Optimizer

from milabench_ng.bench import Bench, DataBy, Definition
from milabench_ng.datasets import registry
from milabench_ng.datasets.base import DataSet
from milabench_ng.datasets.prepare import prepare
from milabench_ng.worker.discovery import builtin_workloads

LETTERS = "abcdefghijklmnopqrst"
OF_BENCH = ("precision", "rank", "seed", "tenant", "workers")
"""What `bench_on` is given, not the workload."""
Places = Callable[..., Path]
"""Where a small dataset lies, by its name."""


def run(
    definition: Definition,
    steps: int,
    place: Places | None = None,
    watch: Callable[[Bench], object] | None = None,
    /,
    **given: Any,
) -> Recording:
    """What ``steps`` steps tell, in the workload's precision if none is ``given`` among its options.

    ``watch``: gets the bench before it is used.
    """
    channel = Recording(last=steps)
    how = {"precision": definition.precision} | {name: given.pop(name) for name in OF_BENCH if name in given}
    data_set = data_of(definition, given) if place else None
    bench = bench_on(channel, data_set=data_set, data_path=place(data_set.name) if place and data_set else None, **how)
    if watch is not None:
        watch(bench)
    definition(bench, **given)
    return channel


def data_of(definition: Definition, given: dict[str, Any]) -> DataSet | None:
    """What a workload reads with these options."""
    data = definition.data
    if isinstance(data, DataBy):
        options = {option.name: option.default for option in definition.own_options} | given
        name = data.sets.get(options[data.option])
        return registry.find(name) if name else None
    return data() if data else None


class Spy:
    """Keeps the loss and the optimizer of every step."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.optimizers: list[Optimizer] = []

    def watch(self, bench: Bench) -> None:
        step = bench.step

        def keep(loss: Tensor, optimizer: Optimizer, **options: Any) -> None:
            self.losses.append(loss.item())
            self.optimizers.append(optimizer)
            step(loss, optimizer, **options)

        bench.step = keep  # type: ignore[method-assign,assignment]


def train(name: str, steps: int, data_path: Path | None = None, /, **given: Any) -> tuple[Recording, Spy]:
    spy = Spy()
    return run(builtin_workloads()[name], steps, lambda _: data_path or Path(), spy.watch, **given), spy


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def places(root: Path) -> Places:
    """Texts of 20 letters, the likings of 60 users, or small twins, below ``root``; each is made once.

    With a scale, it is always a twin.
    """
    sentences = "".join(f"{' '.join(LETTERS[at % 12 : at % 12 + 8])}\n" for at in range(48))
    rated = [(user, item) for user in range(60) for item in range(40) if (user - item) % 5 == 0]
    texts = {
        "news-commentary": (sentences, sentences[::-1].strip() + "\n", "\n".join(LETTERS) + "\n"),
        "wikitext-103": (f" {' '.join(LETTERS)} \n" * 10,),
        "ml-20m": ("".join(f"{user}\t{item}\t1\n" for user, item in rated),),
    }

    @functools.cache
    def find(name: str, scale: float | None = None) -> Path:
        if name in texts and scale is None:
            return laid(root, name, *texts[name])
        return prepare(registry.find(name), root, scale or 0.0005, lambda _done, _total: None, 2).path

    return find


def laid(root: Path, name: str, *texts: str) -> Path:
    """Lay the files of a real set into its place below ``root``, and prepare it."""
    data_set = registry.find(name)
    place = root / data_set.folder
    place.mkdir()
    for file, text in zip(data_set.texts, texts, strict=True):
        (place / file).write_text(text)
    located = prepare(data_set, root, 1.0, lambda _done, _total: None, 1)
    assert (located.path, located.kind) == (place, "real")
    return place
