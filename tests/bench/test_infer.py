"""One step of inference: outputs on the host, in fp32, and what a launch keeps of them."""

from __future__ import annotations

import pytest
import torch
from recording import Recording, bench_on
from torch import Tensor, nn

from milabench_ng.bench import bench as bench_module
from milabench_ng.model.events import Digest, Loss, Slice
from milabench_ng.records.latency import bucket_of, merged


class Detector(nn.Module):
    """Its outputs are those of a detector: a list with a dict for each picture."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: list[Tensor]) -> list[dict[str, Tensor]]:
        return [{"boxes": image * self.scale, "labels": torch.ones(2, dtype=torch.int64)} for image in images]


def inferred(model: nn.Module, batch: object, steps: int, precision: str = "fp32") -> tuple[Recording, list[object]]:
    """The channel and the outputs of ``steps`` batches."""
    channel = Recording(last=steps)
    bench = bench_on(channel, precision=precision)
    placed = bench.place(model).eval()
    return channel, [bench.infer(placed, *moved) for moved in bench.measure([[batch]], count=1)]


def test_nested_outputs_are_on_the_host_and_without_gradients() -> None:
    _, [outputs] = inferred(Detector(), [torch.full((2,), 3.0), torch.full((3,), 0.5)], 1)
    assert isinstance(outputs, list)
    assert [each["boxes"].tolist() for each in outputs] == [[6.0, 6.0], [1.0, 1.0, 1.0]]
    assert all(each["labels"].dtype is torch.int64 for each in outputs)
    assert not any(each["boxes"].requires_grad for each in outputs)


def test_half_outputs_come_back_in_fp32() -> None:
    _, [output] = inferred(nn.Linear(4, 2), torch.ones(1, 4), 1, precision="half")
    assert isinstance(output, Tensor)
    assert output.dtype is torch.float32


def test_the_mean_magnitude_of_outputs_and_their_digest_are_told() -> None:
    channel, _ = inferred(nn.Identity(), torch.tensor([-3.0, 1.0]), 100)
    assert [(loss.step, loss.value) for loss in channel.all(Loss)] == [
        (1, 2.0),
        (2, 2.0),
        (5, 2.0),
        (10, 2.0),
        (100, 2.0),
    ]
    assert channel.one(Digest).step == 100
    other, _ = inferred(nn.Identity(), torch.tensor([-3.0, 1.0000001]), 100)
    assert other.one(Digest).sha256 != channel.one(Digest).sha256


def test_outputs_that_are_not_finite_are_told() -> None:
    channel, _ = inferred(nn.Identity(), torch.tensor([float("nan")]), 1)
    assert channel.losses == [None]


class Slow(nn.Module):
    """Every batch takes a quarter of a second more than the one before, on a clock of its own."""

    now = 100.0
    batches = 0

    def monotonic(self) -> float:
        return self.now

    def forward(self, batch: Tensor) -> Tensor:
        self.batches += 1
        self.now += 0.25 * self.batches
        return batch


def test_a_latency_is_the_time_from_the_call_to_the_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(bench_module, "time", slow)
    channel, _ = inferred(slow, torch.ones(1), 3)
    assert merged(event.latency for event in channel.all(Slice)) == tuple((bucket_of(s), 1) for s in (0.25, 0.5, 0.75))


def test_inference_outside_the_loop_is_in_no_slice() -> None:
    channel = Recording(last=1)
    bench = bench_on(channel)
    model = bench.place(nn.Linear(4, 2)).eval()
    bench.infer(model, torch.ones(1, 4))
    for batch in bench.measure([torch.ones(1, 4)]):
        bench.infer(model, batch)
    (_, count), *others = channel.one(Slice).latency
    assert (count, others) == (1, [])


@pytest.mark.parametrize("flip", [0, 5])
def test_integers_alone_have_a_digest(flip: int) -> None:
    channel, _ = inferred(nn.Identity(), torch.tensor([flip]), 100)
    assert channel.one(Digest).sha256
    assert not channel.all(Loss)
