"""PPO on an Atari game: emulators on the CPU, a small convolutional network on the device."""

from __future__ import annotations

from contextlib import closing
from itertools import repeat
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.workloads.standard import ppo

UPDATES = 10_000_000 // 2048
"""Updates of 2020's whole training, over which the learning rate falls linearly to 0."""
DISCOUNT = 0.99
Game = Literal["PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4"]


class AtariNetwork(nn.Module):
    """The network of Mnih et al. (Nature 518, 2015) with 32 channels in its last convolution; 866,439 parameters."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 512),
            nn.ReLU(),
        )
        self.actor = nn.Linear(512, actions)
        self.critic = nn.Linear(512, 1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(
                    layer.weight, 0.01 if layer is self.actor else 1 if layer is self.critic else 2**0.5
                )
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # it has one

    def forward(self, observation: ppo.AgentView, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Frames [N, 4, 84, 84] of 8 bits to logits [N, A] and values [N]; the memory has no width."""
        features = self.body(observation["frames"].to(self.actor.weight.dtype) / 255)
        return self.actor(features), self.critic(features).squeeze(1), memory


class Emulators:
    """ale-py's vector environment, which plays in its own threads, with the preprocessing of Mnih et al."""

    def __init__(self, env: str, count: int, threads: int, seed: int) -> None:
        import ale_py
        import gymnasium
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.vector import AutoresetMode

        gymnasium.register_envs(ale_py)
        self.seed = seed
        self.games = AtariVectorEnv(
            gymnasium.spec(env).kwargs["game"],
            count,
            num_threads=threads,
            episodic_life=True,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        actions: Any = self.games.single_action_space
        self.actions = int(actions.n)

    def reset(self) -> dict[str, np.ndarray]:
        """The first frames."""
        return {"frames": self.games.reset(seed=self.seed)[0]}

    def step(self, actions: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Advance by four emulator frames."""
        frames, rewards, terminated, truncated, _ = self.games.step(actions)
        return {"frames": frames}, rewards, terminated | truncated

    def close(self) -> None:
        """End the threads."""
        self.games.close()


@workload(
    unit="environment steps",
    most_items="environments * steps",
    bound="cpu",
    ram_gib=1.5,
    extra="rl",
    requires=("gymnasium", "ale_py"),
    classic_factor=1 / 128,
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.atari:main",
            options={
                "env_name": "env",
                "num_processes": "environments",
                "num_steps": "steps",
                "num_mini_batch": "minibatches",
                "clip_param": "clip",
                "value_loss_coef": "value_coefficient",
                "entropy_coef": "entropy_coefficient",
                "algo": "algorithm",
                "lr": "learning_rate",
            },
            implied={
                "": {
                    "algorithm": "a2c",  # not implemented here: a profile that leaves it out is refused
                    "steps": 5,
                    "minibatches": 32,
                    "clip": 0.2,
                    "gae_lambda": 1.0,
                    "linear_decay": False,
                },
                "use_gae": {"gae_lambda": 0.95},
                "use_linear_lr_decay": {"linear_decay": True},
            },
        ),
    ),
)
def atari(
    bench: Bench,
    *,
    env: Game = "PongNoFrameskip-v4",
    algorithm: Literal["ppo"] = "ppo",
    environments: int = 16,
    steps: int = 128,
    minibatches: int = 4,
    learning_rate: float = 7e-4,
    linear_decay: bool = True,
    gae_lambda: float = 0.95,
    clip: float = 0.1,
    value_coefficient: float = 0.5,
    entropy_coefficient: float = 0.01,
) -> None:
    """Learn to play an Atari game with PPO (Schulman et al., arXiv:1707.06347): bound by the CPUs that emulate it.

    Network of Mnih et al. (Nature 518, 2015), 866,439 parameters for Pong; generalised advantages, clipped value loss,
    Adam. Sixteen emulators (ale-py, in as many threads, at most the tenant's CPUs) make grey 84 x 84 images, four of
    them stacked. An item is one step of one emulator, which is four frames of the game (2020 counted 16 items for an
    update of 2,048 steps). Timed: playing a rollout, where the host reads the actions in every step, and four epochs of
    learning from it.

    Options:
        env: the game.
        algorithm: how to learn; 2020 had others.
        environments: emulators that play at once.
        steps: steps of each emulator between two updates.
        minibatches: updates per epoch.
        learning_rate: of Adam.
        linear_decay: the learning rate falls to 0 over 10 million steps.
        gae_lambda: decay of the advantage estimates; 1 gives discounted returns.
        clip: of the policy's ratio and of the value's step.
        value_coefficient: weight of half the mean squared error of the values.
        entropy_coefficient: weight of the policy's entropy.
    """
    assert algorithm == "ppo"
    rules = ppo.PpoOptions(
        epochs=4,
        minibatches=minibatches,
        recurrence=1,
        clip=clip,
        value_coefficient=value_coefficient / 2,
        entropy_coefficient=entropy_coefficient,
        gradient_norm=0.5,
    )
    with closing(Emulators(env, environments, bench.processes(environments), bench.seed)) as games:
        agent = bench.place(AtariNetwork(games.actions))
        optimizer = torch.optim.Adam(agent.parameters(), lr=learning_rate, eps=1e-5)
        schedule = torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1.0, end_factor=0.0 if linear_decay else 1.0, total_iters=UPDATES
        )
        players = ppo.Players(bench, agent, games)
        for _ in bench.measure(repeat(None), count=environments * steps):
            rollout = players.play(steps)
            gains = ppo.advantages(rollout, DISCOUNT, gae_lambda)
            returns = gains + rollout.values[:-1]
            normal = (gains - gains.mean()) / (gains.std() + 1e-5)
            ppo.update(bench, agent, optimizer, rollout, normal, returns, rules)
            schedule.step()
