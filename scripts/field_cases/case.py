"""What is compared: a workload through the bench, and the same as a plain loop has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from milabench_ng.bench import Bench, Definition
from milabench_ng.model.units import MIB
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.models.narrow_layers import Narrow, calibrating, for_inference
from milabench_ng.workloads.models.paged_generator import PagedGenerator
from milabench_ng.workloads.models.speculator import Speculator
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.modern.h2d import Direction, h2d
from milabench_ng.workloads.modern.llm_decode import captured, llm_decode
from milabench_ng.workloads.modern.llm_prefill import FirstToken
from milabench_ng.workloads.modern.llm_serve import Server, Step, llm_serve, steps
from milabench_ng.workloads.modern.llm_speculate import PAGE, llm_speculate, rounds
from milabench_ng.workloads.modern.serving import Mix, Schedule, pages_for

GOAL = 0.97
"""Least ratio of our rate to that of the plain loop, unless a suite asks for more."""
WARM_STEPS = 3
SIZES = ("layers", "width", "heads", "kv_heads", "inner", "vocabulary")


def sizes_of(size: Dimensions) -> dict[str, int]:
    """The options of a workload of this size."""
    return {name: getattr(size, name) for name in SIZES}


@dataclasses.dataclass(frozen=True)
class Case:
    """One comparison."""

    name: str
    precision: str
    items: int
    """Items of a batch."""
    unit: str
    model: Callable[[], nn.Module]
    inputs: Callable[[torch.device], list[Tensor]]
    """A batch, with numbers in fp32."""
    loss: Callable[[nn.Module, Sequence[Tensor]], Tensor]
    """Of the model and a batch."""
    optimizer: Callable[[nn.Module], Optimizer]
    clip_norm: float | None = None
    after: Callable[[nn.Module], Callable[[Optimizer], None]] = lambda _model: lambda _optimizer: None
    """Makes what follows each step of the optimizer."""
    workload: Callable[[Bench], None] | None = None
    """The workload itself, if it can keep its batch on the device."""
    channels_last: bool = False
    autotune: bool = False
    """cuDNN's autotuner."""
    in_ranks: bool = False
    """Its model is of a process group, whose ranks go in step."""
    goal: float = GOAL

    def ours(self, bench: Bench) -> None:
        """Run it as a workload does."""
        if self.workload is not None:
            self.workload(bench)
            return
        torch.backends.cudnn.benchmark = self.autotune
        placed = bench.place(self.model())
        optimizer = self.optimizer(placed)
        batch = bench.to_device(self.inputs(bench.device))
        follow_step = self.after(placed)
        for given in bench.measure(repeat(batch), count=self.items):
            bench.step(self.loss(placed, given), optimizer, clip_norm=self.clip_norm)
            follow_step(optimizer)


@dataclasses.dataclass(frozen=True)
class Generation:
    """One comparison of generating tokens: a CUDA graph, whose tokens go to the host."""

    name: str
    items: int
    ring: int
    size: Dimensions
    precision: str = "bf16_master"
    unit: str = "tokens"
    goal: float = GOAL

    def ours(self, bench: Bench) -> None:
        """The workload."""
        llm_decode(bench, batch_size=self.items, ring=self.ring, **sizes_of(self.size))

    def step(self, device: torch.device) -> Callable[[], int]:
        """A step as one would write it."""
        with torch.device("meta"):
            empty = Generator(self.size, self.items, self.ring)
        model = built(empty, device, torch.bfloat16)
        with torch.inference_mode():
            for _ in range(WARM_STEPS):
                model()
            said = captured(model) if device.type == "cuda" else model
        return torch.inference_mode()(lambda: len(said().cpu()))


@dataclasses.dataclass(frozen=True)
class Prompt:
    """One comparison of reading a prompt up to the first token, which goes to the host with its logits."""

    name: str
    items: int
    size: Dimensions
    numbers: Narrow | None = None
    """That its blocks multiply; None for those of the precision."""
    compile: bool = False
    """Each block."""
    precision: str = "bf16_master"
    unit: str = "tokens"
    goal: float = GOAL

    def model(self) -> FirstToken:
        """Without weights yet."""
        with torch.device("meta"):
            return FirstToken(Transformer(self.size)).eval()

    def ready(self, placed: FirstToken, tokens: Tensor) -> FirstToken:
        """With weights in its numbers, and compiled if it is."""
        blocks = placed.model.blocks
        if self.numbers is not None:
            with torch.inference_mode(), calibrating(blocks) as largest:
                placed(tokens)
            for_inference(blocks, self.numbers, largest)
        for block in blocks if self.compile else ():
            block.compile()
        return placed

    def tokens(self, device: torch.device) -> Tensor:
        """A prompt [1, items]."""
        return torch.randint(self.size.vocabulary, (1, self.items), device=device)

    def ours(self, bench: Bench) -> None:
        """Run it as the workload does."""
        prompt = self.tokens(bench.device)
        placed = self.ready(bench.place(self.model()), prompt)
        for tokens in bench.measure(repeat(prompt), count=self.items):
            bench.infer(placed, tokens)

    def step(self, device: torch.device) -> Callable[[], int]:
        """A step as one would write it."""
        tokens = self.tokens(device)
        model = self.ready(built(self.model(), device, torch.bfloat16), tokens)

        @torch.inference_mode()
        def step() -> int:
            first, logits = model(tokens)
            first.cpu()
            logits.float().cpu()
            return self.items

        return step


