"""The networks for pictures: as large as published, and refused in words where a picture does not fit."""

from __future__ import annotations

import builtins
import sys
from typing import Any, get_args

import pytest
import torch
from torch.nn import functional as F

from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.picture_networks import Arch, check_size, network

PARAMETERS = {
    "resnet50": 25_557_032,
    "convnext_base": 88_591_464,
    "vgg16": 138_357_544,
    "efficientnet_v2_m": 54_139_356,
    "mobilenet_v3_large": 5_483_032,
    "resnext50_32x4d": 25_028_904,
    "swin_b": 87_768_224,
    "vit_b_16": 86_567_656,
    "unet_resnet50": 32_521_105,
    "ssd300_vgg16": 35_641_826,
    "fasterrcnn_resnet50_fpn_v2": 43_712_278,
}


@pytest.mark.parametrize("arch", get_args(Arch))
def test_parameters(arch: Any) -> None:
    with torch.device("meta"):
        made = network(arch, 224, 224)
    assert sum(weight.numel() for weight in made.parameters()) == PARAMETERS[arch]


@pytest.mark.parametrize(("height", "width"), [(224, 256), (230, 230)])
def test_the_transformer_refuses_pictures_without_whole_patches(height: int, width: int) -> None:
    with pytest.raises(
        InputError, match=rf"vit_b_16: pictures of {width} x {height} pixels do not fit\. Use square ones"
    ):
        check_size(arch="vit_b_16", height=height, width=width)


def test_the_u_net_refuses_pictures_that_cannot_be_halved_five_times() -> None:
    with pytest.raises(
        InputError, match=r"pictures of 100 x 64 pixels do not fit\. Both sides must be multiples of 32"
    ):
        check_size(arch="unet_resnet50", height=64, width=100)


def test_without_its_package_the_u_net_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name == "segmentation_models_pytorch":
            raise ImportError("No module named 'segmentation_models_pytorch'")
        return whole(name, *others)

    monkeypatch.delitem(sys.modules, "segmentation_models_pytorch", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r'pip install "milabench_ng\[segmentation\]"'):
        network("unet_resnet50", 64, 64)


def test_the_u_net_is_an_encoder_with_a_decoder_of_upsampling_skips_and_pairs_of_convolutions() -> None:
    """Ronneberger et al., arXiv:1505.04597, over the five levels of a ResNet-50, written out here."""
    torch.manual_seed(0)
    made: Any = network("unet_resnet50", 64, 96).eval()
    pictures = torch.rand(1, 3, 64, 96)
    with torch.inference_mode():
        *skips, deepest = encoded(made.encoder, pictures)
        features = deepest
        for block, skip in zip(made.decoder.blocks, (*skips[::-1], None), strict=True):
            features = F.interpolate(features, scale_factor=2, mode="nearest")
            features = features if skip is None else torch.cat([features, skip], dim=1)
            for pair in (block.conv1, block.conv2):
                convolution, norm = (next(part for part in pair.modules() if isinstance(part, kind)) for kind in KINDS)
                features = F.relu(norm(F.conv2d(features, convolution.weight, padding=1)))
        head = made.segmentation_head[0]
        expected = F.conv2d(features, head.weight, head.bias, padding=1)
        assert torch.allclose(made(pictures), expected, atol=1e-5)
        assert expected.shape == (1, 1, 64, 96)


KINDS = (torch.nn.Conv2d, torch.nn.BatchNorm2d)


def encoded(encoder: Any, pictures: torch.Tensor) -> list[torch.Tensor]:
    """What a ResNet sees at half the size, a quarter, and so on to a thirty-second."""
    found = [F.relu(encoder.bn1(encoder.conv1(pictures)))]
    features = encoder.maxpool(found[0])
    for layer in (encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4):
        features = layer(features)
        found.append(features)
    return found
