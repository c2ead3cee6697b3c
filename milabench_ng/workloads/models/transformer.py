"""A decoder-only transformer: RMSNorm, rotary positions, grouped queries, SwiGLU, no bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from milabench_ng.bench.moving import local
from milabench_ng.workloads.models.chunked_loss import chunked_loss
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.experts import Experts

STD = 0.02
"""Of all weights but those of the norms, which begin at 1."""
EPS = 1e-5
THETA = 500_000.0
"""The base of the rotary frequencies, as in Llama 3."""


class Transformer(nn.Module):
    """Tokens to the loss of the next tokens (`forward`), or to states (`states`), which `logits` makes logits of."""

    def __init__(self, size: Dimensions, *, chunk: int = 4096, recompute: bool = False) -> None:
        """``chunk``: tokens whose logits exist at once; ``recompute``: keep only what enters a block for backward."""
        super().__init__()
        self.size, self.chunk, self.recompute = size, chunk, recompute
        self.begins = 0
        """The position of the first token that it is given."""
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width, EPS)
        self.head = None if size.tied else nn.Linear(size.width, size.vocabulary, bias=False)

    @property
    def readout(self) -> Tensor:
        """The weights of the head [V, D]: its own, or those of the embedding."""
        return self.embedding.weight if self.head is None else self.head.weight

    def reset_parameters(self) -> None:
        """Draw all weights from N(0, 0.02^2), those that ranks share out part by part; norms are 1."""
        for module in self.modules():
            for parameter in module.parameters(recurse=False):
                values = local(parameter)
                with torch.no_grad():
                    if isinstance(module, nn.RMSNorm):
                        values.fill_(1)
                    else:
                        values.normal_(0, STD)

    def forward(self, tokens: Tensor, following: Tensor) -> Tensor:
        """Mean cross entropy, in fp32, of the tokens that follow ``tokens``, both [N, L]."""
        return chunked_loss(self.states(tokens), self.readout, following, self.chunk)

    def states(self, tokens: Tensor) -> Tensor:
        """Tokens [N, L] to normalised states [N, L, D]."""
        hidden = self.embedding(tokens)
        positions = torch.arange(self.begins, self.begins + tokens.shape[1], device=hidden.device)
        turns = rotation(positions, self.size.head_size, hidden.dtype)
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                hidden = checkpoint(block, hidden, turns, use_reentrant=False)
            else:
                hidden = block(hidden, turns)
        normalised: Tensor = self.norm(hidden)
        return normalised

    def logits(self, states: Tensor) -> Tensor:
        """Normalised states [..., D] to logits [..., V]."""
        return F.linear(states, self.readout)


class Block(nn.Module):
    """Attention and a feed-forward part, or experts, each behind a norm and beside a shortcut."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.before_attention = nn.RMSNorm(size.width, EPS)
        self.attention = Attention(size)
        self.before_forward = nn.RMSNorm(size.width, EPS)
        self.feed_forward = Experts(size) if size.experts else FeedForward(size)

    def forward(self, hidden: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """States [N, L, D] and the rotations of their positions to states [N, L, D]."""
        hidden = hidden + self.attention(self.before_attention(hidden), turns)
        return self.onwards(hidden)

    def onwards(self, hidden: Tensor) -> Tensor:
        """What follows attention."""
        onwards: Tensor = hidden + self.feed_forward(self.before_forward(hidden))
        return onwards


class Attention(nn.Module):
    """Causal attention whose queries share keys and values in groups (arXiv:2305.13245)."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.size = size
        self.query = nn.Linear(size.width, size.query_width, bias=False)
        self.key = nn.Linear(size.width, size.kv_width, bias=False)
        self.value = nn.Linear(size.width, size.kv_width, bias=False)
        self.output = nn.Linear(size.query_width, size.width, bias=False)

    def forward(self, hidden: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """[N, L, D] to [N, L, D]."""
        mixed = self.attend(*self.project(hidden, turns))
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """What queries [N, heads, L, size] see of keys and values [N, kv heads, L, size] up to their own position."""
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)

    def project(self, hidden: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Turned queries [N, heads, L, size], turned keys and values [N, kv heads, L, size]."""
        query, key, value = (
            layer(hidden).unflatten(-1, (-1, self.size.head_size)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        return turned(query, turns), turned(key, turns), value


class FeedForward(nn.Module):
    """SwiGLU (arXiv:2002.05202)."""

    def __init__(self, size: Dimensions) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.inner, bias=False)
        self.up = nn.Linear(size.width, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] to [..., D]."""
        output: Tensor = self.down(F.silu(self.gate(hidden)) * self.up(hidden))
        return output


def rotation(positions: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [L, size / 2] of ``positions`` [L], computed in fp32 (RoPE, arXiv:2104.09864)."""
    steps = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size
    angles = positions.float()[:, None] * THETA**-steps
    return angles.cos().to(dtype), angles.sin().to(dtype)


def turned(heads: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """``heads`` [..., L, size], whose first and second halves are pairs, turned by their positions."""
    cosine, sine = turns
    first, second = heads.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
