"""The registry of datasets: the built-in ones and entry points of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from milabench_ng.datasets.base import DataSet
from milabench_ng.model.errors import InputError
from milabench_ng.model.similar import meant_or_all

GROUP = "milabench_ng.datasets"
BUILT_IN = (
    EntryPoint("bsds500", "milabench_ng.datasets.images.bsds500:Bsds500", GROUP),
    EntryPoint("clicks", "milabench_ng.datasets.tables.clicks:Clicks", GROUP),
    EntryPoint("coco", "milabench_ng.datasets.images.coco:Coco", GROUP),
    EntryPoint("cremi", "milabench_ng.datasets.volumes.cremi:Cremi", GROUP),
    EntryPoint("hsi-raw", "milabench_ng.datasets.spectra.hyperspectral:HsiRaw", GROUP),
    EntryPoint("hsi-raw16", "milabench_ng.datasets.spectra.hyperspectral:HsiRaw16", GROUP),
    EntryPoint("hsi-raw32", "milabench_ng.datasets.spectra.hyperspectral:HsiRaw32", GROUP),
    EntryPoint("imagenet", "milabench_ng.datasets.images.imagenet:ImageNet", GROUP),
    EntryPoint("imagenet-classic", "milabench_ng.datasets.images.imagenet:ClassicImageNet", GROUP),
    EntryPoint("latents", "milabench_ng.datasets.images.latents:Latents", GROUP),
    EntryPoint("ljspeech", "milabench_ng.datasets.audio.ljspeech:LJSpeech", GROUP),
    EntryPoint("ml-20m", "milabench_ng.datasets.tables.ml_20m:MovieLens", GROUP),
    EntryPoint("mnist", "milabench_ng.datasets.images.mnist:Mnist", GROUP),
    EntryPoint("news-commentary", "milabench_ng.datasets.text.news_commentary:NewsCommentary", GROUP),
    EntryPoint("squad", "milabench_ng.datasets.text.squad:Squad", GROUP),
    EntryPoint("tokens-128k", "milabench_ng.datasets.text.token_stream:Tokens128k", GROUP),
    EntryPoint("tokens-32k", "milabench_ng.datasets.text.token_stream:Tokens32k", GROUP),
    EntryPoint("wikitext-103", "milabench_ng.datasets.text.wikitext_103:WikiText103", GROUP),
    EntryPoint("wikitext-2", "milabench_ng.datasets.text.wikitext_2:WikiText2", GROUP),
    EntryPoint("wmt16", "milabench_ng.datasets.text.wmt16:Wmt16", GROUP),
)


def names() -> tuple[str, ...]:
    """The sorted names of all datasets. Imports none of them."""
    return tuple(sorted({entry.name for entry in (*BUILT_IN, *entry_points(group=GROUP))}))


def find(name: str) -> DataSet:
    """The dataset called `name`. Raises InputError if the name is unknown or not a dataset."""
    found = entry(name)
    try:
        kind = found.load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"dataset {name!r} ({origin(found)}) cannot be imported: {error}. Install its package again, or "
            "uninstall it"
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, DataSet)) or kind.name != name:
        raise InputError(f"{origin(found)} is offered as dataset {name!r}: it must be a DataSet class of that name")
    return kind()


def entry(name: str) -> EntryPoint:
    """The entry point of the dataset called `name`. Raises InputError if there is none, or another one."""
    found: list[EntryPoint] = [one for one in (*BUILT_IN, *entry_points(group=GROUP)) if one.name == name]
    if not found:
        raise InputError(f"unknown dataset {name!r}{meant_or_all(name, names())}")
    if len(found) > 1:
        raise InputError(
            f"two datasets are called {name!r}: {origin(found[0])} and {origin(found[1])}. Rename or uninstall "
            "the latter"
        )
    return found[0]


def origin(entry: EntryPoint) -> str:
    """Where an entry point of another package leads, and the package."""
    return f"{entry.value} of {entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
