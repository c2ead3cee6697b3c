"""``Bench.measure`` and ``Bench.loader``: what a workload gets, in which order, and what is said about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import threadpoolctl
import torch
from recording import Recording, bench_on
from torch import Tensor, nn
from torch.utils.data import Dataset

from milabench_ng.bench.feeding import length
from milabench_ng.datasets.base import DataSet, Progress, Size
from milabench_ng.model.errors import DataError, InputError
from milabench_ng.model.events import Digest, Done, GradientNorm, Loss, Phase, Ready, Slice

HERE = Path()


class Items(Dataset[Any]):
    def __init__(self, function: Callable[[int], Any], count: int) -> None:
        self.function = function
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


class Numbered(DataSet):
    """``count`` items; ``function`` makes one of its index."""

    name = "numbered"
    folder = "numbered"
    version = 1
    scalable = False

    def __init__(self, function: Callable[[int], Any] = float, count: int = 10) -> None:
        self.function = function
        self.count = count

    def size(self, scale: float) -> Size:
        return Size(int(scale), 0, 0.0)

    def generate(self, place: Path, scale: float, seed: int, progress: Progress, processes: int) -> None:
        """It is not on disk."""

    def open(self, place: Path, *, split: str = "train", transform: Callable[[Any], Any] | None = None) -> Dataset[Any]:
        assert (place, split) == (HERE, "train")
        return Items(transform or self.function, self.count)


def loading(channel: Recording, data_set: DataSet | None = None, **options: Any) -> Any:
    return bench_on(channel, data_set=data_set or Numbered(), data_path=HERE, **options)


def flat(batches: list[list[float]]) -> list[float]:
    return [value for batch in batches for value in batch]


def test_the_way_of_a_launch() -> None:
    channel = Recording(last=3)
    fetched: list[int] = []

    def batches() -> Iterator[Tensor]:
        for number in range(5):
            fetched.append(number)
            yield torch.zeros(2)

    bench = bench_on(channel)
    bench.place(nn.Linear(3, 2))
    loop = bench.measure(batches())
    assert channel.log == []
    next(loop)
    assert fetched == [0]  # the first batch was there before `ready`
    names = [type(entry).__name__ if not isinstance(entry, str) else entry for entry in channel.log]
    assert names == ["Phase", "Ready", "wait for start"]
    assert channel.one(Phase).name == "build"
    ready = channel.one(Ready)
    assert (ready.precision, ready.ran, ready.dtypes, ready.parameters) == ("fp32", "fp32", {"float32": 8}, 8)
    assert len(list(loop)) == 2
    assert fetched == [0, 1, 2]
    done = channel.one(Done)
    assert channel.log[-1] is done
    assert (done.steps, done.count, done.ran, done.peak_device_bytes) == (3, 6, "fp32", None)
    assert [entry.steps for entry in channel.all(Slice)] == [1, 1, 1]


def test_batches_have_one_size_and_epochs_follow_each_other_in_one_stream() -> None:
    channel = Recording(last=6)
    bench = loading(channel)
    seen = [batch.tolist() for batch in bench.measure(bench.loader(4))]
    assert [len(batch) for batch in seen] == [4] * 6
    assert [entry.count for entry in channel.all(Slice)] == [4] * 6
    assert channel.one(Done).count == 24
    stream = flat(seen[1:])  # the first batch is one that all tenants have
    first, second = stream[:10], stream[10:]
    assert sorted(first) == list(range(10))
    assert len(set(second)) == len(second) == 10
    assert first != second


def test_a_batch_may_be_larger_than_the_set() -> None:
    bench = loading(Recording(2))
    seen = [batch.tolist() for batch in bench.measure(bench.loader(25))]
    assert [len(batch) for batch in seen] == [25, 25]
    assert all(3 >= seen[0].count(value) >= 2 for value in range(10))


def test_a_count_may_be_stated() -> None:
    for count, expected in ((7, 21), (lambda batch: 100 * len(batch), 1200)):
        channel = Recording(last=3)
        bench = loading(channel)
        list(bench.measure(bench.loader(4), count=count))
        assert channel.one(Done).count == expected


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.zeros(3, 2), 3),
        ((torch.zeros(4), torch.zeros(9)), 4),
        ([[torch.zeros(5)], torch.zeros(9)], 5),
        ({"image": torch.zeros(6), "label": torch.zeros(6)}, 6),
        ([{"image": torch.zeros(7)}], 7),
    ],
)
def test_the_length_of_a_batch_is_that_of_its_first_tensor(batch: Any, samples: int) -> None:
    assert length(batch) == samples


def test_no_batch_is_an_error() -> None:
    with pytest.raises(InputError, match="no batch"):
        next(bench_on(Recording(1)).measure([]))
    bench = loading(Recording(1), Numbered(count=0))
    with pytest.raises(InputError, match="the dataset has no batch"):
        next(bench.measure(bench.loader(4)))


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float64), ("half", torch.float16)])
def test_batches_are_placed_in_the_types_of_the_mode(precision: str, dtype: torch.dtype) -> None:
    number = torch.zeros(2, dtype=torch.float64)
    batch = {"x": [number, torch.zeros(2, dtype=torch.long)], "y": (number,), "name": "text"}
    (placed,) = bench_on(Recording(1), precision=precision).measure([batch], count=2)
    assert placed["x"][0].dtype is placed["y"][0].dtype is dtype
    assert placed["x"][1].dtype is torch.long
    assert placed["name"] == "text"


@pytest.mark.parametrize(("precision", "inside"), [("bf16", torch.bfloat16), ("amp", torch.float16), ("fp32", None)])
def test_the_body_runs_inside_the_context_and_the_data_outside(precision: str, inside: torch.dtype | None) -> None:
    outside: list[bool] = []

    def batches() -> Iterator[Tensor]:
        for _ in range(3):
            outside.append(torch.is_autocast_enabled("cpu"))
            yield torch.zeros(1)

    bodies = []
    for _ in bench_on(Recording(3), precision=precision).measure(batches()):
        bodies.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
    assert bodies == [inside] * 3
    assert outside == [False] * 3
    assert not torch.is_autocast_enabled("cpu")


def test_the_context_is_left_where_the_body_fails() -> None:
    loop = bench_on(Recording(3), precision="bf16").measure([torch.zeros(1)])
    next(loop)
    loop.close()
    assert not torch.is_autocast_enabled("cpu")


def test_waiting_for_data_is_told() -> None:
    def slow() -> Iterator[Tensor]:
        while True:
            time.sleep(0.03)
            yield torch.zeros(1)

    channel = Recording(last=3)
    list(bench_on(channel).measure(slow()))
    for entry in channel.all(Slice)[1:]:  # the first batch was there before the start
        assert 0.03 <= entry.wait_s <= entry.length_s


def fit(seed: int, tenant: int = 0) -> Recording:
    """A hundred steps of a regression."""
    channel = Recording(last=100)
    bench = loading(channel, Numbered(lambda index: torch.full((3,), index / 10.0)), seed=seed, tenant=tenant)
    model = bench.place(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in bench.measure(bench.loader(4)):
        bench.step((model(batch) - 1).square().mean(), optimizer)
    return channel


def test_equal_seeds_compute_the_same_and_others_do_not() -> None:
    one, again, other = fit(1), fit(1), fit(2)
    assert one.one(Digest) == again.one(Digest) != other.one(Digest)
    assert one.all(Loss) == again.all(Loss) != other.all(Loss)
    assert [event.step for event in one.all(Loss)] == [1, 2, 5, 10, 100]
    assert one.all(GradientNorm) == again.all(GradientNorm) != other.all(GradientNorm)
    assert one.all(Loss)[-1].value < one.all(Loss)[0].value  # type: ignore[operator]


def order(channel: Recording, **options: Any) -> list[float]:
    bench = loading(channel, **options)
    return [value for batch in bench.measure(bench.loader(4)) for value in batch.tolist()]


def test_the_order_of_the_data_depends_on_seed_and_tenant() -> None:
    def of(seed: int, tenant: int, workers: int = 0) -> list[float]:
        return order(Recording(5), seed=seed, tenant=tenant, workers=workers)

    assert of(1, 0) == of(1, 0)
    assert of(1, 0, workers=1) == of(1, 0, workers=2)
    assert of(1, 0)[4:] != of(1, 1)[4:] != of(1, 2)[4:]
    assert of(1, 1)[4:] == of(2, 0)[4:]  # seed + tenant
    assert of(1, 0) != of(2, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_batch_is_the_same_for_every_tenant_with_what_chance_does_to_it(workers: int) -> None:
    def of(seed: int, tenant: int) -> list[list[list[float]]]:
        noisy = Numbered(lambda index: torch.stack([torch.tensor(float(index)), torch.rand(())]))
        bench = loading(Recording(3), noisy, seed=seed, tenant=tenant, workers=workers)
        return [batch.tolist() for batch in bench.measure(bench.loader(4))]

    one, other, third = of(1, 0), of(1, 1), of(2, 0)
    assert one[0] == other[0] != third[0]
    assert one[1:] != other[1:]
    assert len({chance for batch in one for _, chance in batch}) == 12


def test_the_first_batch_leaves_the_random_numbers_of_the_launch_alone() -> None:
    bench = loading(Recording(1), Numbered(lambda _: torch.rand(())))
    before = torch.get_rng_state()
    list(bench.measure(bench.loader(4)))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_shuffling_the_order_is_that_of_the_set() -> None:
    bench = loading(Recording(3))
    batches = [batch.tolist() for batch in bench.measure(bench.loader(4, shuffle=False))]
    assert flat(batches) == [*range(10), 0, 1]


@pytest.fixture
def one_cpu() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def test_loader_processes_are_as_many_as_asked_for_at_most_the_cpus() -> None:
    cpus = len(os.sched_getaffinity(0))
    bench = loading(Recording(), workers=cpus + 3)
    assert bench.loader(4).loader.num_workers == cpus
    assert bench.loader(4, workers=1).loader.num_workers == 1
    assert bench.loader(4, workers=0).loader.num_workers == 0
    assert loading(Recording(), workers=1).loader(4).loader.num_workers == 1


@pytest.mark.usefixtures("one_cpu")
def test_loader_processes_follow_the_share() -> None:
    assert loading(Recording(), workers=8).loader(4).loader.num_workers == 1


def test_loader_processes_live_as_long_as_the_launch() -> None:
    bench = loading(Recording(6), Numbered(lambda _: os.getpid()), workers=1)
    pids = {pid for batch in bench.measure(bench.loader(4)) for pid in batch.tolist()}
    assert len(pids) == 1
    assert pids != {os.getpid()}


def test_loader_processes_have_one_thread_each() -> None:
    def threads(_: int) -> list[int]:
        pools = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
        return [torch.get_num_threads(), max(pools, default=1)]

    bench = loading(Recording(1), Numbered(threads), workers=1)
    (batch,) = bench.measure(bench.loader(4))
    assert [column.tolist() for column in batch] == [[1] * 4, [1] * 4]


def test_shared_memory_is_checked_before_loader_processes_start() -> None:
    huge = 1 << 50  # bytes of a batch; an expanded tensor takes no memory

    def sample(_: int) -> Tensor:
        torch.rand(3)  # a random transform
        return torch.zeros(1).expand(huge // 8)

    bench = loading(Recording(1), Numbered(sample), workers=1, tenants=3)
    before = torch.get_rng_state()
    with pytest.raises(
        InputError, match=r"/dev/shm is too small for the loader processes: 3 x .*\(2 \+ 2 batches of 2"
    ):
        bench.loader(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert loading(Recording(1), Numbered(sample), workers=0).loader(2).loader.num_workers == 0


def test_a_damaged_file_is_an_error_of_the_data_also_where_only_its_size_is_asked_for() -> None:
    def sample(_: int) -> Tensor:
        raise OSError("cannot identify image file")

    with pytest.raises(DataError, match="cannot identify image file"):
        loading(Recording(1), Numbered(sample), workers=1).loader(2)


def test_loader_processes_do_not_keep_the_pipes() -> None:
    """A loader that held the event pipe would hide its worker's death from the orchestrator."""
    pipe = os.pipe()

    def opened(_: int) -> list[bool]:
        return [os.path.exists(f"/proc/self/fd/{descriptor}") for descriptor in pipe]

    bench = loading(Recording(1), Numbered(opened), workers=1, close_in_children=(pipe[1],))
    (batch,) = bench.measure(bench.loader(4))
    for descriptor in pipe:
        os.close(descriptor)
    assert [column.tolist() for column in batch] == [[True] * 4, [False] * 4]


