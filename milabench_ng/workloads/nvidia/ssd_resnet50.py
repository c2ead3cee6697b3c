"""SSD300 over a ResNet-50, as NVIDIA's example trains it."""

from collections.abc import Iterable
from itertools import repeat
from typing import Annotated, Any, Literal

import torch
from msgspec import Meta
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops import box_convert

from milabench_ng.bench import Bench, DataBy, Derived, FromZero, workload
from milabench_ng.datasets.images.coco import Coco
from milabench_ng.workloads.models.ssd300 import SSD300
from milabench_ng.workloads.models.ssd_boxes import CLASSES, SIDE, Matcher, multibox_loss
from milabench_ng.workloads.models.ssd_pictures import Augment
from milabench_ng.workloads.nvidia.weight_decay import decayed

RESNET = (3, 4, 6, 3)
BOXES = 7
"""Objects in a picture of noise, as many as in one of COCO on average."""


def noise(pictures: int) -> tuple[Tensor, Tensor, Tensor]:
    """Normal deviates [N, 3, 300, 300] and the targets of random boxes in them, as `Augment` makes them."""
    matcher = Matcher()
    centres, sizes = torch.rand(2, pictures, BOXES, 2)
    corners = box_convert(torch.cat((0.2 + 0.6 * centres, 0.05 + 0.3 * sizes), 2), "cxcywh", "xyxy")
    labels = torch.randint(1, CLASSES, (pictures, BOXES))
    offsets, classes = zip(*map(matcher, corners, labels), strict=True)
    return torch.randn(pictures, 3, SIDE, SIDE), torch.stack(offsets), torch.stack(classes)


@workload(
    unit="images",
    data=DataBy(option="source", sets={"loader": Coco.name}),
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
    derived=(Derived("ms/step", "1000 * batch_size / rate"),),
)
def ssd_resnet50(
    bench: Bench,
    *,
    batch_size: Annotated[int, Meta(ge=2)] = 64,
    source: Literal["resident", "loader"] = "resident",
    learning_rate: FromZero = 0.0,
    momentum: FromZero = 0.9,
    weight_decay: FromZero = 5e-4,
) -> None:
    """Train SSD300 over a ResNet-50 (Liu et al., arXiv:1512.02325): bound by the GPU, if the source keeps up.

    NVIDIA's example in Lambda's benchmark: the network, boxes and loss of `ssd`, with a ResNet-50 and batch
    normalisation in the blocks after it; 22,894,902 parameters, random weights, in the memory format of channels last;
    SGD with momentum, cuDNN's autotuner on but in fp32. The published figures leave out the wait for data. So by
    default one batch of noise with seven random boxes a picture stays on the device; with `loader`, loader processes
    crop, resize and match pictures of COCO, and CPUs set the pace.

    An item is one picture. Timed: the wait for the batch, copy, forward, loss, backward, step.

    Options:
        batch_size: pictures per step; two at least, for the normalisation of the smallest level.
        source: resident: one batch that stays on the device; loader: COCO from files.
        learning_rate: of SGD; 0, as there, leaves the weights as they are, at the same cost.
        momentum: of SGD.
        weight_decay: of SGD, for weights of more than one dimension.
    """
    bench.autotune()
    model = bench.place(SSD300(ResNet(Bottleneck, list(RESNET)), nn.BatchNorm2d))
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(decayed(model, weight_decay), lr=learning_rate, momentum=momentum)
    forward = bench.spread(model)
    batches: Iterable[Any]
    if source == "loader":
        batches = bench.loader(batch_size, transform=Augment())
    else:
        batches = repeat(bench.to_device(noise(batch_size)))
    for images, offsets, classes in bench.measure(batches):
        places, scores = forward(images.to(memory_format=torch.channels_last))
        bench.step(multibox_loss(places, scores, offsets, classes), optimizer)
