"""wlm, translator and recom against their published sizes and against formulas written in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from launching import parameters
from torch import nn

from milabench_ng.datasets.tables.ml_20m import Ratings
from milabench_ng.workloads.models.neumf import NeuMF
from milabench_ng.workloads.models.recurrent_translator import GNMT, Attention, Encoder, smoothed
from milabench_ng.workloads.standard.recom import Batches, Epochs, Samples
from milabench_ng.workloads.standard.wlm import LanguageModel, detached


def test_parameter_counts() -> None:
    with torch.device("meta"):
        assert parameters(LanguageModel("GRU", 33_278, 656, 656, 2, 0.5)) == 48_865_918
        assert parameters(GNMT(32_320)) == 160_671_297
        assert parameters(NeuMF(138_493, 26_744, 64, [256, 256, 128, 64])) == 31_832_577


def test_attention_is_what_bahdanau_wrote_with_a_normalised_vector() -> None:
    """One number after the other, in fp64."""
    torch.manual_seed(0)
    attention = Attention(5).double()
    nn.init.normal_(attention.bias)
    nn.init.constant_(attention.scale, 1.7)
    queries, memory = torch.randn(3, 2, 5).double(), torch.randn(4, 2, 5).double()
    padding = torch.tensor([[False, False, False, False], [False, False, True, True]])
    contexts = attention(queries, memory, padding)
    asked, known, direction, bias = (
        value.tolist() for value in (attention.query.weight, attention.key.weight, attention.direction, attention.bias)
    )
    norm = math.sqrt(sum(value * value for value in direction))
    for time in range(3):
        for sentence, length in ((0, 4), (1, 2)):
            query, places = queries[time, sentence].tolist(), memory[:length, sentence].tolist()
            energies = []
            for place in places:
                energy = 0.0
                for unit in range(5):
                    inner = bias[unit] + sum(
                        asked[unit][at] * query[at] + known[unit][at] * place[at] for at in range(5)
                    )
                    energy += 1.7 * direction[unit] / norm * math.tanh(inner)
                energies.append(math.exp(energy))
            expected = [
                sum(energy * place[at] for energy, place in zip(energies, places, strict=True)) / sum(energies)
                for at in range(5)
            ]
            assert contexts[time, sentence].tolist() == pytest.approx(expected, rel=1e-9)


def test_the_encoder_does_not_see_padding() -> None:
    """A short sentence beside a longer one is encoded as alone; the first layer reads it from both ends."""
    torch.manual_seed(0)
    encoder = Encoder(4, 3, 0.2).eval()
    words = torch.randn(6, 2, 4)
    together = encoder(words, [6, 3])
    alone = encoder(words[:3, 1:], [3])
    assert torch.allclose(together[:3, 1:], alone, atol=1e-6)
    words[3:, 1] += 1
    assert torch.allclose(encoder(words, [6, 3])[:3], together[:3], atol=1e-6)
    words[5, 0] += 1
    assert not torch.allclose(encoder(words, [6, 3])[0, 0], together[0, 0], atol=1e-6)


def test_later_encoder_layers_have_residual_connections() -> None:
    torch.manual_seed(0)
    encoder = Encoder(4, 4, 0.2).eval()
    words = torch.randn(5, 2, 4)
    whole = encoder(words, [5, 5])
    outputs = encoder.others[0](encoder.first(words)[0])[0]
    second = outputs + encoder.others[1](outputs)[0]
    assert torch.allclose(whole, second + encoder.others[2](second)[0], atol=1e-6)


def test_a_translation_depends_on_the_source_and_on_earlier_words_alone() -> None:
    torch.manual_seed(0)
    model = GNMT(20, width=8, layers=3).eval()
    source, target = torch.randint(4, 20, (5, 2)), torch.randint(4, 20, (6, 2))
    logits = model(source, [5, 5], target)
    assert logits.shape == (6, 2, 20)
    changed = target.clone()
    changed[3] = (changed[3] - 3) % 16 + 4
    assert torch.allclose(model(source, [5, 5], changed)[:3], logits[:3], atol=1e-6)
    assert not torch.allclose(model(source, [5, 5], changed)[3:], logits[3:], atol=1e-6)
    assert not torch.allclose(model(source.flip(0), [5, 5], target)[:3], logits[:3], atol=1e-6)


def test_dropout_stands_before_all_layers_but_the_first_of_encoder_and_decoder() -> None:
    """With a probability of 1 nothing is left of what passes a dropout; words and contexts pass none."""
    torch.manual_seed(0)
    model = GNMT(20, width=8, layers=3, dropout=1.0)
    given: dict[str, torch.Tensor] = {}
    for name, part in model.named_modules():
        if isinstance(part, nn.LSTM):
            part.register_forward_pre_hook(lambda _, inputs, name=name: given.update({name: inputs[0]}))
    source, target = torch.randint(4, 20, (5, 2)), torch.randint(4, 20, (6, 2))
    model(source, [5, 5], target)
    assert torch.equal(given["encoder.first"].data, model.embedding(source).flatten(0, 1))  # packed
    assert torch.equal(given["decoder.first"], model.embedding(target))
    assert not any(given[f"encoder.others.{layer}"].any() for layer in (0, 1))
    for layer in (0, 1):
        below, context = given[f"decoder.others.{layer}"].chunk(2, dim=2)
        assert not below.any()
        assert context.any()


def test_weights_of_gnmt_are_drawn_as_in_2020() -> None:
    """PyTorch's own: words from a normal distribution, the rest uniform in +-1/sqrt(inputs); padding is no word."""
    torch.manual_seed(0)
    model = GNMT(200, width=64, layers=3)
    words = model.embedding.weight
    assert not words[0].any()
    assert words[1:].std().item() == pytest.approx(1, abs=0.02)
    assert words.abs().max() > 2.5
    for name, parameter in model.named_parameters():
        if parameter.numel() > 500 and name != "embedding.weight":
            bound = parameter.shape[1] ** -0.5 if "attention" in name or "output" in name else 64**-0.5
            assert 0.99 * bound < parameter.abs().max() <= bound, name
    assert 0.9 / 8 < model.decoder.attention.direction.abs().max() <= 1 / 8
    assert model.decoder.attention.scale.item() == 1 / 8
    assert not model.decoder.attention.bias.any()


