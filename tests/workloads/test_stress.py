"""Burns verify what they compute: sound work has no mismatch, and a flipped bit is found, wherever it flips."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from launching import run
from recording import Recording
from torch import Tensor

from milabench_ng.model.events import Checked, Digest, Mismatch
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.stress import burn as burning
from milabench_ng.workloads.stress import burn_memory as streaming
from milabench_ng.workloads.stress import pulse
from milabench_ng.workloads.stress.burn_bus import Packet
from milabench_ng.workloads.stress.chain import CHAINS, Chain
from milabench_ng.workloads.stress.field import ROW, Field
from milabench_ng.workloads.stress.pulse import Pulse

WORKLOADS = builtin_workloads()
CPU = torch.device("cpu")
SMALL: dict[str, dict[str, Any]] = {
    "burn": {"numbers": "fp32", "side": 32, "products": 4},
    "burn_cpu": {"side": 32, "products": 4},
    "burn_memory": {"mib": 1},
    "burn_ram": {"mib": 1},
    "burn_bus": {"mib": 1},
}
IN_RANKS = {"burn_links"}


def small(name: str, steps: int = 3) -> Recording:
    return run(WORKLOADS[name], steps, **SMALL[name])


def flip(tensor: Tensor, bit: int) -> None:
    """Flip one bit of the memory behind ``tensor``."""
    content = tensor.view(torch.uint8).flatten()
    content[bit // 8] ^= 1 << bit % 8


def bits(tensor: Tensor) -> int:
    return 8 * tensor.nbytes


def test_every_burn_is_tried_here() -> None:
    family = "milabench_ng.workloads.stress."
    assert {name for name, one in WORKLOADS.items() if one.function.__module__.startswith(family)} == {
        *SMALL,
        *IN_RANKS,
    }


@pytest.mark.parametrize("name", SMALL)
def test_sound_work_has_no_mismatch(name: str) -> None:
    channel = small(name)
    last = channel.all(Checked)[-1]
    assert channel.all(Mismatch) == []
    assert (last.wrong, last.checks >= 3, last.work > 0) == (0, True, True)


@pytest.mark.parametrize("numbers", CHAINS)
def test_all_numbers_keep_their_spread_over_a_lap(numbers: burning.Numbers) -> None:
    chain = CHAINS[numbers](CPU, 256, 8)
    values = chain.lap(lambda: None).float() / chain.spread
    assert 0.5 < float(values.std()) < 2
    assert bool(values.isfinite().all())


def test_verified_work_is_counted_by_hand() -> None:
    """Three laps of four products of 32 x 32: 2 x 32^3 operations each."""
    assert small("burn").all(Checked)[-1].work == pytest.approx(3 * 4 * 2 * 32**3 / 1e12)
    assert small("burn_memory").all(Checked)[-1].work == pytest.approx(3 * 3 * 2**20 / 1e9)
    assert small("burn_bus").all(Checked)[-1].work == pytest.approx(3 * 2 * 16 * 2**20 / 1e9)


def test_equal_seeds_give_equal_digests_in_every_lap() -> None:
    first, second = (small("burn", 5).all(Digest) for _ in range(2))
    assert [one.step for one in first] == [1, 2, 5]
    assert len({one.sha256 for one in (*first, *second)}) == 1


def test_a_number_that_is_none_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is there in every lap: equal bits alone would let it pass."""
    made = Chain.__init__

    def spoil(chain: Chain, *given: Any) -> None:
        made(chain, *given)
        chain.start[3, 4] = torch.nan

    monkeypatch.setattr(Chain, "__init__", spoil)
    (found,) = small("burn").all(Mismatch)
    assert (found.what, found.check) == ("number", 1)


