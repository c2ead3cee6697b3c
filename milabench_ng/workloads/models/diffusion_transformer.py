"""DiT: a transformer that predicts the noise in latents (Peebles & Xie, arXiv:2212.09748)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHANNELS, PATCH, CLASSES, FREQUENCIES = 4, 2, 1000, 256
OUTPUTS = 2 * CHANNELS
"""Noise and, untrained here, its variance."""
NUMBERS = f"{CHANNELS} * side * side"
"""Of a latent. The first loss is the mean square of as much noise: that of N normal numbers has a variance of 2 / N."""
TOKENS = f"(side * side / {PATCH * PATCH})"
FLOP = (
    f"(6 * width * (layers * ({TOKENS} * (12 * width + 2 * {TOKENS}) + 6 * width) "
    f"+ {OUTPUTS * PATCH**2} * {TOKENS} + 3 * width) "
    f"+ 4 * width * ({CHANNELS * PATCH**2} * {TOKENS} + {FREQUENCIES}))"
)
"""Of a latent, forward and backward: six per weight and token, or per weight and latent for what knows time and class;
four for the patches and the first layer of time, whose inputs have no gradient; attention over all pairs of tokens."""


class DiffusionTransformer(nn.Module):
    """Predicts noise from noisy latents, times and classes: DiT-XL/2 has 28 layers, a width of 1152 and 16 heads."""

    def __init__(self, layers: int, width: int, heads: int, side: int, frames: int = 1) -> None:
        """``side``: of a latent, a multiple of 2. ``frames``: of a video, all of whose tokens attend to each other."""
        super().__init__()
        self.patches = nn.Conv2d(CHANNELS, width, PATCH, PATCH)
        self.places = nn.Buffer(torch.empty(frames, (side // PATCH) ** 2, width))
        self.time = nn.Sequential(nn.Linear(FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(CLASSES + 1, width)  # one for no class
        self.blocks = nn.ModuleList(ModulatedBlock(width, heads) for _ in range(layers))
        self.modulation = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, PATCH * PATCH * OUTPUTS)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights; those of the head are 0, so that the first prediction is 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.xavier_uniform_(self.patches.weight.detach().flatten(1))
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]
        nn.init.normal_(self.label.weight, std=0.02)
        nn.init.zeros_(self.head.weight)
        frames, tokens, width = self.places.shape
        moments = waves(torch.arange(frames), width) - waves(torch.zeros(1), width)
        self.places.copy_(waves_in_two(math.isqrt(tokens), width) + moments[:, None])

    def forward(self, latents: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        """Latents [N x frames, 4, side, side], times [N] and classes [N] to noise like the latents."""
        count, _, side, _ = latents.shape
        of_frames = self.patches(latents).flatten(2).transpose(1, 2).contiguous()  # for all blocks
        tokens = of_frames.view(len(times), -1, of_frames.shape[2]) + self.places.flatten(0, 1)
        condition = F.silu(self.time(waves(times, FREQUENCIES).to(tokens.dtype)) + self.label(labels))
        for block in self.blocks:
            tokens = block(tokens, condition)
        shift, scale = self.modulation(condition).unsqueeze(1).chunk(2, dim=2)
        pieces = self.head(modulated(tokens, shift, scale))
        grid = pieces.view(count, side // PATCH, side // PATCH, PATCH, PATCH, OUTPUTS)
        noise: Tensor = grid.permute(0, 5, 1, 3, 2, 4).reshape(count, OUTPUTS, side, side)[:, :CHANNELS]
        return noise


class ModulatedBlock(nn.Module):
    """Attention and a perceptron, whose inputs and outputs are scaled by what time and class say (adaLN)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 6 * width)
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        """Tokens [N, T, width] and their condition [N, width]."""
        shift, scale, gate, shift_inner, scale_inner, gate_inner = (
            self.modulation(condition).unsqueeze(1).chunk(6, dim=2)
        )
        tokens = tokens + gate * self._attention(modulated(tokens, shift, scale))
        hidden = F.gelu(self.inner(modulated(tokens, shift_inner, scale_inner)), approximate="tanh")
        result: Tensor = tokens + gate_inner * self.outer(hidden)
        return result

    def _attention(self, tokens: Tensor) -> Tensor:
        query, key, value = self.mixed(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen: Tensor = self.joined(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return seen


def modulated(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Tokens, normalised without weights of their own, scaled and shifted."""
    return F.layer_norm(tokens, tokens.shape[-1:], eps=1e-6) * (1 + scale) + shift


def waves(positions: Tensor, width: int) -> Tensor:
    """Cosines and sines [..., width] of positions at frequencies from 1 to 1 / 10,000, in fp32."""
    half = width // 2
    frequencies = torch.exp(-math.log(10_000) * torch.arange(half, device=positions.device) / half)
    angles = positions.float().unsqueeze(-1) * frequencies
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def waves_in_two(side: int, width: int) -> Tensor:
    """Waves [side * side, width] of rows and columns, half of the width each."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.cat((waves(rows.flatten(), width // 2), waves(columns.flatten(), width // 2)), dim=1)


class NoiseSchedule:
    """How much noise there is at 1,000 times (Ho et al., arXiv:2006.11239: variances from 1e-4 to 0.02)."""

    TIMES = 1000

    def __init__(self, device: torch.device) -> None:
        self._kept = (1 - torch.linspace(1e-4, 0.02, self.TIMES, device=device)).cumprod(0)

    def noisy(self, latents: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        """Latents [N x frames, C, H, W] with ``noise`` like them, at times [N]; in the type of the latents."""
        kept = self._kept[times].repeat_interleave(len(latents) // len(times)).view(-1, 1, 1, 1)
        return (kept.sqrt() * latents + (1 - kept).sqrt() * noise).to(latents.dtype)


def noise_loss(model: nn.Module, schedule: NoiseSchedule, latents: Tensor, labels: Tensor) -> Tensor:
    """The mean square error, in fp32, of the noise that the model sees in latents at random times; 1 for none."""
    times = torch.randint(schedule.TIMES, labels.shape, device=labels.device)
    noise = torch.randn_like(latents, dtype=torch.float32)  # in bf16, PyTorch 2.11 draws too little on CPUs
    return F.mse_loss(model(schedule.noisy(latents, noise, times), times, labels).float(), noise)
