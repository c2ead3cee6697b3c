"""``mnb watch``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import chain
from pathlib import Path

from rich.console import Console

from milabench_ng.cli.options import Positive
from milabench_ng.fleet.folder import is_fleet
from milabench_ng.model.errors import InputError
from milabench_ng.model.files import require_folder
from milabench_ng.model.plain import plain, quoted
from milabench_ng.model.units import counted
from milabench_ng.records.names import MANIFEST, instead_of
from milabench_ng.records.reading import is_going_on
from milabench_ng.run.display.lines import PlainLines
from milabench_ng.run.display.run_view import RunView, seen
from milabench_ng.run.display.terminal import Terminal
from milabench_ng.run.events.bus import Sink
from milabench_ng.run.events.event_file import EventFile, last_session, replayed
from milabench_ng.run.events.run_events import AnyRunEvent, RunEnds
from milabench_ng.verification.opening import is_bundle


def watch(
    folder: Path,
    /,
    *,
    speed: Positive | None = None,
    html: Path | None = None,
    prometheus: Path | None = None,
) -> int:
    """Show a run or a fleet from another terminal, or replay a run that has ended.

    Only reads what the run writes into its result folder. Ends when the session ends, or with a fleet folder, when no
    node works any more.

    Exit code: 0 if the session ended by itself, 1 if it was killed, 2 for bad input or if there is no run, 130 after
    Ctrl-C. With a fleet folder, as `mnb fleet status`.

    Example: mnb watch results --speed 60

    Parameters
    ----------
    folder
        The result folder of the run, or a fleet folder.
    speed
        Replay the session from its beginning, this many times as fast. Default: begin with what is new.
    html
        Keep this page up to date, for browsers elsewhere. It reloads itself every 2 seconds.
    prometheus
        Keep this file up to date, for the textfile collector of node_exporter, such as mnb.prom.
    """
    if is_bundle(folder):
        raise InputError(
            f"{plain(folder)}: a bundle has no events to watch or to replay. Name the result folder of a run. For what "
            f"is in the bundle: mnb report {quoted(folder)}"
        )
    require_folder(folder, "Name the result folder of a run: mnb jobs ... -o FOLDER")
    if is_fleet(folder):
        return _fleet(folder, {"--speed": speed, "--html": html, "--prometheus": prometheus})
    if prometheus is not None and prometheus.suffix != ".prom":
        raise InputError(f"--prometheus {plain(prometheus)}: node_exporter reads only names in .prom. Try mnb.prom")
    file, console = EventFile(folder), Console()
    past = last_session(file.read())
    if not past and not is_going_on(folder):
        raise InputError(_nothing_to_watch(folder))
    if not past:
        console.print(f"{plain(folder)}: no launch group has begun yet; waiting for the first one", markup=False)
    known = RunView()
    for stamped in past if speed is None else ():
        known = seen(known, stamped.event, stamped.time_s)
    last = past[-1] if past else None
    with ExitStack() as stack:
        sinks = [stack.enter_context(closing(sink)) for sink in _sinks(console, known, html, prometheus)]
        for last in chain(() if speed is None else replayed(past, speed), file.follow()):
            for sink in sinks:
                if isinstance(last.event, sink.wants):
                    sink.receive(last)
    event = last.event if last is not None else None
    console.print(_ended(event, folder), markup=False, highlight=False, soft_wrap=True)
    return 0 if isinstance(event, RunEnds) else 1


def _fleet(folder: Path, of_runs: Mapping[str, object]) -> int:
    given = [option for option, value in of_runs.items() if value is not None]
    if given:
        raise InputError(
            f"{' '.join(given)}: only for the run of one node, but {plain(folder)} is a fleet. Leave it out"
        )
    from milabench_ng.cli.fleet_standing import watch_fleet

    return watch_fleet(folder)


def _nothing_to_watch(folder: Path) -> str:
    """Why there is nothing to wait for, and what to name instead."""
    ended = (folder / MANIFEST).is_file()  # as in a bundle that was unpacked
    usual = f"To read its results: mnb report {quoted(folder)}" if ended else "Start mnb jobs ... -o FOLDER first"
    advice = instead_of(folder, usual)
    return f"{plain(folder)}: no run is active here, and none has left events. {advice}"


def _sinks(console: Console, known: RunView, html: Path | None, prometheus: Path | None) -> Iterator[Sink]:
    """All that show the run; what they need is imported when they are asked for."""
    yield Terminal(console, known) if console.is_terminal else PlainLines(console, known.batch)
    try:
        if html is not None:
            from milabench_ng.run.display.live_page import LivePage

            yield LivePage(html, known)
        if prometheus is not None:
            from milabench_ng.run.display.prometheus import PrometheusText

            yield PrometheusText(prometheus, known)
    except ModuleNotFoundError as error:
        extra = "html" if error.name == "jinja2" else "monitoring"
        raise InputError(
            f'the package {error.name} is not installed. Run: pip install "milabench_ng[{extra}]"'
        ) from None


def _ended(last: AnyRunEvent | None, folder: Path) -> str:
    """How the session ended, and what to do next."""
    place = quoted(folder)
    match last:
        case RunEnds(missing=0, failed=failed):
            return f"the run has ended{f', {failed} failed' if failed else ''}; results: mnb report {place}"
        case RunEnds(missing=missing, continues_utc=str(later)):
            begins = f"{datetime.fromisoformat(later):%Y-%m-%d %H:%M} UTC"
            told = (
                f"the session has ended, {counted(missing, 'launch')} left; the next one begins by itself at {begins}"
            )
            return f"{told}. If mnb was stopped: mnb resume {place}"
        case RunEnds(missing=missing, interrupted=interrupted):
            how = "was interrupted" if interrupted else "has ended"
            return f"the session {how}, {counted(missing, 'launch')} left; to go on: mnb resume {place}"
    return f"the session was killed; to go on: mnb resume {place}"
