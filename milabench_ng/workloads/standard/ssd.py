"""Object detection in one pass: boxes and classes from feature maps of six sizes."""

from typing import Literal

import torch
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, ResNet

from milabench_ng.bench import Bench, Classic, workload
from milabench_ng.datasets.images.coco import Coco
from milabench_ng.workloads.standard.ssd_boxes import CLASSES, DEFAULTS_PER_CELL, multibox_loss
from milabench_ng.workloads.standard.ssd_pictures import Augment

BLOCKS = {"resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}
CHANNELS = (256, 512, 512, 256, 256, 256)
EXTRAS = ((256, 2, 1), (256, 2, 1), (128, 2, 1), (128, 1, 0), (128, 1, 0))
"""The blocks between the levels: inner channels, stride and padding of the 3 x 3 convolution."""


class SSD300(nn.Module):
    """A ResNet up to its third stage, without that stage's stride, five more blocks, and two heads on each level."""

    def __init__(self, arch: str) -> None:
        super().__init__()
        resnet = ResNet(BasicBlock, list(BLOCKS[arch]))
        first = resnet.layer3[0]
        first.conv1.stride = first.downsample[0].stride = (1, 1)
        self.backbone = nn.Sequential(
            resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool, resnet.layer1, resnet.layer2, resnet.layer3
        )
        self.extras = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, within, 1), nn.ReLU(), nn.Conv2d(within, after, 3, stride, padding), nn.ReLU()
            )
            for (within, stride, padding), before, after in zip(EXTRAS, CHANNELS, CHANNELS[1:], strict=False)
        )
        levels = list(zip(CHANNELS, DEFAULTS_PER_CELL, strict=True))
        self.places = nn.ModuleList(nn.Conv2d(channels, 4 * boxes, 3, padding=1) for channels, boxes in levels)
        self.scores = nn.ModuleList(nn.Conv2d(channels, CLASSES * boxes, 3, padding=1) for channels, boxes in levels)
        for part in (self.extras, self.places, self.scores):
            for weight in part.parameters():
                if weight.dim() > 1:
                    nn.init.xavier_uniform_(weight)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [N, 3, 300, 300] to offsets [N, 4, 8732] and class scores [N, 81, 8732] of the default boxes."""
        levels = [self.backbone(images)]
        for block in self.extras:
            levels.append(block(levels[-1]))
        places = [head(level).view(len(images), 4, -1) for head, level in zip(self.places, levels, strict=True)]
        scores = [head(level).view(len(images), CLASSES, -1) for head, level in zip(self.scores, levels, strict=True)]
        return torch.cat(places, 2), torch.cat(scores, 2)


@workload(
    unit="images",
    bound="cpu",
    ram_gib=3.5,
    data=Coco,
    classic=(
        Classic(
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
    model = bench.place(SSD300(arch))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum, weight_decay=weight_decay)
    batches = bench.loader(batch_size, transform=Augment())
    for images, offsets, classes in bench.measure(batches):
        places, scores = model(images.requires_grad_())
        bench.step(multibox_loss(places, scores, offsets, classes), optimizer)
