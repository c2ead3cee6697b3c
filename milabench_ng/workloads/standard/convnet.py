"""Image classification with a residual network."""

from typing import Annotated, Literal

import torch
import torchvision
from msgspec import Meta
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Legacy2020, Rate, workload
from milabench_ng.datasets.images.imagenet import ImageNet, training_transform


@workload(
    unit="images",
    data=ImageNet,
    bound="gpu-compute",
    ram_gib=5.5,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.convnet:conv_simple",
            options={"lr": "learning_rate"},
            implied={"half": {"precision": "half_master"}},
        ),
    ),
)
def convnet(
    bench: Bench,
    *,
    arch: Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"] = "resnet18",
    batch_size: Count = 128,
    image_size: Annotated[int, Meta(ge=32)] = 224,
    learning_rate: Rate = 0.1,
) -> None:
    """Train a residual network on ImageNet (He et al., arXiv:1512.03385): bound by the GPU, if the loader keeps up.

    torchvision's network, cross entropy, SGD without momentum or weight decay, cuDNN's autotuner on. An item is one
    image. Timed: the wait for the loader processes, copy, forward, backward, step. (2020 read the loss in every step;
    here the host may run two steps ahead.)

    Options:
        arch: the network.
        batch_size: images per step.
        image_size: pixels of the square crop.
        learning_rate: of SGD.
    """
    torch.backends.cudnn.benchmark = True
    model = bench.place(torchvision.models.get_model(arch, weights=None))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    batches = bench.loader(batch_size, transform=training_transform(image_size))
    for images, labels in bench.measure(batches):
        bench.step(F.cross_entropy(model(images), labels), optimizer)
