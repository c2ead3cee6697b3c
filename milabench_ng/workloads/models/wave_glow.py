"""WaveGlow: an invertible network between speech and noise, under the condition of a mel spectrogram."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

BANDS = 80
FLOWS = 12
GROUP = 8
"""Samples that become the channels of one point in time."""
EARLY, EARLY_EVERY = 2, 4
"""Channels that leave the network after every four flows."""
WIDTH, LAYERS = 512, 8
"""Of the network that finds the scales of a flow: channels, and layers of doubled dilation."""
WINDOW, HOP = 1_024, 256
"""Samples that a frame of the spectrogram spans, and from one to the next."""


class WaveGlow(nn.Module):
    """WaveGlow (Prenger et al., arXiv:1811.00002); 268,294,760 parameters, with the gains of the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose1d(BANDS, BANDS, WINDOW, stride=HOP)
        channels = [GROUP - EARLY * (flow // EARLY_EVERY) for flow in range(FLOWS)]
        self.flows = nn.ModuleList(Flow(count) for count in channels)

    def forward(self, audio: Tensor, mels: Tensor) -> tuple[Tensor, Tensor]:
        """Audio [N, S] and its spectrograms [N, 80, T] to noise [N, 8, S / 8] and the logarithm of the determinant.

        S is a multiple of 8 and at most 256 T. The determinant is that of all samples together, a scalar in fp32.
        """
        condition = self.condition(mels, audio.shape[1])
        signal = audio.unfold(1, GROUP, GROUP).transpose(1, 2)
        early, logarithm = [], torch.zeros((), device=audio.device)
        for number, flow in enumerate(self.flows):
            if number and number % EARLY_EVERY == 0:
                early.append(signal[:, :EARLY])
                signal = signal[:, EARLY:]
            signal, each = flow(signal, condition)
            logarithm = logarithm + each
        return torch.cat((*early, signal), 1), logarithm

    def condition(self, mels: Tensor, samples: int) -> Tensor:
        """Spectrograms [N, 80, T] at each point in time: [N, 640, samples / 8]."""
        fine: Tensor = self.upsample(mels)[:, :, :samples].unfold(2, GROUP, GROUP)
        return fine.transpose(2, 3).flatten(1, 2)


class Flow(nn.Module):
    """Mixes the channels by a matrix, at first an orthogonal one, then couples them.

    Kingma & Dhariwal, arXiv:1807.03039.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0])
        self.coupling = Coupling(channels)

    def forward(self, signal: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Signal [N, C, T] to the same shape, and the logarithm of the determinant in fp32, a scalar."""
        mixed, scales = self.coupling(F.conv1d(signal, self.weight.unsqueeze(2)), condition)
        points = signal.shape[0] * signal.shape[2]
        return mixed, scales.sum(dtype=torch.float32) + points * torch.linalg.slogdet(self.weight.float()).logabsdet


class Coupling(nn.Module):
    """Scales and shifts the second half of the channels by what it finds in the first half and the condition.

    The network that finds it is WaveNet's, not causal: gated dilated convolutions with residual and skip connections.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        condition, last = BANDS * GROUP, LAYERS - 1
        self.start = weight_norm(nn.Conv1d(half, WIDTH, 1))
        self.dilated = nn.ModuleList(
            weight_norm(nn.Conv1d(WIDTH, 2 * WIDTH, 3, dilation=2**at, padding=2**at)) for at in range(LAYERS)
        )
        self.conditions = nn.ModuleList(weight_norm(nn.Conv1d(condition, 2 * WIDTH, 1)) for _ in range(LAYERS))
        self.through = nn.ModuleList(
            weight_norm(nn.Conv1d(WIDTH, WIDTH if at == last else 2 * WIDTH, 1)) for at in range(LAYERS)
        )
        self.end = nn.Conv1d(WIDTH, 2 * half, 1)
        for parameter in self.end.parameters():
            nn.init.zeros_(parameter)  # at first it changes nothing

    def forward(self, signal: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Signal [N, C, T] to the same shape, and the logarithms of the scales [N, C / 2, T]."""
        kept, changed = signal.chunk(2, 1)
        scales, shifts = self.found(kept, condition)
        return torch.cat((kept, changed * scales.exp() + shifts), 1), scales

    def found(self, kept: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the scales and the shifts, each [N, C / 2, T], from the first half of the channels."""
        hidden, skipped = self.start(kept), torch.zeros((), device=kept.device)
        for dilated, conditioned, through in zip(self.dilated, self.conditions, self.through, strict=True):
            signal, gate = (dilated(hidden) + conditioned(condition)).chunk(2, 1)
            output = through(signal.tanh() * gate.sigmoid())
            skipped = skipped + output[:, -WIDTH:]
            if output.shape[1] > WIDTH:  # not the last layer's
                hidden = hidden + output[:, :WIDTH]
        shifts, scales = self.end(skipped).chunk(2, 1)
        return scales, shifts


def unlikelihood(noise: Tensor, logarithm: Tensor) -> Tensor:
    """The negative logarithm of the likelihood of noise [N, 8, T] of variance 1, per sample, without its constant."""
    return (noise.square().sum(dtype=torch.float32) / 2 - logarithm) / noise.numel()
