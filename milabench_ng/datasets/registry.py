"""The registry of data sets: the built-in ones and entry points of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from milabench_ng.datasets.base import DataSet
from milabench_ng.errors import InputError

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
    EntryPoint("wikitext-103", "milabench_ng.datasets.text.wikitext_103:WikiText103", GROUP),
    EntryPoint("wikitext-2", "milabench_ng.datasets.text.wikitext_2:WikiText2", GROUP),
    EntryPoint("wmt16", "milabench_ng.datasets.text.wmt16:Wmt16", GROUP),
)


def names() -> tuple[str, ...]:
    """The sorted names of all data sets. Imports none of them."""
    return tuple(sorted(_entries()))


def find(name: str) -> DataSet:
    """The data set called `name`. Raises InputError if the name is unknown or not a data set."""
    entries = _entries()
    if name not in entries:
        raise InputError(f"unknown data set {name!r}; there are: {', '.join(sorted(entries))}")
    entry = entries[name]
    try:
        kind = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(f"data set {name!r} ({entry.value}) cannot be imported: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, DataSet)) or kind.name != name:
        raise InputError(f"{entry.value} is offered as data set {name!r}: it must be a DataSet class of that name")
    return kind()


def _entries() -> dict[str, EntryPoint]:
    found = {entry.name: entry for entry in BUILT_IN}
    for entry in entry_points(group=GROUP):
        other = found.get(entry.name)
        if other is not None:
            raise InputError(
                f"two data sets are called {entry.name!r}: {other.value} and {entry.value}"
                f"{f' of package {entry.dist.name}' if entry.dist else ''}. Rename or uninstall the latter"
            )
        found[entry.name] = entry
    return found
