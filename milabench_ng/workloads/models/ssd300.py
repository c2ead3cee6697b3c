"""SSD300: boxes and classes of objects from feature maps of six sizes, over a ResNet of any kind."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models.resnet import ResNet
from torchvision.ops.misc import Conv2dNormActivation

from milabench_ng.workloads.models.ssd_boxes import CLASSES, DEFAULTS_PER_CELL

CHANNELS = (512, 512, 256, 256, 256)
"""Of the levels after the backbone's."""
EXTRAS = ((256, 2, 1), (256, 2, 1), (128, 2, 1), (128, 1, 0), (128, 1, 0))
"""The blocks between the levels: inner channels, stride and padding of the 3 x 3 convolution."""


class SSD300(nn.Module):
    """A ResNet up to its third stage, without that stage's stride, five more blocks, and two heads on each level.

    Liu et al., arXiv:1512.02325.
    """

    def __init__(self, resnet: ResNet, norm: Callable[..., nn.Module] | None = None) -> None:
        """``norm``: the layer after each convolution of the five blocks, which then has no bias; None for no layer."""
        super().__init__()
        self.backbone = truncated(resnet)
        channels = (resnet.layer4[0].conv1.in_channels, *CHANNELS)
        self.extras = nn.ModuleList(
            nn.Sequential(
                Conv2dNormActivation(before, within, 1, norm_layer=norm, inplace=False),
                Conv2dNormActivation(within, after, 3, stride, padding, norm_layer=norm, inplace=False),
            )
            for (within, stride, padding), before, after in zip(EXTRAS, channels, CHANNELS, strict=False)
        )
        levels = list(zip(channels, DEFAULTS_PER_CELL, strict=True))
        self.places = nn.ModuleList(nn.Conv2d(width, 4 * boxes, 3, padding=1) for width, boxes in levels)
        self.scores = nn.ModuleList(nn.Conv2d(width, CLASSES * boxes, 3, padding=1) for width, boxes in levels)
        for part in (self.extras, self.places, self.scores):
            for weight in part.parameters():
                if weight.dim() > 1:
                    nn.init.xavier_uniform_(weight)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images [N, 3, 300, 300] to offsets [N, 4, 8732] and class scores [N, 81, 8732] of the default boxes."""
        levels = [self.backbone(images)]
        for block in self.extras:
            levels.append(block(levels[-1]))
        places = [head(level).reshape(len(images), 4, -1) for head, level in zip(self.places, levels, strict=True)]
        scores = [
            head(level).reshape(len(images), CLASSES, -1) for head, level in zip(self.scores, levels, strict=True)
        ]
        return torch.cat(places, 2), torch.cat(scores, 2)


def truncated(resnet: ResNet) -> nn.Sequential:
    """The layers up to the third stage, which no longer halves the picture: [N, 3, 300, 300] to [N, C, 38, 38]."""
    first = resnet.layer3[0]
    for layer in (first.conv1, first.conv2, first.downsample[0]):
        layer.stride = (1, 1)
    return nn.Sequential(
        resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool, resnet.layer1, resnet.layer2, resnet.layer3
    )
