"""The language examples and NCF of Lambda's suite: networks against plain references, and each entry on the CPU."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launching import LETTERS, Places, laid, parameters, run
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.datasets.tables.ml_20m import Ratings
from milabench_ng.datasets.text.bucketing import LengthClasses
from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done, Ready, Slice
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models.bert import VOCABULARY, SpanFinder, span_loss
from milabench_ng.workloads.models.neumf import NeuMF
from milabench_ng.workloads.models.recurrent_translator import GNMT, smoothed
from milabench_ng.workloads.models.transformer_xl import RelativeAttention, TransformerXL, next_word_loss, remembered
from milabench_ng.workloads.nvidia.gnmt import collate_counted, drawn_uniformly
from milabench_ng.workloads.nvidia.lamb import Lamb
from milabench_ng.workloads.nvidia.ncf import DeviceEpochs
from milabench_ng.workloads.nvidia.txl import rolled

WORKLOADS = builtin_workloads()
PROFILE = json.loads((Path(__file__).parents[2] / "profiles" / "lambda.json").read_text())
SMALL: dict[str, dict[str, Any]] = {
    "gnmt": {"batch_size": 4, "hidden": 16, "layers": 3},
    "ncf": {"batch_size": 64, "factors": 4},
    "txl": {"batch_size": 2, "layers": 2, "width": 8, "heads": 2, "inner": 16, "length": 12, "memory": 8},
    "bert_squad": {"batch_size": 4, "layers": 2, "width": 16, "heads": 2, "inner": 16, "length": 64},
}
ENTRIES = [name for name, entry in PROFILE.items() if entry["workload"] in SMALL]
BASE = {"layers": 16, "width": 512, "heads": 8, "inner": 2048, "dropout": 0.1}
LARGE = {"layers": 18, "width": 1024, "heads": 16, "inner": 4096, "dropout": 0.2}


def test_parameter_counts() -> None:
    """Those of the published logs; of BERT, those without the pooler, which finding answers does not use."""
    pytest.importorskip("transformers", reason="the extra language is not installed")
    bert = {"longest": 512, "attention": "eager"}
    with torch.device("meta"):
        assert parameters(GNMT(31_800)) == 159_605_817
        assert parameters(NeuMF(138_493, 26_744, 64, (256, 256, 128, 64), 0.5)) == 31_832_577
        assert parameters(TransformerXL(267_735, **BASE)) == 191_948_759  # type: ignore[arg-type]
        assert parameters(TransformerXL(267_735, **LARGE)) == 519_963_095  # type: ignore[arg-type]
        base = SpanFinder(layers=12, width=768, heads=12, inner=3072, **bert)  # type: ignore[arg-type]
        large = SpanFinder(layers=24, width=1024, heads=16, inner=4096, **bert)  # type: ignore[arg-type]
    assert parameters(base) == 108_897_794
    assert parameters(large) == 334_100_482


def test_the_sizes_of_the_profile_are_those_that_were_published() -> None:
    """Defaults are the base models; the large ones are written into the profile."""
    for name, sizes in (("txl_base_amp", BASE), ("txl_large_amp", LARGE)):
        described = WORKLOADS["txl"].describe("txl", "").options
        given = {option.name: option.default for option in described} | PROFILE[name]["arguments"]
        assert {size: given[size] for size in sizes} == sizes
        long = {"txl_base_amp": (192, 192, "lamb"), "txl_large_amp": (256, 256, "adam")}[name]
        assert (given["length"], given["memory"], given["optimizer"]) == long
    assert PROFILE["bert_large_squad_tf32"]["arguments"]["batch_size"]["80GiB"] == 64
    assert PROFILE["gnmt_bf16"]["arguments"]["batch_size"] == PROFILE["gnmt_amp"]["arguments"]["batch_size"]
    published = {  # FP16 at 24, 80, 140 and 192 GB
        "bert_base_squad": [96, 320, 592, 768],
        "bert_large_squad": [28, 112, 192, 256],
        "gnmt": [464, 1520, 3040, 3968],
        "txl_base": [24, 104, 208, 256],
        "txl_large": [8, 48, 96, 128],
    }
    for task, sizes in published.items():
        given = PROFILE[f"{task}_half_master"]["arguments"]
        assert given["precision"] == "half_master"
        assert [given["batch_size"][f"{size}GiB"] for size in (24, 80, 140, 192)] == sizes
        assert {**given, "batch_size": 0, "precision": ""} == {
            **PROFILE[f"{task}_amp"]["arguments"],
            "batch_size": 0,
            "precision": "",
        }


@pytest.mark.parametrize("name", ["bert_squad", "gnmt", "txl"])
def test_fp16_weights_with_fp32_masters_learn_what_fp32_does(name: str, place: Places) -> None:
    """Apex's O2, which the suite's FP16 is: the same losses but for the rounding of fp16, and in its range."""
    if name == "bert_squad":
        pytest.importorskip("transformers", reason="the extra language is not installed")
    losses = {
        mode: run(WORKLOADS[name], 3, place, precision=mode, **SMALL[name], learning_rate=1e-3).losses
        for mode in ("fp32", "half_master")
    }
    assert losses["half_master"] == pytest.approx(losses["fp32"], rel=0.03)
    assert losses["half_master"] != losses["fp32"]


def test_the_loss_of_many_sentences_is_in_the_range_of_fp32() -> None:
    """100 sentences of 50 words, each at ln 1000: their sum is beyond fp16."""
    logits = torch.zeros(50, 100, 1000, dtype=torch.float16)
    loss = smoothed(logits, torch.full((50, 100), 7), 0.1)
    assert loss.item() == pytest.approx(50 * math.log(1000), rel=1e-3)


# Transformer-XL


def test_relative_attention_is_its_definition() -> None:
    """Query by query and key by key, in fp64: a_ij = (q_i + u) k_j + (q_i + v) W r_(i - j), past and memory alone."""
    torch.manual_seed(0)
    width, heads, length, memory, count = 12, 3, 5, 4, 2
    size = width // heads
    attention = RelativeAttention(width, heads).double()
    before, hidden = torch.randn(memory, count, width).double(), torch.randn(length, count, width).double()
    codes = torch.randn(memory + length, width).double()  # of the distances 8 to 0
    biases = [torch.randn(heads, size).double() for _ in range(2)]
    found = attention(hidden, before, codes, biases)
    states = torch.cat((before, hidden))
    for_query, for_key, for_value = attention.project.weight.chunk(3)
    for text in range(count):
        for i in range(length):
            outputs = []
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                query = for_query[part] @ hidden[i, text]
                scores, values = [], []
                for j in range(memory + i + 1):
                    distance = memory + i - j
                    key = for_key[part] @ states[j, text]
                    place = attention.places.weight[part] @ codes[memory + length - 1 - distance]
                    score = (query + biases[0][head]) @ key + (query + biases[1][head]) @ place
                    scores.append(score.item() / math.sqrt(size))
                    values.append(for_value[part] @ states[j, text])
                weights = [math.exp(score) for score in scores]
                mixed = [weight * value for weight, value in zip(weights, values, strict=True)]
                outputs.append(torch.stack(mixed).sum(0) / sum(weights))
            expected = attention.output.weight @ torch.cat(outputs)
            assert torch.allclose(found[i, text], expected, atol=1e-10, rtol=1e-9)


def language_model() -> TransformerXL:
    torch.manual_seed(0)
    return TransformerXL(11, layers=3, width=8, heads=2, inner=16, dropout=0.1).eval()


def test_segments_with_memory_are_the_whole_text() -> None:
    """With a memory of all that came before, two segments say what one pass over both says, in every layer."""
    model = language_model()
    tokens = torch.randint(0, 11, (10, 3))
    whole, _ = model(tokens, model.no_memory(3))
    first, given = model(tokens[:6], model.no_memory(3))
    memory = remembered(model.no_memory(3), given, 6)
    second, _ = model(tokens[6:], memory)
    assert torch.allclose(torch.cat((first, second)), whole, atol=1e-6)
    assert not any(state.requires_grad for state in memory)
    shorter, _ = model(tokens[6:], remembered(model.no_memory(3), given, 2))
    assert not torch.allclose(shorter, second, atol=1e-6)


def test_a_word_depends_on_earlier_words_alone() -> None:
    model = language_model()
    tokens = torch.randint(0, 11, (7, 2))
    changed = tokens.clone()
    changed[4] = (changed[4] + 1) % 11
    one, other = (model(text, model.no_memory(2))[0] for text in (tokens, changed))
    assert torch.allclose(one[:4], other[:4], atol=1e-6)
    assert not torch.allclose(one[4:], other[4:], atol=1e-6)


@pytest.mark.parametrize(
    ("length", "kept"), [(0, []), (2, [4, 5]), (3, [3, 4, 5]), (5, [1, 2, 3, 4, 5]), (9, [*range(6)])]
)
def test_a_memory_keeps_the_last_states(length: int, kept: list[int]) -> None:
    old, new = torch.arange(3.0).view(3, 1, 1), torch.arange(3.0, 6.0).view(3, 1, 1)
    (found,) = remembered([old], [new], length)
    assert found.flatten().tolist() == kept


def test_the_loss_of_the_next_word_is_the_cross_entropy_and_stays_narrow_under_autocast() -> None:
    torch.manual_seed(0)
    logits, words = torch.randn(4, 3, 7, requires_grad=True), torch.randint(0, 7, (4, 3))
    expected = F.cross_entropy(logits.flatten(0, 1), words.flatten())
    assert next_word_loss(logits, words).item() == pytest.approx(expected.item(), rel=1e-6)
    (one,), (other,) = (torch.autograd.grad(loss, [logits]) for loss in (next_word_loss(logits, words), expected))
    assert torch.allclose(one, other, atol=1e-7)
    seen = []
    with (
        torch.autograd.graph.saved_tensors_hooks(
            lambda saved: (seen.append(saved.dtype), saved)[1], lambda saved: saved
        ),
        torch.autocast("cpu", torch.bfloat16),
    ):
        assert next_word_loss(logits.bfloat16(), words).dtype is torch.float32
    assert torch.float32 not in seen


def test_columns_begin_anywhere_and_go_on_from_their_start() -> None:
    torch.manual_seed(1)
    columns = torch.arange(40).view(4, 10).t()
    found = rolled(columns)
    assert sorted(found[:, 2].tolist()) == [*range(20, 30)]
    steps = (found[1:] - found[:-1]) % 10
    assert bool((steps == 1).all())
    assert len(set((found[0] % 10).tolist())) > 1


def test_lamb_by_hand() -> None:
    """Two steps on three parameters: one larger than the largest norm, one that is zero."""
    torch.manual_seed(0)
    weights = [torch.randn(5, 4).double(), 30 * torch.randn(6).double(), torch.zeros(3).double()]
    placed = [nn.Parameter(weight.clone()) for weight in weights]
    optimizer = Lamb(placed, lr=0.01)
    means = [torch.zeros_like(weight) for weight in weights]
    squares = [torch.zeros_like(weight) for weight in weights]
    for _ in range(2):
        for at, parameter in enumerate(placed):
            gradient = parameter.grad = torch.randn_like(parameter)
            means[at] = 0.9 * means[at] + 0.1 * gradient
            squares[at] = 0.999 * squares[at] + 0.001 * gradient**2
            update = means[at] / (squares[at].sqrt() + 1e-6)
            own, step = min(weights[at].norm().item(), 10.0), update.norm().item()
            weights[at] = weights[at] - 0.01 * update * (own / (step + 1e-6) if own and step else 1.0)
        optimizer.step()
        for parameter, expected in zip(placed, weights, strict=True):
            assert torch.allclose(parameter, expected, atol=1e-12, rtol=1e-9)


# GNMT


def cell(layer: nn.LSTM, given: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """One step of an LSTM layer (Hochreiter & Schmidhuber, 1997): its new output and cell."""
    output, memory = state
    gates = layer.weight_ih_l0 @ given + layer.bias_ih_l0 + layer.weight_hh_l0 @ output + layer.bias_hh_l0
    enter, forget, new, leave = gates.chunk(4)
    memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * memory.tanh(), memory


def test_the_decoder_is_its_steps() -> None:
    """Word by word and sentence by sentence: four layers, one query of the attention, residuals from the third on."""
    torch.manual_seed(0)
    width = 6
    decoder = GNMT(9, width, layers=4, dropout=0.5, entering=0.5).double().eval().decoder
    words, memory = torch.randn(5, 2, width).double(), torch.randn(4, 2, width).double()
    lengths = (4, 2)
    padding = torch.tensor([[at >= length for at in range(4)] for length in lengths])
    found = decoder(words, memory, padding)
    attention = decoder.attention
    direction = attention.scale * attention.direction / attention.direction.norm()
    for sentence, length in enumerate(lengths):
        states = [(torch.zeros(width).double(), torch.zeros(width).double()) for _ in range(4)]
        for time in range(5):
            states[0] = cell(decoder.first, words[time, sentence], states[0])
            outputs = states[0][0]
            known = memory[:length, sentence]
            asked = attention.query.weight @ outputs
            energies = [direction @ torch.tanh(asked + attention.key.weight @ one + attention.bias) for one in known]
            context = torch.stack(energies).softmax(0) @ known
            for at, layer in enumerate(decoder.others, start=1):
                assert isinstance(layer, nn.LSTM)
                states[at] = cell(layer, torch.cat((outputs, context)), states[at])
                outputs = states[at][0] if at == 1 else outputs + states[at][0]
            expected = decoder.output.weight @ outputs + decoder.output.bias
            assert torch.allclose(found[time, sentence], expected, atol=1e-10)


def test_dropout_stands_before_every_layer() -> None:
    torch.manual_seed(0)
    model = GNMT(20, width=8, layers=3, dropout=1.0, entering=1.0)
    given: list[Tensor] = []
    for part in model.modules():
        if isinstance(part, nn.LSTM):
            part.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    source, target = torch.randint(4, 20, (5, 2)), torch.randint(4, 20, (6, 2))
    model(source, [5, 5], target)
    assert len(given) == 6
    assert not any((each.data if hasattr(each, "batch_sizes") else each).any() for each in given)


def test_weights_are_drawn_uniformly_but_for_the_scale_of_the_attention() -> None:
    torch.manual_seed(0)
    model = drawn_uniformly(GNMT(200, width=64, layers=3))
    for name, parameter in model.named_parameters():
        if parameter.numel() > 500:
            assert 0.099 < parameter.abs().max() <= 0.1, name
            assert parameter.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.1), name
    assert model.decoder.attention.scale.item() == 1 / 8
    assert not model.decoder.attention.bias.any()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_batches_are_of_one_class_of_length_each_sample_at_most_once() -> None:
    classes = torch.randint(0, 5, (500,), generator=seeded(3))
    chosen = torch.arange(500) * 2
    order = LengthClasses(chosen, classes, 8, seeded(3), seeded(3))
    first, second = list(order), list(order)
    assert len(first) == sum(int((classes == each).sum()) // 8 * 8 for each in range(5))
    assert len(set(first)) == len(first)
    assert set(first) <= set(chosen.tolist())
    assert first != second
    kinds = classes[torch.tensor(first) // 2].view(-1, 8)
    assert bool((kinds == kinds[:, :1]).all())
    assert len(set(kinds[:20, 0].tolist())) > 2  # the classes are mixed


def test_with_equal_turns_batches_of_other_samples_are_of_the_same_classes() -> None:
    classes = torch.randint(0, 5, (500,), generator=seeded(3))
    orders = [LengthClasses(torch.arange(500), classes, 8, seeded(rank), seeded(7)) for rank in range(2)]
    for _ in range(2):
        first, second = (torch.tensor(list(order)) for order in orders)
        assert first.tolist() != second.tolist()
        assert classes[first].tolist() == classes[second].tolist()


def test_classes_of_length_that_fill_no_batch_are_refused() -> None:
    with pytest.raises(InputError, match=r"--batch-size 4: no class of length has more than 3 sentences"):
        LengthClasses(torch.arange(5), torch.tensor([0, 1, 1, 1, 2]), 4, seeded(0), seeded(0))
    with pytest.raises(InputError, match=r"no class of length has more than 0"):
        LengthClasses(torch.arange(0), torch.arange(0), 1, seeded(0), seeded(0))


def test_tokens_of_a_batch_are_those_that_are_read_and_those_that_are_predicted() -> None:
    pairs = [(torch.tensor([2, 9, 3]), torch.tensor([2, 8, 8, 3])), (torch.tensor([2, 7, 7, 3]), torch.tensor([2, 3]))]
    sources, _, lengths, tokens = collate_counted(pairs)
    assert sources.shape == (4, 2)
    assert (lengths, tokens) == ([4, 3], 3 + 3 + 4 + 1)


def test_gnmt_counts_tokens_of_classes_of_length(place: Places) -> None:
    """Sentences of 8 letters, with beginning and end: 10 tokens are read, 9 predicted."""
    channel = run(WORKLOADS["gnmt"], 3, place, **SMALL["gnmt"], longest=20)
    assert [entry.count for entry in channel.all(Slice)] == [4 * 19] * 3


def test_in_each_step_all_tenants_of_gnmt_have_sentences_of_the_same_class(tmp_path: Path) -> None:
    """Half of the sentences have 4 letters, half 14, of a longest of 20: tokens tell the class."""
    text = "".join(f"{' '.join(LETTERS[at % 6 : at % 6 + (4 if at % 2 else 14)])}\n" for at in range(64))
    path = laid(tmp_path, "news-commentary", text, text, "\n".join(LETTERS) + "\n")
    told = []
    for tenant in range(2):
        channel = run(WORKLOADS["gnmt"], 12, lambda _: path, tenant=tenant, **SMALL["gnmt"], longest=20)
        told.append([entry.count for entry in channel.all(Slice)])
    assert set(told[0]) == {4 * 11, 4 * 31}
    assert told[0] == told[1]


# NCF


def test_dropout_of_neumf_stands_in_the_perceptron_alone() -> None:
    torch.manual_seed(0)
    model = NeuMF(7, 5, 3, (8, 6, 2), dropout=1.0)
    users, items = torch.tensor([6, 0, 3]), torch.tensor([4, 4, 1])
    product = model.factors[0](users) * model.factors[1](items)
    expected = product @ model.output.weight[0, :3] + model.output.bias
    assert torch.allclose(model(users, items), expected, atol=1e-7)
    plain = NeuMF(7, 5, 3, (8, 6, 2))
    plain.load_state_dict(
        {name.replace("perceptron.3", "perceptron.2"): one for name, one in model.state_dict().items()}
    )
    assert torch.equal(model.eval()(users, items), plain(users, items))


def test_an_epoch_on_the_device_is_every_rating_once_and_four_draws_each() -> None:
    torch.manual_seed(1)
    rated = {(user, item) for user in range(60) for item in range(90) if (user * item) % 3 == 1}
    pairs = np.asarray(sorted(user * 90 + item for user, item in rated), np.uint16)
    epochs = DeviceEpochs(Ratings(pairs, 60, 90, None), 32, 4, torch.device("cpu"))
    first, second = (list(epochs) for _ in range(2))
    assert {len(part) for batch in first for part in batch} == {32}
    assert len(first) == 5 * len(rated) // 32
    users, items, labels = (torch.cat(parts) for parts in zip(*first, strict=True))
    assert labels.dtype is torch.float32
    positive = {
        (user, item) for user, item, label in zip(users.tolist(), items.tolist(), labels.tolist(), strict=True) if label
    }
    assert positive <= rated
    assert len(rated) - 32 < int(labels.sum()) == len(positive) <= len(rated)
    assert set(items[labels == 0].tolist()) == set(range(90))
    drawn, known = (torch.bincount(users[labels == label], minlength=60) for label in (0, 1))
    assert set(known.nonzero().flatten().tolist()) == {user for user, _ in rated}
    assert (drawn / known)[known > 0].mean().item() == pytest.approx(4, rel=0.05)
    assert not torch.equal(first[0][1], second[0][1])
    with pytest.raises(InputError, match=r"--batch-size 99999: an epoch has \d+ samples. Use at most as many"):
        DeviceEpochs(Ratings(pairs, 60, 90, None), 99_999, 4, torch.device("cpu"))


# BERT


def span_finder(attention: Any) -> SpanFinder:
    pytest.importorskip("transformers", reason="the extra language is not installed")
    torch.manual_seed(0)
    return SpanFinder(layers=2, width=16, heads=2, inner=32, longest=64, attention=attention).eval()


def test_bert_does_not_see_padding_and_both_attentions_agree() -> None:
    tokens = torch.randint(1000, VOCABULARY, (3, 20))
    real = torch.ones_like(tokens)
    real[1, 12:] = 0
    parts = torch.zeros_like(tokens)
    parts[:, 5:] = 1
    model = span_finder("eager")
    logits = model(tokens, real, parts)
    assert logits.shape == (3, 20, 2)
    other = tokens.clone()
    other[1, 12:] = 1000
    assert torch.allclose(model(other, real, parts)[:, :12], logits[:, :12], atol=1e-6)
    assert not torch.allclose(model(tokens, real, 1 - parts), logits, atol=1e-4)
    fused = span_finder("sdpa")
    fused.load_state_dict(model.state_dict())
    assert torch.allclose(fused(tokens, real, parts)[:, :12], logits[:, :12], atol=1e-5)


def test_the_loss_of_a_span_is_the_mean_of_both_ends() -> None:
    logits, spans = torch.randn(3, 7, 2), torch.tensor([[1, 2], [0, 0], [5, 6]])
    ends = [-logits[:, :, end].log_softmax(1)[torch.arange(3), spans[:, end]].mean() for end in range(2)]
    assert span_loss(logits, spans).item() == pytest.approx((ends[0] + ends[1]).item() / 2, rel=1e-6)


# The workloads


@pytest.mark.parametrize(
    ("name", "flag"), [("txl", "--width 9: it must be a multiple of --heads"), ("bert_squad", "--width 9")]
)
def test_a_width_that_the_heads_cannot_share(name: str, flag: str, place: Places) -> None:
    with pytest.raises(InputError, match=flag):
        run(WORKLOADS[name], 1, place, **SMALL[name] | {"width": 9})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gnmt", {"batch_size": 48, "longest": 20, "dropout": 0.0, "learning_rate": 0.05, "warm_up": 1}),
        ("ncf", {"batch_size": 2_400, "factors": 8, "dropout": 0.0, "learning_rate": 0.01}),
        ("txl", {"batch_size": 10, "length": 20, "memory": 0, "dropout": 0.0, "learning_rate": 0.2}),
        (
            "txl",
            {"batch_size": 10, "length": 20, "memory": 0, "dropout": 0.0, "learning_rate": 0.01, "optimizer": "adam"},
        ),
        ("bert_squad", {"batch_size": 44, "learning_rate": 0.01}),
    ],
    ids=["gnmt", "ncf", "txl with lamb", "txl with adam", "bert_squad"],
)
def test_the_loss_falls_on_a_fixed_batch(name: str, options: dict[str, Any], place: Places) -> None:
    """The whole set is one batch, so that each step sees the same."""
    if name == "bert_squad":
        pytest.importorskip("transformers", reason="the extra language is not installed")
    losses = run(WORKLOADS[name], 10, place, **SMALL[name] | options).losses
    assert len(losses) == 4
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_entry_of_the_profile_runs(entry: str, place: Places) -> None:
    """In small: the loss is finite, and what ran is what the entry says. oneDNN has an LSTM in bf16 not everywhere."""
    name, arguments = PROFILE[entry]["workload"], PROFILE[entry]["arguments"]
    if name == "bert_squad":
        pytest.importorskip("transformers", reason="the extra language is not installed")
    precision = arguments["precision"]
    options = {option: value for option, value in arguments.items() if option in ("optimizer", "dropout")}
    with torch.backends.mkldnn.flags(enabled=not (name == "gnmt" and precision in ("amp", "bf16"))):
        channel = run(WORKLOADS[name], 2, place, precision=precision, **SMALL[name], **options)
    assert channel.one(Done).ran == {"tf32": "fp32"}.get(precision, precision)
    assert channel.one(Ready).parameters > 1_000
    losses = channel.losses
    assert len(losses) == 2
    assert all(value is not None and math.isfinite(value) for value in losses)


def test_rates_in_other_units() -> None:
    """At the published sizes: what a rate of one step a second is."""
    for name, rate, expected in (
        ("txl", 8 * 192, {"segments/s": 8.0, "ms/step": 1000.0}),
        ("bert_squad", 8, {"tokens/s": 8 * 384.0, "ms/step": 1000.0}),
        ("ncf", 1_280_000, {"ms/step": 1000.0}),
    ):
        described = WORKLOADS[name].describe(name, "")
        options = {option.name: option.default for option in described.options}
        assert {derived.unit: derived.of(rate, options) for derived in described.derived} == expected
