"""Data-parallel training with large gradients: how the node scales from 1 to N devices."""

from itertools import repeat
from typing import Annotated, Literal

import torch
import torchvision
from msgspec import Meta
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from milabench_ng.bench import Bench, Count, Legacy2020, Rate, workload


@workload(
    unit="images",
    distributed=True,
    bound="gpu-compute",
    ram_gib=1.0,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.scaling:main",
            options={"network": "arch", "lr": "learning_rate"},
            implied={"fp16": {"precision": "half_master"}},
        ),
    ),
)
def scaling(
    bench: Bench,
    *,
    arch: Literal["alexnet", "resnet18", "resnet50", "resnet101"] = "alexnet",
    batch_size: Count = 64,
    image_size: Annotated[int, Meta(ge=32)] = 224,
    learning_rate: Rate = 0.01,
    momentum: Annotated[float, Meta(ge=0, lt=1)] = 0.9,
) -> None:
    """Weak scaling of synchronous data-parallel training: bound by arithmetic, or by slow links.

    AlexNet (61.1 million parameters, 233 MiB of gradients per step) under DistributedDataParallel, NCCL on GPUs, gloo
    on CPUs; cross entropy, SGD with momentum. One fixed random batch per rank on the device: no dataset, no host work.
    An item is one image of one rank; the rate is the mean of the ranks' rates, so an ideal machine scales flat. Timed:
    forward, backward, all-reduce, step.

    Options:
        arch: the network.
        batch_size: images per step and rank.
        image_size: pixels of the square images.
        learning_rate: of SGD.
        momentum: of SGD.
    """
    model = DistributedDataParallel(bench.place(torchvision.models.get_model(arch, weights=None)))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)
    images = torch.randn(batch_size, 3, image_size, image_size, device=bench.device)
    labels = torch.zeros(batch_size, dtype=torch.long, device=bench.device)
    for batch, target in bench.measure(repeat((images, labels)), count=batch_size):
        bench.step(F.cross_entropy(model(batch), target), optimizer)
