"""``Bench``: what a workload runs on. It knows device, precision, data and meter; the workload knows the model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import threadpoolctl
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from milabench_ng.bench import feeding, shared_memory, storage
from milabench_ng.bench.ahead import INTERVAL_S, Ahead
from milabench_ng.bench.channel import Channel
from milabench_ng.bench.compiling import compiled, eager
from milabench_ng.bench.edge_events import done_event, ready_event
from milabench_ng.bench.file_errors import FileErrors
from milabench_ng.bench.layer_type import LayerType
from milabench_ng.bench.library_kernels import LibraryKernels
from milabench_ng.bench.loader_deaths import naming_deaths
from milabench_ng.bench.meter import Meter
from milabench_ng.bench.moving import to_device, to_host
from milabench_ng.bench.notes import Notes
from milabench_ng.bench.options import CommonOptions
from milabench_ng.bench.precision import MODES
from milabench_ng.bench.trace import TraceRecorder
from milabench_ng.bench.verifier import Verifier
from milabench_ng.datasets.base import DataSet
from milabench_ng.datasets.budget import Budget, Budgeted
from milabench_ng.model.events import Phase
from milabench_ng.records.window import WindowRule

Module = TypeVar("Module", bound=nn.Module)
BatchT = TypeVar("BatchT")

OWN = 1 << 30
"""Added to the seed for a tenant's random numbers after its first step; those common to all begin at the seed."""
PREFETCH = 2
"""Batches that each loader process keeps ready."""


