"""The order of the tests in a summary: that of the profile, whatever order they ran in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Launch
from milabench_ng.records.manifest import Manifest


def in_profile_order(labels: Iterable[str], manifests: Sequence[Manifest], planned: Iterable[Launch]) -> list[str]:
    """``labels`` of rows by their tests' places in the profiles, then by devices; the others keep their order, last."""
    places = _places(manifests)
    known: Mapping[str, tuple[int, int]] = {
        launch.label: (places[launch.test], len(launch.devices)) for launch in planned if launch.test in places
    }
    last = (len(places), 0)
    return sorted(dict.fromkeys(labels), key=lambda label: known.get(label, last))


def _places(manifests: Sequence[Manifest]) -> dict[str, int]:
    """Test ids (``suite.test``) in the order of the profiles."""
    ids = [test for manifest in manifests if manifest.profile for test in _ids(manifest)]
    return {test: place for place, test in enumerate(dict.fromkeys(ids))}


def _ids(manifest: Manifest) -> list[str]:
    try:
        stated = manifest.stated_profile()
    except InputError:  # `mnb verify` says so
        return []
    return [stated.id_of(name) for name in stated.tests]
