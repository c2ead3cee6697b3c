"""Serving under load: requests come and go, and their texts share the GPU and its memory."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from milabench_ng.bench import Bench, Count, Derived, Rate, WholeNumber, workload
from milabench_ng.model.errors import InputError
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.paged_generator import PagedGenerator, paged_bytes
from milabench_ng.workloads.modern.serving import Integers, Mix, Plan, Schedule, pages_for
from milabench_ng.workloads.modern.token_times import TokenTimes
from milabench_ng.workloads.modern.work_formulas import BF16, STEP_FLOP, WEIGHTS

WARM = 3
"""Steps before the clock, and before the capture of the graphs."""
GRAPHS = 8
"""Graphs of a step: for an eighth of the pages, two eighths, and so on, of which it takes the least that holds all."""
WORKSPACE = 2 * 10**9
"""Bytes beside weights and pages that the GPU should have: logits, a part of a prompt in all layers, libraries."""
BYTES = f"(2 * {WEIGHTS} * passes + 4 * layers * width * kv_heads / heads * seen)"
"""That a step reads at least: the weights in each pass, keys and values of the texts that speak."""


def enough_pages(*, prompt: int, answer: int, page: int, pages: int) -> None:
    """Raise InputError unless the longest request fits into the pages."""
    needed = pages_for(Mix(prompt, answer, 0).kept, page)
    if 0 < pages < needed:
        raise InputError(
            f"--pages {pages}: a request of --prompt {prompt} and --answer {answer} needs {needed} pages of --page "
            f"{page} tokens. Give at least as many, or 0 for as many as all texts need"
        )


@workload(
    unit="tokens",
    most_items="concurrency",
    precision="bf16_master",
    bound="gpu-memory",
    notes=("said", "in_time", "fed", "attended", "seen", "passes"),
    item_latencies=("TTFT", "TPOT"),
    derived=(
        Derived("tokens/s per user", "rate / concurrency", curve_over="concurrency"),
        Derived("tokens/s in time", "rate * in_time / said"),
        Derived("TFLOP/s", f"rate / said * {STEP_FLOP} / 1e12"),
        Derived("MFU %", f"rate / said * {STEP_FLOP} / 1e10 / peak_tflops", BF16),
        Derived("peak HBM %", f"rate / said * {BYTES} / 1e7 / peak_gb_per_s", BF16),
    ),
    fits=enough_pages,
)
def llm_serve(
    bench: Bench,
    *,
    concurrency: Count = 64,
    prompt: Count = 1024,
    answer: Count = 1024,
    chunk: Count = 2048,
    page: Count = 128,
    pages: WholeNumber = 0,
    first_limit_s: Rate = 2.0,
    next_limit_s: Rate = 0.1,
    layers: Count = 32,
    width: Count = 4096,
    heads: Count = 32,
    kv_heads: Count = 8,
    inner: Count = 14_336,
    vocabulary: Count = 128_256,
    graph: bool = True,
) -> None:
    """Answer requests that come and go by continuous batching: bound by the GPU's memory bandwidth.

    The defaults have the shape of Llama 3.1 8B, with random weights. As many requests as asked are under way: when one
    ends, the next one comes. A step reads a part of one prompt, and each other text says its most probable token. Keys
    and values lie in pages. Lengths are uniform from 0.8 of the nominal ones up, and follow from the seed, like the
    prompts; when the clock starts, the texts are evenly spread over their answers. An item is one token of an answer;
    the latency of a batch is that of a step. Timed: forward, the tokens to the host, planning.

    Options:
        concurrency: requests under way.
        prompt: tokens of the longest prompt.
        answer: tokens of the longest answer.
        chunk: most tokens of a prompt that a step reads.
        page: tokens of a page of keys and values.
        pages: of keys and values that all texts share; 0: as many as the longest requests need. With fewer, requests
            wait.
        first_limit_s: seconds from the arrival of a request in which its first token is in time.
        next_limit_s: seconds in which later tokens are in time, on average over a text.
        layers: blocks.
        width: of the embedding and of all layers.
        heads: of the attention.
        kv_heads: heads of keys and values.
        inner: width of the feed-forward part.
        vocabulary: words.
        graph: CUDA graphs of the step that says tokens; without, and on CPUs, the host launches each kernel.
    """
    size = Dimensions(
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        inner=inner,
        vocabulary=vocabulary,
        tied=False,
    )
    mix = Mix(prompt, answer, bench.seed)
    count = pages or concurrency * pages_for(mix.kept, page)
    if bench.device.type == "cuda":
        refuse_too_many(paged_bytes(size, count, page), torch.cuda.mem_get_info(bench.device)[0])
    with torch.device("meta"):
        model = PagedGenerator(size, texts=concurrency, pages=count, page=page)
    server = Server(bench.place(model).eval(), concurrency, pages_for(mix.kept, page))
    server.warm(bench, min(chunk, prompt))
    if graph and bench.device.type == "cuda":
        with torch.inference_mode():
            server.capture()
    schedule = Schedule(mix, concurrency=concurrency, pages=count, page=page, chunk=chunk)
    schedule.begin_midway()
    times = TokenTimes(concurrency, first_limit_s=first_limit_s, next_limit_s=next_limit_s)

    plans = steps(schedule, mix, vocabulary)
    ahead = deque([bench.to_device(next(plans))])

    def served() -> Tensor:
        step = ahead.popleft()
        tokens = server.step(step)
        note_work(bench, step.plan)  # while the device works
        bench.notes.catch_up()
        ahead.append(bench.to_device(next(plans)))
        return tokens

    for plan in bench.measure(iter(lambda: ahead[0].plan, None), count=lambda plan: plan.said):
        bench.infer(served)
        bench.notes.postpone(partial(note_times, bench, times, plan, bench.notes.now_s()))


def refuse_too_many(needed: int, free: int) -> None:
    """Raise InputError unless ``free`` bytes of a GPU hold weights and pages of ``needed``, and what a step adds."""
    if needed + WORKSPACE > free:
        raise InputError(
            f"weights, keys and values take {needed / 1e9:.1f} GB and a step {WORKSPACE / 1e9:.0f} GB more, and the "
            f"GPU has {free / 1e9:.1f} GB free. Give a smaller --concurrency, --prompt or --answer, or fewer --pages"
        )


class Step(NamedTuple):
    """A plan, with what of it goes to the device."""

    plan: Plan
    table: Tensor
    position: Tensor
    prompt: Tensor
    """What is read of a prompt; empty if nothing is."""


def steps(schedule: Schedule, mix: Mix, vocabulary: int) -> Iterator[Step]:
    for plan in schedule.steps():
        yield Step(plan, *map(torch.from_numpy, (plan.table, plan.position, part_of_prompt(plan, mix, vocabulary))))


def part_of_prompt(plan: Plan, mix: Mix, vocabulary: int) -> Integers:
    """The tokens that a step reads."""
    reading = plan.reading
    if reading is None:
        return plan.position[:0]
    return mix.tokens(reading.request, vocabulary)[reading.start :][: reading.count]


class Server:
    """A model that takes steps; those that say tokens as CUDA graphs, once they are captured."""

    def __init__(self, model: PagedGenerator, texts: int, longest: int) -> None:
        """``longest``: pages of the longest text."""
        self.model = model
        self._table = torch.zeros(texts, longest, dtype=torch.int64, device=model.tokens.device)
        self._position = torch.full((texts,), -1, device=model.tokens.device)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """By reach."""
        whole = model.keys.shape[1]
        self._reaches = sorted({-(-whole * part // GRAPHS) for part in range(1, GRAPHS + 1)})

    @property
    def idle(self) -> tuple[Tensor, Tensor, int]:
        """What the model is given for a step, over all pages, in which nobody says anything."""
        return self._table, self._position, self._reaches[-1]

    def step(self, step: Step) -> Tensor:
        """Take a step: the last token of each text."""
        reading = step.plan.reading
        if step.plan.speaking:
            self._say(step)
        if reading is not None:
            token = self.model.read(step.prompt, step.table[reading.slot], reading.start)
            if reading.last:
                self.model.tokens[reading.slot] = token
        return self.model.tokens

    def warm(self, bench: Bench, chunk: int) -> None:
        """Steps before the clock, in which nobody says anything, and parts of a prompt that nobody goes on with."""
        prompt = torch.zeros(chunk, dtype=torch.int64, device=self._table.device)
        own = torch.arange(1, pages_for(chunk, self.model.page) + 1, device=self._table.device)
        for _ in range(WARM):
            bench.warm(self.model, *self.idle)
            bench.warm(self.model.read, prompt, own, 0)

    def capture(self) -> None:
        """Capture a graph for each reach, the largest first, whose memory the others share."""
        torch.cuda.synchronize()
        pool = None
        for reach in reversed(self._reaches):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self.model(self._table, self._position, reach)
            self._graphs[reach], pool = graph, graph.pool()

    def _say(self, step: Step) -> None:
        reach = next(reach for reach in self._reaches if reach >= step.plan.reach)
        if reach not in self._graphs:
            self.model(step.table, step.position, reach)
            return
        self._table.copy_(step.table)
        self._position.copy_(step.position)
        self._graphs[reach].replay()


def note_work(bench: Bench, plan: Plan) -> None:
    """Note what a step works on."""
    reading, seen = plan.reading, int((plan.position + 1).sum())
    read = 0 if reading is None else reading.count
    for name, value in (
        ("said", plan.said),
        ("fed", plan.speaking + read),
        ("attended", seen + (0 if reading is None else read * reading.start + read * (read + 1) // 2)),
        ("seen", seen),
        ("passes", (plan.speaking > 0) + (read > 0)),
    ):
        bench.notes.add(name, value)


def note_times(bench: Bench, times: TokenTimes, plan: Plan, now_s: float) -> None:
    """Note when the tokens of a step came, which ended at ``now_s``."""
    said = times.step(plan, now_s)
    bench.notes.add("in_time", said.in_time)
    if said.first_s is not None:
        bench.notes.latency("TTFT", said.first_s)
    for seconds, count in said.next_s:
        bench.notes.latency("TPOT", seconds, count)
