"""Whole networks against the same ones from another hand: written out here, or of a library, with the same weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import resnet34, vgg16
from torchvision.models.resnet import BasicBlock, ResNet

from milabench_ng.workloads.models import tacotron
from milabench_ng.workloads.models.bert import VOCABULARY, SpanFinder
from milabench_ng.workloads.models.diffusion_transformer import DiffusionTransformer
from milabench_ng.workloads.models.dimensions import Dimensions
from milabench_ng.workloads.models.ssd300 import SSD300
from milabench_ng.workloads.models.tacotron import Tacotron2
from milabench_ng.workloads.models.transformer import Transformer
from milabench_ng.workloads.models.transformer_xl import TransformerXL
from milabench_ng.workloads.standard import dcgan, fast_style
from milabench_ng.workloads.standard.reso import SubPixel
from milabench_ng.workloads.standard.vae import VAE
from milabench_ng.workloads.standard.wlm import LanguageModel


def stirred(model: Any) -> Any:
    """``model`` with another value in each weight that begins as 0 or 1, where a mistake could hide."""
    for weight in model.parameters():
        if weight.numel() > 1 and weight.min() == weight.max():
            nn.init.normal_(weight, weight.flatten()[0].item(), 0.3)
    return model


def weights_of(model: nn.Module) -> Iterator[Tensor]:
    """The weights one after the other, as the layers stand in the network."""
    return iter([weight.detach() for weight in model.parameters()])


# Pictures of the standard suite


def test_the_auto_encoder_is_three_products_and_two() -> None:
    """784-400-(20, 20) and 20-400-784, in NumPy; the code is the mean plus noise times exp(log variance / 2)."""
    torch.manual_seed(0)
    model, pixels = VAE(), torch.rand(3, 784)
    torch.manual_seed(7)
    logits, mean, log_variance = (part.detach().numpy() for part in model(pixels))
    torch.manual_seed(7)
    noise = torch.randn(3, 20).numpy()
    given = [weight.numpy().astype(np.float64) for weight in weights_of(model)]
    (into, b1), (to_mean, b2), (to_spread, b3), (back, b4), (out, b5) = zip(given[::2], given[1::2], strict=True)
    hidden = np.maximum(0, pixels.numpy() @ into.T + b1)
    assert np.allclose(mean, hidden @ to_mean.T + b2, atol=1e-5)
    assert np.allclose(log_variance, hidden @ to_spread.T + b3, atol=1e-5)
    code = mean + noise * np.sqrt(np.exp(log_variance))
    assert np.allclose(logits, np.maximum(0, code @ back.T + b4) @ out.T + b5, atol=1e-5)


def test_the_sub_pixel_network_is_four_convolutions() -> None:
    """Shi et al., arXiv:1609.05158, of 5, 3, 3 and 3 pixels, with a rectifier after each but the last."""
    torch.manual_seed(0)
    model, small = SubPixel(2), torch.rand(2, 1, 9, 7)
    w1, b1, w2, b2, w3, b3, w4, b4 = weights_of(model)
    hidden = F.relu(F.conv2d(small, w1, b1, padding=2))
    hidden = F.relu(F.conv2d(hidden, w2, b2, padding=1))
    hidden = F.relu(F.conv2d(hidden, w3, b3, padding=1))
    channels = F.conv2d(hidden, w4, b4, padding=1)
    large = torch.zeros(2, 1, 18, 14)
    for at in range(4):
        large[:, 0, at // 2 :: 2, at % 2 :: 2] = channels[:, at]
    assert torch.allclose(model(small), large, atol=1e-6)


def test_the_painter_is_that_of_the_paper_with_instance_normalization() -> None:
    """Johnson et al., arXiv:1603.08155: 9 x 9, twice halved, five residual blocks, twice doubled, 9 x 9."""
    torch.manual_seed(0)
    model, pictures = stirred(fast_style.transformer()), 255 * torch.rand(2, 3, 16, 24)
    given = weights_of(model)

    def convolved(features: Tensor, stride: int = 1) -> Tensor:
        weight, bias = next(given), next(given)
        edge = weight.shape[-1] // 2
        return F.conv2d(F.pad(features, (edge,) * 4, mode="reflect"), weight, bias, stride=stride)

    def normal(features: Tensor) -> Tensor:
        scale, shift = next(given), next(given)
        mean = features.mean((2, 3), keepdim=True)
        spread = (features - mean).square().mean((2, 3), keepdim=True)
        return (features - mean) / (spread + 1e-5).sqrt() * scale[:, None, None] + shift[:, None, None]

    features = pictures
    for stride in (1, 2, 2):
        features = normal(convolved(features, stride)).relu()
    for _ in range(5):
        features = features + normal(convolved(normal(convolved(features)).relu()))
    for _ in range(2):
        features = features.repeat_interleave(2, 2).repeat_interleave(2, 3)
        features = normal(convolved(features)).relu()
    expected = convolved(features)
    assert next(given, None) is None
    with torch.no_grad():
        assert torch.allclose(model(pictures), expected, atol=1e-4)


def test_the_judge_sees_the_features_of_vgg16() -> None:
    """torchvision's, after the rectifiers 1_2, 2_2, 3_3 and 4_3, of pictures normalized like ImageNet's."""
    torch.manual_seed(0)
    judge, pictures = stirred(fast_style.Judge()), 255 * torch.rand(1, 3, 32, 32)
    with torch.device("meta"):
        whole = vgg16().features[:23]
    whole.load_state_dict(judge.layers.state_dict(), assign=True)
    mean, spread = (torch.tensor(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    features, seen = (pictures / 255 - mean) / spread, []
    with torch.no_grad():
        for layer, following in zip(whole, [*whole[1:], nn.MaxPool2d(2)], strict=True):
            features = layer(features)
            if isinstance(following, nn.MaxPool2d):
                seen.append(features.clone())
        found = judge(pictures)
    assert len(found) == len(seen) == 4
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(found, seen, strict=True))


def normalized_over_the_batch(features: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Batch normalization in training (Ioffe and Szegedy, arXiv:1502.03167)."""
    mean = features.mean((0, 2, 3), keepdim=True)
    spread = (features - mean).square().mean((0, 2, 3), keepdim=True)
    return (features - mean) / (spread + 1e-5).sqrt() * scale[:, None, None] + shift[:, None, None]


