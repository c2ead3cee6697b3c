"""``mnb report`` on a fleet folder."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from milabench_ng.analysis.scoring.scale import Scale, load_scale, shipped_scale
from milabench_ng.analysis.scoring.weights import read_weights, weighed_suites
from milabench_ng.fleet.bundling import opened_fleet
from milabench_ng.fleet.groups import read_groups
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.fleet.measuring import results_of
from milabench_ng.fleet.report import FleetReport, Judging, build_fleet_report
from milabench_ng.fleet.summaries import summaries
from milabench_ng.fleet.verdicts.limits import Strictness
from milabench_ng.model.errors import InputError
from milabench_ng.model.profile import parse_profile
from milabench_ng.present.render.fleet_report_tables import fleet_document
from milabench_ng.present.render.sections import Form
from milabench_ng.present.writers import open_output, write, write_page


def make_fleet_report(
    folder: Path, *, weights: Path | None, price: float | None, groups: Path | None, margin: float | None
) -> FleetReport:
    with opened_fleet(folder) as there:
        fleet = there.fleet
        scale = shipped_scale(fleet.manifest.suite) if weights is None else _own_scale(weights, fleet.manifest)
        asked = Judging(
            strict=_strictness(fleet.manifest, margin),
            groups=read_groups(groups, fleet.manifest.nodes) if groups else None,
            price=price,
        )
        return build_fleet_report(there.source, fleet, results_of(fleet, summaries(fleet), scale), asked)


def print_fleet_report(report: FleetReport, *, form: Form, html: Path | None, output: Path | None, force: bool) -> int:
    """Write it; the exit code."""
    if html is not None:
        write_page(report, html, force=force)
    with open_output(output, sys.stdout, force=force) as stream:
        write(fleet_document(report), form, stream)
    return report.exit_code


def _own_scale(weights: Path, manifest: FleetManifest) -> Scale:
    """What a file of the user's weighs. Raises InputError for tests that the fleet's profile has not."""
    profile = parse_profile(manifest.suite, manifest.profile.text, manifest.profile.file)
    file = read_weights(weights, manifest.suite)
    weighed_suites(file, {profile.suite}, [profile.id_of(name) for name in profile.tests])
    return load_scale(file)


def _strictness(manifest: FleetManifest, margin: float | None) -> Strictness:
    """As many retests as the fleet was asked for; of one that was asked for none, as many as usual would decide."""
    if margin == 1:
        raise InputError("--margin 100%: no node would be too slow. Try --margin 3%")
    usual = Strictness() if margin is None else Strictness(margin=margin)
    return msgspec.structs.replace(usual, retests=manifest.retests or usual.retests)
