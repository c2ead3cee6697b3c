"""What a launch computed: losses and gradient norms of a few steps, a digest at the hundredth."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from recording import Recording, bench_on
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from milabench_ng.bench import trace as tracing
from milabench_ng.bench.loss_scale import Dynamic
from milabench_ng.bench.precision import MODES
from milabench_ng.bench.trace import TraceRecorder, bit_sums, gradient_norm
from milabench_ng.model.events import Digest, GradientNorm, Loss
from milabench_ng.records.late_steps import late_steps


def trained(seed: int, flip: bool = False, module: nn.Module | None = None) -> str:
    """The digest of a module made from ``seed``; ``flip``: with the last bit of one weight flipped."""
    torch.manual_seed(seed)
    module = module or nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
    if flip:
        weight = next(module.parameters()).detach()
        weight.view(torch.int16 if weight.dtype is torch.float16 else torch.int32).view(-1)[11] ^= 1
    channel = Recording()
    trace = TraceRecorder(channel, rank=1)
    trace.watch(module)
    for _ in range(100):
        trace.step(torch.tensor(1.0))
    trace.report()
    digest = channel.one(Digest)
    assert (digest.step, digest.rank) == (100, 1)
    return digest.sha256


def test_losses_of_a_few_steps_are_told_when_the_device_is_idle() -> None:
    channel = Recording()
    trace = TraceRecorder(channel, rank=1)
    loss = torch.zeros(())
    for step in range(1, 121):
        loss.fill_(step / 4)  # in place: what was taken must not follow
        trace.step(loss)
        if step in (9, 50):
            trace.report()
    assert [(event.step, event.value) for event in channel.all(Loss)] == [(1, 0.25), (2, 0.5), (5, 1.25), (10, 2.5)]
    trace.report()
    trace.report()
    assert [(event.step, event.value, event.rank) for event in channel.all(Loss)] == [
        (1, 0.25, 1),
        (2, 0.5, 1),
        (5, 1.25, 1),
        (10, 2.5, 1),
        (100, 25.0, 1),
    ]


def test_late_steps_are_told_like_the_others_and_their_gradients_too() -> None:
    channel = Recording()
    late = late_steps("a nonce", "standard.vae")
    trace = TraceRecorder(channel, rank=0, late_steps=late)
    for step in range(1, 600):
        trace.gradients([torch.tensor([3.0, 4.0])])
        trace.step(torch.tensor(float(step)))
    trace.report()
    told = [1, 2, 5, 10, 100, late[0], late[1], *(step for step in late[2:] if step < 600)]
    assert [event.step for event in channel.all(Loss)] == [event.step for event in channel.all(GradientNorm)] == told
    assert 128 <= late[0] < 256 <= late[1] < 512


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_told_at_any_step(value: float) -> None:
    channel = Recording()
    trace = TraceRecorder(channel, rank=0)
    for loss in (1.0, 1.0, value):
        trace.step(torch.tensor(loss))
    trace.report()
    assert [(event.step, event.value) for event in channel.all(Loss)] == [(1, 1.0), (2, 1.0), (3, None)]


def test_nothing_is_told_of_nothing() -> None:
    channel = Recording()
    trace = TraceRecorder(channel, rank=0)
    trace.report()
    assert channel.log == []
    assert trace.dtypes() == {}


def test_equal_seeds_give_equal_digests_and_one_flipped_bit_another() -> None:
    assert trained(1) == trained(1)
    assert trained(1) != trained(2)
    assert trained(1) != trained(1, flip=True)


def test_digests_of_fp16_and_mixed_parameters() -> None:
    def mixed() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(7, 5).half(), nn.BatchNorm1d(5))

    assert trained(3, module=mixed()) == trained(3, module=mixed())
    assert trained(3, module=mixed()) != trained(3, module=mixed(), flip=True)
    trace = TraceRecorder(Recording(), rank=0)
    trace.watch(mixed())
    assert trace.dtypes() == {"float16": 40, "float32": 10}


def test_a_digest_is_of_its_step_and_not_of_when_it_is_told() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
    channel = Recording()
    trace = TraceRecorder(channel, rank=0)
    trace.watch(module)
    for step in range(1, 131):
        if step == 101:
            nn.init.zeros_(module[0].weight)
        trace.step(torch.tensor(1.0))
    trace.report()
    assert channel.one(Digest).sha256 == trained(1)


def two_weights(module: nn.Module) -> tuple[Tensor, Tensor]:
    first, second = module.parameters()
    return first, second


@pytest.mark.parametrize("mode", MODES)
def test_the_norm_is_of_the_true_gradients_before_clipping(mode: str) -> None:
    """Gradients 3 and 4 k at step k: norms 5, sqrt(9 + 64), sqrt(9 + 400), whatever the scale of the loss."""
    channel = Recording(last=6)
    bench = bench_on(channel, precision=mode)
    if isinstance(bench._precision.scale, Dynamic):
        bench._precision.scale.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    module = bench.place(nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)]))
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    for step, _ in enumerate(bench.measure([torch.ones(1)] * 6), 1):
        first, second = two_weights(module)
        bench.step((3 * first.float() + 4 * step * second.float()).sum(), optimizer, clip_norm=0.5)
    told = [(event.step, event.value) for event in channel.all(GradientNorm)]
    assert told == [(1, 5.0), (2, pytest.approx(math.sqrt(73))), (5, pytest.approx(math.sqrt(409)))]


@pytest.mark.parametrize("mode", ["amp", "half_master"])
def test_the_largest_gradient_of_an_untrained_resnet_101_does_not_overflow_in_the_first_step(mode: str) -> None:
    channel = Recording(last=1)
    bench = bench_on(channel, precision=mode)
    module = bench.place(nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    for _ in bench.measure([torch.ones(1)]):
        bench.step(38 * module(torch.ones(1, 1, dtype=module.weight.dtype)).sum(), optimizer)
    assert channel.one(GradientNorm).value == 38.0


def test_a_norm_of_fp16_gradients_is_taken_in_fp32() -> None:
    """300 squared is more than fp16 holds."""
    module = nn.Linear(2, 1, bias=False).half()
    module.weight.grad = torch.tensor([[300.0, 400.0]]).half()
    assert gradient_norm([module.weight.grad]).item() == 500.0


def test_a_norm_that_is_not_finite_is_none() -> None:
    channel = Recording()
    trace = TraceRecorder(channel, rank=2)
    for gradient in (math.inf, -2.0):
        trace.gradients([torch.tensor([[gradient]])])
        trace.step(torch.tensor(1.0))
    trace.report()
    trace.report()
    assert channel.all(GradientNorm) == [
        GradientNorm(rank=2, step=1, value=None),
        GradientNorm(rank=2, step=2, value=2.0),
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_large_tensors_are_summed_piece_by_piece(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch makes int64 of all elements before it sums them: eight bytes for each of two, in a model of gigabytes."""
    values = torch.randn(7, 11, dtype=dtype).t()
    (whole,) = bit_sums([values])  # type: ignore[misc]
    monkeypatch.setattr(tracing, "PIECE", 5)
    largest = Largest()
    with largest:
        (pieces,) = bit_sums([values])  # type: ignore[misc]
    assert pieces == whole
    assert largest.summed == [5] * 15 + [2, 16]


class Largest(TorchFunctionMode):
    """Notes how many elements each sum is over."""

    def __init__(self) -> None:
        super().__init__()
        self.summed: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.sum:
            self.summed.append(args[0].numel())
        return func(*args, **(kwargs or {}))