def test_a_transform_replaces_the_sets_own() -> None:
    bench = loading(Recording(3))
    batches = [batch.tolist() for batch in bench.measure(bench.loader(4, transform=lambda index: -index))]
    assert set(flat(batches)) <= set(range(-9, 1))


def test_a_workload_without_data_cannot_load() -> None:
    with pytest.raises(TypeError, match="declares no dataset"):
        bench_on(Recording()).loader(4)


def draws(tenant: int) -> list[float]:
    bench = bench_on(Recording(3), tenant=tenant)
    return [torch.rand(1).item() for _ in bench.measure([torch.ones(1)] * 4)]


def test_tenants_draw_the_same_in_the_first_step_and_their_own_later() -> None:
    one, other = draws(0), draws(1)
    assert draws(0) == one
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert one[2] != other[2]
    assert len(set(one)) == 3
    assert bench_on(Recording(), tenant=1).seed == bench_on(Recording(), tenant=0).seed


def test_a_rehearsal_computes_in_the_precision_mode_and_leaves_nothing_but_gradients() -> None:
    channel = Recording(last=1)
    bench = bench_on(channel, precision="bf16")
    model = bench.place(nn.Linear(3, 1))
    weight = model.weight.detach().clone()
    seen: list[torch.dtype] = []

    def loss() -> Tensor:
        outputs = model(torch.ones(2, 3))
        seen.append(outputs.dtype)
        return outputs.float().sum()

    bench.rehearse(loss)
    assert seen == [torch.bfloat16]
    assert torch.equal(model.weight, weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for batch in bench.measure([torch.zeros(2, 3)]):
        bench.step(model(batch).float().sum(), optimizer)
    assert torch.equal(model.weight, weight)  # inputs of 0 give gradients of 0: those of the rehearsal were dropped
    assert channel.one(Done).count == 2
