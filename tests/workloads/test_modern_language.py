"""The language tests of the modern suite: sizes, networks against plain references, and each test on the CPU."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from field_cases.shapes import DENSE_0_8B, LLAMA_8B, LLAMA_70B, ROUTED_0_9B, ROUTED_21B
from gloo_pair import both
from launching import Places, run
from msgspec.structs import replace
from sharded_training import Generation, KnownSteps, KnownTokens, ShardedTraining
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Definition
from milabench_ng.datasets.text.token_stream import Tokens32k, Tokens128k
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, GradientNorm, Loss, Phase, Ready
from milabench_ng.model.memory_classes import DeviceMemory, choose_entries
from milabench_ng.model.units import GIB
from milabench_ng.workloads.models.adapters import AdaptedTransformer
from milabench_ng.workloads.models.chunked_loss import chunked_loss
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.experts import Experts, Products, products_for
from milabench_ng.workloads.models.generator import Generator
from milabench_ng.workloads.models.transformer import Attention, Transformer, rotation
from milabench_ng.workloads.modern.collectives_sweep import collectives_sweep
from milabench_ng.workloads.modern.llm_decode import llm_decode
from milabench_ng.workloads.modern.llm_fsdp import llm_fsdp
from milabench_ng.workloads.modern.llm_lora import llm_lora
from milabench_ng.workloads.modern.llm_prefill import llm_prefill
from milabench_ng.workloads.modern.llm_pretrain import llm_pretrain
from milabench_ng.workloads.modern.moe import moe
from milabench_ng.workloads.modern.moe_ep import moe_ep

PROFILE: dict[str, Any] = {
    name: test
    for suite in ("modern", "modern2", "parallel")
    for name, test in json.loads((Path(__file__).parents[2] / "profiles" / f"{suite}.json").read_text()).items()
}
SIZES: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "inner": 128, "vocabulary": 512}
TINY = Dimensions(**SIZES)
ROUTED = Dimensions(**SIZES, experts=8, active=2)
LLAMA_3B = Dimensions(layers=28, width=3072, heads=24, kv_heads=8, inner=8192, vocabulary=128_256)
"""The shape of Llama 3.2 3B."""
FIRST_LOSS = math.log(512) + 64 * 0.02**2 / 2
"""The logits of a normalised state are normal, with a variance of the width times 0.02^2."""
SMALL = {
    "llm_pretrain": SIZES | {"batch_size": 4, "length": 64},
    "llm_lora": SIZES | {"batch_size": 4, "length": 64, "rank": 4},
    "llm_prefill": SIZES | {"length": 64},
    "llm_decode": SIZES | {"batch_size": 3, "ring": 64},
    "moe": SIZES | {"batch_size": 4, "length": 64, "experts": 8, "active": 2},
}
TRAINED = ("llm_pretrain", "llm_lora", "moe")


def drawn(model: Any) -> Any:
    torch.manual_seed(0)
    model.reset_parameters()
    return model


def texts(length: int = 24) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(TINY.vocabulary, (3, length + 1), generator=torch.Generator().manual_seed(1))
    return tokens[:, :-1], tokens[:, 1:]


# Sizes


def multiplied(size: Dimensions) -> int:
    """The weights that a token is multiplied with, counted on the network; of experts, the active ones."""
    with torch.device("meta"):
        model = Transformer(size)
    found = sum(layer.weight.numel() for layer in model.modules() if isinstance(layer, nn.Linear))
    experts = [layer for layer in model.modules() if isinstance(layer, Experts)]
    found += (
        sum(part.numel() for one in experts for part in (one.gate, one.up, one.down))
        * size.active
        // (size.experts or 1)
    )
    return found + (size.vocabulary * size.width if size.tied else 0)


def training_flop(size: Dimensions, length: int, *, frozen: bool = False) -> float:
    """Of forward and backward per token, half of attention (arXiv:2204.02311); frozen weights have no gradients."""
    return (4 if frozen else 6) * multiplied(size) + 6 * size.layers * size.query_width * length


def prompt_flop(size: Dimensions, length: int) -> float:
    """Of a forward pass per token of a prompt, whose last one alone the head sees."""
    head = size.vocabulary * size.width
    return 2 * (multiplied(size) - head) + 2 * size.layers * size.width * length + 2 * head / length


@pytest.mark.parametrize(
    ("size", "parameters", "of_a_token"),
    [
        (DENSE_0_8B, 822_151_168, 822_083_584),
        (LLAMA_8B, 8_030_261_248, 7_504_658_432),
        (LLAMA_3B, 3_212_749_824, 3_212_574_720),
        (ROUTED_0_9B, 872_956_928, 168_296_448),
        (ROUTED_21B, 20_907_927_360, 3_607_142_400),
        (LLAMA_70B, 70_553_706_496, 69_501_714_432),
    ],
)
def test_parameters(size: Dimensions, parameters: int, of_a_token: int) -> None:
    with torch.device("meta"):
        model = Transformer(size)
    assert sum(parameter.numel() for parameter in model.parameters()) == size.parameters() == parameters
    assert multiplied(size) == of_a_token


def test_adapters_have_as_many_parameters_as_published_for_rank_16() -> None:
    with torch.device("meta"):
        model = AdaptedTransformer(LLAMA_8B, 16)
    assert sum(parameter.numel() for parameter in model.trained()) == 41_943_040


OPERATIONS = {
    "llm_pretrain": (5.738, training_flop(DENSE_0_8B, 4096)),
    "llm_fsdp": (51.470, training_flop(LLAMA_8B, 8192)),
    "llm_fsdp_3b": (21.389, training_flop(LLAMA_3B, 4096)),
    "llm_lora": (33.491, training_flop(LLAMA_8B, 4096, frozen=True) + 6 * 41_943_040),
    "llm_prefill": (14.496, prompt_flop(LLAMA_8B, 2048)),
    "llm_decode": (17.157, 2 * multiplied(LLAMA_8B) + 4 * 32 * 4096 * 4096),
    "moe": (1.211, training_flop(ROUTED_0_9B, 4096)),
    "moe_ep": (24.059, training_flop(ROUTED_21B, 4096)),
    "llm_tp_decode": (144.372, 2 * multiplied(LLAMA_70B) + 4 * 80 * 8192 * 2048),
    "llm_cp": (14.829, training_flop(replace(LLAMA_8B, layers=4), 65_536)),
}
FAMILY = {each.name: each for each in (llm_pretrain, llm_fsdp, llm_lora, llm_prefill, llm_decode, moe, moe_ep)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_per_item_and_the_formulas_of_the_derived_units(name: str) -> None:
    """The formulas over the options of the profile's entry say what is counted on the networks."""
    stated, flop = OPERATIONS[name]
    assert flop / 1e9 == pytest.approx(stated, abs=6e-4)
    workload = FAMILY[PROFILE[name]["workload"]]
    described = workload.describe(workload.name, "").options
    given, _ = choose_entries(PROFILE[name]["arguments"], DeviceMemory(device="", bytes=141 * GIB), name)
    options = {option.name: option.default for option in described} | given
    known = {"peak_tflops": 1000.0, "peak_gb_per_s": 4800.0, "devices": 2, "expert_load": 1.0, "device_load": 1.0}
    units = {each.unit: each.of(1000.0, options, known) for each in workload.derived if each.fits(options)}
    assert units["TFLOP/s"] == pytest.approx(flop / 1e9)
    if "decode" not in name:
        assert units["MFU %"] == pytest.approx(flop / 1e10)
        assert units["MFU %"] < units["MFU % (full attention)"] < 1.5 * units["MFU %"]


