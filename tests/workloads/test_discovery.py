"""Workloads of others: by entry point or by path; never under a built-in name."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milabench_ng import __version__
from milabench_ng.errors import InputError
from milabench_ng.worker.discovery import builtin_workloads, describe, find_workload

MODULE = '''
from milabench_ng.bench import Bench, workload


@workload(unit="grains")
def sand(bench: Bench, *, size: int = 3) -> None:
    """Moves sand."""


def plain(bench):
    """No workload."""
'''
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put distributions with entry points and their module ``mnb_test_sand`` on the import path."""
    (tmp_path / "mnb_test_sand.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(distribution: str = "sandbox", **entries: str) -> None:
        folder = tmp_path / f"{distribution}-2.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.1\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (folder / "entry_points.txt").write_text(f"[milabench_ng.workloads]\n{lines}")
        importlib.invalidate_caches()

    yield put
    sys.modules.pop("mnb_test_sand", None)


def test_the_built_in_ones() -> None:
    names = (
        "toy_reg toy_lstm vae loader reso translator wlm cart minigrid atari ssd fast_style dcgan convnet recom "
        "scaling cv_train cv_infer unet3d_train unet3d_infer "
        "bert_squad gnmt ncf txl ssd_resnet50 resnet50 maskrcnn tacotron2 waveglow hsi_segmentation "
        "llm_pretrain llm_fsdp llm_lora llm_prefill llm_decode moe dit vit dlrm collectives checkpoint h2d "
        "disk_read disk_write gpu_math gpu_stream loopback memory_stream page_cache pointer_chase process_storm "
        "vector_math"
    )
    assert set(builtin_workloads()) == set(names.split())
    definition, package = find_workload("vae")
    assert (definition.name, package) == ("vae", f"milabench_ng {__version__}")
    sets = (
        "bsds500 coco cremi imagenet imagenet-classic ljspeech mnist wmt16 wikitext-2 ml-20m "
        "news-commentary squad wikitext-103 hsi-raw hsi-raw16 hsi-raw32 tokens-32k tokens-128k latents clicks"
    )
    assert set(describe(()).data_sets) == set(sets.split())


def test_an_installed_one(install: Install) -> None:
    install(dunes="mnb_test_sand:sand")
    definition, package = find_workload("dunes")
    assert (definition.unit, package) == ("grains", "sandbox 2.1")
    described = describe(()).workloads["dunes"]
    assert (described.name, described.origin, described.package) == ("dunes", "mnb_test_sand:sand", "sandbox 2.1")
    assert [option.name for option in described.options][:2] == ["size", "max_count"]


@pytest.mark.usefixtures("install")
def test_one_that_is_named_by_its_path() -> None:
    definition, package = find_workload("mnb_test_sand:sand")
    assert (definition.unit, package) == ("grains", "mnb_test_sand")
    described = describe(["mnb_test_sand:sand"]).workloads["mnb_test_sand:sand"]
    assert (described.name, described.summary) == ("mnb_test_sand:sand", "Moves sand.")


def test_a_built_in_name_cannot_be_shadowed(install: Install) -> None:
    install(vae="mnb_test_sand:sand")
    with pytest.raises(InputError, match=r"sandbox 2\.1 declares a workload 'vae', which is built in"):
        describe(())
    assert find_workload("vae")[0] is builtin_workloads()["vae"]


def test_two_packages_cannot_offer_the_same_name(install: Install) -> None:
    install(dunes="mnb_test_sand:sand")
    install("other", dunes="mnb_test_sand:plain")
    for call in (lambda: describe(()), lambda: find_workload("dunes")):
        with pytest.raises(InputError, match="two workloads are called 'dunes'") as caught:
            call()
        assert "sandbox 2.1" in str(caught.value)
        assert "other 2.1" in str(caught.value)


@pytest.mark.parametrize("value", ["mnb_test_sand:plain", "mnb_test_sand:workload", "mnb_test_sand"])
def test_an_entry_point_that_is_no_workload(install: Install, value: str) -> None:
    install(dunes=value)
    with pytest.raises(InputError, match=f"{value} is no workload: decorate the function"):
        describe(())


@pytest.mark.parametrize("value", ["mnb_test_sand:absent", "mnb_test_absent:sand"])
def test_an_entry_point_that_cannot_be_imported(install: Install, value: str) -> None:
    install(dunes=value)
    with pytest.raises(InputError, match=rf"'dunes' \({value}\) cannot be imported: "):
        describe(())


@pytest.mark.usefixtures("install")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vea", f"unknown workload 'vea'; there are {', '.join(sorted(builtin_workloads()))}, or name your own"),
        (":sand", "unknown workload ':sand'"),
        ("mnb_test_sand:", "unknown workload"),
        ("..mnb_test_sand:sand", "unknown workload"),
        ("os; import sys:x", "unknown workload"),
        ("mnb_test_absent:sand", "cannot be imported: No module named 'mnb_test_absent'"),
        ("mnb_test_sand:absent", "cannot be imported: module 'mnb_test_sand' has no attribute 'absent'"),
        ("mnb_test_sand:plain", "mnb_test_sand:plain is no workload: decorate the function"),
        ("os:getcwd", "os:getcwd is no workload"),
    ],
)
def test_names_that_lead_to_no_workload(name: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        find_workload(name)
    assert message in str(caught.value)


def test_what_a_workload_needs_is_known_without_importing_it(install: Install, tmp_path: Path) -> None:
    text = MODULE.replace('unit="grains"', 'unit="grains", requires=("mnb_absent", "json"), extra="dig"')
    (tmp_path / "mnb_test_sand.py").write_text(text)
    install(dunes="mnb_test_sand:sand")
    described = describe(()).workloads["dunes"]
    assert (described.requires, described.missing) == (("mnb_absent", "json"), ("mnb_absent",))
    assert described.remedy == 'pip install "sandbox[dig]"'
    atari = describe(()).workloads["atari"]
    assert (atari.requires, atari.extra) == (("gymnasium", "ale_py"), "rl")
    assert atari.remedy == 'pip install "milabench_ng[rl]"'
