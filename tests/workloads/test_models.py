"""Models and losses against the published facts and against independent formulas."""

from __future__ import annotations

import inspect
import math
import re

import numpy as np
import pytest
import torch
import torchvision
from launching import parameters
from PIL import Image
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence

from milabench_ng.bench import Definition
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.standard import dcgan, fast_style
from milabench_ng.workloads.standard.reso import SmallAndLarge, SubPixel
from milabench_ng.workloads.standard.toy_lstm import Sequence, sine_waves
from milabench_ng.workloads.standard.vae import VAE, negative_elbo

WORKLOADS = builtin_workloads()


def test_parameter_counts() -> None:
    assert parameters(VAE()) == 652_824
    assert parameters(Sequence(51)) == 32_284
    assert parameters(SubPixel(2)) == 58_212
    assert parameters(fast_style.transformer()) == 1_679_235
    assert parameters(dcgan.generator(100, 64)) == 3_576_704
    assert parameters(dcgan.discriminator(64)) == 2_765_568
    with torch.device("meta"):
        assert parameters(torchvision.models.get_model("resnet101", weights=None)) == 44_549_160
        assert parameters(torchvision.models.get_model("alexnet", weights=None)) == 61_100_840


def test_the_loss_of_the_vae_is_the_negative_evidence_lower_bound() -> None:
    torch.manual_seed(0)
    pixels = torch.rand(5, 784)
    logits, mean, log_variance = torch.randn(5, 784), torch.randn(5, 20), torch.randn(5, 20)
    likelihood = Bernoulli(logits=logits, validate_args=False).log_prob(pixels).sum()
    divergence = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0)).sum()
    assert negative_elbo(logits, pixels, mean, log_variance).item() == pytest.approx(
        (divergence - likelihood).item(), rel=1e-5
    )


