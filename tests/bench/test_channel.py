"""The worker's ends of the pipes, and how ranks agree on their last step."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from milabench_ng.bench.channel import HEADROOM, PipeChannel, RankChannel, SharedStop, TrialChannel
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import AnyEvent, Done, Full, Lines, Phase, Start, Stop, encode

RANKS = 2
WAIT_S = 30


class Pipes:
    """Both pipes of a worker: ``channel`` is its end, the rest is the orchestrator's."""

    def __init__(self) -> None:
        self.events, up = os.pipe()
        down, self.commands = os.pipe()
        self.channel = PipeChannel(up, down)

    def tell(self, *commands: Start | Stop) -> None:
        os.write(self.commands, b"".join(encode(command) for command in commands))


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    for descriptor in (made.events, made.commands, made.channel.up, made.channel.down):
        try:
            os.close(descriptor)
        except OSError:
            continue  # the test has closed it


def test_events_go_up_as_lines(pipes: Pipes) -> None:
    sent = [Phase(name="build", seconds=0.5), Phase(name="enter", seconds=0.25)]
    for event in sent:
        pipes.channel.send(event)
    assert list(Lines(AnyEvent).feed(os.read(pipes.events, 4096))) == sent


def test_a_trial_is_full_after_its_steps_and_heeds_a_stop_after_each(pipes: Pipes) -> None:
    trial = TrialChannel(pipes.channel, rank=1, steps=2)
    pipes.tell(Start())
    trial.wait_for_start()
    pipes.tell(Stop())
    assert not trial.ended(0)
    assert not trial.ended(1)  # the orchestrator waits for all tenants: none stops before its steps are done
    assert trial.ended(2)
    (said,) = Lines(AnyEvent).feed(os.read(pipes.events, 4096))
    assert isinstance(said, Full)
    assert (said.rank, said.count) == (1, 2)


def test_start_then_stop(pipes: Pipes) -> None:
    pipes.tell(Start())
    pipes.channel.wait_for_start()
    pipes.channel.poll(1)
    assert not pipes.channel.ended(1)
    pipes.tell(Stop())
    assert not pipes.channel.ended(2)  # it is seen when a slice is closed
    pipes.channel.poll(2)
    pipes.channel.poll(3)  # does not block on the empty pipe
    assert pipes.channel.ended(3)


def test_a_stop_right_behind_start_is_not_lost(pipes: Pipes) -> None:
    pipes.tell(Start(), Stop())
    pipes.channel.wait_for_start()
    pipes.channel.poll(1)
    assert pipes.channel.ended(1)


def test_a_stop_instead_of_start_ends_the_wait(pipes: Pipes) -> None:
    pipes.tell(Stop())
    pipes.channel.wait_for_start()
    assert pipes.channel.ended(0)


def test_an_orchestrator_that_has_ended(pipes: Pipes) -> None:
    os.close(pipes.commands)
    with pytest.raises(InputError, match="has ended"):
        pipes.channel.wait_for_start()
    with pytest.raises(InputError, match="has ended"):
        pipes.channel.poll(1)


def rank_program(rank: int, pipes: Pipes, shared: SharedStop, rendezvous: Path, every: int) -> None:
    """All ranks do one collective a step. A rank that stops alone leaves the others in theirs until it times out."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", f"file://{rendezvous}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=WAIT_S)
    )
    channel = RankChannel(pipes.channel, rank, shared)
    channel.wait_for_start()
    steps = 0
    total = torch.zeros(1)
    while not channel.ended(steps):
        total += 1
        dist.all_reduce(total)
        steps += 1
        if steps % every == 0:
            channel.send(Phase(rank=rank, name="slice", seconds=0.0))
            channel.poll(steps)
    channel.send(Done(rank=rank, time_s=0.0, count=shared.step, steps=steps, ran="fp32", matmul_error=0.0))
    dist.destroy_process_group()


@pytest.mark.parametrize("every", [1, 3])
def test_two_ranks_agree_on_their_last_step(tmp_path: Path, pipes: Pipes, every: int) -> None:
    shared = SharedStop()
    fork = multiprocessing.get_context("fork")
    arguments = [(rank, pipes, shared, tmp_path / "rendezvous", every) for rank in range(RANKS)]
    ranks = [fork.Process(target=rank_program, args=one, daemon=True) for one in arguments]
    for process in ranks:
        process.start()
    os.close(pipes.channel.up)
    lines = Lines(AnyEvent)
    done: dict[int, Done] = {}
    told = 0
    pipes.tell(Start())
    while chunk := os.read(pipes.events, 4096):
        for event in lines.feed(chunk):
            told += 1
            if told == 10:
                pipes.tell(Stop())
            if isinstance(event, Done):
                done[event.rank] = event
    for process in ranks:
        process.join(WAIT_S)
    assert [process.exitcode for process in ranks] == [0, 0]
    assert done[0].steps == done[1].steps == shared.step == done[0].count
    assert shared.step % every == HEADROOM % every
    assert shared.step > HEADROOM
