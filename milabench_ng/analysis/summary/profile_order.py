"""The order of the tests in a summary: that of the profile, whatever order they ran in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milabench_ng.analysis.summary.deviations import stated_tests
from milabench_ng.model.plan import Launch
from milabench_ng.records.manifest import Manifest


def in_profile_order(labels: Iterable[str], manifests: Sequence[Manifest], planned: Iterable[Launch]) -> list[str]:
    """``labels`` of rows by their tests' places in the profiles, then by devices; the others keep their order, last."""
    stated = dict.fromkeys(test for manifest in manifests for test in stated_tests(manifest))
    places = {test: place for place, test in enumerate(stated)}
    known: Mapping[str, tuple[int, int]] = {
        launch.label: (places[launch.test], len(launch.devices)) for launch in planned if launch.test in places
    }
    last = (len(places), 0)
    return sorted(dict.fromkeys(labels), key=lambda label: known.get(label, last))