def test_a_decoding_step_reads_weights_and_keys() -> None:
    """15.01 GB and 0.537 GB a text; the 5,683 tokens/s that were measured on an H200 are 71.5 % of its bandwidth."""
    options = {option.name: option.default for option in llm_decode.describe("llm_decode", "").options}
    (unit,) = (each for each in llm_decode.derived if each.unit == "peak HBM %")
    peaks = {"peak_gb_per_s": 4800.0}
    assert unit.of(5683.0, options, peaks) == pytest.approx(71.5, abs=0.2)
    assert unit.of(1.0, {**options, "batch_size": 1}, peaks) * 48 == pytest.approx(15.01 + 0.537, abs=0.005)


# Networks


@pytest.mark.parametrize("heads", [(4, 2), (4, 4)])
def test_attention_by_groups_is_attention_with_repeated_keys(heads: tuple[int, int]) -> None:
    size = Dimensions(**{**SIZES, "heads": heads[0], "kv_heads": heads[1]})
    torch.manual_seed(0)
    attention, hidden = Attention(size), torch.randn(2, 10, 64)
    turns = rotation(torch.arange(10), size.head_size, torch.float32)
    query, key, value = attention.project(hidden, turns)
    key, value = (part.repeat_interleave(heads[0] // heads[1], dim=1) for part in (key, value))
    scores = (query @ key.transpose(2, 3) / math.sqrt(size.head_size)).masked_fill(
        torch.ones(10, 10, dtype=torch.bool).triu(1), -math.inf
    )
    expected = attention.output((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
    assert torch.allclose(attention(hidden, turns), expected, atol=1e-5)


def test_positions_count_by_their_distance() -> None:
    """Products of turned queries and keys depend on the difference of their positions alone (arXiv:2104.09864)."""
    size = Dimensions(**SIZES)
    torch.manual_seed(0)
    attention, state = Attention(size), torch.randn(1, 1, 64)

    def product(at: int, other: int) -> Tensor:
        query, _, _ = attention.project(state, rotation(torch.tensor([at]), size.head_size, torch.float32))
        _, key, _ = attention.project(state, rotation(torch.tensor([other]), size.head_size, torch.float32))
        return (query[:, ::2] * key).sum(-1)

    assert torch.allclose(product(7, 3), product(104, 100), atol=1e-5)
    assert not torch.allclose(product(7, 3), product(7, 4), atol=1e-3)


@pytest.mark.parametrize("chunk", [7, 100])
def test_the_loss_in_pieces_is_the_plain_loss(chunk: int) -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(3, 10, 8).requires_grad_(), torch.randn(50, 8).requires_grad_()
    following = torch.randint(50, (3, 10))
    plain = F.cross_entropy((states @ weight.t()).flatten(0, 1), following.flatten())
    pieces = chunked_loss(states, weight, following, chunk)
    assert torch.allclose(pieces, plain)
    found, expected = (torch.autograd.grad(3 * loss, [states, weight]) for loss in (pieces, plain))
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_recomputing_changes_nothing() -> None:
    plain, again = (drawn(Transformer(TINY, recompute=recompute)) for recompute in (False, True))
    for model in (plain, again):
        model(*texts()).backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)


@pytest.mark.parametrize("products", get_args(Products))
def test_experts_in_groups_are_a_loop_over_experts(products: Products) -> None:
    torch.manual_seed(0)
    experts = Experts(ROUTED)
    experts.products = products
    for parameter in experts.parameters():
        nn.init.normal_(parameter, 0, 0.2)
    hidden = torch.randn(2, 8, 64).requires_grad_()
    found = experts(hidden)
    dealt = experts._dealt
    assert dealt is not None
    assert dealt.chosen.view(4, 8).sort(1).values.equal(torch.arange(8).expand(4, 8))  # four tokens share out all
    rows = hidden.flatten(0, 1)
    shares = experts.router(rows).softmax(1)
    expected = torch.zeros_like(rows)
    for expert in range(8):
        inner = F.silu(rows @ experts.gate[expert]) * (rows @ experts.up[expert])
        chosen = (dealt.chosen == expert).any(1)
        expected = expected + (chosen * shares[:, expert])[:, None] * (inner @ experts.down[expert])
    assert torch.allclose(found.flatten(0, 1), expected, atol=1e-4)
    weights = [hidden, *experts.parameters()]
    ours, loops = (torch.autograd.grad(out.square().sum(), weights, retain_graph=True) for out in (found, expected))
    for one, other in zip(ours, loops, strict=True):
        assert torch.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize(
    ("capability", "products"),
    [((8, 0), "batched"), ((8, 9), "batched"), ((9, 0), "grouped_mm"), ((10, 3), "grouped_mm"), ((12, 0), "batched")],
)
def test_the_products_are_grouped_where_a_kernel_is_there(
    capability: tuple[int, int], products: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert products_for(torch.device("cuda")) == products
    assert products_for(torch.device("cpu")) == "batched"


def test_experts_learn_the_same_by_either_products(place: Places) -> None:
    seen = {each: run(moe, 5, place, **SMALL["moe"], products=each) for each in ("auto", *get_args(Products))}
    kernels = {each: channel.one(Done).kernels["experts"] for each, channel in seen.items()}
    assert kernels == {"auto": "batched", "batched": "batched", "grouped_mm": "grouped_mm"}
    losses = {each: channel.losses for each, channel in seen.items()}
    assert losses["auto"] == losses["batched"]
    assert losses["batched"] == pytest.approx(losses["grouped_mm"], rel=1e-4)


def test_adapters_add_nothing_at_first_and_alone_are_trained() -> None:
    adapted, plain = drawn(AdaptedTransformer(TINY, rank=4)), Transformer(TINY)
    frozen = {name: value for name, value in adapted.state_dict().items() if not name.endswith((".into", ".out"))}
    plain.load_state_dict(frozen)
    assert torch.equal(adapted(*texts()), plain(*texts()))
    adapted(*texts()).backward()
    given = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert given == {name for name in dict(adapted.named_parameters()) if name.endswith((".into", ".out"))}
    assert len(given) == 2 * 7 * TINY.layers
    assert any(parameter.grad.any() for parameter in adapted.trained())


RING = 12


def test_generating_with_a_ring_is_attention_over_the_last_tokens() -> None:
    """Each token is that of a network which sees all texts again, and of each the last 12 tokens."""
    size = Dimensions(**{**SIZES, "tied": False})
    generator = drawn(Generator(size, 3, RING))
    for weight in generator.model.parameters():
        weight.data *= 4  # so that tokens differ
    written, _ = texts(RING + 1)
    logits, rings = windowed(generator.model, written[:, :RING])
    for layer, (key, value) in enumerate(rings):
        generator.keys[layer], generator.values[layer] = key, value
    generator.tokens.copy_(written[:, RING])
    with torch.inference_mode():
        for _ in range(2 * RING + 3):
            logits, _ = windowed(generator.model, written)
            said = generator()
            assert torch.equal(said, logits[:, -1].argmax(1))
            written = torch.cat((written, said[:, None]), 1)
    assert int(generator.position) == 3 * RING + 3
    assert len(written.unique()) > 20


def windowed(model: Transformer, tokens: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Logits of all positions, each of which sees the last tokens up to itself; keys and values by layer."""
    hidden, length = model.embedding(tokens), tokens.shape[1]
    turns = rotation(torch.arange(length), model.size.head_size, hidden.dtype)
    distance = torch.arange(length)[:, None] - torch.arange(length)
    rings = []
    with torch.no_grad():
        for block in model.blocks:
            query, key, value = block.attention.project(block.before_attention(hidden), turns)
            rings.append((key, value))
            repeats = model.size.heads // model.size.kv_heads
            mixed = F.scaled_dot_product_attention(
                query,
                key.repeat_interleave(repeats, 1),
                value.repeat_interleave(repeats, 1),
                attn_mask=(distance >= 0) & (distance < RING),
            )
            hidden = block.onwards(hidden + block.attention.output(mixed.transpose(1, 2).flatten(2)))
        return model.logits(model.norm(hidden)), rings


# Workloads


@pytest.mark.parametrize("name", SMALL)
def test_each_test_on_the_cpu(name: str, place: Places) -> None:
    """The first loss of a training is what random weights must give, within 1 %."""
    channel = run(FAMILY[name], 2, place, **SMALL[name])
    ready, done = channel.one(Ready), channel.one(Done)
    assert ready.ran == done.ran == "bf16_master"
    assert done.count == 2 * SMALL[name].get("batch_size", 1) * SMALL[name].get("length", 1)
    losses = {event.step: event.value for event in channel.all(Loss)}
    if name in TRAINED:
        assert losses[1] == pytest.approx(FIRST_LOSS, rel=0.01)
        assert "rehearsal" in {phase.name for phase in channel.all(Phase)}
        assert all(event.value for event in channel.all(GradientNorm))
    assert bool(losses) == (name != "llm_decode")


@pytest.mark.slow
def test_a_compiled_model_has_the_loss_of_the_plain_one(monkeypatch: pytest.MonkeyPatch, place: Places) -> None:
    """All but the head is one graph; the compiler itself is left out."""
    whole, graphs = torch.compile, []

    def keep(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda module: whole(module, backend=keep))
    compiled, plain = (
        run(llm_pretrain, 2, place, **SMALL["llm_pretrain"], compile=compile) for compile in (True, False)
    )
    assert len(graphs) == 1
    assert "compile" in {phase.name for phase in compiled.all(Phase)}
    assert compiled.one(Done).kernels == plain.one(Done).kernels == {"attention": "flash"}
    ours, theirs = (channel.losses for channel in (compiled, plain))
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("options", [{"experts": 9}, {"batch_size": 1, "length": 63}])
def test_experts_that_cannot_have_the_same_work_are_refused(options: dict[str, int], place: Places) -> None:
    with pytest.raises(InputError, match="multiple of --active"):
        run(moe, 2, place, **SMALL["moe"] | options)


def test_a_text_must_be_longer_than_its_windows(place: Places) -> None:
    with pytest.raises(InputError, match=r"the text has 1,048,576 tokens; use a larger --data-scale"):
        run(llm_prefill, 2, place, **SMALL["llm_prefill"] | {"length": 1 << 20})


@pytest.mark.parametrize("definition", [llm_pretrain, llm_fsdp, llm_lora, moe, moe_ep], ids=lambda one: one.name)
def test_the_first_loss_by_theory_is_declared(definition: Definition) -> None:
    """As section 4 of the suite's specification has them."""
    assert definition.first_loss is not None
    for vocabulary, width, expected in ((32_768, 2048, 10.807), (32_768, 1024, 10.602), (128_256, 4096, 12.581)):
        options = {"vocabulary": vocabulary, "width": width}
        assert definition.first_loss.of(options) == pytest.approx(expected, abs=5e-4)
    assert definition.first_loss.of(SIZES) == pytest.approx(FIRST_LOSS)


# Two ranks


@pytest.mark.parametrize(
    ("definition", "given", "devices", "told"),
    [
        (llm_decode, {"batch_size": 8}, 16, "--batch-size: expected a multiple of the number of devices (16), got 8"),
        (llm_decode, {"batch_size": 48}, 16, "--kv-heads: expected a multiple of the number of devices (16), got 8"),
        (
            llm_fsdp,
            {"share_texts": True},
            3,
            "--length 8192 and --kv-heads 8 must be multiples of the number of",
        ),
        (moe_ep, {}, 5, "--experts 32: expected a multiple of the number of devices (5), and at least --active 4"),
        (moe_ep, {"active": 64}, 8, "at least --active 64"),
        (collectives_sweep, {}, 1, "it needs at least two devices, and has one: leave it out (--name)"),
    ],
)
def test_what_ranks_cannot_share_is_refused(
    definition: Definition, given: dict[str, Any], devices: int, told: str
) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        definition.check(given, devices)
    definition.check({**given, "active": 4} if definition is moe_ep else given, 8)


EXPERTS = {**SIZES, "experts": 8, "active": 2, "head_width": 24}
KNOWN = {
    "own texts": KnownSteps(SIZES),
    "shared texts": KnownSteps(SIZES, "shared texts", "fp32"),
    "shared experts": KnownSteps(EXPERTS, "shared experts", "fp32"),
}
TOKENS = KnownTokens(Dimensions(**{**SIZES, "tied": False}))
ROUTES = {name: EXPERTS[name] for name in (*SIZES, "experts", "active")} | {"head_size": 24}


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory, place: Places) -> dict[str, list[Any]]:
    """What both ranks came to, which are started once: they import torch anew."""
    texts = place("tokens-128k")
    jobs = {
        "llm_fsdp": ShardedTraining("llm_fsdp", texts, SIZES),
        "llm_cp": ShardedTraining("llm_fsdp", texts, {**SIZES, "share_texts": True}),
        "moe_ep": ShardedTraining("moe_ep", texts, ROUTES),
        "llm_decode": Generation(SIZES),
        "tokens": TOKENS,
        **KNOWN,
    }
    return both(tmp_path_factory.mktemp("two") / "rendezvous", jobs)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tokens"), [("llm_fsdp", 128), ("llm_cp", 64), ("moe_ep", 128)])
def test_two_ranks_train_one_model(name: str, tokens: int, two: dict[str, list[Any]]) -> None:
    """Both have the whole model's gradient norm, and the loss of random weights; the parameters are sharded."""
    first, second = two[name]
    size = Dimensions(**{**(EXPERTS if name == "moe_ep" else SIZES), "tied": False})
    assert first["norms"] == second["norms"]
    assert first["reduced"] == ["torch.float32"]  # of weights in bf16
    assert first["parameters"] == second["parameters"] == size.parameters()
    assert first["losses"][1] == pytest.approx(FIRST_LOSS, rel=0.01)
    assert first["losses"][2] != second["losses"][2]  # each reads its own part of the text
    assert first["count"] == second["count"] == 2 * tokens
    assert first["most"] == second["most"] == tokens


@pytest.mark.slow
@pytest.mark.parametrize("kind", KNOWN)
def test_two_ranks_come_to_the_weights_of_one_process(kind: str, two: dict[str, list[Any]]) -> None:
    """With the same texts; within the rounding, small beside what three steps change."""
    before, expected = KNOWN[kind].alone()
    first, second = two[kind]
    assert first == second
    for old, new, sharded in zip(before, expected, first, strict=True):
        change = torch.dist(torch.tensor(new), torch.tensor(old))
        assert torch.dist(torch.tensor(sharded), torch.tensor(new)) < (0.1 if kind == "own texts" else 0.01) * change


@pytest.mark.slow
def test_two_ranks_say_the_tokens_of_one_process(two: dict[str, list[Any]]) -> None:
    first, second = two["tokens"]
    assert first == second == TOKENS.alone()
    assert len({token for step in first for token in step}) > 20


@pytest.mark.slow
def test_two_ranks_generate_and_count_half_of_the_tokens_each(two: dict[str, list[Any]]) -> None:
    (count, said), other = two["llm_decode"]
    assert (count, said) == other
    assert count == 3 * 4 // 2
    assert count / 3 == read_builtin()["llm_decode"].most_of_a_step({"batch_size": 4}, devices=2)


@pytest.mark.slow
def test_two_ranks_tell_how_unevenly_their_experts_work(two: dict[str, list[Any]]) -> None:
    """The same in both, from 1: all experts the same; to 4: two of eight do everything."""
    first, second = ([one for one in rank["notes"] if one] for rank in two["moe_ep"])
    assert first == second
    for one in first:
        assert 1 < one["device_load"] <= one["expert_load"] <= 4


# Text


@pytest.mark.parametrize("data_set", [Tokens32k(), Tokens128k()])
def test_half_of_the_tokens_are_foretold_by_the_one_before(data_set: Tokens32k, place: Places) -> None:
    """The most frequent follower of a frequent token comes half of the time; documents begin every 800 tokens or so."""
    text = data_set.open(place(data_set.name))
    tokens = torch.from_numpy(text.tokens.astype("int64"))  # type: ignore[attr-defined]
    assert len(tokens) == 1 << 20
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < data_set.types
    assert int(tokens[0]) == 0
    assert 600 < len(tokens) / int((tokens == 0).sum()) < 1100
    frequent = int(tokens.bincount()[1:].argmax()) + 1
    followers = tokens[1:][tokens[:-1] == frequent].bincount()
    assert int(followers.max()) / int(followers.sum()) == pytest.approx(0.5, abs=0.05)