@dataclasses.dataclass(frozen=True)
class Serving:
    """One comparison of serving: the same plans by a loop that takes them and counts tokens, and times nothing."""

    name: str
    items: int
    """Requests under way."""
    prompt: int
    answer: int
    page: int
    size: Dimensions
    seed: int
    precision: str = "bf16_master"
    unit: str = "tokens"
    goal: float = GOAL
    workload: Definition = llm_serve

    @property
    def options(self) -> dict[str, Any]:
        """Of the workload."""
        lengths = {"prompt": self.prompt, "answer": self.answer, "page": self.page, "chunk": self.prompt}
        return {"concurrency": self.items, **lengths, **sizes_of(self.size)}

    def ours(self, bench: Bench) -> None:
        """The workload."""
        self.workload(bench, **self.options)

    def step(self, device: torch.device) -> Callable[[], int]:
        """A step as one would write it."""
        mix = Mix(self.prompt, self.answer, self.seed)
        longest = pages_for(mix.kept, self.page)
        with torch.device("meta"):
            empty = PagedGenerator(self.size, texts=self.items, pages=self.items * longest, page=self.page)
        server = Server(built(empty, device, torch.bfloat16), self.items, longest)
        schedule = Schedule(mix, concurrency=self.items, pages=self.items * longest, page=self.page, chunk=self.prompt)
        schedule.begin_midway()
        planned = steps(schedule, mix, self.size.vocabulary)
        with torch.inference_mode():
            for _ in range(WARM_STEPS):
                server.model(*server.idle)
            if device.type == "cuda":
                server.capture()

        @torch.inference_mode()
        def step() -> int:
            plan, *tensors = next(planned)
            server.step(Step(plan, *(part.to(device, non_blocking=True) for part in tensors))).cpu()
            return plan.said

        return step


@dataclasses.dataclass(frozen=True)
class Speculation:
    """One comparison of speculative decoding: the same rounds, each as one CUDA graph, by a loop that times nothing."""

    name: str
    items: int
    """Texts at once."""
    prompt: int
    answer: int
    size: Dimensions
    draft: Dimensions
    seed: int
    drafts: int = 4
    acceptance: float = 0.7
    precision: str = "bf16_master"
    unit: str = "tokens"
    goal: float = GOAL
    workload: Definition = llm_speculate

    @property
    def options(self) -> dict[str, Any]:
        """Of the workload."""
        drafting = {f"draft_{name}": size for name, size in sizes_of(self.draft).items() if name != "vocabulary"}
        given = {name: getattr(self, name) for name in ("drafts", "acceptance", "prompt", "answer")}
        return {"concurrency": self.items, **given, **sizes_of(self.size), **drafting}

    def ours(self, bench: Bench) -> None:
        """The workload."""
        self.workload(bench, **self.options)

    def step(self, device: torch.device) -> Callable[[], int]:
        """A round as one would write it."""
        length = self.prompt + self.answer + self.drafts
        with torch.device("meta"):
            empty = Speculator(self.size, self.draft, texts=self.items, drafts=self.drafts, length=length, page=PAGE)
        model: Speculator = built(empty, device, torch.bfloat16)
        lengths = {"drafts": self.drafts, "prompt": self.prompt, "answer": self.answer}
        planned = rounds(self.items, acceptance=self.acceptance, seed=self.seed, **lengths)

        def both() -> Tensor:
            model.propose()
            return model.verify()

        with torch.inference_mode():
            for _ in range(WARM_STEPS):
                both()
            said = captured(both) if device.type == "cuda" else both

        @torch.inference_mode()
        def step() -> int:
            one = next(planned)
            model.given.copy_(one.given)
            said().cpu()
            return one.said

        return step


def shares(case: Serving | Speculation, rate: float, measured: Mapping[str, float]) -> dict[str, float]:
    """The shares of the device's peaks at ``rate``. ``measured``: these peaks, and the means of what was noted."""
    units = (each for each in case.workload.derived if "%" in each.unit)
    return {each.unit: each.of(rate, case.options, measured) for each in units}


@dataclasses.dataclass(frozen=True)
class Copies:
    """One comparison of copies between host and device."""

    name: str
    mib: int
    """Of each direction."""
    direction: Direction
    precision: str = "fp32"
    unit: str = "MiB"
    goal: float = GOAL

    def ours(self, bench: Bench) -> None:
        """The workload."""
        h2d(bench, mib=self.mib, direction=self.direction)

    def step(self, device: torch.device) -> Callable[[], int]:
        """A step as one would write it."""
        cuda, size = device.type == "cuda", self.mib * MIB
        hosts = [torch.zeros(size, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
        devices = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2)]
        pairs = {"in": (devices[0], hosts[0]), "out": (hosts[1], devices[1])}
        chosen = [pairs[way] for way in pairs if self.direction in ("both", way)]
        streams = [torch.cuda.Stream(device) if cuda else None for _ in chosen]  # type: ignore[no-untyped-call]

        def step() -> int:
            for stream, (target, source) in zip(streams, chosen, strict=True):
                with torch.cuda.stream(stream):
                    target.copy_(source, non_blocking=True)
            for stream in streams:
                if stream is not None:
                    stream.synchronize()
            return self.mib * len(chosen)

        return step


AnyCase = Copies | Case | Generation | Prompt | Serving | Speculation


def built(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A model on ``device``; one on the meta device draws its weights there."""
    if next(model.parameters()).is_meta:
        model.to(dtype).to_empty(device=device)
        model.reset_parameters()
    return model.to(device, dtype)
