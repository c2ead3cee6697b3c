"""A node of its own for a run whose workers lie: init, a shell, bystanders of two users, and mnb in a pid namespace.

    hostile_node.py init FOLDER LIES WORDS...     as the init process: bystanders, then mnb as WORDS say
    hostile_node.py mnb FOLDER ISOLATION          mnb

``LIES``: what the workers say, in words; `mine`, `other` and `random` are pids that are known here. Prints, as JSON,
the lies and who is dead at the end.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

SEED = 20261125


def init(folder: Path, lies: list[list[str]], words: list[str]) -> None:
    """Start everything, and say what became of it."""
    users = {"mine": os.geteuid(), "other": 65534, "leader": os.geteuid()}
    bystanders = {
        name: subprocess.Popen(["sleep", "3600"], user=user, start_new_session=name == "leader")
        for name, user in users.items()
    }
    pids = {name: str(one.pid) for name, one in bystanders.items()}
    seeded = random.Random(SEED)
    near = [1, os.getpid(), *(one.pid for one in bystanders.values())]
    chance = [
        seeded.choice([seeded.choice(near), seeded.randrange(1, 400), seeded.randrange(1, 10**15)]) for _ in range(200)
    ]
    pids["random"] = " ".join(map(str, chance))
    told = [" ".join(pids.get(word, word) for word in one).split() for one in lies]
    (folder / "lies.json").write_text(json.dumps(told))
    done = subprocess.run(
        ["sh", "-c", '"$@" & echo $! > /dev/null; wait $!', "shell", *words],
        env={**os.environ, "MNB_TEST_LIES": str(folder / "lies.json")},
        stdout=sys.stderr,
        check=False,
    )
    dead = [name for name, one in bystanders.items() if one.poll() is not None]
    print(json.dumps({"told": told, "dead": dead, "status": done.returncode, "seed": SEED}))


def mnb(folder: Path, isolation: str, batches: int) -> None:
    """Run the lies."""
    from milabench_ng.model.profile import parse_profile
    from milabench_ng.run.planning.request import RunRequest
    from tests.run.conftest import BRIEF, finish, in_short_slices

    tests = {"lies": in_short_slices({"workload": "tests.run.hostile:lies"})}
    request = RunRequest(
        profile=parse_profile("trial", json.dumps(tests), "trial.json"),
        tenants=2,
        repeat=batches,
        rule=BRIEF,
        isolation=isolation,
        dataroot=folder / "data",
        outdir=folder / "results",
    )
    finish(request, None)


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    if what == "init":
        init(Path(place), json.loads(rest[0]), rest[1:])
    else:
        mnb(Path(place), rest[0], int(rest[1]))
