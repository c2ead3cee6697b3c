"""Reinforcement learning: returns, advantages and losses against hand cases and independent formulas; they learn."""

from __future__ import annotations

import importlib.util
import inspect
import multiprocessing
import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from launching import parameters, train
from recording import Recording, bench_on
from torch import Tensor, nn
from torch.distributions import Categorical

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Ready
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.standard import atari, cart, minigrid, ppo

missing = [name for name in ("gymnasium", "minigrid", "ale_py") if importlib.util.find_spec(name) is None]
installed = pytest.mark.skipif(bool(missing), reason=f"the extra rl is not installed: {', '.join(missing)}")
RULES = ppo.PpoOptions(
    epochs=4,
    minibatches=4,
    recurrence=1,
    clip=0.2,
    value_coefficient=0.5,
    entropy_coefficient=0.01,
    gradient_norm=0.5,
)


def test_parameter_counts() -> None:
    assert parameters(cart.CartPolicy()) == 898
    assert parameters(atari.AtariNetwork(6)) == 866_439
    # by hand: eyes 149,760, words 6,656, reader 99,072, films 2 x 328,704, memory 132,096, heads 8,711 + 8,321
    assert parameters(minigrid.MinigridNetwork(words=52, actions=7)) == 1_062_024


def test_returns_end_with_their_episode() -> None:
    assert cart.discounted([1.0, 1.0, 1.0, 2.0], [False, False, True, False], 0.5) == [1.75, 1.5, 1.0, 2.0]


def test_the_gradient_of_reinforce_weighs_log_probabilities_with_normalised_returns() -> None:
    """By hand: the returns 3, 2, 1 have mean 2 and sample deviation 1, so they count 1, 0, -1."""
    log_probabilities = [torch.tensor([value], requires_grad=True) for value in (-0.1, -0.7, -2.0)]
    loss = cart.reinforce_loss(log_probabilities, [3.0, 2.0, 1.0])
    assert loss.item() == pytest.approx(0.1 * 1 + 0.7 * 0 - 2.0 * 1, abs=1e-5)
    loss.backward()
    found = [part.grad.item() for part in log_probabilities if part.grad is not None]
    assert found == pytest.approx([-1.0, 0.0, 1.0], abs=1e-5)


def operations(loss: Tensor) -> Counter[str]:
    """Of the graph that ``loss`` was made by: how often each operation is in it."""
    waiting: list[Any] = [loss.grad_fn]
    seen: dict[int, Any] = {}
    while waiting:
        node = waiting.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            waiting += [following for following, _ in node.next_functions]
    return Counter(node.name().replace("Backward", "") for node in seen.values())


@installed
def test_cart_does_the_work_of_2020_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of the 50 steps: a pass through the policy, a distribution, its log-probability, a term of the loss."""
    bench = bench_on(Recording(last=1))
    found: list[Counter[str]] = []
    monkeypatch.setattr(bench, "step", lambda loss, _: found.append(operations(loss)))
    builtin_workloads()["cart"](bench, steps=50)
    (counts,) = found
    # Two layers, ReLU and softmax; the distribution divides the probabilities by their sum, takes the logarithm, picks
    # that of the action; the term is negated and weighed.
    once = ("Relu0", "Softmax0", "Sum1", "Div0", "Log0", "Gather0", "Neg0", "Mul0")
    expected = {"Addmm0": 100, "Cat0": 1, "Sum0": 1} | dict.fromkeys(once, 50)
    assert {name: counts[name] for name in expected} == expected


def rollout(rewards: Tensor, values: Tensor, ended: Tensor) -> ppo.Rollout:
    none = torch.zeros_like(rewards)
    return ppo.Rollout({}, none, none, none, none, values, rewards, ended)


def test_advantages_by_hand() -> None:
    """One environment, three steps, the second one ends an episode; discount 1/2, decay 1/2."""
    column = [[1.0], [2.0], [3.0]]
    found = ppo.advantages(
        rollout(torch.tensor(column), torch.tensor([[4.0], [6.0], [8.0], [10.0]]), torch.tensor([[0.0], [1.0], [0.0]])),
        discount=0.5,
        decay=0.5,
    )
    # step 2: 3 + 10/2 - 8 = 0; step 1 ends: 2 - 6 = -4; step 0: 1 + 6/2 - 4 = 0, plus a quarter of -4
    assert found.flatten().tolist() == [-1.0, -4.0, 0.0]


def test_advantages_with_decay_1_are_discounted_returns_less_values() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(6, 3, generator=generator), torch.randn(7, 3, generator=generator)
    ended = torch.zeros(6, 3)
    ended[2, 1] = 1
    found = ppo.advantages(rollout(rewards, values, ended), 0.9, 1.0) + values[:-1]
    for env in range(3):
        expected = float(values[6, env])
        for step in reversed(range(6)):
            expected = float(rewards[step, env]) + 0.9 * expected * (1 - float(ended[step, env]))
            assert float(found[step, env]) == pytest.approx(expected, abs=1e-5)


def test_the_clipped_loss_is_the_papers() -> None:
    """Sample by sample, in plain numbers, with torch's own distribution for probabilities and entropy."""
    generator = torch.Generator().manual_seed(0)
    logits, values = torch.randn(50, 4, generator=generator), torch.randn(50, generator=generator)
    then = ppo.Targets(
        actions=torch.randint(0, 4, (50,), generator=generator),
        log_probabilities=-2 * torch.rand(50, generator=generator),
        values=torch.randn(50, generator=generator),
        gains=torch.randn(50, generator=generator),
        returns=torch.randn(50, generator=generator),
    )
    choice = Categorical(logits=logits)
    objective, error = 0.0, 0.0
    for i in range(50):
        ratio = float((choice.log_prob(then.actions)[i] - then.log_probabilities[i]).exp())
        gain, target = float(then.gains[i]), float(then.returns[i])
        objective += min(ratio * gain, min(max(ratio, 0.8), 1.2) * gain) / 50
        old, new = float(then.values[i]), float(values[i])
        near = min(max(new, old - 0.2), old + 0.2)
        error += max((new - target) ** 2, (near - target) ** 2) / 50
    expected = -objective + 0.5 * error - 0.01 * float(choice.entropy().mean())
    assert float(ppo.clipped_loss(logits, values, then, RULES)) == pytest.approx(expected, rel=1e-5)


