"""The modern suite's networks of pictures and clicks: the counts of the specification; training in small on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from launching import Places, parameters, run
from rank_jobs import SMALL_DLRM, click_step
from recording import Recording, bench_on
from torch import nn
from torchvision.models import VisionTransformer

from milabench_ng.model.errors import InputError
from milabench_ng.model.events import Done
from milabench_ng.model.formula import evaluate
from milabench_ng.worker.discovery import builtin_workloads
from milabench_ng.workloads.models import diffusion_transformer
from milabench_ng.workloads.models.deep_cross import DeepCross
from milabench_ng.workloads.models.diffusion_transformer import DiffusionTransformer, NoiseSchedule, waves_in_two
from milabench_ng.workloads.models.sharded_tables import ShardedTables
from milabench_ng.workloads.models.vision_transformer import PlainVisionTransformer
from milabench_ng.workloads.modern import dit as diffusion
from milabench_ng.workloads.modern import dlrm as clicks
from milabench_ng.workloads.modern import vit as vision

WORKLOADS = builtin_workloads()
SMALL: dict[str, dict[str, Any]] = {
    "dit": {"batch_size": 16, "layers": 2, "width": 64, "heads": 4, "side": 32},
    "dit_video": {"batch_size": 2, "frames": 8, "layers": 2, "width": 64, "heads": 4, "side": 32},
    "vit": {"batch_size": 4, "layers": 2, "width": 64, "heads": 4, "side": 32},
    "dlrm": {**SMALL_DLRM, "rows": 1000},
}


def defaults(name: str) -> dict[str, float]:
    numbers = {option.name: option.default for option in WORKLOADS[name].own_options}
    return {option: value for option, value in numbers.items() if isinstance(value, int | float)}


def test_parameters_are_those_of_the_specification() -> None:
    with torch.device("meta"):
        assert parameters(DiffusionTransformer(28, 1152, 16, 64)) == 674_834_720
        assert parameters(VisionTransformer(224, 16, 24, 16, 1024, 4096)) == 304_326_632
        assert parameters(DeepCross(13, 24, 128)) == 14_995_201


def test_operations_of_an_item_are_those_of_the_specification() -> None:
    assert evaluate(diffusion_transformer.FLOP, defaults("dit")) == pytest.approx(3147.2e9, rel=5e-5)
    assert evaluate(vision.FLOP, defaults("vit")) == pytest.approx(369.0e9, rel=1e-4)
    assert evaluate(clicks.FLOP, defaults("dlrm")) == 6 * 14_981_888
    assert evaluate(clicks.GATHERED, defaults("dlrm")) == 98_304


def test_the_plain_vision_transformer_is_that_of_torchvision() -> None:
    """With its weights: the same logits, and the same gradients."""
    torch.manual_seed(0)
    theirs = VisionTransformer(32, 16, 2, 4, 64, 256)
    nn.init.normal_(theirs.heads.head.weight, std=0.02)
    ours = PlainVisionTransformer(32, 16, 2, 4, 64, 1000)
    ours.load_state_dict({renamed(name): value for name, value in theirs.state_dict().items()})
    pictures = torch.randn(3, 3, 32, 32)
    found, expected = ours(pictures), theirs(pictures)
    assert torch.allclose(found, expected, atol=1e-5)
    for logits in (found, expected):
        logits.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, parameter in theirs.named_parameters():
        assert torch.allclose(gradients[renamed(name)], parameter.grad, atol=1e-4), name
    with torch.device("meta"):
        large = PlainVisionTransformer(224, 16, 24, 16, 1024, 1000)
    assert sum(parameter.numel() for parameter in large.parameters()) == 304_326_632


def renamed(name: str) -> str:
    """Our name of a weight of torchvision's vision transformer."""
    for theirs, ours in (
        ("conv_proj", "patches"),
        ("class_token", "summary"),
        ("encoder.pos_embedding", "places"),
        ("encoder.layers.encoder_layer_", "blocks."),
        ("ln_1", "before_attention"),
        ("self_attention.in_proj_", "mixed."),
        ("self_attention.out_proj", "joined"),
        ("ln_2", "before_inner"),
        ("mlp.0", "inner"),
        ("mlp.3", "outer"),
        ("encoder.ln", "norm"),
        ("heads.head", "head"),
    ):
        name = name.replace(theirs, ours)
    return name