class Bench:
    """One process of a launch: a device, a precision mode, a dataset, a meter."""

    def __init__(
        self,
        *,
        device: torch.device,
        options: CommonOptions,
        rule: WindowRule,
        channel: Channel,
        tenant: int,
        data_set: DataSet | None = None,
        data_path: Path | None = None,
        rank: int = 0,
        tenants: int = 1,
        mark_interval_s: float = INTERVAL_S,
        close_in_children: tuple[int, ...] = (),
        read_bytes_per_s: int | None = None,
        late_steps: Collection[int] = (),
    ) -> None:
        """``tenant``: the slot's number, which the data order depends on. ``data_path``: where the dataset is.
        ``tenants``: processes like this one that work on the node at the same time.

        ``mark_interval_s``: see `ahead`; 0 marks every step, as ranks in lockstep need. ``close_in_children``: file
        descriptors that loader processes, and others that the workload starts, must not keep.
        ``read_bytes_per_s``: budget of all readers of the dataset together; None for no limit. ``late_steps``: see
        `TraceRecorder`.
        """
        self.device = device
        self.rank = rank
        self.max_workers = options.workers
        self._options = options
        self._rule = rule
        self._channel = channel
        self._data_set = data_set
        self._data_path = data_path
        self._file_errors = FileErrors(data_set, data_path)
        self._tenants = tenants
        self._close_in_children = close_in_children
        self._budget = Budget(read_bytes_per_s) if read_bytes_per_s else None
        self._precision = MODES[options.precision](device)
        self._order = torch.Generator().manual_seed(options.seed + tenant)
        self._layer_type = LayerType()
        self._kernels = LibraryKernels()
        self._meter: Meter | None = None
        self._ahead = Ahead.on(device, mark_interval_s)
        self._trace = TraceRecorder(channel, rank, self._precision.scale, late_steps)
        self._feeds: list[feeding.Feed] = []
        self.notes = Notes(device)
        """What the workload notes of its steps; formulas of derived units know the mean per step, by name."""
        self.verifier = Verifier(channel, rank)
        """Compares what its steps come to with what they must come to."""
        self._built_since = time.monotonic()
        self._pid = os.getpid()
        self.seed = options.seed
        """For random numbers on the host, such as those of environments; the same for all tenants."""
        self._own_seed = options.seed + tenant + OWN
        torch.manual_seed(options.seed)

    @property
    def ranks(self) -> int:
        """How many processes this launch has, one for each of its devices."""
        return dist.get_world_size() if dist.is_initialized() else 1

    def processes(self, wanted: int) -> int:
        """How many processes or threads a workload may start itself: ``wanted``, at most one per CPU of the tenant."""
        return min(wanted, len(os.sched_getaffinity(0)))

    def autotune(self) -> None:
        """Let cuDNN time its kernels on each new shape and keep the fastest; in true fp32 its heuristic chooses.

        Without tensor cores, timing the kernels of a large batch takes minutes.
        """
        torch.backends.cudnn.benchmark = self._options.precision != "fp32"

    def took(self, what: str, how: str) -> None:
        """Record ``how`` a part of the work is done where that depends on the node, as the record's ``kernels`` has it.

        ``what``: such as ``decompression`` or ``experts``.
        """
        self._kernels.note(what, how)

    def enter_process(self) -> None:
        """Close what a process started by the workload must not keep; call this first in it.

        Does nothing in the workload's own process.
        """
        if os.getpid() != self._pid:
            for descriptor in self._close_in_children:
                os.close(descriptor)

    def place(self, module: Module) -> Module:
        """Move ``module`` to the device, in the types of the precision mode.

        One on the meta device gets its memory there, in these types alone, and then draws its weights with its method
        ``reset_parameters``: a large model is never on the host, nor in fp32.
        """
        if any(parameter.is_meta for parameter in module.parameters()):
            self._precision.cast(module)
            module.to_empty(device=self.device)
            module.reset_parameters()  # type: ignore[operator]
        else:
            module.to(self.device)
            self._precision.cast(module)
        self._trace.watch(module)
        self._layer_type.watch(module)
        return module

    def spread(self, module: nn.Module) -> nn.Module:
        """A placed ``module`` for training: its gradients are averaged over the launch's devices, if it has several."""
        return DistributedDataParallel(module) if self.ranks > 1 else module

    def compile(self, module: nn.Module, *inputs: Any, parts: Iterable[nn.Module] = ()) -> Callable[..., Any]:
        """A placed ``module``, compiled for inputs like these: of the same shapes, types and memory formats.

        ``parts``: modules in it, each of which is compiled by itself, in place of all of it in one piece.

        Compiles here, before ``ready``, for training or inference as the module's mode says. The seconds are told as
        the phase ``compile``, not as part of ``build``. Raises InputError if the compiler fails.
        """
        since = time.monotonic()
        inputs = self.to_device(inputs)
        with self._kernels.watching():
            eager(module, inputs, self.device, self._precision.context)
        function = compiled(module, inputs, self.device, self._precision.context, parts)
        self._tell("compile", since)
        return function

    def rehearse(self, loss: Callable[[], Tensor]) -> None:
        """Forward and backward in the precision mode, before the clock: reserves the memory of their tensors.

        The first step drops the gradients. ``loss``: computes it. The seconds are told as the phase ``rehearsal``.
        """
        since = time.monotonic()
        with self._precision.context(), self._kernels.watching():
            made = loss()
        torch.autograd.backward(made)
        self._tell("rehearsal", since)

    def warm(self, model: Callable[..., Any], *inputs: Any) -> None:
        """One step of inference before the clock, as `infer` does it, whose outputs nobody needs."""
        with torch.inference_mode(), self._precision.context(), self._kernels.watching():
            model(*inputs)

    def to_device(self, value: Any) -> Any:
        """Move the tensors in ``value``, also within lists, tuples and dicts, to the device.

        Floating-point ones get the type of the precision mode's weights. ``measure`` does this for all that it yields.
        """
        return to_device(value, self.device, self._precision.input_dtype)

    def data(self, *, split: str = "train", transform: Callable[..., Any] | None = None) -> Any:
        """Open the workload's dataset, within its budget if it has one, since opening reads some sets whole."""
        data_set, place = self._data_set, self._data_path
        if data_set is None or place is None:
            raise TypeError("this workload declares no dataset: @workload(data=...)")

        def opened() -> Any:
            return data_set.open(place, split=split, transform=transform)

        with self._file_errors.opening():
            return self._budget.reading(opened) if self._budget else opened()

    def loader(
        self,
        batch_size: int | None,
        *,
        samples: Dataset[Any] | None = None,
        order: feeding.SampleOrder | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        workers: int | None = None,
        transform: Callable[..., Any] | None = None,
        shuffle: bool = True,
        pin_memory: bool = True,
    ) -> feeding.Feed:
        """Endless batches of the workload's dataset, in an order that depends on seed and tenant.

        All batches have one size: the remainder of an epoch begins the next. The first batch is the same for every
        tenant, whether shuffled or made by ``order``.

        ``batch_size``: None if a sample is already a batch. ``samples``: what to load instead of the opened dataset.
        ``order``: makes the indices of each epoch, from the generator that seed and tenant decide, instead of
        shuffling. ``collate``: makes a batch of samples. ``workers``: loader processes, the common option unless given;
        at most one per CPU of the tenant. They live as long as the launch, have one thread each, begin with the clock,
        except for the first batch, and keep two batches, or samples that are batches, ready. Raises InputError if the
        node's shared memory is too small for samples of the dataset.
        """
        wanted = self.max_workers if workers is None else workers
        processes = self.processes(wanted)
        data: Any = self.data(transform=transform) if samples is None else samples
        if order is None:
            order = feeding.shuffled(len(data)) if shuffle else feeding.in_order(len(data))
        if processes and batch_size is not None:
            with self._file_errors.reading():
                sample = shared_memory.sample_bytes(data, next(iter(order(torch.Generator()))), collate)
            shared_memory.require(sample, batch_size, PREFETCH * processes, self._tenants)
        gate = feeding.Gate(processes)
        loader = DataLoader(
            feeding.Gated(Budgeted(data, self._budget) if self._budget else data, gate, self.seed),
            batch_size=batch_size,
            sampler=feeding.Endless(order, self._order, self.seed, first=(batch_size or 1) if shuffle else 0),
            collate_fn=collate,
            num_workers=processes,
            prefetch_factor=PREFETCH if processes else None,
            multiprocessing_context="fork" if processes else None,
            worker_init_fn=self._enter_loader if processes else None,
            pin_memory=pin_memory and self.device.type == "cuda",
            generator=self._order,
        )
        self._feeds.append(feeding.Feed(loader, gate))
        return self._feeds[-1]

    def measure(
        self, batches: Iterable[BatchT], *, count: int | Callable[[BatchT], int] | None = None
    ) -> Iterator[BatchT]:
        """Yield the batches, on the device, over and over until the orchestrator says stop.

        The body of the loop runs inside the precision mode's context. ``count``: items of a batch, a number or a
        function of the batch; by default the length of its first tensor. Says ``ready`` when the first batch is
        requested, and waits for the common start.
        """
        items = count if callable(count) else (lambda _: count) if count is not None else feeding.length
        meter = self._meter = Meter(
            self._channel,
            rank=self.rank,
            clock=time.monotonic,
            synchronize=self._ahead.synchronize,
            on_slice=self._report,
            sample_duration=self._options.sample_duration,
            max_count=self._options.max_count,
            rule=self._rule,
            take_notes=self.notes.take,
            take_latencies=self.notes.take_latencies,
        )
        endless = feeding.repeat(batches)
        try:
            batch = self._fetch(endless)  # the first batch is here
            self._say_ready()
            self._channel.wait_for_start()
        finally:  # processes waiting at a gate would not end otherwise
            for feed in self._feeds:
                feed.open()
        self._layer_type.begin()
        meter.start()
        while not self._channel.ended(meter.steps):
            if meter.steps == 1:
                self._layer_type.end()
                torch.manual_seed(self._own_seed)  # reference traces know the first step; from here on tenants differ
            asked, backlog = time.monotonic(), feeding.backlog_of(self._feeds, meter.count)
            batch = self.to_device(batch if meter.steps == 0 else self._fetch(endless))
            waited = time.monotonic() - asked
            with self._precision.context():
                yield batch
            self._ahead.step()
            meter.step(items(batch), waited, backlog)
        self._ahead.synchronize()
        self._report()
        self._channel.send(
            done_event(self._precision, self._trace, self._layer_type, self._kernels, meter, self._budget)
        )

    def step(self, loss: Tensor, optimizer: Optimizer, *, clip_norm: float | None = None) -> None:
        """Backward and one optimizer step in the precision mode. ``clip_norm``: largest total gradient norm."""
        self._kernels.look(loss)
        self._precision.backward(loss, optimizer)
        self._trace.gradients(self._precision.gradients(optimizer))
        self._precision.apply(optimizer, clip_norm)
        self._trace.step(loss)

    def infer(self, model: Callable[..., Any], *inputs: Any) -> Any:
        """The outputs of ``model`` on the host, floating-point ones in fp32: one step of inference.

        Call it once in each round of the loop. The model runs in inference mode and in the precision mode; a batch is
        done when its outputs are on the host, as its caller would see it; the time from the call to that moment is the
        batch's latency. ``model``: a module in evaluation mode that ``place`` has placed, compiled or not; its outputs
        may be nested lists, tuples and dicts of tensors.
        """
        called_s = time.monotonic()
        with torch.inference_mode():
            outputs = to_host(model(*inputs))
        self._ahead.waited()
        if self._meter is not None:
            self._meter.note_latency(time.monotonic() - called_s)
        self._trace.outputs(outputs)
        return outputs

    def result(self, value: Tensor) -> None:
        """What a step without a model came to, in words of 8 bytes: the record has the digests of a few.

        Call it once in each round of the loop.
        """
        self._trace.result(value)

    def storage(self, needed: int) -> AbstractContextManager[Path]:
        """A folder of this process below the data root, for ``needed`` bytes of files; its end removes it.

        Raises InputError if the storage has too little room for all tenants.
        """
        return storage.folder(needed, self._tenants)

    def _report(self) -> None:
        """Tell what was computed since the last slice, and what of it was verified."""
        self._trace.report()
        self.verifier.report()

    def _tell(self, phase: str, since: float) -> None:
        """Tell the seconds of a part of ``build`` apart, once the device is done with it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        seconds = time.monotonic() - since
        self._built_since += seconds
        self._channel.send(Phase(rank=self.rank, name=phase, seconds=seconds))

    def _fetch(self, batches: Iterator[BatchT]) -> BatchT:
        with self._file_errors.reading(), naming_deaths():
            return next(batches)

    def _enter_loader(self, _worker: int) -> None:
        torch.set_num_threads(1)
        threadpoolctl.threadpool_limits(1)
        self.enter_process()

    def _say_ready(self) -> None:
        ready = ready_event(self.rank, self._options.precision, self._precision, self._trace)
        self._channel.send(Phase(rank=self.rank, name="build", seconds=ready.time_s - self._built_since))
        self._channel.send(ready)
