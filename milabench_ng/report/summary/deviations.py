"""Finds how a run departed from its profile: the manifest holds both, so that folders of any version are marked. Pure.

Overridden options and shortened windows are marked when they run, since only the launch knows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from milabench_ng.errors import InputError
from milabench_ng.profile import build_profile, parse_profile
from milabench_ng.records.marks import Mark, MarkKind
from milabench_ng.records.views import ManifestView
from milabench_ng.report.summary.launches import LaunchResult
from milabench_ng.report.summary.provenance import node_devices

DEVIATIONS: frozenset[MarkKind] = frozenset({"order", "devices left out", "data scale"})
"""The kinds of these marks. What departs from the profile is for R8 and the buyer to judge."""
SCALE_2020 = 1.0
"""Profiles of 2020 state no scale."""


def with_deviations(results: Sequence[LaunchResult], manifests: Sequence[ManifestView]) -> tuple[LaunchResult, ...]:
    """The results, with marks for how their runs departed from the profile."""
    of_runs = {manifest.run_id: tuple(_of_run(manifest)) for manifest in manifests}
    scales = {manifest.run_id: _stated_scales(manifest) for manifest in manifests}
    return tuple(
        _marked(result, of_runs[result.run_id], scales[result.run_id]) if result.run_id in of_runs else result
        for result in results
    )


def _marked(result: LaunchResult, of_run: tuple[Mark, ...], scales: Mapping[str, float]) -> LaunchResult:
    return msgspec.structs.replace(result, marks=(*result.marks, *of_run, *_of_data(result, scales)))


def _of_run(manifest: ManifestView) -> Iterator[Mark]:
    planned = manifest.plan
    if planned.order == "file" and planned.repeat > 1:
        yield Mark(kind="order", what=planned.order)
    if len(planned.devices) < node_devices(manifest):
        yield Mark(kind="devices left out", value=len(planned.devices), limit=node_devices(manifest))


def _of_data(result: LaunchResult, scales: Mapping[str, float]) -> Iterator[Mark]:
    """A launch that reads no data, or data that cannot be scaled, is the same at any scale."""
    stated = scales.get(result.test, result.data_scale)
    if result.data and result.data.scale == result.data_scale != stated:
        yield Mark(kind="data scale", value=result.data_scale, limit=stated)


def _stated_scales(manifest: ManifestView) -> dict[str, float]:
    """The scale that the profile states for each test (`suite.test`); empty if it cannot be read."""
    suite, text = manifest.plan.suite, manifest.profile.text if manifest.profile else ""
    try:
        tests, of_2020 = parse_profile(text, "run.json: profile")
        if of_2020:
            return {f"{suite}.{name}": SCALE_2020 for name in tests}
        typed = build_profile(suite, tests, text, "run.json: profile").tests
    except InputError:  # the rules on the plan refuse such a manifest
        return {}
    return {f"{suite}.{name}": test.data_scale for name, test in typed.items()}
