"""REINFORCE on the cart and pole: one environment, a policy of 898 parameters, one CPU core."""

from __future__ import annotations

from contextlib import closing
from itertools import repeat

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Classic, workload

EPISODE_STEPS = 200
"""An episode is cut there, as in CartPole-v0 of 2020."""


class Policy(nn.Sequential):
    """4-128-2, ReLU; 898 parameters."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))


def discounted(rewards: list[float], ended: list[bool], discount: float) -> list[float]:
    """Of each step the discounted sum of the rewards from it to the end of its episode."""
    returns: list[float] = []
    later = 0.0
    for reward, last in zip(reversed(rewards), reversed(ended), strict=True):
        later = reward + (0.0 if last else discount * later)
        returns.append(later)
    return returns[::-1]


def reinforce_loss(log_probabilities: Tensor, returns: Tensor) -> Tensor:
    """Williams' estimator (Machine Learning 8, 1992), the returns normalised to mean 0 and deviation 1."""
    normal = (returns - returns.mean()) / (returns.std() + torch.finfo(returns.dtype).eps)
    return -(log_probabilities * normal).sum()


@workload(
    unit="environment steps",
    bound="cpu",
    ram_gib=0.5,
    extra="rl",
    requires=("gymnasium",),
    cpu_only=True,
    classic=(
        Classic(
            experiment="milarun.models.cart_pole:main",
            options={"episode_length": "steps", "gamma": "discount"},
            ignored=("render", "no_render"),
        ),
    ),
)
def cart(bench: Bench, *, steps: int = 500, discount: float = 0.99, learning_rate: float = 1e-2) -> None:
    """Balance a pole on a cart with REINFORCE (Williams, Machine Learning 8, 1992): bound by one CPU core.

    A policy of 898 parameters, which stays on the CPU, as in 2020, also where there is a GPU; Adam. An item is one step
    of the environment. Timed: steps of the environment, the policy before each, and an update after every 500 of them.
    (In 2020 the returns went on over the ends of episodes, so that nothing could be learned; here they end there.)

    Options:
        steps: of the environment between two updates.
        discount: of rewards, per step.
        learning_rate: of Adam.
    """
    import gymnasium

    with closing(gymnasium.make("CartPole-v1", max_episode_steps=EPISODE_STEPS, disable_env_checker=True)) as world:
        policy = bench.place(Policy())
        optimizer = torch.optim.Adam(policy.parameters(), lr=learning_rate)
        state, _ = world.reset(seed=bench.seed)
        for _ in bench.measure(repeat(None), count=steps):
            log_probabilities, rewards, ended = [], [], []
            for _ in range(steps):
                scores = F.log_softmax(policy(bench.to_device(torch.from_numpy(state))).float(), 0)
                action = int(torch.multinomial(scores.detach().exp(), 1))
                log_probabilities.append(scores[action])
                state, reward, terminated, truncated, _ = world.step(action)
                rewards.append(float(reward))
                ended.append(terminated or truncated)
                if ended[-1]:
                    state, _ = world.reset()
            returns = torch.tensor(discounted(rewards, ended, discount))
            bench.step(reinforce_loss(torch.stack(log_probabilities), returns), optimizer)