def test_the_adversaries_are_those_of_the_paper() -> None:
    """Radford et al., arXiv:1511.06434: 4 x 4 kernels of stride 2, normalized but at the picture, no bias."""
    torch.manual_seed(0)
    forger, critic = stirred(dcgan.generator(10, 4)), stirred(dcgan.discriminator(4))
    given = weights_of(forger)
    features = noise = torch.randn(3, 10, 1, 1)
    for level in range(4):
        stride, padding = (2, 1) if level else (1, 0)
        features = F.conv_transpose2d(features, next(given), stride=stride, padding=padding)
        features = normalized_over_the_batch(features, next(given), next(given)).relu()
    forged = F.conv_transpose2d(features, next(given), stride=2, padding=1).tanh()
    assert torch.allclose(forger(noise), forged, atol=1e-5)
    judging = weights_of(critic)
    features = F.conv2d(forged, next(judging), stride=2, padding=1)
    for _ in range(3):
        features = F.conv2d(torch.where(features > 0, features, 0.2 * features), next(judging), stride=2, padding=1)
        features = normalized_over_the_batch(features, next(judging), next(judging))
    logits = F.conv2d(torch.where(features > 0, features, 0.2 * features), next(judging))
    assert torch.allclose(critic(forged), logits[:, 0, 0, 0], atol=1e-4)
    assert next(given, None) is next(judging, None) is None


