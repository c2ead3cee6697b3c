"""Diffusion in latent space."""

from collections.abc import Iterable
from itertools import chain

import torch
from torch import Tensor
from torch.optim import Optimizer

from milabench_ng.bench import Bench, Count, FirstLoss, Rate, workload
from milabench_ng.datasets.images.latents import SHAPE, Latents
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.diffusion_transformer import (
    FLOP,
    NUMBERS,
    PATCH,
    DiffusionTransformer,
    NoiseSchedule,
    noise_loss,
)
from milabench_ng.workloads.modern.training import adamw
from milabench_ng.workloads.modern.work_formulas import flop_rates

KEPT = 0.9999
"""Of the average of the weights, in each step."""


def whole_patches(*, width: int, heads: int, side: int) -> None:
    """Raise InputError unless the heads are of one width, and the latents have whole patches."""
    if width % heads or width % 4:
        raise InputError(f"--width {width}: it must be a multiple of 4 and of --heads ({heads})")
    if side % PATCH or side > SHAPE[1]:
        raise InputError(f"--side {side}: it must be a multiple of {PATCH}, at most {SHAPE[1]}")


@workload(
    unit="images",
    data=Latents,
    precision="bf16_master",
    bound="gpu-compute",
    auto_batch=True,
    derived=flop_rates(FLOP),
    first_loss=FirstLoss("1", variance=f"2 / (batch_size * {NUMBERS})"),
    fits=whole_patches,
)
def dit(
    bench: Bench,
    *,
    batch_size: Count = 64,
    layers: Count = 28,
    width: Count = 1152,
    heads: Count = 16,
    side: Count = 64,
    learning_rate: Rate = 1e-4,
) -> None:
    """Train DiT-XL/2 on latents of pictures of 512 x 512 (Peebles & Xie, arXiv:2212.09748): bound by the GPU.

    674,834,720 parameters. The mean square error of the noise; AdamW in its fused form; an exponential moving average
    of the master weights in fp32. Of the weights that the paper begins with as zeros, only those of the last layer are
    so. An item is one picture. Timed: the wait for the latents, copy, noise, forward, backward, step, average.

    Options:
        batch_size: pictures per step.
        layers: blocks.
        width: of the tokens, a multiple of 4 and of heads.
        heads: of the attention.
        side: of a latent; what it has more is cut off.
        learning_rate: of AdamW.
    """
    with torch.device("meta"):
        model = DiffusionTransformer(layers, width, heads, side)
    batches = bench.loader(batch_size, transform=lambda latent: latent[:, :side, :side])
    train(bench, model, batches, learning_rate)


def train(
    bench: Bench, model: DiffusionTransformer, batches: Iterable[tuple[Tensor, Tensor]], learning_rate: float
) -> None:
    """Train ``model``, which is not placed yet, to see the noise in batches of latents and labels; a latent counts."""
    optimizer = adamw(bench.place(model).parameters(), learning_rate, decay=0.0)
    average = [weight.detach().to(torch.float32, copy=True) for weight in model.parameters()]
    schedule = NoiseSchedule(bench.device)
    for latents, labels in bench.measure(batches):
        bench.step(noise_loss(model, schedule, latents, labels), optimizer)
        follow(average, optimizer)


def follow(average: list[Tensor], optimizer: Optimizer) -> None:
    """Move the moving average of all weights towards what the optimizer steps on."""
    weights = list(chain.from_iterable(group["params"] for group in optimizer.param_groups))
    with torch.no_grad():
        torch._foreach_lerp_(average, weights, 1 - KEPT)
