"""Reinforcement learning of a language model: the networks, and the loss of group-relative policy optimisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.paged_generator import PagedGenerator, drawn
from milabench_ng.workloads.models.transformer import Transformer

SPREAD = 1e-4
"""Added to the spread of rewards, so that a group of equal ones gives no NaN."""


class Actors(nn.Module):
    """A policy that is trained, the reference that it began as, and a copy of it that generates over pages."""

    def __init__(self, size: Dimensions, *, texts: int, pages: int, page: int) -> None:
        """As `PagedGenerator`. The policy keeps only what enters a block for backward."""
        super().__init__()
        self.policy = Transformer(size, recompute=True)
        self.reference = Transformer(size).requires_grad_(False)
        self.generator = PagedGenerator(size, texts=texts, pages=pages, page=page, choose=drawn).requires_grad_(False)

    def reset_parameters(self) -> None:
        """Draw the weights of the policy, which the others begin with."""
        self.generator.reset_parameters()
        self.policy.reset_parameters()
        copy_weights(self.policy, self.reference)
        self.send()

    def send(self) -> None:
        """Give the generator the weights of the policy."""
        copy_weights(self.policy, self.generator.model)

    def loss(self, tokens: Tensor, answer: int, advantages: Tensor, divergence: float) -> Tensor:
        """Of texts [N, L] whose last ``answer`` tokens are answers with ``advantages`` [N], as `policy_loss` has it."""
        with torch.no_grad():
            reference = log_probabilities(self.reference, tokens, answer)
        return policy_loss(log_probabilities(self.policy, tokens, answer), reference, advantages, divergence)


@torch.no_grad()
def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy all weights."""
    torch._foreach_copy_([*target.parameters()], [*source.parameters()])


def log_probabilities(model: Transformer, tokens: Tensor, answer: int) -> Tensor:
    """Of the last ``answer`` tokens of each text, in fp32: [N, L] to [N, answer].

    Logits of few tokens exist at once, and are computed again for backward.
    """
    states = model.states(tokens[:, :-1])[:, -answer:].flatten(0, 1)
    said = tokens[:, -answer:].flatten()
    pieces = zip(torch.split(states, model.chunk), torch.split(said, model.chunk), strict=True)
    found = [checkpoint(_of_piece, some, model.readout, targets, use_reentrant=False) for some, targets in pieces]
    return torch.cat(found).view(len(tokens), answer)


def _of_piece(states: Tensor, weight: Tensor, said: Tensor) -> Tensor:
    logits = F.linear(states, weight).float()
    return logits.gather(1, said[:, None])[:, 0] - logits.logsumexp(1)


def group_advantages(rewards: Tensor) -> Tensor:
    """Rewards of answers to the same prompt [P, answers], less their mean, in units of their spread."""
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, correction=0, keepdim=True) + SPREAD)


def policy_loss(now: Tensor, reference: Tensor, advantages: Tensor, divergence: float) -> Tensor:
    """Group-relative policy optimisation (DeepSeekMath, arXiv:2402.03300, equation 3), over answers of one length.

    ``now``, ``reference``: log probabilities of what was said [N, L]. ``divergence``: the weight of the distance
    between both. With a single update after each generation, as in the paper, the policy is that which generated: the
    ratio of both is 1, with the gradient of the logarithm, and is never clipped.
    """
    ratio = (now - now.detach()).exp()
    apart = reference - now
    return (divergence * (apart.exp() - apart - 1) - ratio * advantages[:, None]).mean()
