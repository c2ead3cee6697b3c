"""ResNet-50 v1.5 as NVIDIA's example trains it."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any, Literal

import torch
import torchvision
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, DataBy, Derived, FromZero, workload
from milabench_ng.datasets.images.imagenet import CLASSES, ImageNet, training_transform
from milabench_ng.workloads.nvidia.weight_decay import decayed

SIDE = 224  # pixels


@workload(
    unit="images",
    data=DataBy(option="source", sets={"loader": ImageNet.name}),
    distributed="if several",
    bound="gpu-compute",
    auto_batch=True,
    derived=(Derived("ms/step", "1000 * batch_size / rate"),),
)
def resnet50(
    bench: Bench,
    *,
    batch_size: Count = 256,
    source: Literal["resident", "loader"] = "resident",
    learning_rate: FromZero = 0.1,
    momentum: FromZero = 0.9,
    weight_decay: FromZero = 1e-4,
) -> None:
    """Train ResNet-50 v1.5 on 1,000 classes (He et al., arXiv:1512.03385): bound by the GPU, if the source keeps up.

    NVIDIA's example in Lambda's benchmark: torchvision's network, 25,557,032 parameters, in the memory format of
    channels first, cross entropy, SGD with momentum, cuDNN's autotuner on but in fp32. By default one batch of noise
    with random labels stays on the device, as there. (There the loss scale of amp is always 256; here it adapts
    itself.)

    An item is one picture of 224 x 224 pixels. Timed: the wait for the batch, copy, forward, backward, step.

    Options:
        batch_size: pictures per step.
        source: resident: one batch that stays on the device; loader: ImageNet from files.
        learning_rate: of SGD.
        momentum: of SGD.
        weight_decay: of SGD, for weights of more than one dimension.
    """
    bench.autotune()
    model = bench.place(torchvision.models.resnet50(weights=None))
    optimizer = torch.optim.SGD(decayed(model, weight_decay), lr=learning_rate, momentum=momentum)
    forward = bench.spread(model)
    batches: Iterable[Any]
    if source == "loader":
        batches = bench.loader(batch_size, transform=training_transform(SIDE))
    else:
        noise = torch.randn(batch_size, 3, SIDE, SIDE), torch.randint(CLASSES, (batch_size,))
        batches = repeat(bench.to_device(noise))
    for images, labels in bench.measure(batches):
        bench.step(F.cross_entropy(forward(images), labels), optimizer)
