"""Inference with published networks for pictures."""

from typing import Annotated, Literal, get_args

import torch
from msgspec import Meta

from milabench_ng.bench import Bench, Count, workload
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.cv.picture_feed import FILES, NATIVE, PictureFeed, Source
from milabench_ng.workloads.models.picture_networks import Classifier, Detector, check_size, network

DETECTORS = get_args(Detector)


def check_picture(*, arch: Literal[Classifier, Detector], height: int, width: int, compile: bool) -> None:
    """Raise InputError for pictures that the network cannot take, and for a detector to be compiled."""
    check_size(arch=arch, height=height, width=width)
    if arch in DETECTORS and compile:
        raise InputError(
            f"--arch {arch} --compile: shapes inside a detector depend on what it sees, so torch would compile again "
            "while the clock runs; leave --compile out"
        )


@workload(
    unit="images",
    data=FILES,
    bound="gpu-compute",
    auto_batch=True,
    derived=NATIVE,
    formerly={"autotune": True},
    fits=check_picture,
)
def cv_infer(
    bench: Bench,
    *,
    arch: Literal[Classifier, Detector] = "resnet50",
    batch_size: Count = 64,
    width: Annotated[int, Meta(ge=64)] = 224,
    height: Annotated[int, Meta(ge=64)] = 224,
    source: Source = "resident",
    channels_last: bool = False,
    compile: bool = False,  # the option's name
    autotune: bool = False,
) -> None:
    """Ask a published network about pictures, batch after batch: bound by the GPU, if the source keeps up.

    The networks of TensorPix's benchmark, with random weights: eight classifiers and two detectors of torchvision. A
    batch is done when its outputs are on the host in fp32: logits, or boxes, labels and scores of each picture. With
    random weights, SSD300 would find 36,000 boxes in a picture at its usual least score of 0.01. Here that is 0.5,
    which 1,000 exceed, about as many as of a trained network. SSD300 resizes its pictures to 300 x 300 and Faster R-CNN
    to a shorter side of 800 pixels; that is part of the work.

    An item is one picture. Timed: the wait for the batch, copy, forward, outputs to the host.

    Options:
        arch: the network.
        batch_size: pictures per batch.
        width: pixels.
        height: pixels.
        source: resident: one batch that stays on the device; memory: noise, cut from a pool by loader processes;
            loader: ImageNet from files.
        channels_last: keep weights and pictures in the memory format of channels last.
        compile: torch.compile, for classifiers; it works before the clock.
        autotune: let cuDNN time its kernels and keep the fastest; there, its heuristic chooses.
    """
    torch.backends.cudnn.benchmark = autotune
    detects = arch in DETECTORS
    model = bench.place(network(arch, height, width)).eval()
    if channels_last:
        model.to(memory_format=torch.channels_last)
    feed = PictureFeed(bench, source, (batch_size, height, width), next(model.parameters()).dtype, channels_last)
    forward = bench.compile(model, feed.example()) if compile else model
    for batch in bench.measure(feed.batches(), count=batch_size):
        pictures = feed.ready(batch)
        bench.infer(forward, list(pictures) if detects else pictures)