def test_the_code_of_the_vae_has_the_mean_and_variance_that_it_says() -> None:
    torch.manual_seed(0)
    model = VAE()
    seen: list[torch.Tensor] = []
    model.decoder[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    logits, mean, log_variance = model(torch.rand(1, 784).expand(20_000, 784))
    assert logits.shape == (20_000, 784)
    (code,) = seen
    assert torch.allclose(code.mean(0), mean[0], atol=0.05)
    assert torch.allclose(code.var(0).log(), log_variance[0], atol=0.05)


def test_the_sequence_model_is_two_cells_unrolled() -> None:
    """Against torch's own LSTM of two layers with the same weights."""
    torch.manual_seed(0)
    model = Sequence(4)
    reference = nn.LSTM(1, 4, num_layers=2, batch_first=True)
    for layer, cell in enumerate((model.first, model.second)):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(reference, f"{name}_l{layer}").data.copy_(getattr(cell, name))
    waves = torch.randn(3, 11)
    expected = model.linear(reference(waves.unsqueeze(2))[0]).squeeze(2)
    assert torch.allclose(model(waves), expected, atol=1e-6)


def test_sine_waves() -> None:
    torch.manual_seed(0)
    waves = sine_waves(50)
    assert waves.shape == (50, 1000)
    assert waves.dtype is torch.float32
    assert waves.abs().max() <= 1
    before, here, after = waves[:, :-2], waves[:, 1:-1], waves[:, 2:]
    # sin(t - h) + sin(t + h) = 2 cos(h) sin(t), with h = 1 / 20
    assert torch.allclose(before + after, 2 * math.cos(1 / 20) * here, atol=1e-5)
    assert len(waves[:, 0].unique()) > 20  # each has a phase of its own


def test_sub_pixels() -> None:
    """The last layer's four channels become the pixels of 2 x 2 (Shi et al., equation 4)."""
    torch.manual_seed(0)
    model = SubPixel(2)
    small = torch.rand(3, 1, 5, 7)
    channels = model.layers[:-1](small)
    large = model(small)
    assert (channels.shape, large.shape) == ((3, 4, 5, 7), (3, 1, 10, 14))
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        assert torch.equal(large[:, 0, row::2, column::2], channels[:, 2 * row + column])
    assert SubPixel(3)(small).shape == (3, 1, 15, 21)
    first = model.layers[0].weight.flatten(1).double()  # 64 rows of 25: columns are orthogonal, gain sqrt(2)
    assert torch.allclose(first.T @ first, 2 * torch.eye(25, dtype=torch.double), atol=1e-5)


def test_input_and_target_of_the_super_resolution() -> None:
    pixels = np.zeros((40, 60, 3), np.uint8)
    pixels[10:30, 20:40] = (255, 0, 0)  # luminance 0.299
    small, large = SmallAndLarge(16, 2)(Image.fromarray(pixels))
    assert (small.shape, large.shape) == ((1, 8, 8), (1, 16, 16))
    assert torch.allclose(large, torch.full_like(large, 76 / 255))
    assert torch.allclose(small, torch.full_like(small, 76 / 255))


def test_gram_matrices() -> None:
    torch.manual_seed(0)
    features = torch.randn(2, 3, 4, 5)
    expected = torch.einsum("ncij,ndij->ncd", features, features) / (3 * 4 * 5)
    assert torch.allclose(fast_style.gram(features), expected, atol=1e-6)
    assert fast_style.gram(torch.full((1, 2, 2, 2), 200.0, dtype=torch.float16)).tolist() == [[[20_000.0] * 2] * 2]


def test_the_frozen_network_keeps_the_scale_of_its_features() -> None:
    torch.manual_seed(0)
    judge = fast_style.Judge()
    assert not any(parameter.requires_grad for parameter in judge.parameters())
    assert parameters(judge) == 7_635_264  # VGG16's first ten convolutions
    taps = judge(fast_style.style_picture(32))
    assert [tuple(tap.shape[1:]) for tap in taps] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    for tap in taps:
        assert 0.3 < tap.square().mean().sqrt() < 3
    painted = fast_style.transformer()(fast_style.style_picture(32))
    assert painted.shape == (1, 3, 32, 32)


def test_the_adversaries() -> None:
    torch.manual_seed(0)
    forged = dcgan.generator(10, 4)(torch.randn(5, 10, 1, 1))
    assert forged.shape == (5, 3, 64, 64)
    assert forged.abs().max() <= 1
    critic = dcgan.discriminator(4)
    logits = critic(forged)
    assert logits.shape == (5,)
    assert dcgan.taken_for(logits, True).item() == pytest.approx(-logits.sigmoid().log().mean().item(), rel=1e-5)
    assert dcgan.taken_for(logits, False).item() == pytest.approx(-(1 - logits.sigmoid()).log().mean().item(), rel=1e-5)
    assert critic[0].weight.std().item() == pytest.approx(0.02, rel=0.2)


@pytest.mark.parametrize("definition", WORKLOADS.values(), ids=WORKLOADS)
def test_a_workload_says_what_it_is_and_every_option_has_a_meaning(definition: Definition) -> None:
    text = inspect.getdoc(definition.function) or ""
    first = text.partition("\n")[0]
    assert first.endswith(".")
    assert re.search("bound by|presses on", text.partition("\n\n")[0])  # an antagonist presses
    assert re.search(r"\bAn item is one\b", " ".join(text.split()))
    assert re.search(r"\bTimed:\s", text)
    options = definition.own_options
    assert options
    assert [option.name for option in options if not option.meaning] == []
    documented = re.findall(r"^    (\w+): ", text.partition("\nOptions:\n")[2], re.MULTILINE)
    assert documented == [option.name for option in options]


READS = ("toy_reg", "cart", "h2d")
"""What the host reads: toy_reg's loss, as its work; cart's action, on the CPU where it is; h2d's check, at the end."""
WAITS = ("llm_decode", "llm_serve")
"""What waits for the device: for the capture of graphs, before the clock."""
FILES = {"open(", "Path", "import os"}
"""What workloads that store files do themselves, and `process_storm`, which starts programs."""


@pytest.mark.parametrize("definition", WORKLOADS.values(), ids=WORKLOADS)
def test_a_workload_leaves_clock_files_and_devices_to_the_bench(definition: Definition) -> None:
    source = inspect.getsource(inspect.getmodule(definition.function) or definition.function)
    own = {"synchronize"} if definition.name in WAITS else set()
    own |= FILES if definition.stores or definition.name == "process_storm" else set()
    for forbidden in {"import time", "synchronize", ".cuda(", *FILES} - own:
        assert forbidden not in source
    assert (".item()" in source) == (definition.name in READS)
