"""PPO with memory on a grid world with instructions in words: environment processes on the CPU."""

from __future__ import annotations

import functools
from contextlib import closing
from itertools import repeat
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.standard import ppo

WIDTH = 128
MISSION_WORDS = 8
"""Longest instruction, with at least one word of padding."""
DISCOUNT = DECAY = 0.99
REWARD_SCALE = 20.0
Level = Literal["BabyAI-UnlockPickup-v0", "BabyAI-GoToRedBallGrey-v0", "BabyAI-GoToLocal-v0"]


class Film(nn.Module):
    """Feature-wise linear modulation (Perez et al., arXiv:1709.07871): an instruction scales and shifts features."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU())
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.scale = nn.Linear(WIDTH, WIDTH)
        self.shift = nn.Linear(WIDTH, WIDTH)
        self.normal = nn.BatchNorm2d(WIDTH)

    def forward(self, features: Tensor, instruction: Tensor) -> Tensor:
        """Features [N, 128, H, W] and instruction [N, 128] to features."""
        scale, shift = self.scale(instruction)[..., None, None], self.shift(instruction)[..., None, None]
        return F.relu(self.normal(self.second(self.first(features)) * scale + shift))


class MinigridNetwork(nn.Module):
    """BabyAI's ``expert_filmcnn``: convolutions, a GRU for words, two FiLM blocks, LSTM memory, actor and critic."""

    memory_size = 2 * WIDTH

    def __init__(self, words: int, actions: int) -> None:
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(3, WIDTH, 2, padding=1),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.words = nn.Embedding(words, WIDTH)
        self.reader = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.films = nn.ModuleList([Film(), Film()])
        self.memory = nn.LSTMCell(WIDTH, WIDTH)
        self.actor = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observation: ppo.AgentView, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Image [N, 7, 7, 3], mission [N, words] and memory [N, 256] to logits [N, A], values [N] and memory."""
        instruction = self.reader(self.words(observation["mission"]))[1][-1]
        features = self.eyes(observation["image"].movedim(-1, 1).to(self.words.weight.dtype))
        for film in self.films:
            features = film(features, instruction)
        hidden, cell = self.memory(F.max_pool2d(features, 2).flatten(1), tuple(memory.chunk(2, dim=1)))
        return self.actor(hidden), self.critic(hidden).squeeze(1), torch.cat([hidden, cell], dim=1)


def world(env: str) -> Any:
    """One environment whose instruction is a row of word numbers."""
    import gymnasium
    from minigrid import wrappers

    numbered: Any = wrappers.DictObservationSpaceWrapper
    return numbered(gymnasium.make(env, disable_env_checker=True), MISSION_WORDS)


def part_of_worlds(bench: Bench, env: str, count: int) -> Any:
    """``count`` environments in one process, as one. Unused results of a step are dropped: they would be pickled."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    class Part(SyncVectorEnv[Any, Any]):
        """Without infos."""

        def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            """Observations, rewards, terminations, truncations."""
            observations, rewards, terminated, truncated, _ = super().step(actions)
            return observations, rewards, terminated, truncated, {}

    bench.enter_process()
    return Part([functools.partial(world, env)] * count, autoreset_mode=AutoresetMode.SAME_STEP)


def even_parts(count: int, most: int) -> int:
    """The largest number of equal parts, at most ``most``, that ``count`` can be cut into."""
    return max(parts for parts in range(1, most + 1) if count % parts == 0)


class Worlds:
    """Environments in processes: gymnasium's asynchronous vector of synchronous vectors, one per process."""

    def __init__(self, bench: Bench, env: str, count: int) -> None:
        import minigrid  # noqa: F401  # registers the environments
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode

        self.processes = even_parts(count, bench.processes(count))
        self.count = count
        self.seed = bench.seed
        make = functools.partial(part_of_worlds, bench, env, count // self.processes)
        self.vector = AsyncVectorEnv([make] * self.processes, context="fork", autoreset_mode=AutoresetMode.DISABLED)
        actions: Any = self.vector.single_action_space
        observations: Any = self.vector.single_observation_space
        self.actions = int(actions.nvec[0])
        self.words = 1 + int(observations["mission"].high.max())

    def reset(self) -> dict[str, np.ndarray]:
        """Environment i has seed + i, in whichever process it runs."""
        each = self.count // self.processes
        return self._flat(self.vector.reset(seed=[self.seed + part * each for part in range(self.processes)])[0])

    def step(self, actions: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Advance by one frame; rewards are scaled as in 2020."""
        found, rewards, terminated, truncated, _ = self.vector.step(actions.reshape(self.processes, -1))
        return self._flat(found), REWARD_SCALE * rewards.reshape(-1), (terminated | truncated).reshape(-1)

    def close(self) -> None:
        """End the processes."""
        self.vector.close()

    def _flat(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {
            name: value.reshape(self.count, *value.shape[2:])
            for name, value in observation.items()
            if name in ("image", "mission")
        }


@workload(
    unit="frames",
    most_items="environments * steps",
    bound="cpu",
    ram_gib=1.5,
    extra="rl",
    requires=("gymnasium", "minigrid"),
    legacy_2020=(
        Legacy2020(
            experiment="milarun.models.minigrid:main",
            options={"procs": "environments", "frames_per_proc": "steps", "lr": "learning_rate"},
        ),
    ),
)
def minigrid(
    bench: Bench,
    *,
    env: Level = "BabyAI-UnlockPickup-v0",
    environments: int = 64,
    steps: int = 40,
    batch_size: int = 1280,
    recurrence: int = 20,
    learning_rate: float = 1e-4,
) -> None:
    """Learn to follow instructions in a grid world with PPO (arXiv:1810.08272): bound by the CPUs that simulate it.

    Convolutions, a GRU for the instruction, two FiLM blocks, an LSTM memory, actor and critic; 1,062,024 parameters;
    Adam. The environments run in processes, at most one per CPU of the tenant; 2020 had one per environment.
    An item is one frame: one step of one environment. Timed: playing a rollout, where the host reads the actions in
    every step, and four epochs of learning from it.

    Options:
        env: the level.
        environments: how many play at once.
        steps: steps of each environment between two updates.
        batch_size: frames per update.
        recurrence: steps that gradients flow back through the memory; divides the steps.
        learning_rate: of Adam.
    """
    if steps % recurrence or not 0 < batch_size <= environments * steps:
        raise InputError(
            f"minigrid: {steps} steps of {environments} environments, a batch of {batch_size} frames, recurrence "
            f"{recurrence}: recurrence must divide the steps, and a batch hold 1 to {environments * steps} frames"
        )
    rules = ppo.PpoOptions(
        epochs=4,
        minibatches=environments * steps // batch_size,
        recurrence=recurrence,
        clip=0.2,
        value_coefficient=0.5,
        entropy_coefficient=0.01,
        gradient_norm=0.5,
    )
    with closing(Worlds(bench, env, environments)) as worlds:
        agent = bench.place(MinigridNetwork(worlds.words, worlds.actions))
        optimizer = torch.optim.Adam(agent.parameters(), lr=learning_rate, eps=1e-5)
        players = ppo.Players(bench, agent, worlds, MinigridNetwork.memory_size)
        for _ in bench.measure(repeat(None), count=environments * steps):
            rollout = players.play(steps)
            gains = ppo.advantages(rollout, DISCOUNT, DECAY)
            ppo.update(bench, agent, optimizer, rollout, gains, gains + rollout.values[:-1], rules)