def test_ssd_over_resnet_34_is_its_levels_and_two_heads_on_each() -> None:
    """MLPerf's SSD300: ResNet-34 up to its third stage, which halves nothing; five blocks without normalization."""
    torch.manual_seed(0)
    below = resnet34()
    model = stirred(SSD300(copy.deepcopy(below)).eval())
    for part, name in ((below.conv1, "0"), (below.bn1, "1"), (below.layer1, "4"), (below.layer2, "5")):
        part.load_state_dict(getattr(model.backbone, name).state_dict())
    below.eval()
    pictures = torch.rand(1, 3, 300, 300)
    with torch.no_grad():
        features = F.max_pool2d(below.bn1(below.conv1(pictures)).relu(), 3, stride=2, padding=1)
        features = below.layer2(below.layer1(features))
        for block in model.backbone[6]:
            shortcut = features
            if block.downsample is not None:  # that of the first block widens, and no longer halves
                shortcut = normalized(F.conv2d(features, block.downsample[0].weight), block.downsample[1])
            inner = normalized(F.conv2d(features, block.conv1.weight, padding=1), block.bn1).relu()
            features = (normalized(F.conv2d(inner, block.conv2.weight, padding=1), block.bn2) + shortcut).relu()
        levels = [features]
        for block, (stride, padding) in zip(model.extras, [(2, 1), (2, 1), (2, 1), (1, 0), (1, 0)], strict=True):
            w1, b1, w2, b2 = weights_of(block)
            features = F.conv2d(F.conv2d(features, w1, b1).relu(), w2, b2, stride=stride, padding=padding).relu()
            levels.append(features)
        assert [tuple(level.shape[1:]) for level in levels] == [
            (256, 38, 38),
            (512, 19, 19),
            (512, 10, 10),
            (256, 5, 5),
            (256, 3, 3),
            (256, 1, 1),
        ]
        for heads, found in zip((model.places, model.scores), model(pictures), strict=True):
            seen = [
                F.conv2d(level, head.weight, head.bias, padding=1) for level, head in zip(levels, heads, strict=True)
            ]
            rows = [each.view(found.shape[1], -1) for each in seen]  # class by class: shapes, then places
            assert torch.allclose(found[0], torch.cat(rows, 1), atol=1e-4)


