"""Speculative decoding: a small model drafts tokens, and a large one verifies them in one pass (arXiv:2211.17192)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.paged_generator import PagedGenerator


class Speculator(nn.Module):
    """Two generators that say the same texts, each with keys and values of its own.

    How many drafts are accepted is given, so that models with random weights do the work of trained ones. A text goes
    on with the accepted drafts and the token that the large model says after them. Keys and values of the others stay
    until the next tokens take their places: no token sees them. All that a round reads and writes lies at fixed places
    on the device, so CUDA graphs hold it.
    """

    def __init__(
        self, target: Dimensions, draft: Dimensions, *, texts: int, drafts: int, length: int, page: int
    ) -> None:
        """``drafts``: of a round. ``length``: most tokens of a text, with drafts. ``page``: tokens of a page."""
        super().__init__()
        longest = -(-length // page)
        self.target, self.draft = (
            PagedGenerator(size, texts=texts, pages=texts * longest, page=page) for size in (target, draft)
        )
        self.longest = longest
        self.register_buffer("given", torch.empty(2, texts, dtype=torch.int64))
        self.register_buffer("last", torch.empty(texts, 2, dtype=torch.int64))
        self.register_buffer("proposed", torch.empty(texts, drafts, dtype=torch.int64))
        self.given: Tensor
        """The position of each text's last token, and how many drafts are accepted this time [2, N]."""
        self.last: Tensor
        """The last two tokens of each text [N, 2]."""
        self.proposed: Tensor
        """The drafts of a round [N, drafts]."""

    def reset_parameters(self) -> None:
        """Draw the weights of both, keys, values and last tokens as if texts had been read."""
        self.target.reset_parameters()
        self.draft.reset_parameters()
        self.last.random_(self.target.size.vocabulary)
        self.given.fill_(1)

    @property
    def table(self) -> Tensor:
        """The pages of each text [N, longest]."""
        pages = torch.arange(len(self.last) * self.longest, device=self.last.device)
        return 1 + pages.view(-1, self.longest)

    @property
    def reach(self) -> int:
        """All pages are before this one."""
        return len(self.last) * self.longest + 1

    def propose(self) -> Tensor:
        """Draft the next tokens of each text [N, drafts], one by one, the most probable each.

        The first pass reads the last two tokens: if all drafts were accepted, the last of them was never read.
        """
        tokens, position = self.last, self.given[0] - 1
        for number in range(self.proposed.shape[1]):
            states = self.draft.states(tokens, self.table, position, self.reach)
            self.proposed[:, number] = self.draft.model.logits(states[:, -1]).argmax(1)
            position = position + tokens.shape[1]
            tokens = self.proposed[:, number : number + 1]
        return self.proposed

    def verify(self) -> Tensor:
        """What a round says [N, drafts + 1]: as many drafts as are accepted, and what the target says from there on.

        The target reads the last token of each text and all drafts in one pass. Texts go on after the first token of
        its own.
        """
        position, accepted = self.given
        read = torch.cat((self.last[:, 1:], self.proposed), 1)
        own = self.target.model.logits(self.target.states(read, self.table, position, self.reach)).argmax(2)
        places = torch.arange(read.shape[1], device=read.device)
        said = torch.where(places < accepted[:, None], read.roll(-1, 1), own)
        self.last.copy_(torch.cat([tokens.gather(1, accepted[:, None]) for tokens in (read, said)], 1))
        return said
