"""Finds how a run departed from its profile: the manifest holds both, so that folders of any version are marked. Pure.

Overridden options and shortened windows are marked when they run, since only the launch knows them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from milabench_ng.analysis.summary.launches import LaunchResult
from milabench_ng.analysis.summary.provenance import node_devices
from milabench_ng.model.errors import InputError
from milabench_ng.model.plan import Plan
from milabench_ng.model.profile import AnyProfile, Test, name_of
from milabench_ng.node.inventory import Inventory
from milabench_ng.records.manifest import Manifest
from milabench_ng.records.marks import Mark, MarkKind

DEVIATIONS: frozenset[MarkKind] = frozenset({"order", "devices left out", "shared devices", "data scale", "company"})
"""The kinds of these marks. What departs from the profile is for R8 and the buyer to judge."""
TEST_2020 = Test(workload="")
"""Profiles of 2020 state neither scale nor company."""


def with_deviations(results: Sequence[LaunchResult], manifests: Sequence[Manifest]) -> tuple[LaunchResult, ...]:
    """The results, with marks for how their runs departed from the profile."""
    runs = {manifest.run_id: _of_manifest(manifest) for manifest in manifests}
    return tuple(
        _marked(result, runs[result.run_id]) if result.run_id is not None and result.run_id in runs else result
        for result in results
    )


class _Run(msgspec.Struct, frozen=True):
    """What a manifest says that concerns all launches of its run, and those of single tests (`suite.test`)."""

    marks: tuple[Mark, ...]
    scales: Mapping[str, float]
    company: Mapping[str, Mark]


def _of_manifest(manifest: Manifest) -> _Run:
    stated = stated_tests(manifest)
    return _Run(
        marks=tuple(_of_run(manifest.plan, manifest.inventory)),
        scales={test: one.data_scale for test, one in stated.items()},
        company=_of_company(manifest.plan, stated),
    )


def _marked(result: LaunchResult, run: _Run) -> LaunchResult:
    company = run.company.get(result.test)
    added = (*run.marks, *_of_data(result, run.scales), *((company,) if company else ()))
    return msgspec.structs.replace(result, marks=(*result.marks, *added))


def foreseen(planned: Plan, profile: AnyProfile, inventory: Inventory, scaled: Collection[str]) -> Iterator[Mark]:
    """How a planned run departs from ``profile``; ``scaled``: the tests that read data."""
    stated = _stated(profile)
    yield from _of_run(planned, inventory)
    for launch in planned.measured:
        if launch.test in scaled and launch.test in stated and launch.data_scale != stated[launch.test].data_scale:
            yield Mark(kind="data scale", value=launch.data_scale, limit=stated[launch.test].data_scale)
    yield from _of_company(planned, stated).values()


def _of_run(planned: Plan, inventory: Inventory) -> Iterator[Mark]:
    if planned.order == "file" and planned.repeat > 1:
        yield Mark(kind="order", what=planned.order)
    if planned.tenants_per_device > 1:
        yield Mark(kind="shared devices", value=planned.tenants_per_device, what=_shared(planned, inventory))
    there = node_devices(planned, inventory)
    if len(planned.devices) < there:
        yield Mark(kind="devices left out", value=len(planned.devices), limit=there)


def _shared(planned: Plan, inventory: Inventory) -> str:
    """What several tenants share, and how."""
    if all(device.kind == "cpu" for device in planned.devices):
        return "CPU partition"
    return "GPU, through MPS" if inventory.mps else "GPU, in turns"


def _of_data(result: LaunchResult, scales: Mapping[str, float]) -> Iterator[Mark]:
    """A launch that reads no data, or data that cannot be scaled, is the same at any scale."""
    asked = result.mnb.launch.data_scale if result.mnb else 1.0
    stated = scales.get(result.test, asked)
    if any(read.scale == asked != stated for read in result.work.data):
        yield Mark(kind="data scale", value=asked, limit=stated)


def _of_company(planned: Plan, stated: Mapping[str, Test]) -> dict[str, Mark]:
    """By test, that it ran beside others than the profile says."""
    found: dict[str, Mark] = {}
    for batch in planned.batches:
        for launch in batch.launches:
            if not launch.measured or launch.scheme.spreads or launch.test not in stated:
                continue
            beside = {other.test for other in batch.launches if other is not launch}
            if beside != _expected(launch.test, stated, beside, len(planned.slots)):
                names = sorted(name_of(test) for test in beside)
                found[launch.test] = Mark(kind="company", what=", ".join(names) or "nothing")
    return found


def _expected(label: str, stated: Mapping[str, Test], beside: Collection[str], slots: int) -> set[str]:
    """The tests that the profile has run beside this one; of a mix, which takes turns, those that did."""
    test = stated[label]
    if test.mix is not None:
        return {other for other in beside if other in stated and stated[other].mix == test.mix}
    if test.neighbors == "same":
        return {label} if slots > 1 else set()
    names = () if test.neighbors == "none" else test.neighbors
    ids = {name_of(other): other for other in stated}
    return {ids[names[i % len(names)]] for i in range(slots - 1 if names else 0)}


def stated_tests(manifest: Manifest) -> dict[str, Test]:
    """The tests as the profile of a run states them (`suite.test`), in its order; none if it cannot be read."""
    try:
        return _stated(manifest.stated_profile())
    except InputError:  # the rules on the plan refuse such a manifest
        return {}


def _stated(profile: AnyProfile) -> dict[str, Test]:
    """The tests as the profile states them (`suite.test`)."""
    return {profile.id_of(name): test if isinstance(test, Test) else TEST_2020 for name, test in profile.tests.items()}