def normalized(features: Tensor, norm: Any) -> Tensor:
    """Batch normalization in evaluation."""
    shape = (1, -1, 1, 1)
    mean, spread, scale, shift = (
        each.view(shape) for each in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return (features - mean) / (spread + 1e-5).sqrt() * scale + shift


def test_ssd_over_resnet_34_has_the_parameters_that_its_layers_add_up_to() -> None:
    """Of each level: 4 places and 81 scores a box. Blocks: 3 x 3 convolutions behind 1 x 1 ones, with biases."""
    with torch.device("meta"):
        model = SSD300(ResNet(BasicBlock, [3, 4, 6, 3]))
        stages = resnet34()
    backbone = sum(weight.numel() for weight in stages.parameters()) - sum(
        weight.numel() for part in (stages.layer4, stages.fc) for weight in part.parameters()
    )
    widths, inner, boxes = (256, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128), (4, 6, 6, 6, 4, 4)
    blocks = sum(
        before * within + within + 9 * within * after + after
        for before, within, after in zip(widths, inner, widths[1:], strict=False)
    )
    heads = sum((9 * width + 1) * 85 * count for width, count in zip(widths, boxes, strict=True))
    assert sum(weight.numel() for weight in model.parameters()) == backbone + blocks + heads


# Text and speech


def test_the_recurrent_language_model_is_its_gates() -> None:
    """Cho et al., arXiv:1406.1078, with the reset after the product, as cuDNN has it; two layers, word by word."""
    torch.manual_seed(0)
    model = stirred(LanguageModel("GRU", 11, 4, 6, 2, 0.5).eval())
    tokens, state = torch.randint(11, (5, 3)), torch.randn(2, 3, 6)
    layers = [
        [getattr(model.recurrent, f"{name}_l{at}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        for at in range(2)
    ]
    logits, after = model(tokens, state)
    memory = list(state)
    for time in range(5):
        given = model.embedding.weight[tokens[time]]
        for at, (of_input, of_memory, b_input, b_memory) in enumerate(layers):
            (r, z, n), (r_h, z_h, n_h) = (
                (value @ weight.t() + bias).chunk(3, 1)
                for value, weight, bias in ((given, of_input, b_input), (memory[at], of_memory, b_memory))
            )
            reset, keep = (r + r_h).sigmoid(), (z + z_h).sigmoid()
            given = memory[at] = keep * memory[at] + (1 - keep) * (n + reset * n_h).tanh()
        assert torch.allclose(logits[time], given @ model.output.weight.t() + model.output.bias, atol=1e-5)
    assert torch.allclose(after, torch.stack(memory), atol=1e-5)


def test_transformer_xl_is_embedding_blocks_and_the_embedding_again() -> None:
    """Dai et al., arXiv:1901.02860: post-normalized blocks; the attention has a definition of its own elsewhere."""
    torch.manual_seed(0)
    model = stirred(TransformerXL(11, layers=2, width=8, heads=2, inner=12, dropout=0.1).eval())
    memory = [torch.randn(3, 2, 8) for _ in range(2)]
    tokens = torch.randint(11, (4, 2))
    logits, given = model(tokens, memory)
    distances = [[distance / 10_000 ** (2 * at / 8) for at in range(4)] for distance in range(6, -1, -1)]
    codes = torch.tensor([[f(angle) for f in (math.sin, math.cos) for angle in row] for row in distances])
    hidden = math.sqrt(8) * model.embedding.weight[tokens]
    for block, before, handed_on in zip(model.blocks, memory, given, strict=True):
        assert torch.allclose(handed_on, hidden, atol=1e-5)
        hidden = layer_norm(hidden + block.attention(hidden, before, codes, list(model.biases)), block.after_attention)
        into, out = block.forwards[0], block.forwards[3]
        onwards = (hidden @ into.weight.t() + into.bias).relu() @ out.weight.t() + out.bias
        hidden = layer_norm(hidden + onwards, block.after_forwards)
    assert torch.allclose(logits, hidden @ model.embedding.weight.t() + model.output_bias, atol=1e-5)


def layer_norm(hidden: Tensor, norm: Any) -> Tensor:
    """Ba et al., arXiv:1607.06450."""
    centered = hidden - hidden.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def test_bert_is_that_of_the_paper() -> None:
    """Devlin et al., arXiv:1810.04805: three embeddings; attention and GELU, each normalized with its shortcut."""
    pytest.importorskip("transformers", reason="the extra language is not installed")
    torch.manual_seed(0)
    model = SpanFinder(layers=2, width=16, heads=2, inner=32, longest=24, attention="eager").eval()
    weights = {name.removeprefix("network."): weight for name, weight in stirred(model).named_parameters()}

    def linear(name: str, given: Tensor) -> Tensor:
        return given @ weights[f"{name}.weight"].t() + weights[f"{name}.bias"]

    def normal(name: str, given: Tensor) -> Tensor:
        centered = given - given.mean(-1, keepdim=True)
        scaled = centered / (centered.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    tokens, parts = torch.randint(VOCABULARY, (2, 20)), torch.randint(2, (2, 20))
    real = (torch.arange(20) < torch.tensor([[20], [13]])).long()
    table = "bert.embeddings.{}_embeddings.weight".format
    words, kinds, places = weights[table("word")], weights[table("token_type")], weights[table("position")]
    hidden = normal("bert.embeddings.LayerNorm", words[tokens] + kinds[parts] + places[:20])
    for layer in range(2):
        at = f"bert.encoder.layer.{layer}"
        query, key, value = (
            linear(f"{at}.attention.self.{name}", hidden).view(2, 20, 2, 8).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = (query @ key.transpose(2, 3) / math.sqrt(8)).masked_fill(real[:, None, None] == 0, -math.inf)
        seen = (scores.softmax(3) @ value).transpose(1, 2).reshape(2, 20, 16)
        hidden = normal(f"{at}.attention.output.LayerNorm", hidden + linear(f"{at}.attention.output.dense", seen))
        inner = linear(f"{at}.intermediate.dense", hidden)
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        hidden = normal(f"{at}.output.LayerNorm", hidden + linear(f"{at}.output.dense", inner))
    found, expected = model(tokens, real, parts), linear("qa_outputs", hidden)
    assert torch.allclose(found[real == 1], expected[real == 1], atol=1e-4)


def test_tacotron_reads_letters_by_convolutions_and_from_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shen et al., arXiv:1712.05884, but the decoder, which is written out elsewhere: each text as it would be alone.

    Three convolutions and an LSTM before the decoder, five convolutions after it, added to what it draws.
    """
    monkeypatch.setattr(tacotron, "DROPOUT", 0.0)  # of the prenet, which has it in inference, too
    torch.manual_seed(0)
    model = stirred(Tacotron2().eval())
    letters, mels = torch.tensor([[5, 6, 7, 8]]), torch.randn(1, 80, 3)

    def convolved(features: Tensor, layer: Any) -> Tensor:
        convolution, norm, *_ = layer
        features = F.conv1d(features, convolution.weight, convolution.bias, padding=2)
        return normalized(features.unsqueeze(3), norm).squeeze(3)

    with torch.no_grad():
        features = model.embedding.weight[letters].transpose(1, 2)
        for layer in model.convolutions:
            features = convolved(features, layer).relu()
        ends = [read(model.lstm, features[0].t(), backwards) for backwards in (False, True)]
        memory = torch.cat(ends, 1).unsqueeze(0)
        drawn, stop = model.decoder(memory, letters == 0, mels)
        features = drawn
        for number, layer in enumerate(model.postnet):
            features = convolved(features, layer)
            features = features if number == 4 else features.tanh()
        found = model(letters, [4], mels, torch.tensor([3]))
    for one, other in zip(found, (drawn, drawn + features, stop), strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def read(lstm: nn.LSTM, words: Tensor, backwards: bool) -> Tensor:
    """Words [L, W] of one text to the outputs of one direction [L, H]."""
    of_word, of_output, b_word, b_output = (
        getattr(lstm, f"{name}_l0{'_reverse' if backwards else ''}")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    output = memory = torch.zeros(lstm.hidden_size)
    outputs = []
    for word in words.flip(0) if backwards else words:
        enter, keep, new, leave = (of_word @ word + b_word + of_output @ output + b_output).chunk(4)
        memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
        output = leave.sigmoid() * memory.tanh()
        outputs.append(output)
    return torch.stack(outputs[::-1] if backwards else outputs)


# The modern suite


@pytest.mark.parametrize("tied", [True, False])
def test_the_transformer_is_llama(tied: bool) -> None:
    """Of the library transformers: the same logits, the same loss, and the same gradients."""
    library = pytest.importorskip("transformers", reason="the extra language is not installed")
    torch.manual_seed(0)
    size = Dimensions(layers=2, width=32, heads=4, kv_heads=2, inner=48, vocabulary=101, tied=tied)
    ours = Transformer(size)
    for weight in ours.parameters():
        nn.init.normal_(weight, 0.1, 0.3)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 101}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": tied}
    turns = {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}  # Llama 3's
    theirs = library.LlamaForCausalLM(library.LlamaConfig(**shape, **heads, **turns, attn_implementation="eager"))
    theirs.load_state_dict(
        {named_by_llama(name): weight for name, weight in ours.state_dict().items()}, strict=not tied
    )
    tokens = torch.randint(101, (2, 18))
    given, following = tokens[:, :-1], tokens[:, 1:]
    logits = theirs(given).logits
    assert torch.allclose(ours.logits(ours.states(given)), logits, atol=1e-4, rtol=1e-4)
    expected = -logits.log_softmax(2).gather(2, following[..., None]).mean()
    loss = ours(given, following)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    expected.backward()
    gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    for name, weight in ours.named_parameters():
        assert torch.allclose(weight.grad, gradients[named_by_llama(name)], atol=1e-4, rtol=1e-3), name


def named_by_llama(name: str) -> str:
    """Llama's name of a weight of ours."""
    for ours, theirs in (
        ("embedding.", "model.embed_tokens."),
        ("blocks.", "model.layers."),
        ("before_attention", "input_layernorm"),
        ("before_forward", "post_attention_layernorm"),
        ("attention.query", "self_attn.q_proj"),
        ("attention.key", "self_attn.k_proj"),
        ("attention.value", "self_attn.v_proj"),
        ("attention.output", "self_attn.o_proj"),
        ("feed_forward.gate", "mlp.gate_proj"),
        ("feed_forward.up", "mlp.up_proj"),
        ("feed_forward.down", "mlp.down_proj"),
        ("head.", "lm_head."),
    ):
        name = name.replace(ours, theirs)
    return f"model.{name}" if name.startswith("norm.") else name


def test_the_diffusion_transformer_is_that_of_the_paper() -> None:
    """Peebles and Xie, arXiv:2212.09748, figure 3: adaLN-Zero, patches of 2 x 2, of eight outputs the first four."""
    torch.manual_seed(0)
    model = DiffusionTransformer(2, 16, 2, 6)
    for weight in model.parameters():
        nn.init.normal_(weight, 0, 0.3)
    latents, times, labels = torch.randn(3, 4, 6, 6), torch.tensor([0, 500, 999]), torch.tensor([0, 7, 1000])

    def linear(layer: Any, given: Tensor) -> Tensor:
        return given @ layer.weight.t() + layer.bias

    def modulated(given: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        centered = given - given.mean(-1, keepdim=True)
        return (
            centered / (centered.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + scale[:, None]) + shift[:, None]
        )

    waves = torch.tensor(
        [
            [f(time * 10_000 ** (-at / 128)) for f in (math.cos, math.sin) for at in range(128)]
            for time in times.tolist()
        ]
    )
    first = linear(model.time[0], waves)
    condition = linear(model.time[2], first * first.sigmoid()) + model.label.weight[labels]
    condition = condition * condition.sigmoid()
    patches = [latents[:, :, y : y + 2, x : x + 2].flatten(1) for y in (0, 2, 4) for x in (0, 2, 4)]
    tokens = torch.stack(patches, 1) @ model.patches.weight.flatten(1).t() + model.patches.bias + model.places
    for block in model.blocks:
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = linear(block.modulation, condition).chunk(6, 1)
        query, key, value = linear(block.mixed, modulated(tokens, shift, scale)).view(3, 9, 3, 2, 8).unbind(2)
        weights = (torch.einsum("nihd,njhd->nhij", query, key) / math.sqrt(8)).softmax(3)
        seen = linear(block.joined, torch.einsum("nhij,njhd->nihd", weights, value).flatten(2))
        tokens = tokens + gate[:, None] * seen
        inner = linear(block.inner, modulated(tokens, shift_mlp, scale_mlp))
        inner = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        tokens = tokens + gate_mlp[:, None] * linear(block.outer, inner)
    pieces = linear(model.head, modulated(tokens, *linear(model.modulation, condition).chunk(2, 1)))
    expected = torch.zeros(3, 4, 6, 6)
    for token in range(9):
        y, x = 2 * (token // 3), 2 * (token % 3)
        for row in range(2):
            for column in range(2):
                start = 8 * (2 * row + column)
                expected[:, :, y + row, x + column] = pieces[:, token, start : start + 4]
    assert torch.allclose(model(latents, times, labels), expected, atol=1e-3, rtol=1e-3)  # angles up to 999, in fp32