def test_both_vision_transformers_begin_alike() -> None:
    """Spread and mean of each weight, as they are drawn."""
    torch.manual_seed(0)
    theirs = dict(VisionTransformer(32, 16, 1, 4, 64, 256).named_parameters())
    ours = dict(PlainVisionTransformer(32, 16, 1, 4, 64, 1000).named_parameters())
    assert {renamed(name) for name in theirs} == set(ours)
    for name, weight in theirs.items():
        assert ours[renamed(name)].std().item() == pytest.approx(weight.std().item(), rel=0.2, abs=1e-5), name
        assert ours[renamed(name)].mean().item() == pytest.approx(weight.mean().item(), abs=0.02), name


@pytest.mark.parametrize(
    ("name", "theory", "items"),
    [("dit", 1.0, 16), ("dit_video", 1.0, 16), ("vit", math.log(1000), 4), ("dlrm", math.log(2), 16)],
)
def test_it_trains_and_begins_with_the_loss_of_theory(name: str, theory: float, items: int, place: Places) -> None:
    """No noise is predicted at first, and all of 1,000 classes, or of two, are as likely: as is declared."""
    declared = WORKLOADS[name].first_loss
    assert declared is not None
    assert declared.of(defaults(name)) == pytest.approx(theory, rel=1e-12)
    channel = run(WORKLOADS[name], 2, place, **SMALL[name])
    first, second = channel.losses
    assert first == pytest.approx(theory, rel=0.01)
    assert second is not None
    assert math.isfinite(second)
    assert channel.one(Done).count == 2 * items
    assert channel.one(Done).ran == "bf16_master"


def test_sides_and_widths_that_do_not_fit_are_refused(place: Places) -> None:
    for name, given, told in (
        ("dit", {"width": 66}, "--width 66: it must be a multiple of 4 and of --heads"),
        ("dit", {"side": 33}, "--side 33: it must be a multiple of 2, at most 64"),
        ("vit", {"side": 40}, "--side 40 of 16"),
        ("dlrm", {"tables": 25}, "--tables: expected a multiple of the number of devices"),
        ("dlrm", {"batch_size": 8193}, "--batch-size 8193: 1 ranks need 8,193 clicks, there are 8,192"),
    ):
        with pytest.raises(InputError, match=told):
            run(WORKLOADS[name], 1, place, **SMALL[name] | given)


def test_a_transformer_without_gates_predicts_what_its_head_makes_of_the_patches() -> None:
    """Blocks that add nothing, and a head that shows the first channel: 2 x 2 patches go back to their places."""
    model = DiffusionTransformer(1, 8, 2, 4)
    for layer in (model.blocks[0].modulation, model.modulation):
        nn.init.zeros_(layer.weight)
    seen = []
    model.head.register_forward_hook(lambda _module, given, _result: seen.append(given[0].detach()))
    with torch.no_grad():
        model.head.bias.copy_(torch.arange(32.0))
    noise = model(torch.randn(3, 4, 4, 4), torch.tensor([0, 500, 999]), torch.tensor([0, 1, 2]))
    piece = torch.arange(32.0).view(2, 2, 8)[..., :4].permute(2, 0, 1)
    assert torch.equal(noise[1], piece.repeat(1, 2, 2))
    assert torch.allclose(seen[0].mean(-1), torch.zeros(3, 4), atol=1e-5)  # normalised over the width


def test_tokens_lie_side_by_side_in_all_blocks() -> None:
    """A layer norm copies what does not, and each sum would hand the layout of the convolution on."""
    model = DiffusionTransformer(2, 8, 2, 4)
    seen: list[bool] = []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _module, given: seen.append(given[0].is_contiguous()))
    model(torch.randn(3, 4, 4, 4), torch.tensor([0, 500, 999]), torch.tensor([0, 1, 2]))
    assert seen == [True, True]


