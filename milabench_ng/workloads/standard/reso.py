"""Super-resolution with a sub-pixel network: a tiny model, fed by image decoding."""

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import functional as V

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.images.bsds500 import Bsds500


class SubPixel(nn.Module):
    """Four convolutions on the small picture; the channels of the last become the pixels of the large picture."""

    def __init__(self, upscale: int) -> None:
        super().__init__()
        layers = [
            nn.Conv2d(1, 64, 5, padding=2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.Conv2d(64, 32, 3, padding=1),
            nn.Conv2d(32, upscale**2, 3, padding=1),
        ]
        for layer in layers[:-1]:
            nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"))
        nn.init.orthogonal_(layers[-1].weight)
        first, second, third, last = layers
        self.layers = nn.Sequential(
            first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), last, nn.PixelShuffle(upscale)
        )

    def forward(self, small: Tensor) -> Tensor:
        """[N, 1, H, W] to [N, 1, H * upscale, W * upscale]."""
        enlarged: Tensor = self.layers(small)
        return enlarged


class SmallAndLarge:
    """Makes target and input from a picture: its cropped luminance, and the same at reduced size."""

    def __init__(self, side: int, upscale: int) -> None:
        self.side = side
        self.upscale = upscale

    def __call__(self, picture: Image.Image) -> tuple[Tensor, Tensor]:
        """[1, side / upscale, side / upscale] and [1, side, side], values 0 to 1."""
        large = V.center_crop(picture.convert("YCbCr").getchannel("Y"), [self.side, self.side])
        small = V.resize(large, [self.side // self.upscale] * 2)
        return V.to_tensor(small), V.to_tensor(large)


@workload(
    unit="images",
    bound="cpu",
    ram_gib=1.0,
    data=Bsds500,
    classic_factor=256 / 200,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.subpixel:main",
            options={"upscale_factor": "upscale", "lr": "learning_rate"},
            implied={"": {"learning_rate": 0.1}},
        ),
    ),
)
def reso(
    bench: Bench, *, upscale: int = 2, batch_size: int = 64, image_size: int = 256, learning_rate: float = 1e-3
) -> None:
    """Enlarge pictures with a sub-pixel network (Shi et al., arXiv:1609.05158): bound by the loader's CPU cores.

    58,212 parameters; mean squared error; Adam. An item is one picture (2020 worked on 200 an epoch, in batches of 64,
    64, 64 and 8, and counted 256; here all batches have one size). With 2020's learning rate of 0.1 the network
    diverges in its first steps; that costs the same, and the loss stays finite. Timed: the wait for the loader
    processes, copy, forward, backward, step. (2020 restarted the loader processes in each epoch.)

    Options:
        upscale: how many times larger the output's side is.
        batch_size: pictures per step.
        image_size: pixels of the square target.
        learning_rate: of Adam.
    """
    model = bench.place(SubPixel(upscale))
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    batches = bench.loader(batch_size, transform=SmallAndLarge(image_size, upscale))
    for small, large in bench.measure(batches):
        bench.step(F.mse_loss(model(small), large), optimizer)
