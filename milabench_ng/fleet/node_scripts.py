"""What a node is told to do, as scripts for its sh. Pure.

A node needs sh, flock, sed, GNU tar, gzip, base64, tee, sha256sum, and the `mnb` that the script names. The results
lie on the node's own disk. A lost connection does not end a run there, and the same script goes on with it.
"""

from __future__ import annotations

import base64
import gzip
import shlex
from collections.abc import Mapping

from milabench_ng.fleet.folder import own_names
from milabench_ng.fleet.launchers.interface import NODE_WORD, OUTPUT
from milabench_ng.fleet.manifest import FleetManifest
from milabench_ng.fleet.nodes import LOCK, SessionName
from milabench_ng.model.errors import InputError

LARGEST = 100_000
"""Bytes of a script, which travels as one argument: Linux takes 131,072."""
REFUSED = 2
"""The exit status of an `mnb` that was asked for what cannot be."""
NOT_BEGUN = 125
"""The exit status of a script whose node had no place for the session."""
NO_RESULTS = 124
"""That of one whose node has no folder of the session."""
WIDTH = 760
"""Of lines in base64: Slurm breaks those of 1,024."""
_REASON = "/^mnb[a-z ]*: /h; /^mnb[a-z ]*: /!H; ${x; s/^\\n//; p}"
"""For sed: the last error of `mnb`, which may have several lines, or else all that it printed."""
_MARK = f"printf '\\n%s\\n' {OUTPUT}"


def checkup_script(manifest: FleetManifest) -> str:
    """Print what the node is: one JSON object, in base64; nothing if it lacks what a session needs at its end.

    The exit status is that of `mnb doctor`: `REFUSED` for places that the node has not.
    """
    words = shlex.join((*manifest.mnb, "doctor", *manifest.checkup, "--format", "json"))
    return f"""\
for one in flock sed gzip base64 tee sha256sum; do
    command -v "$one" >/dev/null || {{ echo "$one: not found" >&2; exit 127; }}
done
tar --null -T /dev/null -c --ignore-failed-read >/dev/null || exit 127
told=$({words})
status=$?
{_MARK}
printf %s "$told" | base64 -w {WIDTH}
exit "$status"
"""


def run_script(manifest: FleetManifest, session: SessionName, *, begins_at: float | None = None) -> str:
    """Run a session, or go on with it, and print what it left as `pull_script` does.

    The exit status is that of `mnb jobs`, or `NOT_BEGUN`. Raises InputError for a profile that is too long.

    ``begins_at``: wait for this moment of the node's own clock (POSIX time) first.
    """
    profile = f"{manifest.suite}.json"
    packed = base64.b64encode(gzip.compress(manifest.profile.text.encode(), mtime=0)).decode()
    mnb = shlex.join(manifest.mnb)
    words = shlex.join((*manifest.mnb, "jobs", f"./{profile}", *manifest.arguments, "-o", session))
    wait = "" if begins_at is None else f"begin {begins_at:.3f}\n"
    script = f"""\
{exports(manifest.variables)}here={shlex.quote(manifest.node_folder)}/{NODE_WORD}
mkdir -p "$here" && cd "$here" && touch {LOCK} || exit {NOT_BEGUN}
exec 9>>{LOCK} && flock 9 || exit {NOT_BEGUN}
child=
trap 'test -n "$child" && kill -TERM "$child"' TERM INT HUP
{_BEGIN if wait else ""}{wait}if test -e {session}/ledger.jsonl; then
    {mnb} resume {session} >>{session}.log 2>&1 &
else
    printf %s {packed} | base64 -d | gunzip >{shlex.quote(profile)} || exit {NOT_BEGUN}
    {words} >>{session}.log 2>&1 &
fi
child=$!
wait "$child"
status=$?
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
done
test "$status" -le 1 || tail -n 40 {session}.log | sed -n '{_REASON}' >&2
{_summarised(manifest, session)}
{_pull(session)}
exit "$status"
"""
    if len(script) > LARGEST:
        raise InputError(f"{manifest.profile.file}: the profile is too large for a fleet ({len(script)} bytes packed)")
    return script


_BEGIN = """\
begin() {
    left=$(awk -v at="$1" -v now="$(date +%s.%N)" 'BEGIN { left = at - now; print (left > 0) ? left : 0 }')
    sleep "$left" 9>&- &
    child=$!
    wait "$child" || exit 143
    child=
}
"""


def meeting_script(manifest: FleetManifest, head: str, port: int, limit_s: float) -> str:
    """Meet the other nodes at ``head``, a word of sh, and print what they show each other."""
    mnb = shlex.join((*manifest.mnb, "fleet", "meet"))
    at = shlex.quote(manifest.rendezvous) if manifest.rendezvous else head
    words = f"{mnb} {at} {port} {NODE_WORD}"
    return f"{exports(manifest.variables)}exec timeout --foreground -k 5 {limit_s:.0f} {words}\n"


def exports(variables: Mapping[str, str]) -> str:
    """Lines that give these to what follows."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def pull_script(manifest: FleetManifest, session: SessionName) -> str:
    """Print the packed folder of a session in base64, and its SHA-256.

    A run that goes on there without anybody holds the lock, and has no summary yet.
    """
    return f"""\
cd {shlex.quote(manifest.node_folder)}/{NODE_WORD} && test -d {session} || exit {NO_RESULTS}
( exec 9>>{LOCK} && flock -n 9 || exit
{_summarised(manifest, session)}
)
{_pull(session)}
"""


def _summarised(manifest: FleetManifest, session: SessionName) -> str:
    """Reduce the records where they are; the head would take minutes for those of a thousand nodes."""
    file = own_names(session)[1]
    return f"""\
rm -f {file}
{shlex.join(manifest.mnb)} summary {session} -o {file} >/dev/null 2>&1"""


def _pull(session: SessionName) -> str:
    """What the head needs at once comes first.

    Nothing is written: the disk may be full. What goes to standard output, which is 4, also goes by 3 to sha256sum, and
    a line more if tar failed, so that nobody takes it for whole.
    """
    first, ledger = " ".join(own_names(session)), own_names(session)[-1]
    return f"""\
listed() {{
    for one in {first}; do test ! -f "$one" || printf '%s\\0' "$one"; done
    test ! -d {session} || find {session} -type f ! -name '.*' ! -path {ledger} -print0
}}
packed() {{
    listed | tar --null -T - -c --ignore-failed-read || test $? -eq 1 || echo >&3
}}
{_MARK}
exec 4>&1
{{ packed | gzip -1 | tee /dev/fd/3 | base64 -w {WIDTH} >&4; }} 3>&1 | sha256sum | {{
    read -r sum _ && echo "{OUTPUT} $sum"
}}"""
