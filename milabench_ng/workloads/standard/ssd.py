"""Object detection in one pass: boxes and classes from feature maps of six sizes."""

from typing import Literal

import torch
from torchvision.models.resnet import BasicBlock, ResNet

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.images.coco import Coco
from milabench_ng.workloads.models.ssd300 import SSD300
from milabench_ng.workloads.models.ssd_boxes import multibox_loss
from milabench_ng.workloads.models.ssd_pictures import Augment

BLOCKS = {"resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}


@workload(
    unit="images",
    bound="cpu",
    ram_gib=3.5,
    data=Coco,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.ssd:main",
            options={"lr": "learning_rate"},
            implied={"": {"batch_size": 32, "workers": 4}},
            ignored=("workers",),
        ),
    ),
)
def ssd(
    bench: Bench,
    *,
    arch: Literal["resnet10", "resnet18", "resnet34"] = "resnet34",
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
) -> None:
    """Train SSD300 on COCO (Liu et al., arXiv:1512.02325): bound by the loader's CPU cores.

    ResNet-34 backbone, random weights; 8,732 default boxes, matched in the loader processes; smooth L1 and cross
    entropy with three hard negatives for each positive box; SGD. An item is one picture. Timed: the wait for the loader
    processes (decode, crop, colours, match), copy, forward, loss, backward, step. As in 2020, gradients are computed
    back to the picture itself. (2020 always had four loader processes.)

    Options:
        arch: the backbone.
        batch_size: pictures per step.
        learning_rate: of SGD.
        momentum: of SGD.
        weight_decay: of SGD.
    """
    torch.backends.cudnn.benchmark = True
    model = bench.place(SSD300(ResNet(BasicBlock, list(BLOCKS[arch]))))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    batches = bench.loader(batch_size, transform=Augment())
    for images, offsets, classes in bench.measure(batches):
        places, scores = model(images.requires_grad_())
        bench.step(multibox_loss(places, scores, offsets, classes), optimizer)
