"""Style transfer with a feed-forward network, judged by the features of a frozen one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.vgg import cfgs, make_layers
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.images.imagenet import ImageNet

TAPS = (3, 8, 15, 22)
"""ReLU 1_2, 2_2, 3_3 and 4_3 among VGG16's layers."""
CONTENT_TAP = 1


def convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
    """Reflection padding and convolution."""
    return nn.Sequential(nn.ReflectionPad2d(size // 2), nn.Conv2d(before, after, size, stride))


def normalised(before: int, after: int, size: int, stride: int = 1) -> nn.Sequential:
    """Convolution and instance normalisation."""
    return nn.Sequential(*convolution(before, after, size, stride), nn.InstanceNorm2d(after, affine=True))


class Residual(nn.Module):
    """Two convolutions of 3 x 3 with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(normalised(channels, channels, 3), nn.ReLU(), normalised(channels, channels, 3))

    def forward(self, features: Tensor) -> Tensor:
        """Same shape."""
        change: Tensor = self.layers(features)
        return features + change


def transformer() -> nn.Sequential:
    """The network that is trained, 1,679,235 parameters: pictures [N, 3, H, W] to pictures of a multiple of 4."""
    return nn.Sequential(
        *(normalised(3, 32, 9), nn.ReLU()),
        *(normalised(32, 64, 3, stride=2), nn.ReLU()),
        *(normalised(64, 128, 3, stride=2), nn.ReLU()),
        *(Residual(128) for _ in range(5)),
        *(nn.Upsample(scale_factor=2), normalised(128, 64, 3), nn.ReLU()),
        *(nn.Upsample(scale_factor=2), normalised(64, 32, 3), nn.ReLU()),
        convolution(32, 3, 9),
    )


class Judge(nn.Module):
    """VGG16 up to ReLU 4_3, frozen; random weights that keep the features' scale (He et al., arXiv:1502.01852)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = make_layers(cfgs["D"])[: TAPS[-1] + 1]
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        self.requires_grad_(False)
        self.normalise = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    def forward(self, pictures: Tensor) -> list[Tensor]:
        """Pictures of 0 to 255 to the features at the four taps."""
        features = self.normalise(pictures / 255)
        found = []
        for number, layer in enumerate(self.layers):
            features = layer(features)
            if number in TAPS:
                found.append(features)
        return found


def gram(features: Tensor) -> Tensor:
    """Products of channels [N, C, C] of features [N, C, H, W], divided by C * H * W; in fp32."""
    rows = features.float().flatten(2)
    return rows @ rows.transpose(1, 2) / (rows.shape[1] * rows.shape[2])


def style_picture(side: int) -> Tensor:
    """A picture [1, 3, side, side] of 0 to 255 with patches of several sizes, in place of a painting."""
    layers = [
        F.interpolate(torch.rand(1, 3, patches, patches), size=(side, side), mode="bicubic") for patches in (3, 8, 21)
    ]
    return torch.stack(layers).mean(0).clamp(0, 1) * 255


@workload(
    unit="images",
    bound="gpu-compute",
    ram_gib=1.5,
    data=ImageNet,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.neural_style:main",
            options={"lr": "learning_rate"},
            implied={"": {"batch_size": 64, "image_size": 256, "style_size": 1024}},  # that of its painting
        ),
    ),
)
def fast_style(
    bench: Bench,
    *,
    batch_size: int = 128,
    image_size: int = 64,
    style_size: int = 64,
    content_weight: float = 1e5,
    style_weight: float = 1e10,
    learning_rate: float = 1e-3,
) -> None:
    """Train a network that repaints pictures in a style (Johnson et al., arXiv:1603.08155): bound by the GPU.

    1,679,235 parameters; Adam; the losses compare features and Gram matrices of a frozen VGG16, whose random weights
    keep the scale of the features, so that the weights of 2020 make finite losses. An item is one picture. Timed: the
    wait for the loader processes (no shuffling), copy, forward through both networks, backward, step.

    Options:
        batch_size: pictures per step.
        image_size: pixels of the square pictures.
        style_size: pixels of the square picture whose style is taken.
        content_weight: of the difference in features of ReLU 2_2.
        style_weight: of the difference in Gram matrices.
        learning_rate: of Adam.
    """
    model, judge = bench.place(transformer()), bench.place(Judge())
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    with torch.no_grad():
        wanted = [gram(features) for features in judge(bench.to_device(style_picture(style_size)))]
    transform = Compose([Resize(image_size), CenterCrop(image_size), ToTensor(), scale_to_bytes])
    for images, _ in bench.measure(bench.loader(batch_size, transform=transform, shuffle=False)):
        painted, original = judge(model(images)), judge(images)
        content = F.mse_loss(painted[CONTENT_TAP].float(), original[CONTENT_TAP].float())
        style = [(gram(features) - one).square().mean() for features, one in zip(painted, wanted, strict=True)]
        bench.step(content_weight * content + style_weight * torch.stack(style).sum(), optimizer)


def scale_to_bytes(image: Tensor) -> Tensor:
    """Scale values from 0 to 1 to the network's range, 0 to 255."""
    return image * 255
