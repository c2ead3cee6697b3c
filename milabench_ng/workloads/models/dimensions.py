"""The sizes of a language model, and what follows from them alone: parameters, and floating-point operations."""

from __future__ import annotations

import msgspec

LARGE_INNER = 3
"""Linear layers between width and inner width of a block: gate, up, down."""


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder-only transformer with grouped queries, SwiGLU and no bias."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    """Of the feed-forward part; with experts, of each of them."""
    vocabulary: int
    tied: bool = True
    """Whether the head is the embedding."""
    experts: int = 0
    """Routed experts of a block; 0 for one dense feed-forward part."""
    active: int = 0
    """Experts that each token goes through."""

    @property
    def head_size(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Width of all keys, or all values, of a token."""
        return self.kv_heads * self.head_size

    @property
    def attention(self) -> int:
        """Weights of a block's attention."""
        return 2 * self.width * (self.width + self.kv_width)

    @property
    def feed_forward(self) -> int:
        """Weights of one feed-forward part, or of one expert."""
        return LARGE_INNER * self.width * self.inner

    @property
    def head(self) -> int:
        """Weights of the head."""
        return self.vocabulary * self.width

    def parameters(self) -> int:
        """All of them, with those of the norms."""
        parts = self.experts * (self.feed_forward + self.width) if self.experts else self.feed_forward
        block = self.attention + parts + 2 * self.width
        return self.layers * block + self.width + self.head * (1 if self.tied else 2)

    def multiplied(self) -> int:
        """The weights that a token is multiplied with: active experts, no norms, no embedding."""
        parts = self.active * self.feed_forward + self.experts * self.width if self.experts else self.feed_forward
        return self.layers * (self.attention + parts) + self.head

    def adapters(self, rank: int) -> int:
        """Weights of adapters of ``rank`` on the seven linear layers of each block."""
        in_and_out = 4 * self.width + 2 * (self.width + self.kv_width) + LARGE_INNER * (self.width + self.inner)
        return self.layers * rank * in_and_out


LLAMA_8B = Dimensions(layers=32, width=4096, heads=32, kv_heads=8, inner=14_336, vocabulary=128_256, tied=False)
"""The shape of Llama 3.1 8B (arXiv:2407.21783)."""
LLAMA_3B = Dimensions(layers=28, width=3072, heads=24, kv_heads=8, inner=8192, vocabulary=128_256)
"""The shape of Llama 3.2 3B."""
DENSE_0_8B = Dimensions(layers=16, width=2048, heads=16, kv_heads=8, inner=5632, vocabulary=32_768)
"""A dense model that trains on one GPU."""
ROUTED_0_9B = Dimensions(layers=8, width=1024, heads=8, kv_heads=8, inner=512, vocabulary=32_768, experts=64, active=8)
"""Half as wide and half as deep as OLMoE (arXiv:2409.02060)."""


def training_flop(size: Dimensions, length: int) -> float:
    """Floating-point operations of forward and backward per token of texts of ``length`` tokens.

    6 per multiplied weight, and causal attention, of which half is computed (arXiv:2204.02311, halved). Recomputation
    does not count.
    """
    return 6 * size.multiplied() + 6 * size.layers * size.width * length


def adapting_flop(size: Dimensions, length: int, rank: int) -> float:
    """The same with frozen weights, whose gradients are not computed, and trained adapters."""
    return 4 * size.multiplied() + 6 * size.layers * size.width * length + 6 * size.adapters(rank)


def prompt_flop(size: Dimensions, length: int) -> float:
    """Of a forward pass, per token of a prompt of ``length`` tokens; the head sees the last one alone."""
    return 2 * (size.multiplied() - size.head) + 2 * size.layers * size.width * length + 2 * size.head / length


def generating_flop(size: Dimensions, ring: int) -> float:
    """Of one generated token that attends to ``ring`` keys."""
    return 2 * size.multiplied() + 4 * size.layers * size.width * ring
