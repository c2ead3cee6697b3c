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
    head_width: int = 0
    """Of a head; 0 for as much as the heads have of the width."""

    @property
    def head_size(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def query_width(self) -> int:
        """Width of all queries of a token."""
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        """Width of all keys, or all values, of a token."""
        return self.kv_heads * self.head_size

    @property
    def attention(self) -> int:
        """Weights of a block's attention."""
        return 2 * self.width * (self.query_width + self.kv_width)

    @property
    def feed_forward(self) -> int:
        """Weights of one feed-forward part, or of one expert."""
        return FEED_FORWARD_LAYERS * self.width * self.inner

    @property
    def head(self) -> int:
        return self.vocabulary * self.width

    def shared(self, ranks: int) -> Dimensions:
        """Those of one rank's part of each block: as many heads and as much of the feed-forward part as the others."""
        parts = {name: getattr(self, name) // ranks for name in ("heads", "kv_heads", "inner")}
        return msgspec.structs.replace(self, head_width=self.head_size, **parts)

    def parameters(self) -> int:
        """All of them, with those of the norms."""
        parts = self.experts * (self.feed_forward + self.width) if self.experts else self.feed_forward
        block = self.attention + parts + 2 * self.width
        return self.layers * block + self.width + self.head * (1 if self.tied else 2)
