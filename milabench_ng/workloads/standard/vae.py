"""A small variational auto-encoder on digits: many short steps, fed by one loader process."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Count, Legacy2020, Rate, workload
from milabench_ng.datasets.images.mnist import Mnist


class VAE(nn.Module):
    """784-400-(20, 20), 20-400-784, ReLU; 652,824 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(784, 400)
        self.mean = nn.Linear(400, 20)
        self.log_variance = nn.Linear(400, 20)
        self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784))

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels [N, 784] to logits of the reconstruction [N, 784], mean and log variance of the code [N, 20]."""
        hidden = F.relu(self.encoder(pixels))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(code), mean, log_variance


def negative_elbo(logits: Tensor, pixels: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Binary cross entropy plus Kullback-Leibler divergence, summed over the batch (Kingma & Welling, eq. 10)."""
    reconstruction = F.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.square() - log_variance.exp())
    return reconstruction + divergence


@workload(
    unit="images",
    data=Mnist,
    bound="cpu",
    ram_gib=1.0,
    legacy_2020=(Legacy2020(experiment="milarun.models.vae:main", implied={"": {"batch_size": 256, "workers": 1}}),),
)
def vae(bench: Bench, *, batch_size: Count = 128, learning_rate: Rate = 1e-3) -> None:
    """Variational auto-encoder on MNIST digits (Kingma & Welling, arXiv:1312.6114): bound by the loader's CPU core.

    Fully connected, 652,824 parameters; Adam. An item is one 28 x 28 image. Timed: the wait for the loader process
    (one PIL image per sample, as in 2020), copy, forward, backward, step.

    Options:
        batch_size: images per step.
        learning_rate: of Adam.
    """
    model = bench.place(VAE())
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for images, _ in bench.measure(bench.loader(batch_size)):
        pixels = images.flatten(1)
        logits, mean, log_variance = model(pixels)
        bench.step(negative_elbo(logits, pixels, mean, log_variance), optimizer)
