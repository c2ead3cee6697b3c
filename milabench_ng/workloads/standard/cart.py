"""REINFORCE on the cart and pole: one environment, a policy of 898 parameters, one CPU core."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import repeat

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from milabench_ng.bench import Bench, Legacy2020, workload

EPISODE_STEPS = 200
"""Longest episode, as in CartPole-v0 of 2020."""


class CartPolicy(nn.Sequential):
    """4-128-2, ReLU, the probabilities of both actions; 898 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2), nn.Softmax(dim=1))


def discounted(rewards: list[float], ended: list[bool], discount: float) -> list[float]:
    """The discounted sum of rewards from each step to the end of its episode."""
    returns: list[float] = []
    later = 0.0
    for reward, last in zip(reversed(rewards), reversed(ended), strict=True):
        later = reward + (0.0 if last else discount * later)
        returns.insert(0, later)
    return returns


def reinforce_loss(log_probabilities: Sequence[Tensor], returns: Sequence[float]) -> Tensor:
    """Williams' estimator (Machine Learning 8, 1992), the returns normalised to mean 0 and deviation 1.

    ``log_probabilities``: [1] for each step. Python makes one term per step, as in 2020: this is the test's work.
    """
    gains = torch.tensor(returns)
    normal = (gains - gains.mean()) / (gains.std() + torch.finfo(torch.float32).eps)
    terms = [-chosen * gain for chosen, gain in zip(log_probabilities, normal, strict=True)]
    return torch.cat(terms).sum()


@workload(
    unit="environment steps",
    most_items="steps",
    bound="cpu",
    ram_gib=0.5,
    extra="rl",
    requires=("gymnasium",),
    cpu_only=True,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.cart_pole:main",
            options={"episode_length": "steps", "gamma": "discount"},
            ignored=("render", "no_render"),
        ),
    ),
)
def cart(bench: Bench, *, steps: int = 500, discount: float = 0.99, learning_rate: float = 1e-2) -> None:
    """Balance a pole on a cart with REINFORCE (Williams, Machine Learning 8, 1992): bound by one CPU core.

    A policy of 898 parameters, which stays on the CPU even if there is a GPU, as in 2020; Adam. An item is one step of
    the environment. Timed: steps of the environment, a draw from the policy before each, and after every 500 of them an
    update whose loss is made term by term. The work per step is that of 2020: one observation at a time through the
    policy, a new distribution for each draw, its log-probability, one term of the loss. (In 2020 returns continued
    across the ends of episodes, so that nothing could be learned; here they end there.)

    Options:
        steps: of the environment between two updates.
        discount: of rewards, per step.
        learning_rate: of Adam.
    """
    import gymnasium

    with closing(gymnasium.make("CartPole-v1", max_episode_steps=EPISODE_STEPS, disable_env_checker=True)) as world:
        policy = bench.place(CartPolicy())
        optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
        world.reset(seed=bench.seed)
        for _ in bench.measure(repeat(None), count=steps):
            log_probabilities, rewards, ended = [], [], []
            state, _ = world.reset()
            for _ in range(steps):
                seen = bench.to_device(torch.from_numpy(state).unsqueeze(0))
                choice = Categorical(policy(seen).float(), validate_args=False)  # torch of 2020 did not check them
                action = choice.sample()  # type: ignore[no-untyped-call]
                log_probabilities.append(choice.log_prob(action))  # type: ignore[no-untyped-call]
                state, reward, terminated, truncated, _ = world.step(action.item())
                rewards.append(float(reward))
                ended.append(terminated or truncated)
                if ended[-1]:
                    state, _ = world.reset()
            bench.step(reinforce_loss(log_probabilities, discounted(rewards, ended, discount)), optimizer)
