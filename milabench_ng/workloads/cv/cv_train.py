"""Training of published networks for pictures."""

from collections.abc import Callable
from typing import Annotated, Literal, get_args

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Rate, workload
from milabench_ng.workloads.cv.picture_feed import FILES, NATIVE, PictureFeed, Source
from milabench_ng.workloads.models.picture_networks import Classifier, Segmenter, check_size, network

SEGMENTERS = get_args(Segmenter)
EPSILON = 1e-8
"""Adam's, if the weights can hold it."""


@workload(
    unit="images",
    data=FILES,
    bound="gpu-compute",
    auto_batch=True,
    derived=NATIVE,
    formerly={"autotune": True},
    fits=check_size,
)
def cv_train(
    bench: Bench,
    *,
    arch: Literal[Classifier, Segmenter] = "resnet50",
    batch_size: Count = 64,
    width: Annotated[int, Meta(ge=64)] = 224,
    height: Annotated[int, Meta(ge=64)] = 224,
    source: Source = "resident",
    channels_last: bool = False,
    compile: bool = False,  # the option's name
    autotune: bool = False,
    learning_rate: Rate = 2e-5,
) -> None:
    """Train a published network on pictures, with random targets: bound by the GPU, if the source keeps up.

    The networks of TensorPix's benchmark, with random weights: eight classifiers of torchvision, and a U-Net with a
    ResNet-50 encoder. Fused Adam. Classifiers learn uniform random targets by cross entropy, as
    there. The U-Net learns them by binary cross entropy: there it took cross entropy over its one channel, which is
    always 0, as is its gradient.

    An item is one picture. Timed: the wait for the batch, copy, forward, backward, step.

    Options:
        arch: the network.
        batch_size: pictures per step.
        width: pixels.
        height: pixels.
        source: resident: one batch that stays on the device; memory: noise, cut from a pool by loader processes;
            loader: ImageNet from files.
        channels_last: keep weights and pictures in the memory format of channels last.
        compile: torch.compile; it works before the clock.
        autotune: let cuDNN time its kernels and keep the fastest; there, its heuristic chooses.
        learning_rate: of Adam.
    """
    torch.backends.cudnn.benchmark = autotune
    model = bench.place(network(arch, height, width))
    if channels_last:
        model.to(memory_format=torch.channels_last)
    optimizer = adam(model, learning_rate)
    feed = PictureFeed(bench, source, (batch_size, height, width), next(model.parameters()).dtype, channels_last)
    forward = bench.compile(model, feed.example()) if compile else model
    train(bench, forward, optimizer, feed, loss_of(arch), batch_size)


def adam(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Fused Adam for the weights of ``model``."""
    # In fp16, 1e-8 is 0, and the first step would divide by it.
    epsilon = max(EPSILON, torch.finfo(next(model.parameters()).dtype).tiny)
    return torch.optim.Adam(model.parameters(), lr=learning_rate, eps=epsilon, fused=True)


def train(
    bench: Bench,
    forward: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    feed: PictureFeed,
    loss: Callable[[Tensor, Tensor], Tensor],
    batch_size: int,
) -> None:
    """Measure steps on the pictures of ``feed``, with random targets."""
    for batch in bench.measure(feed.batches(), count=batch_size):
        outputs = forward(feed.ready(batch)).float()  # the classifiers' loss overflows fp16
        bench.step(loss(outputs, torch.rand_like(outputs)), optimizer)


def loss_of(arch: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss between logits and targets of 0 to 1 of the same shape."""
    return F.binary_cross_entropy_with_logits if arch in SEGMENTERS else F.cross_entropy
