"""The generative recommender: its layers against dense ones in float64, its histories, and the workload on the CPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from launching import run
from rank_jobs import SMALL_HSTU, history_step
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Slice
from milabench_ng.model.formula import evaluate
from milabench_ng.workloads.models.transducer import Histories, Transducer, last_event_loss
from milabench_ng.workloads.modern.hstu import FLOP, hstu, quantiles

CPU = torch.device("cpu")
LENGTHS = [7, 5, 5, 2, 1]
SIZES: dict[str, Any] = {"layers": 2, "width": 12, "heads": 3, "head_size": 4}
NUMBERS = {option.name: option.default for option in hstu.own_options}


@dataclasses.dataclass
class Drawn:
    """A model with weights that all matter, and a batch."""

    model: Transducer
    embedded: Tensor
    actions: Tensor


def drawn(length: int, dtype: torch.dtype = torch.float64) -> Drawn:
    torch.manual_seed(0)
    model = Transducer(**SIZES, actions=4, length=length).double()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    embedded = torch.randn(sum(LENGTHS), SIZES["width"], dtype=torch.float64)
    return Drawn(model.to(dtype), embedded.to(dtype).requires_grad_(), torch.randint(4, (sum(LENGTHS),)))


def dense(given: Drawn, lengths: Sequence[int], divisor: int) -> Tensor:
    """The logits as the paper writes them down: user by user, head by head, with the whole matrix of weights."""
    model, size, logits = given.model, SIZES["head_size"], []
    for events, actions in zip(given.embedded.split([*lengths]), given.actions.split([*lengths]), strict=True):
        states = events + model.actions.weight[actions]
        ago = torch.arange(len(events))[:, None] - torch.arange(len(events))
        for layer in model.layers:
            gate, value, query, key = F.silu(layer.mixed(layer.before(states))).chunk(4, dim=1)
            sums = [
                (F.silu(q @ k.T / math.sqrt(size) + layer.distance[ago.clamp(min=0)]) * (ago >= 0)) @ v
                for q, k, v in zip(query.split(size, 1), key.split(size, 1), value.split(size, 1), strict=True)
            ]
            states = states + layer.output(layer.after(torch.cat(sums, 1) / divisor) * gate)
        logits.append(model.head(F.silu(model.inner(model.norm(states[-1])))))
    return torch.cat(logits)


@pytest.mark.parametrize("block", [1, 3, 4, 16])
def test_blocks_of_jagged_histories_come_to_what_dense_attention_does(block: int) -> None:
    """Logits, and the gradients of all weights and events; biases are in fp32."""
    histories = Histories(LENGTHS, block, CPU)
    given = drawn(histories.length)
    found, expected = given.model(given.embedded, given.actions, histories), dense(given, LENGTHS, histories.length)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    wanted = [given.embedded, *given.model.parameters()]
    gradients, theirs = (torch.autograd.grad(each.square().sum(), wanted) for each in (found, expected))
    for gradient, other in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-5, atol=1e-6)


def test_bf16_stays_near() -> None:
    """Within a few roundings of 1 in 256, of logits and of what goes back to the events."""
    histories = Histories(LENGTHS, 4, CPU)
    came = []
    for dtype in (torch.bfloat16, torch.float64):
        given = drawn(histories.length, dtype)
        logits = given.model(given.embedded, given.actions, histories)
        (gradient,) = torch.autograd.grad(logits.sum(), given.embedded)
        came.append((logits.double(), gradient.double()))
    for narrow, wide in zip(*came, strict=True):
        assert (narrow - wide).norm() < 0.03 * wide.norm()


def test_no_user_sees_another_or_what_comes_later() -> None:
    histories = Histories([6, 4], 4, CPU)
    given = drawn(histories.length)
    layer = given.model.layers[0]
    states = torch.randn(10, SIZES["width"], dtype=torch.float64)
    changed = states.clone()
    changed[3] += 1
    same = (layer(states, histories) == layer(changed, histories)).all(1)
    assert same.tolist() == [True] * 3 + [False] * 3 + [True] * 4


def test_lengths_are_the_quantiles_of_what_was_counted() -> None:
    """Median and mean of Yambda-5b's users; a step of the defaults has the numbers that are written down."""
    many = np.array(quantiles(100_001, 2695, 10**9))
    assert np.median(many) == 2695
    assert many.mean() == pytest.approx(4763, rel=0.005)
    lengths = quantiles(int(NUMBERS["batch_size"]), 2695, int(NUMBERS["length"]))
    assert lengths == sorted(lengths, reverse=True)
    assert (lengths[0], lengths[-1], lengths.count(4096), sum(lengths)) == (4096, 271, 11, 83_629)
    assert sum(own * (own + 1) // 2 for own in lengths) == 139_447_006


def test_parameters_and_operations_are_those_that_are_written_down() -> None:
    shape = {name: int(NUMBERS[name]) for name in ("layers", "width", "heads", "head_size")}
    with torch.device("meta"):
        model = Transducer(**shape, actions=4, length=4096)
    assert sum(weight.numel() for weight in model.parameters()) == 4_224_513
    work = {"batch_size": 32, "events": 83_629, "pairs": 139_447_006}
    assert evaluate(FLOP, shape | work) == pytest.approx(141.98e9, rel=1e-4)


def test_operations_are_those_that_torch_counts() -> None:
    """It counts whole blocks, and the scores once more going back, but not the two products that add in place."""
    histories = Histories(LENGTHS, 3, CPU)
    given = drawn(histories.length)
    with FlopCounterMode(display=False) as counter:
        given.model(given.embedded, given.actions, histories).sum().backward()
    inner = SIZES["heads"] * SIZES["head_size"]
    pairs = sum(own * (own + 1) // 2 for own in LENGTHS)
    whole = sum(users * 3 * (p + 1) * 3 for p, users in enumerate(histories.reaching))
    more = 2 * SIZES["layers"] * inner * (5 * whole - 6 * pairs)
    work = {"batch_size": len(LENGTHS), "events": sum(LENGTHS), "pairs": pairs}
    assert counter.get_total_flops() - more == pytest.approx(len(LENGTHS) * evaluate(FLOP, SIZES | work))


def test_it_trains_and_begins_with_the_loss_of_theory() -> None:
    channel = run(hstu, 3, **SMALL_HSTU)
    losses = channel.losses
    assert losses[0] == pytest.approx(math.log(2), rel=1e-6)
    assert all(loss is not None and math.isfinite(loss) for loss in losses)
    assert (channel.one(Done).count, channel.one(Done).ran) == (3 * SMALL_HSTU["batch_size"], "bf16_master")
    lengths = quantiles(SMALL_HSTU["batch_size"], SMALL_HSTU["median"], SMALL_HSTU["length"])
    for event in channel.all(Slice):
        assert event.notes == {"events": sum(lengths), "pairs": sum(own * (own + 1) / 2 for own in lengths)}


def test_it_learns_what_each_user_did() -> None:
    histories = Histories(LENGTHS, 4, CPU)
    given = drawn(histories.length, torch.float32)
    optimizer = torch.optim.Adam(given.model.parameters(), 1e-2)
    listened = torch.tensor([True, False, True, True, False])
    for _ in range(60):
        loss = last_event_loss(given.model(given.embedded.detach(), given.actions, histories), listened)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_two_ranks_with_half_of_the_columns_each_do_what_one_does(ranks: dict[str, list[Any]]) -> None:
    alone, (first, second) = history_step(0, 1), ranks["history_step"]
    np.testing.assert_allclose(np.mean([first["losses"], second["losses"]], axis=0), alone["losses"], rtol=1e-5)
    np.testing.assert_allclose(np.hstack([first["rows"], second["rows"]]), alone["rows"], atol=1e-5)
    assert alone["losses"][-1] < alone["losses"][0]


def test_it_runs_over_two_ranks(ranks: dict[str, list[Any]]) -> None:
    for losses, count in ranks["read_histories"]:
        assert losses[0] == pytest.approx(math.log(2), rel=1e-6)
        assert count == 2 * SMALL_HSTU["batch_size"]


def test_columns_that_cannot_be_shared_out_are_refused() -> None:
    with pytest.raises(InputError, match=r"--width 512: expected a multiple of the number of devices \(3\)"):
        hstu.check({}, devices=3)
