"""Tables of ``mnb fleet``."""

from __future__ import annotations

import shlex

from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.running import missing_nodes
from milabench_ng.model.plain import plain
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import Cell, Tone
from milabench_ng.present.render.sections import Document, Heading, facts, in_one_table, table


def standing_document(found: FleetFolder) -> Document:
    """How it stands with every node of a fleet."""
    standings, missing = found.standings, missing_nodes(found)
    rows = [
        (
            node,
            session,
            one.state,
            "yes" if one.collected else "no",
            {True: "yes", False: "no"}[one.failed] if one.state == "ended" else None,
            one.reason or None,
            one.since_utc[:19].replace("T", " ") or None,
        )
        for (node, session), one in standings.items()
    ]
    state = Heading("state", tone=lambda cell: _TONES.get(cell, "plain"))
    reason = Heading("reason", words=60)
    since = Heading("since (UTC)", spare=1)
    nodes = table("", rows, "node", "session", state, "collected", "failed launches", reason, since)
    count = len(found.manifest.nodes)
    told = [("fleet", plain(found.path)), ("complete", f"{count - len(missing)} of {counted(count, 'node')}")]
    if missing and not found.going_on:
        told.append(("next", f"mnb fleet resume {shlex.quote(plain(found.path))}"))
    parts = (nodes, facts("", told))
    whole = {
        "fleet_id": found.manifest.fleet_id,
        "going_on": found.going_on,
        "nodes": [{"node": node, "session": session, "standing": one} for (node, session), one in standings.items()],
    }
    return Document(title="mnb fleet", parts=parts, table=in_one_table(parts), whole=whole)


_TONES: dict[Cell, Tone] = {"ended": "good", "lost": "bad"}
