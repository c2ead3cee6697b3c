"""WaveGlow: invertible, with the determinant of its Jacobian; and the spectrograms that speech models see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.workloads.models import wave_glow
from milabench_ng.workloads.models.wave_glow import Coupling, WaveGlow, unlikelihood
from milabench_ng.workloads.nvidia.mel import MelSpectrogram, hertz_of, mel_filters, mel_of
from milabench_ng.workloads.nvidia.waveglow import Segment


def weights_of(before: int, after: int, kernel: int) -> int:
    """Of a convolution with weight normalisation: directions, gains and biases."""
    return before * after * kernel + 2 * after


def test_parameters() -> None:
    """268.3 million: eight layers of 512 channels in each of twelve flows over 8, 6 and 4 channels."""
    expected = 80 * 80 * 1024 + 80
    for channels in (8, 8, 8, 8, 6, 6, 6, 6, 4, 4, 4, 4):
        half = channels // 2
        layers = 8 * (weights_of(512, 1024, 3) + weights_of(640, 1024, 1))
        through = 7 * weights_of(512, 1024, 1) + weights_of(512, 512, 1)
        expected += channels**2 + weights_of(half, 512, 1) + layers + through + 512 * channels + channels
    with torch.device("meta"):
        found = sum(weight.numel() for weight in WaveGlow().parameters())
    assert found == expected == 268_294_760


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> WaveGlow:
    """A narrow network that is no longer as at first, when its flows change nothing."""
    monkeypatch.setattr(wave_glow, "WIDTH", 8)
    torch.manual_seed(0)
    model = WaveGlow()
    for flow in model.flows:
        for parameter in flow.coupling.end.parameters():
            nn.init.normal_(parameter, std=0.1)
    return model


def inverse(model: WaveGlow, noise: Tensor, mels: Tensor) -> Tensor:
    """The audio [N, S] of noise [N, 8, S / 8]: the flows backwards."""
    condition = model.condition(mels, noise.shape[2] * 8)
    signal = noise[:, 4:]
    for number in reversed(range(12)):
        kept, changed = signal.chunk(2, 1)
        scales, shifts = model.flows[number].coupling.found(kept, condition)
        signal = torch.cat((kept, (changed - shifts) * (-scales).exp()), 1)
        signal = torch.einsum("ij,njt->nit", model.flows[number].weight.inverse(), signal)
        if number in (4, 8):
            signal = torch.cat((noise[:, number // 2 - 2 : number // 2], signal), 1)
    return signal.transpose(1, 2).flatten(1)


@pytest.mark.slow
def test_it_is_invertible(small: WaveGlow) -> None:
    audio, mels = torch.randn(2, 512), torch.randn(2, 80, 3)
    with torch.no_grad():
        noise, _ = small(audio, mels)
        assert noise.shape == (2, 8, 64)
        assert (noise.transpose(1, 2).flatten(1) - audio).abs().max() > 1
        assert (inverse(small, noise, mels) - audio).abs().max() < 1e-4


def test_the_determinant_is_that_of_the_jacobian(small: WaveGlow) -> None:
    model, mels = small.double(), torch.randn(1, 80, 1).double()
    audio = torch.randn(1, 24).double()
    jacobian = torch.autograd.functional.jacobian(lambda given: model(given, mels)[0].flatten(), audio)
    assert isinstance(jacobian, Tensor)
    expected = torch.linalg.slogdet(jacobian.view(24, 24)).logabsdet
    assert model(audio, mels)[1].item() == pytest.approx(expected.item(), abs=1e-5)
    twice = model(audio.expand(2, 24), mels.expand(2, 80, 1))[1]
    assert twice.item() == pytest.approx(2 * expected.item(), abs=1e-5)


def test_a_flow_finds_its_scales_by_gated_dilated_convolutions(small: WaveGlow) -> None:
    """Against the formulas of WaveNet (arXiv:1609.03499); weights are gains times directions (arXiv:1602.07868)."""
    coupling: Coupling = small.flows[5].coupling
    condition, kept = torch.randn(2, 640, 30), torch.randn(2, 3, 30)

    def run(layer: nn.Conv1d, given: Tensor, dilation: int = 1) -> Tensor:
        gain, direction = layer.parametrizations.weight.original0, layer.parametrizations.weight.original1
        weight = gain * direction / direction.square().sum((1, 2), keepdim=True).sqrt()
        return F.conv1d(given, weight, layer.bias, padding=dilation * (weight.shape[2] // 2), dilation=dilation)

    hidden, total = run(coupling.start, kept), torch.zeros(2, 8, 30)
    for at in range(8):
        both = run(coupling.dilated[at], hidden, 2**at) + run(coupling.conditions[at], condition)
        output = run(coupling.through[at], torch.tanh(both[:, :8]) * torch.sigmoid(both[:, 8:]))
        if at < 7:
            hidden = hidden + output[:, :8]
        total = total + output[:, -8:]
    end = F.conv1d(total, coupling.end.weight, coupling.end.bias)
    scales, shifts = coupling.found(kept, condition)
    assert torch.allclose(shifts, end[:, :3], atol=1e-5)
    assert torch.allclose(scales, end[:, 3:], atol=1e-5)


def test_the_condition_of_a_sample_is_the_upsampled_spectrogram_there(small: WaveGlow) -> None:
    mels = torch.randn(1, 80, 2)
    with torch.no_grad():
        fine = small.upsample(mels)
        condition = small.condition(mels, 64)
    assert condition.shape == (1, 640, 8)
    for band, sample in ((0, 0), (3, 21), (79, 63)):
        assert condition[0, band * 8 + sample % 8, sample // 8] == fine[0, band, sample]


def test_the_loss_is_the_likelihood_of_the_noise() -> None:
    noise, logarithm = torch.randn(2, 8, 5), torch.tensor(3.0)
    density = torch.distributions.Normal(0.0, 1.0).log_prob(noise).sum() + logarithm
    constant = 0.5 * math.log(2 * math.pi)
    assert unlikelihood(noise, logarithm).item() == pytest.approx(-density.item() / 80 - constant, rel=1e-5)


@pytest.mark.slow
def test_a_fixed_batch_is_learnt(small: WaveGlow) -> None:
    audio, mels = 0.1 * torch.randn(2, 256), torch.randn(2, 80, 2)
    optimizer = torch.optim.Adam(small.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = unlikelihood(*small(audio, mels))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.05


def test_the_mel_scale_and_its_filters() -> None:
    assert mel_of(1_000) == pytest.approx(15)
    assert mel_of(500) == pytest.approx(7.5)
    assert mel_of(6_400) == pytest.approx(15 + 27)
    assert [hertz_of(mel_of(hertz)) for hertz in (100.0, 999.0, 5_000.0)] == pytest.approx([100.0, 999.0, 5_000.0])
    filters = mel_filters()
    assert filters.shape == (80, 513)
    assert (filters >= 0).all()
    width = 22_050 / 1_024
    assert filters[40:].sum(1).tolist() == pytest.approx([1 / width] * 40, rel=0.02)  # wide ones: their area is 1
    assert filters[:, 372:].count_nonzero() == 0  # above 8 kHz
    peaks = filters.argmax(1) * width
    expected = [hertz_of(mel_of(8_000) * band / 81) for band in range(1, 81)]
    assert (peaks - torch.tensor(expected)).abs().max() <= width / 2 + 1


def test_a_spectrogram_against_the_transform_of_one_frame() -> None:
    rng = np.random.default_rng(0)
    sound = rng.integers(-8_000, 8_000, 4_000)
    found = MelSpectrogram()(torch.from_numpy(sound.astype(np.int16)))
    assert found.shape == (80, 4_000 // 256 + 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1_024) / 1_024)
    around = np.concatenate((sound[512:0:-1], sound, sound[-2:-514:-1])) / 32_768
    for frame in (0, 6, 15):
        part = around[256 * frame : 256 * frame + 1_024] * window
        magnitudes = np.abs(np.exp(-2j * np.pi * np.outer(np.arange(513), np.arange(1_024)) / 1_024) @ part)
        expected = np.log(mel_filters().numpy().astype(float) @ magnitudes)
        assert np.allclose(found[:, frame], expected, atol=1e-3)


def test_a_segment_is_a_part_of_the_sound_and_a_short_one_ends_in_silence() -> None:
    torch.manual_seed(0)
    sound = torch.arange(9_000, dtype=torch.int16)
    begins = set()
    for _ in range(20):
        audio, mels = Segment()(sound, torch.empty(0))
        assert (audio.shape, mels.shape) == ((8_000,), (80, 32))
        begins.add(round(audio[0].item() * 32_768))
        assert torch.equal(audio * 32_768, torch.arange(8_000) + audio[0] * 32_768)
    assert len(begins) > 10
    audio, _ = Segment()(sound[100:700], torch.empty(0))
    assert (audio[599].item(), audio[600:].count_nonzero()) == (699 / 32_768, 0)
