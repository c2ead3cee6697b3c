"""Tables of ``mnb fleet``."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.fleet.burn_in import burn_in
from milabench_ng.fleet.folder import FleetFolder
from milabench_ng.fleet.manifest import ADOPT_AGAIN, ADOPTED
from milabench_ng.fleet.network.meetings import meetings_left
from milabench_ng.fleet.nodes import SCREEN
from milabench_ng.fleet.retesting import missing_nodes, retests_left
from milabench_ng.model.plain import names_of, plain, quoted
from milabench_ng.model.units import counted
from milabench_ng.present.render.cells import reason_text, toned
from milabench_ng.present.render.sections import Document, Heading, Part, facts, in_one_table, table
from milabench_ng.records.ledger import check_chain


def standing_document(found: FleetFolder, *, whole: bool = True) -> Document:
    """How it stands with every node of a fleet, or, if not ``whole``, with those whose results are not all here."""
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
        if whole or one.failed or not one.here
    ]
    state = Heading("state", tone=toned({"ended": "good", "cut off": "fair", "lost": "bad"}))
    reason = Heading("reason", "", reason_text, words=60)
    since = Heading("since (UTC)", spare=1)
    nodes = table("", rows, "node", "session", state, "collected", "failed launches", reason, since)
    count = len(found.manifest.nodes)
    told = [("fleet", plain(found.path)), ("complete", f"{count - len(missing)} of {counted(count, 'node')}")]
    told += [("burn-in", line) for line in _burn_in(found)]
    unmet = meetings_left(found)
    if unmet:
        told.append(("network", f"nodes have still to meet ({', '.join(unmet)})"))
    again_left = retests_left(found, {node for node, session in standings if session != SCREEN})
    told += [("retests", f"left: {session} of {names_of(nodes)}") for session, nodes in again_left.items()]
    place = quoted(found.path)
    if (missing or unmet or again_left) and not found.going_on:
        again = f"mnb fleet resume {place}"
        told.append(("next", ADOPT_AGAIN if found.manifest.launcher == ADOPTED else again))
    elif whole and not found.going_on:
        told.append(("next", f"mnb report {place}"))
    parts: tuple[Part, ...] = (*([nodes] if rows else []), facts("", told))
    values = {
        "fleet_id": found.manifest.fleet_id,
        "going_on": found.going_on,
        "nodes": [{"node": node, "session": session, "standing": one} for (node, session), one in standings.items()],
    }
    return Document(title="mnb fleet", parts=parts, table=in_one_table(parts), whole=values)


def _burn_in(found: FleetFolder) -> Iterator[str]:
    """How often launches failed, and whether that became rarer."""
    screens = (one for one in found.sessions if one.session == SCREEN)
    shown = burn_in(check_chain(one.read_ledger()).entries for one in screens) if found.manifest.burn_in_s else None
    if shown is None:
        return
    low, high = shown.interval
    failures, hours = counted(shown.failures, "failure"), f"{shown.node_hours:,.2f} node-hours"
    yield f"{failures} in {hours}: {shown.rate:.3g} per node-hour (95% CI {low:.3g} to {high:.3g})"
    yield f"first half of the time {shown.early}, second half {shown.late} (p = {shown.chance:.2g})"
