"""A generator that ranks share out: tensor parallelism as in Megatron-LM (arXiv:1909.08053)."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.models.transformer import Block, FeedForward


class SharedGenerator(Generator):
    """One rank's part: its heads, with their keys and values, its part of each feed-forward part, its words.

    After attention and after the feed-forward part of each block, the ranks add up what their parts came to. All have
    the whole embedding, and say the same tokens.
    """

    def __init__(self, size: Dimensions, batch: int, ring: int) -> None:
        """``size``: of the whole model, whose heads, inner width and words the number of ranks must divide."""
        ranks = dist.get_world_size()
        super().__init__(size.shared(ranks), batch, ring)
        self._words = size.vocabulary // ranks
        self.model.head = nn.Linear(size.width, self._words, bias=False)
        for block in self.model.blocks:
            assert isinstance(block, Block)
            assert isinstance(block.feed_forward, FeedForward)
            for last in (block.attention.output, block.feed_forward.down):
                last.register_forward_hook(added_up)

    def reset_parameters(self) -> None:
        """Draw the weights: each rank its own part, and rank 0 what all have."""
        super().reset_parameters()
        for common in (self.model.embedding.weight.data, self.tokens):
            dist.broadcast(common, 0)

    def _most_probable(self, logits: Tensor) -> Tensor:
        """Of the best words [N] of all ranks, whose logits [N, words] each has of its own, the best."""
        best, words = logits.max(1)
        mine = torch.stack((best.double(), words.double() + dist.get_rank() * self._words))
        found = mine.new_empty(dist.get_world_size(), *mine.shape)
        dist.all_gather_into_tensor(found.view(-1), mine.view(-1))
        chosen = found[:, 0].argmax(0, keepdim=True)
        return found[:, 1].gather(0, chosen)[0].long()


def added_up(_layer: nn.Module, _inputs: object, part: Tensor) -> Tensor:
    """The sum of the parts of all ranks, in place."""
    dist.all_reduce(part)
    return part