def test_frames_of_a_video_see_each_other_and_know_their_place() -> None:
    """What changes in a frame changes the noise of all frames of its video, of no other; order matters."""
    torch.manual_seed(0)
    model = DiffusionTransformer(2, 64, 4, 8, frames=3)
    for layer in (model.head, model.blocks[0].modulation):
        nn.init.normal_(layer.weight, std=0.1)
    videos, times, labels = torch.randn(2, 3, 4, 8, 8), torch.tensor([5, 700]), torch.tensor([1, 2])
    noise, other = videos.clone(), videos[:, [1, 0, 2]]
    noise[0, 2] += 1
    with torch.no_grad():
        first, changed, turned = (
            model(given.flatten(0, 1), times, labels).view_as(given) for given in (videos, noise, other)
        )
    assert (changed != first).flatten(2).any(2).tolist() == [[True] * 3, [False] * 3]
    assert not torch.allclose(turned[:, 2], first[:, 2], atol=1e-4)
    assert torch.equal(DiffusionTransformer(1, 64, 4, 8).places[0], waves_in_two(4, 64))
    assert torch.equal(model.places[0], waves_in_two(4, 64))


def test_places_have_waves_of_their_row_and_column() -> None:
    places = waves_in_two(3, 8)
    for row in range(3):
        for column in range(3):
            expected = [f(at * rate) for at in (row, column) for f in (math.cos, math.sin) for rate in (1.0, 0.01)]
            assert places[3 * row + column].tolist() == pytest.approx(expected, abs=1e-6)


def test_noise_replaces_the_latent_as_time_goes_on() -> None:
    schedule = NoiseSchedule(torch.device("cpu"))
    latents, noise = torch.full((3, 1, 1, 1), 2.0), torch.full((3, 1, 1, 1), -1.0)
    first, middle, last = schedule.noisy(latents, noise, torch.tensor([0, 499, 999])).flatten().tolist()
    kept = math.prod(1 - (1e-4 + step * (0.02 - 1e-4) / 999) for step in range(500))
    assert first == pytest.approx(2 * math.sqrt(0.9999) - math.sqrt(1e-4))
    assert middle == pytest.approx(2 * math.sqrt(kept) - math.sqrt(1 - kept), rel=1e-4)
    assert last == pytest.approx(-1.0, abs=0.03)


def test_the_average_follows_the_masters() -> None:
    bench = bench_on(Recording(), precision="bf16_master")
    model = bench.place(nn.Linear(1, 1, bias=False))
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    average = [torch.tensor([[1.0]])]
    bench.step(model(torch.ones(1, 1, dtype=torch.bfloat16)).sum(), optimizer)  # the weight is 0.5 from now on
    diffusion.follow(average, optimizer)
    assert average[0].item() == pytest.approx(1 - 0.5e-4, abs=1e-7)


@pytest.mark.parametrize(
    ("job", "precision", "close"), [("sharded", "fp32", 1e-5), ("sharded_bf16", "bf16_master", 0.003)]
)
def test_two_ranks_with_half_of_the_tables_each_do_what_one_does(
    job: str, precision: str, close: float, ranks: dict[str, list[Any]]
) -> None:
    alone, (first, second) = click_step(0, 1, precision), ranks[job]
    both = np.mean([first["losses"], second["losses"]], axis=0)
    np.testing.assert_allclose(both, alone["losses"], rtol=close)
    np.testing.assert_allclose(first["rows"] + second["rows"], alone["rows"], atol=close)
    np.testing.assert_allclose(second["narrow"], alone["narrow"], atol=close)
    assert first["narrow"] == second["narrow"]
    assert alone["losses"][2] < alone["losses"][0] - 0.005


def test_dlrm_runs_over_two_ranks(ranks: dict[str, list[Any]]) -> None:
    for losses, count in ranks["recommend"]:
        assert losses[0] == pytest.approx(math.log(2), rel=0.01)
        assert count == 32


def test_rows_move_against_the_gradient_of_every_sum_that_they_are_in() -> None:
    """A row that is named twice in one sample counts twice; one that is not named stays."""
    tables = ShardedTables(1, 3, 1, 0.5, torch.device("cpu"), 1)
    tables.rows.copy_(torch.tensor([[1.0], [10.0], [100.0]]))
    sums = tables(torch.tensor([[[0, 3]], [[1, 4]]], dtype=torch.int32), torch.float32)  # modulo 3: rows 0, 0 and 1, 1
    assert sums.flatten().tolist() == [2.0, 20.0]
    (sums.flatten() * torch.tensor([1.0, 3.0])).sum().backward()
    assert tables.rows.flatten().tolist() == [1 - 0.5 * 2, 10 - 0.5 * 6, 100.0]
