"""The upgrade steps of ``run.json``: none yet, all versions wrote schema 1."""

from __future__ import annotations

from milabench_ng.records.upgrades.chain import Upgrades

MANIFEST_UPGRADES = Upgrades("manifest", ())
