"""Proximal policy optimisation (Schulman et al., arXiv:1707.06347), for agents with and without memory.

An agent without memory has a memory of width zero and sequences of one step.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from milabench_ng.bench import Bench

AgentView = dict[str, Tensor]


class Environments(Protocol):
    """N copies of an environment; a copy whose episode ends begins the next one in the same step."""

    def reset(self) -> dict[str, np.ndarray]:
        """The first observation of each, by name [N, ...]."""

    def step(self, actions: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Observations [N, ...], rewards [N], and which episodes ended [N], after ``actions`` [N]."""


@dataclasses.dataclass(frozen=True)
class PpoOptions:
    """How an agent learns from a rollout."""

    epochs: int
    minibatches: int
    """Updates per epoch; the rollout's sequences are distributed over them at random."""
    recurrence: int
    """Steps of a sequence: how far back gradients flow through the memory."""
    clip: float
    value_coefficient: float
    """Weight of the mean squared error of the values."""
    entropy_coefficient: float
    gradient_norm: float


@dataclasses.dataclass(frozen=True)
class Rollout:
    """T steps of N environments, in tensors [T, N, ...]. ``values`` covers T + 1 steps."""

    observations: AgentView
    memories: Tensor
    """The memory before each step, not yet cleared if the step begins an episode."""
    going_on: Tensor
    """0 if a step begins an episode, otherwise 1."""
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    rewards: Tensor
    ended: Tensor
    """1 if a step ended an episode, otherwise 0."""


class Targets(NamedTuple):
    """What the agent did and what came of it; all tensors cover the same steps."""

    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    gains: Tensor
    returns: Tensor

    def of(self, step: int, chosen: Tensor) -> Targets:
        return Targets(*(tensor[step, chosen] for tensor in self))


class Players:
    """An agent that plays continuously in N environments."""

    def __init__(self, bench: Bench, agent: nn.Module, environments: Environments, memory_size: int = 0) -> None:
        """``agent`` maps an observation [N, ...] and a memory [N, M] to logits [N, A], values [N] and a memory."""
        self._bench = bench
        self._agent = agent
        self._environments = environments
        self._observation = self._on_device(environments.reset())
        count = len(next(iter(self._observation.values())))
        self._memory: Tensor = bench.to_device(torch.zeros(count, memory_size))
        self._going_on = torch.zeros(count, device=bench.device)

    @torch.no_grad()
    def play(self, steps: int) -> Rollout:
        """Play the next ``steps`` steps. In each, the host waits for the actions that the environments need."""
        rows = [self._step() for _ in range(steps)]
        _, last_value, _ = self._act()
        kept = {name: torch.stack([row[name] for row in rows]) for name in rows[0] if name not in self._observation}
        return Rollout(
            observations={name: torch.stack([row[name] for row in rows]) for name in self._observation},
            values=torch.cat([kept.pop("values"), last_value.float().unsqueeze(0)]),
            **kept,
        )

    def _step(self) -> dict[str, Tensor]:
        """Play one step of all environments; returns the observation before it and the outcome, by name."""
        before, memory, going_on = self._observation, self._memory, self._going_on
        logits, values, self._memory = self._act()
        log_probabilities = F.log_softmax(logits.float(), 1)
        actions = torch.multinomial(log_probabilities.exp(), 1)
        after, rewards, ended = self._environments.step(actions.squeeze(1).cpu().numpy())
        self._observation = self._on_device(after)
        over = torch.from_numpy(ended.astype(np.float32)).to(self._bench.device)
        self._going_on = 1 - over
        return {
            **before,
            "memories": memory,
            "going_on": going_on,
            "actions": actions.squeeze(1),
            "log_probabilities": log_probabilities.gather(1, actions).squeeze(1),
            "values": values.float(),
            "rewards": torch.from_numpy(rewards.astype(np.float32)).to(self._bench.device),
            "ended": over,
        }

    def _act(self) -> tuple[Tensor, Tensor, Tensor]:
        made: tuple[Tensor, Tensor, Tensor] = self._agent(self._observation, forget(self._memory, self._going_on))
        return made

    def _on_device(self, observation: dict[str, np.ndarray]) -> AgentView:
        return {name: self._bench.to_device(torch.from_numpy(value)) for name, value in observation.items()}


def forget(memory: Tensor, going_on: Tensor) -> Tensor:
    """``memory`` [N, M], set to zero where an episode begins."""
    return memory * going_on.to(memory.dtype).unsqueeze(1)


def advantages(rollout: Rollout, discount: float, decay: float) -> Tensor:
    """Generalised advantage estimates [T, N] (Schulman et al., arXiv:1506.02438, eq. 16), cut at the end of episodes.

    ``decay`` is the paper's lambda: 1 gives the discounted rewards less the value.
    """
    kept = discount * (1 - rollout.ended)
    surprise = rollout.rewards + kept * rollout.values[1:] - rollout.values[:-1]
    found = torch.empty_like(surprise)
    later = torch.zeros_like(surprise[0])
    for step in reversed(range(len(surprise))):
        later = surprise[step] + decay * kept[step] * later
        found[step] = later
    return found


def update(
    bench: Bench,
    agent: nn.Module,
    optimizer: Optimizer,
    rollout: Rollout,
    gains: Tensor,
    returns: Tensor,
    rules: PpoOptions,
) -> None:
    """Train ``agent`` on ``rollout``: epochs of minibatches. ``gains``: the advantages of its actions [T, N]."""
    length = rules.recurrence
    observations = {name: in_sequences(value, length) for name, value in rollout.observations.items()}
    memories, going_on = in_sequences(rollout.memories, length)[0], in_sequences(rollout.going_on, length)
    columns = (rollout.actions, rollout.log_probabilities, rollout.values[:-1], gains, returns)
    targets = Targets(*(in_sequences(column, length) for column in columns))
    for _ in range(rules.epochs):
        order = torch.randperm(len(memories)).to(bench.device)
        for chosen in order.chunk(rules.minibatches):
            memory = memories[chosen]
            losses = []
            for step in range(length):
                seen = {name: value[step, chosen] for name, value in observations.items()}
                logits, values, memory = agent(seen, forget(memory, going_on[step, chosen]))
                losses.append(clipped_loss(logits, values, targets.of(step, chosen), rules))
            bench.step(torch.stack(losses).mean(), optimizer, clip_norm=rules.gradient_norm)


def in_sequences(value: Tensor, length: int) -> Tensor:
    """[T, N, ...] cut into sequences of ``length`` steps: [length, T / length * N, ...]."""
    steps, count, *rest = value.shape
    parts = steps // length
    return value.reshape(parts, length, count, *rest).transpose(0, 1).reshape(length, parts * count, *rest)


def clipped_loss(logits: Tensor, values: Tensor, then: Targets, rules: PpoOptions) -> Tensor:
    """The clipped surrogate objective (arXiv:1707.06347, eq. 7 and 9), with the value's step clipped likewise."""
    log_probabilities = F.log_softmax(logits.float(), 1)
    ratio = (log_probabilities.gather(1, then.actions.unsqueeze(1)).squeeze(1) - then.log_probabilities).exp()
    clipped = ratio.clamp(1 - rules.clip, 1 + rules.clip)
    surrogate = torch.minimum(ratio * then.gains, clipped * then.gains).mean()
    values = values.float()
    near = then.values + (values - then.values).clamp(-rules.clip, rules.clip)
    error = torch.maximum((values - then.returns).square(), (near - then.returns).square()).mean()
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
    return rules.value_coefficient * error - surrogate - rules.entropy_coefficient * entropy
