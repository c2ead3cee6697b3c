"""A convolutional generative adversarial network: two small models trained against each other."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.images.imagenet import ImageNet

SIDE = 64  # pixels: 4, doubled four times


def generator(noise: int, width: int) -> nn.Sequential:
    """Noise [N, noise, 1, 1] to pictures [N, 3, 64, 64] between -1 and 1."""
    channels = (noise, 8 * width, 4 * width, 2 * width, width)
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        stride, padding = (2, 1) if layers else (1, 0)
        layers += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()).apply(initialise)


def discriminator(width: int) -> nn.Sequential:
    """Pictures [N, 3, 64, 64] to logits [N] of being real."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for before in (width, 2 * width, 4 * width):
        convolution = nn.Conv2d(before, 2 * before, 4, 2, 1, bias=False)
        layers += [convolution, nn.BatchNorm2d(2 * before), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, bias=False), nn.Flatten(0)).apply(initialise)


def initialise(layer: nn.Module) -> None:
    """Draw normal weights around 0, or 1 for batch normalisation; deviation 0.02 (section 4 of the paper)."""
    if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(layer.weight, 0.0, 0.02)
    elif isinstance(layer, nn.BatchNorm2d):
        nn.init.normal_(layer.weight, 1.0, 0.02)


def taken_for(logits: Tensor, real: bool) -> Tensor:
    """Cross entropy of the discriminator's logits against the same answer for all."""
    answer = torch.full_like(logits, float(real))
    return F.binary_cross_entropy_with_logits(logits, answer)


@workload(
    unit="images",
    bound="cpu",
    ram_gib=1.5,
    data=ImageNet,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.dcgan:main",
            options={"nz": "noise", "lr": "learning_rate"},
            implied={"": {"batch_size": 64}},
            ignored=("image_size",),
        ),
    ),
)
def dcgan(
    bench: Bench, *, batch_size: int = 128, noise: int = 100, width: int = 64, learning_rate: float = 2e-4
) -> None:
    """Train a deep convolutional GAN (Radford et al., arXiv:1511.06434): bound by the loader's CPU cores.

    Generator of 3,576,704 and discriminator of 2,765,568 parameters on pictures of 64 x 64; binary cross entropy; Adam
    for each. An item is one real picture. Timed: the wait for the loader processes, copy, a step of the discriminator
    on real and generated pictures, a step of the generator. Losses in the record alternate: odd steps are the
    discriminator's. (2020 read back six values in each step; here the host may run two steps ahead.)

    Options:
        batch_size: pictures per step.
        noise: random numbers that a picture is generated from.
        width: channels of the widest pictures within both networks.
        learning_rate: of Adam.
    """
    torch.backends.cudnn.benchmark = True
    forger, critic = bench.place(generator(noise, width)), bench.place(discriminator(width))
    of_forger, of_critic = (
        torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.5, 0.999)) for model in (forger, critic)
    )
    transform = Compose([Resize(SIDE), CenterCrop(SIDE), ToTensor(), Normalize([0.5] * 3, [0.5] * 3)])
    for images, _ in bench.measure(bench.loader(batch_size, transform=transform)):
        forged = forger(images.new_empty(len(images), noise, 1, 1).normal_())
        bench.step(taken_for(critic(images), True) + taken_for(critic(forged.detach()), False), of_critic)
        bench.step(taken_for(critic(forged), True), of_forger)
