"""Training of a published network for pictures on all devices in one job."""

from typing import Annotated, Literal

import torch
from msgspec import Meta
from torch.nn.parallel import DistributedDataParallel

from milabench_ng.bench import Bench, Count, Derived, Rate, workload
from milabench_ng.workloads.cv.cv_train import adam, loss_of, train
from milabench_ng.workloads.cv.picture_feed import FILES, NATIVE, PictureFeed, Source
from milabench_ng.workloads.models.picture_networks import Classifier, Segmenter, check_size, network


@workload(
    unit="images",
    data=FILES,
    distributed=True,
    bound="gpu-compute",
    derived=(*NATIVE, Derived("images/s on all devices", "rate * devices")),
    fits=check_size,
)
def cv_train_ddp(
    bench: Bench,
    *,
    arch: Literal[Classifier, Segmenter] = "resnet50",
    batch_size: Count = 64,
    width: Annotated[int, Meta(ge=64)] = 224,
    height: Annotated[int, Meta(ge=64)] = 224,
    source: Source = "resident",
    channels_last: bool = False,
    autotune: bool = False,
    learning_rate: Rate = 2e-5,
) -> None:
    """Train one network on all devices (DistributedDataParallel): bound by their arithmetic, or by slow links.

    What `cv_train` does, as TensorPix's benchmark does it over several GPUs: each rank has a batch of its own, and
    gradients are averaged over the ranks; NCCL on GPUs, gloo on CPUs. An item is one picture of one rank; the rate is
    the mean of the ranks' rates, so an ideal machine scales flat. Timed: the wait for the batch, copy, forward,
    backward, all-reduce, step.

    Options:
        arch: the network.
        batch_size: pictures per step and rank.
        width: pixels.
        height: pixels.
        source: resident: one batch that stays on the device; memory: noise, cut from a pool by loader processes;
            loader: ImageNet from files.
        channels_last: keep weights and pictures in the memory format of channels last.
        autotune: let cuDNN time its kernels and keep the fastest; there, its heuristic chooses.
        learning_rate: of Adam.
    """
    torch.backends.cudnn.benchmark = autotune
    placed = bench.place(network(arch, height, width))
    if channels_last:
        placed.to(memory_format=torch.channels_last)
    model = DistributedDataParallel(placed)
    feed = PictureFeed(bench, source, (batch_size, height, width), next(placed.parameters()).dtype, channels_last)
    train(bench, model, adam(model, learning_rate), feed, loss_of(arch), batch_size)
