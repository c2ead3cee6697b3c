"""The page's table of isolation."""

from __future__ import annotations

import msgspec
from make_records import fence

from milabench_ng.present.html.details_tables import fence_section
from milabench_ng.present.html.folder_details import FolderDetails
from milabench_ng.present.render.cells import Cell
from milabench_ng.records.isolation import CachePart, Isolation, Usage


def shown(*fences: Isolation) -> list[dict[str, Cell]]:
    """The rows by heading, of launches on device 0."""
    section = fence_section(FolderDetails(fences={"0": fences}))
    return [dict(zip((at.title for at in section.headings), row, strict=True)) for row in section.rows]


def test_parts_of_caches_have_columns_where_a_tenant_asked_for_some() -> None:
    plain = fence(0, "run")
    (row,) = shown(plain, plain)
    assert row["launches"] == 2
    assert "cache requested" not in row
    asked, held = (CachePart(0, 0x1F, 50),), (CachePart(0, 0x1F, 50), CachePart(1, 0x7FF))
    assert plain.effective
    divided = msgspec.structs.replace(
        plain,
        requested=msgspec.structs.replace(plain.requested, cache=asked),
        effective=msgspec.structs.replace(plain.effective, cache=held, in_cache_group=True),
        usage=Usage(cache_bytes=3 << 20, memory_traffic_bytes=5 << 30),
    )
    without, of_caches = shown(plain, divided)
    assert [without[name] for name in ("cache requested", "caches enforced")] == [None, None]
    assert [of_caches[name] for name in list(of_caches)[-4:]] == [
        "cache 0: 5 parts (1f), 50% of the bandwidth",
        "cache 0: 5 parts (1f), 50% of the bandwidth; cache 1: 11 parts (7ff)",
        "3.0 MiB",
        "5.0 GiB",
    ]
