"""The sizes of a language model, and the parameters that follow from them."""

from __future__ import annotations

import msgspec

FEED_FORWARD_LAYERS = 3
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
        return FEED_FORWARD_LAYERS * self.width * self.inner

    @property
    def head(self) -> int:
        """Weights of the head."""
        return self.vocabulary * self.width

    def parameters(self) -> int:
        """All of them, with those of the norms."""
        parts = self.experts * (self.feed_forward + self.width) if self.experts else self.feed_forward
        block = self.attention + parts + 2 * self.width
        return self.layers * block + self.width + self.head * (1 if self.tied else 2)


LLAMA_8B = Dimensions(layers=32, width=4096, heads=32, kv_heads=8, inner=14_336, vocabulary=128_256, tied=False)
"""The shape of Llama 3.1 8B (arXiv:2407.21783)."""
DENSE_0_8B = Dimensions(layers=16, width=2048, heads=16, kv_heads=8, inner=5632, vocabulary=32_768)
"""A dense model that trains on one GPU."""
ROUTED_0_9B = Dimensions(layers=8, width=1024, heads=8, kv_heads=8, inner=512, vocabulary=32_768, experts=64, active=8)
"""Half as wide and half as deep as OLMoE (arXiv:2409.02060)."""
