"""Every built-in workload runs for real on the CPU, at small sizes, and learns."""

from __future__ import annotations

import math
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from launching import Places, train

from milabench_ng.bench.precision import MODES
from milabench_ng.model.events import Digest, Done, Ready, Slice
from milabench_ng.records.precision_seen import TRAITS
from milabench_ng.worker.discovery import builtin_workloads


def test_toy_reg() -> None:
    channel, spy = train("toy_reg", 150, batch_size=64)
    assert channel.one(Ready).dtypes == {"float32": 5}
    assert channel.one(Done).count == 150 * 64
    assert sum(spy.losses[-10:]) < 0.9 * sum(spy.losses[:10])
    assert channel.one(Digest) == train("toy_reg", 101, batch_size=64)[0].one(Digest)


def test_toy_lstm() -> None:
    channel, spy = train("toy_lstm", 3, samples=8, hidden=51, learning_rate=0.5)
    assert channel.one(Ready).parameters == 32_284
    assert channel.one(Done).count == 15  # three of eight are held out
    assert spy.losses == sorted(spy.losses, reverse=True)


def test_vae(place: Places) -> None:
    channel, spy = train("vae", 60, place("mnist"))
    assert channel.one(Ready).parameters == 652_824
    assert channel.one(Done).count == 60 * 128
    assert spy.losses[0] == pytest.approx(128 * 784 * 0.693, rel=0.05)  # all logits near 0: ln 2 a pixel
    assert spy.losses[-1] < 0.5 * spy.losses[0]


def test_loader(place: Places) -> None:
    channel, spy = train("loader", 4, place("imagenet"), batch_size=20)
    assert spy.losses == []
    assert [entry.count for entry in channel.all(Slice)] == [20] * 4  # of 50 pictures
    assert channel.one(Ready).dtypes == {}


def test_convnet(place: Places) -> None:
    channel, spy = train("convnet", 12, place("imagenet"), batch_size=25, image_size=32, learning_rate=0.02)
    assert channel.one(Ready).parameters == 11_689_512
    assert channel.one(Done).count == 300
    assert spy.losses[0] == pytest.approx(6.9, abs=0.7)  # ln 1000
    assert min(spy.losses[-2:]) < spy.losses[0] - 1


def test_convnet_in_half_master_has_fp16_weights_and_fp32_masters(place: Places) -> None:
    channel, spy = train("convnet", 2, place("imagenet"), precision="half_master", batch_size=4, image_size=32)
    ready = channel.one(Ready)
    assert ready.ran == channel.one(Done).ran == "half_master"
    assert ready.dtypes == {"float16": 11_679_912, "float32": 9_600}  # batch normalisation has 4,800 channels
    kept = [parameter for group in spy.optimizers[0].param_groups for parameter in group["params"]]
    assert {parameter.dtype for parameter in kept} == {torch.float32}
    assert sum(parameter.numel() for parameter in kept) == 11_689_512


def falls(losses: list[float], to: float) -> bool:
    """The last quarter is on average below ``to`` times the first loss."""
    last = losses[-max(1, len(losses) // 4) :]
    return all(map(math.isfinite, losses)) and sum(last) / len(last) < to * losses[0]


def test_reso(place: Places) -> None:
    channel, spy = train("reso", 14, place("bsds500"), batch_size=16, image_size=32)
    assert channel.one(Ready).parameters == 58_212
    assert channel.one(Done).count == 14 * 16  # an epoch of 200 pictures ends within the 13th batch
    assert falls(spy.losses, 0.3)
    assert builtin_workloads()["reso"].classic_factor == 1.28


def test_reso_at_the_rate_of_2020_stays_finite(place: Places) -> None:
    _, spy = train("reso", 12, place("bsds500"), batch_size=8, image_size=32, learning_rate=0.1)
    assert max(spy.losses) > 10 * spy.losses[0]
    assert all(map(math.isfinite, spy.losses))


def test_dcgan(place: Places) -> None:
    channel, spy = train("dcgan", 24, place("imagenet"), batch_size=8, width=8)
    assert channel.one(Done).count == 24 * 8  # an epoch of 50 pictures ends within the seventh batch
    critic, forger = spy.losses[::2], spy.losses[1::2]
    assert len(critic) == len(forger) == 24
    assert falls(critic, 0.7)
    first, second = spy.optimizers[:2]
    assert first is not second
    assert {id(optimizer) for optimizer in spy.optimizers[::2]} == {id(first)}


def test_fast_style(place: Places) -> None:
    channel, spy = train("fast_style", 10, place("imagenet"), batch_size=2, image_size=32, style_size=32)
    assert channel.one(Ready).parameters == 1_679_235 + 7_635_264
    assert falls(spy.losses, 0.8)
    trained = [parameter for group in spy.optimizers[0].param_groups for parameter in group["params"]]
    assert sum(parameter.numel() for parameter in trained) == 1_679_235


def test_ssd(place: Places) -> None:
    channel, spy = train("ssd", 5, place("coco"), arch="resnet10", batch_size=2)
    assert channel.one(Done).count == 10
    assert falls(spy.losses, 0.9)


def scaling_program(rendezvous: Path, results: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{rendezvous}", rank=0, world_size=1)
    channel, spy = train("scaling", 5, arch="resnet18", batch_size=4, image_size=32)
    results.send((channel.one(Ready).parameters, channel.one(Done).count, spy.losses))
    dist.destroy_process_group()


def test_scaling_over_one_rank(tmp_path: Path) -> None:
    """In a process of its own: a process group and its threads stay for the life of a process."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    fresh = multiprocessing.get_context("spawn")  # autograd's threads, if a test before had some, forbid a fork
    process = fresh.Process(target=scaling_program, args=(tmp_path / "rendezvous", sender), daemon=True)
    process.start()
    sender.close()
    parameters, count, losses = receiver.recv()
    process.join(30)
    assert process.exitcode == 0
    assert (parameters, count) == (11_689_512, 20)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("precision", MODES)
@pytest.mark.parametrize("name", ["toy_reg", "toy_lstm"])
def test_precision_is_common_to_all_workloads(name: str, precision: str) -> None:
    options = {"samples": 4, "hidden": 2} if name == "toy_lstm" else {"batch_size": 8}
    channel, _ = train(name, 2, precision=precision, **options)
    on_cpus = {"tf32": "fp32", "torch_default": "fp32"}
    assert channel.one(Done).ran == on_cpus.get(precision, precision)
    assert channel.one(Done).layer_dtype == TRAITS[precision].layers