def test_label_smoothing_by_hand() -> None:
    """Nine tenths for the right word, one tenth for all four alike; padding counts nothing; per sentence."""
    logits = torch.tensor([[[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]], [[5.0, 0.0, 0.0, 0.0], [0.0, 9.0, 9.0, 9.0]]])
    following = torch.tensor([[3, 1], [2, 0]])
    total = 0.0
    for row, right in (([0, 1, 2, 3], 3), ([1, 1, 1, 1], 1), ([5, 0, 0, 0], 2)):
        whole = math.log(sum(math.exp(value) for value in row))
        total -= sum((0.9 * (at == right) + 0.1 / 4) * (value - whole) for at, value in enumerate(row))
    assert smoothed(logits, following, 0.1).item() == pytest.approx(total / 2, rel=1e-6)


def test_neumf_by_matrices() -> None:
    torch.manual_seed(0)
    model = NeuMF(7, 5, 3, [8, 6, 2])
    users, items = torch.tensor([6, 0, 3]), torch.tensor([4, 4, 1])
    w = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    for at, (user, item) in enumerate(zip(users.tolist(), items.tolist(), strict=True)):
        hidden = np.append(w["features.0.weight"][user], w["features.1.weight"][item])
        for layer in (0, 2):
            hidden = np.maximum(0, w[f"perceptron.{layer}.weight"] @ hidden + w[f"perceptron.{layer}.bias"])
        product = np.einsum("f,f->f", w["factors.0.weight"][user], w["factors.1.weight"][item])
        expected = w["output.weight"] @ np.append(product, hidden) + w["output.bias"]
        assert model(users, items)[at].item() == pytest.approx(expected.item(), rel=1e-5)


def test_an_epoch_of_samples_is_every_rating_once_and_four_unrated_items_each() -> None:
    rated = {(user, item) for user in range(6) for item in range(9) if (user * item) % 3 == 1 or item == user}
    pairs = np.asarray(sorted(user * 9 + item for user, item in rated), np.uint8)
    samples = Samples(Ratings(pairs, 6, 9, None), batch_size=2, negatives=4)
    epochs = Epochs(samples, torch.Generator().manual_seed(1))
    asked = list(epochs)
    batches = list(Batches([samples[several] for several in asked], 2))
    assert {len(batch) for batch in batches} == {2}
    rows = torch.cat(batches)
    assert len(rows) == 5 * len(rated)
    positive = [(user, item) for user, item, label in rows.tolist() if label == 1]
    assert sorted(positive) == sorted(rated)
    negative = [(user, item) for user, item, label in rows.tolist() if label == 0]
    assert len(negative) == 4 * len(rated)
    assert not set(negative) & rated
    assert {item for _, item in negative} == set(range(9))
    (key, places), (_, others) = asked[0], asked[-1]
    assert (len(asked), len(places), len(others)) == (3, 16, len(batches) - 32)
    assert torch.equal(samples.batch(key, places[2]), batches[2])  # whichever process makes it
    assert not torch.equal(samples[next(iter(epochs))], samples[asked[0]])  # the next epoch
    odd = Samples(Ratings(pairs, 6, 9, None), batch_size=4, negatives=4)  # 70 samples: batches stay whole, two are left
    assert [len(odd[several]) for several in Epochs(odd, torch.Generator())] == [64, 4]


@pytest.mark.parametrize("model", ["GRU", "LSTM"])
def test_the_state_carries_the_text_over_the_border_of_a_window(model: str) -> None:
    torch.manual_seed(0)
    network = LanguageModel(model, 11, 4, 6, 2, 0.5).eval()
    tokens = torch.randint(0, 11, (10, 3))
    whole, _ = network(tokens, None)
    first, state = network(tokens[:7], None)
    second, _ = network(tokens[7:], detached(state))
    assert torch.allclose(torch.cat((first, second)), whole, atol=1e-6)
    state = detached(state)
    assert not any(part.requires_grad for part in ([state] if isinstance(state, torch.Tensor) else state))