def test_sequences_are_consecutive_steps_of_one_environment() -> None:
    steps = torch.arange(6).unsqueeze(1) * 10 + torch.arange(2)  # [T, N]: 10 t + n
    found = ppo.in_sequences(steps, 3)
    assert found.shape == (3, 4)
    assert found.T.tolist() == [[0, 10, 20], [1, 11, 21], [30, 40, 50], [31, 41, 51]]


class Echo:
    """Shows a sign in the first step of an episode; the second step pays for the action that was the sign."""

    count = 32

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)

    def reset(self) -> dict[str, np.ndarray]:
        self.signs = self.random.integers(0, 2, self.count)
        self.second = False
        return self._seen()

    def step(self, actions: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        rewards = (actions == self.signs).astype(np.float64) if self.second else np.zeros(self.count)
        ended = np.full(self.count, self.second)
        if self.second:
            self.signs = self.random.integers(0, 2, self.count)
        self.second = not self.second
        return self._seen(), rewards, ended

    def _seen(self) -> dict[str, np.ndarray]:
        shown = np.zeros((self.count, 2), np.float32)
        if not self.second:
            shown[np.arange(self.count), self.signs] = 1
        return {"sign": shown}


class Rememberer(nn.Module):
    """A GRU cell with an actor and a critic."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.actor, self.critic = nn.GRUCell(2, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, observation: ppo.AgentView, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        memory = self.cell(observation["sign"], memory)
        return self.actor(memory), self.critic(memory).squeeze(1), memory


def test_an_agent_learns_to_remember() -> None:
    """Without memory, or if it were lost or leaked between steps, half of the rewards is the most there is."""
    bench = bench_on(Recording())
    agent = bench.place(Rememberer())
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
    players = ppo.Players(bench, agent, Echo(), memory_size=16)
    rules = ppo.PpoOptions(4, 2, 4, 0.2, 0.5, 0.01, 0.5)
    rates = []
    for _ in range(40):
        played = players.play(8)
        gains = ppo.advantages(played, 0.9, 0.9)
        ppo.update(bench, agent, optimizer, played, gains, gains + played.values[:-1], rules)
        rates.append(float(played.rewards.mean()) * 2)
    assert rates[0] == pytest.approx(0.5, abs=0.15)
    assert rates[-1] > 0.95


def test_a_rollout_starts_where_the_last_one_ended() -> None:
    bench = bench_on(Recording())
    players = ppo.Players(bench, bench.place(Rememberer()), Echo(), memory_size=16)
    first, second = players.play(3), players.play(2)
    assert first.going_on[:, 0].tolist() == [0, 1, 0]
    assert first.ended[:, 0].tolist() == [0, 1, 0]
    assert second.going_on[:, 0].tolist() == [1, 0]
    assert torch.equal(first.values[3], second.values[0])


@installed
def test_cart_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean length of an episode, which is its return, more than doubles."""
    episodes: list[int] = []
    discounted = cart.discounted
    monkeypatch.setattr(cart, "discounted", lambda *given: episodes.append(sum(given[1])) or discounted(*given))
    channel, _ = train("cart", 20)
    assert channel.one(Ready).parameters == 898
    assert channel.one(Done).count == 20 * 500
    assert 5 * 500 / sum(episodes[-5:]) > 2 * 5 * 500 / sum(episodes[:5])


@installed
def test_atari_plays_and_learns() -> None:
    channel, spy = train("atari", 3, environments=3, steps=8)
    assert channel.one(Ready).parameters == 866_439
    assert channel.one(Done).count == 3 * 24
    assert len(spy.losses) == 3 * 16
    assert np.isfinite(spy.losses).all()


@installed
def test_an_emulator_gives_what_2020_trained_on() -> None:
    """Four grey 84 x 84 frames of 8 bits, six actions, rewards of -1 to 1; the next episode begins in the same step."""
    games = atari.Emulators("PongNoFrameskip-v4", 2, 1, seed=5)
    frames = games.reset()["frames"]
    assert (frames.shape, frames.dtype, games.actions) == ((2, 4, 84, 84), np.uint8, 6)
    rewards, ended = [], 0
    while not ended:
        _, reward, over = games.step(np.zeros(2, np.int64))
        rewards.append(reward)
        ended = int(over.sum())
    games.close()
    assert set(np.unique(rewards)) <= {-1, 0, 1}
    assert np.sum(rewards) <= -21  # who does nothing loses 21 to 0


@installed
def test_minigrid_plays_and_learns_and_ends_its_processes() -> None:
    channel, spy = train("minigrid", 2, environments=6, steps=10, batch_size=30, recurrence=5)
    assert channel.one(Ready).parameters == 1_062_024
    assert channel.one(Done).count == 2 * 60
    assert len(spy.losses) == 2 * 4 * 2
    assert np.isfinite(spy.losses).all()
    assert multiprocessing.active_children() == []


@installed
def test_environments_do_not_depend_on_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same images, words, rewards and ends from one process and from three, past the end of episodes."""
    played = []
    for processes in (1, 3):
        bench = bench_on(Recording())
        monkeypatch.setattr(bench, "processes", lambda wanted, most=processes: min(wanted, most))
        worlds = minigrid.Worlds(bench, "BabyAI-UnlockPickup-v0", 6)
        assert worlds.processes == processes
        assert (worlds.words, worlds.actions) == (52, 7)
        random = np.random.default_rng(0)
        steps: list[Any] = [worlds.reset()["image"]]
        for _ in range(80):
            found, rewards, ended = worlds.step(random.integers(0, 7, 6))
            steps += [found["image"], found["mission"], rewards, ended]
        worlds.close()
        assert any(step.any() for step in steps[4::4])  # an episode of 72 steps is over
        played.append(steps)
    assert all(np.array_equal(one, three) for one, three in zip(*played, strict=True))


@installed
@pytest.mark.parametrize(("count", "cpus", "processes"), [(64, 16, 16), (64, 12, 8), (6, 2, 2), (7, 4, 1)])
def test_the_number_of_processes_is_bounded_by_the_cpus(count: int, cpus: int, processes: int) -> None:
    assert minigrid.even_parts(count, cpus) == processes


@installed
@pytest.mark.parametrize("wrong", [{"recurrence": 7}, {"batch_size": 10_000}, {"batch_size": 0}])
def test_minigrid_refuses_what_does_not_fit(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="recurrence must divide the steps"):
        train("minigrid", 1, **wrong)


@installed
def test_a_process_of_a_workload_keeps_nothing_of_the_workers() -> None:
    """The pipes to the orchestrator would stay open if an environment process outlived the worker."""
    reader, writer = os.pipe()
    bench = bench_on(Recording(), close_in_children=(writer,))
    bench.enter_process()
    os.fstat(writer)  # nothing happens in the workload's own process
    worlds = minigrid.Worlds(bench, "BabyAI-UnlockPickup-v0", 2)
    (child, *_) = worlds.vector.processes
    held = {os.readlink(f"/proc/{child.pid}/fd/{name}") for name in os.listdir(f"/proc/{child.pid}/fd")}
    assert os.readlink(f"/proc/self/fd/{reader}") in held  # the other end, which it was not told to close
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody else has it
    worlds.close()
    os.close(reader)


def test_the_modules_do_not_import_what_may_be_missing() -> None:
    for module in (atari, minigrid, cart, ppo):
        top = [line for line in inspect.getsource(module).splitlines() if line.startswith(("import", "from"))]
        assert not any(name in line for line in top for name in ("gymnasium", "import minigrid", "ale_py"))
