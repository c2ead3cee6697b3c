"""BERT with a head that finds answers, as the library transformers makes it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 30_528
"""That of BERT in lower case, padded to a multiple of 32."""


class SpanFinder(nn.Module):
    """BERT (Devlin et al., arXiv:1810.04805) for SQuAD, with random weights.

    Base (12 layers of 768, 12 heads, inner 3,072) has 108,897,794 parameters, large (24 of 1,024, 16 heads, inner
    4,096) 334,100,482. Neither has the pooler, which finding answers does not need.
    """

    def __init__(
        self, *, layers: int, width: int, heads: int, inner: int, longest: int, attention: Literal["eager", "sdpa"]
    ) -> None:
        """``inner``: width between the two linear layers of a block; ``longest``: most tokens of a sequence."""
        super().__init__()
        from transformers import BertConfig, BertForQuestionAnswering  # takes seconds, and may not be installed

        config = BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=inner,
            max_position_embeddings=longest,
            attn_implementation=attention,  # type: ignore[call-arg]  # a keyword of its base class
        )
        self.network = BertForQuestionAnswering(config)

    def forward(self, tokens: Tensor, real: Tensor, parts: Tensor) -> Tensor:
        """Tokens [N, L], which of them are no padding, and their parts (question 0, text 1) to logits [N, L, 2].

        The logits are those of an answer's first token and of its last.
        """
        found = self.network(input_ids=tokens, attention_mask=real, token_type_ids=parts)
        return torch.stack((found.start_logits, found.end_logits), dim=2)


def span_loss(logits: Tensor, spans: Tensor) -> Tensor:
    """Mean cross entropy, in fp32, between logits [N, L, 2] and spans [N, 2] over first and last tokens."""
    return F.cross_entropy(logits.float(), spans)
