"""A cold worker: a new interpreter that the entry shim has already put inside the fence."""

from __future__ import annotations

import sys
import time
from typing import NoReturn


def main(requested_s: float) -> NoReturn:
    """Run the task read from standard input; descriptors 3 and 4 are commands and events."""
    started = time.monotonic()
    from milabench_ng.worker import answers, session

    answers.import_everything()
    imported = time.monotonic()
    task = session.read_task(sys.stdin.buffer.read())
    phases = {"spawn": started - requested_s, "import": imported - started}
    session.leave(session.run(task, 3, 4, phases, imported))


if __name__ == "__main__":
    main(float(sys.argv[1]))