def test_a_mismatch_names_what_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transient fault in the second product of the third measured lap."""
    count = itertools.count()
    product = Chain.product

    def faulty(chain: Chain, left: Tensor, out: Tensor) -> None:
        product(chain, left, out)
        if next(count) == 4 + 2 * 4 + 1:  # after the lap that is not measured
            flip(out, 30)

    monkeypatch.setattr(Chain, "product", faulty)
    channel = small("burn", 5)
    (found,) = channel.all(Mismatch)
    assert (found.what, found.check) == ("product", 3)
    assert channel.all(Checked)[-1].wrong == 1


def test_an_input_that_changes_for_good_is_found_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lap = Chain.lap
    count = itertools.count()

    def faulty(chain: Chain, before: Callable[[], None]) -> Tensor:
        if next(count) == 2:
            flip(chain.factor, 22)
        return lap(chain, before)

    monkeypatch.setattr(Chain, "lap", faulty)
    channel = small("burn", 12)
    assert [(one.what, one.check) for one in channel.all(Mismatch)] == [("product", n) for n in range(2, 10)]
    assert channel.all(Checked)[-1].wrong == 12  # eleven laps, and the inputs at the end


Trial = Callable[[random.Random], tuple[str, bool]]
"""Flips a bit somewhere: what it was, and whether it was found."""
SIDE, PRODUCTS = 96, 4
LAST_BIT = {"fp32": 2**-23, "bf16": 2**-7, "fp16": 2**-10, "fp8": 2.0}
"""Of a usual value, whose standard deviation is 1 (of fp8, 16)."""


class ChainTrials:
    """Flips of what a product came to, and of either input for the rest of the launch."""

    def __init__(self, numbers: burning.Numbers) -> None:
        self.numbers, self.chain = numbers, CHAINS[numbers](CPU, SIDE, PRODUCTS)
        self.known, self.inputs = self.lap(), self.chain.inputs()
        self.missed: list[tuple[int, float]] = []
        """The product, and by how much a value of it changed, where the end of the lap did not show it."""

    def lap(self) -> Tensor:
        return self.chain.digest(self.chain.lap(lambda: None))

    def of_product(self, moments: random.Random) -> tuple[str, bool]:
        chain, done = self.chain, itertools.count()
        hit, bit = moments.randrange(PRODUCTS), moments.randrange(bits(chain.start))
        change = 0.0

        def faulty(left: Tensor, out: Tensor) -> None:
            nonlocal change
            type(chain).product(chain, left, out)
            if next(done) == hit:
                before = out.double()
                flip(out, bit)
                change = float((out.double() - before).abs().max())

        chain.product = faulty  # type: ignore[method-assign]
        found = bool(self.lap() != self.known)
        del chain.product
        if not found:
            self.missed.append((hit, change))
        return f"{self.numbers} product", found

    def of_input(self, moments: random.Random) -> tuple[str, bool]:
        matrix, bit = moments.choice((self.chain.start, self.chain.factor)), moments.randrange(bits(self.chain.start))
        flip(matrix, bit)
        found = bool(self.lap() != self.known) or not self.chain.inputs().equal(self.inputs)
        flip(matrix, bit)
        return f"{self.numbers} input", found


def field_trial(moments: random.Random) -> tuple[str, bool]:
    field = Field(CPU, 2)
    for _ in range(moments.randrange(2)):
        field.invert()
    flip(field.words, moments.randrange(bits(field.words)))
    for _ in range(moments.randrange(2)):
        field.invert()
    return "memory", bool(field.wrong())


def test_changes_of_a_row_up_and_down_do_not_cancel_out() -> None:
    chain = Chain(CPU, 64, 1)
    matrix = torch.randn(64, 64)
    known = chain.digest(matrix)
    words = matrix.view(torch.int32)
    words[5, 7] += 1
    words[5, 9] -= 1
    assert chain.digest(matrix) != known


@pytest.mark.timeout(300)
def test_of_ten_thousand_flips_at_least_99_percent_are_found() -> None:
    """All of memory and inputs. Of products, those are missed that change a value by its last bit or less.

    They are rounded away before the lap ends, so that its result is right; none is missed in its last product.
    """
    torch.manual_seed(44)
    moments = random.Random(44)
    tried, found = Counter[str](), Counter[str]()
    kinds = ("fp32", "bf16", "fp16", "fp8")
    chains = [ChainTrials(numbers) for numbers in kinds]  # type: ignore[arg-type]
    trials: list[Trial] = [*(one.of_product for one in chains), *(one.of_input for one in chains), field_trial]
    for number in range(10_500):
        kind, seen = trials[number % len(trials)](moments)
        tried[kind] += 1
        found[kind] += seen
    print({kind: f"{found[kind]} of {tried[kind]}" for kind in tried})
    for one in chains:
        print(one.numbers, sorted((hit, f"{change:.1e}") for hit, change in one.missed))
        assert all(hit < PRODUCTS - 1 and change <= LAST_BIT[one.numbers] for hit, change in one.missed)
    assert found["memory"] == tried["memory"]
    assert all(found[f"{kind} input"] == tried[f"{kind} input"] for kind in kinds)
    assert found.total() >= 0.99 * tried.total()


def test_rows_have_the_sums_that_python_adds_up() -> None:
    field = Field(CPU, 3)
    words = field.words.tolist()
    assert [(row[0] - words[0][0]) % 2**64 for row in words] == [n * 0x9E3779B97F4A7C15 % 2**64 for n in range(3)]
    assert int(field.wrong()) == 0
    field.words[2, ROW - 1] += 1
    assert int(field.wrong()) == 1


@pytest.mark.parametrize("side", ["field", "host"])
def test_a_bit_that_flips_on_the_way_is_found(side: str) -> None:
    packet = Packet(CPU, 1)
    for number in range(5):
        packet.leave()
        if number == 2 and side == "host":
            flip(packet.host, 77)
        packet.arrive()
        if number == 3 and side == "field":
            flip(packet.field.words, 77)
    packet.leave()
    packet.arrive()
    assert int(packet.wrong()) == 1


def test_a_copy_that_is_left_out_is_found() -> None:
    packet = Packet(CPU, 1)
    for _ in range(2):
        packet.leave()
        packet.arrive()
    packet._on_device = False  # it is not copied to the host, which has it as it was
    packet.leave()
    packet.arrive()
    assert int(packet.wrong()) == len(packet.host)


def test_words_that_travel_between_ranks_come_home_as_they_left(ranks: dict[str, list[Any]]) -> None:
    """Each of two ranks sends half a MiB in each of sixteen exchanges of two steps."""
    for count, mismatches, checked in ranks["travel"]:
        assert (count, mismatches) == (2 * 8, [])
        assert (checked.checks, checked.work) == (2, pytest.approx(2 * 8 * 2**20 / 1e9))


def test_a_bit_that_flips_between_ranks_is_found_by_the_owner_of_the_words(ranks: dict[str, list[Any]]) -> None:
    found = [mismatches for _, mismatches, _ in ranks["damage"]]
    assert found == [[("words", 2), ("words", 3)], []]


def test_pulses_are_on_in_the_first_half_of_a_common_period() -> None:
    times = {10.0: 0.0, 10.1: 0.0, 10.3: 0.2, 10.25: 0.25, 10.45: 0.05, 10.5: 0.0}
    for now, off in times.items():
        assert Pulse(2.0, lambda now=now: now).off_s() == pytest.approx(off)  # type: ignore[misc]


def test_each_operation_of_a_pulse_waits_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 2 Hz: an operation that is asked for 0.1 s after the middle of a period waits for 0.15 s."""
    slept: list[float] = []
    monkeypatch.setattr(pulse.time, "sleep", slept.append)
    monkeypatch.setattr(pulse.time, "monotonic", lambda: 10.35)
    chain = Chain(CPU, 8, 3)
    chain.lap(pulse.waiting(2.0, CPU))
    chain.lap(pulse.waiting(0.0, CPU))
    assert slept == pytest.approx([0.15] * 3)


def test_memory_is_counted_in_whole_rows() -> None:
    assert streaming.ROWS_PER_MIB * ROW * 8 == 2**20
