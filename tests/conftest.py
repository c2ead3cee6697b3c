"""``pytest --quick``: only what neither imports torch nor starts a process.

No list says which tests these are. A test that tries to do either is skipped at that moment, and a test module that
imports torch is skipped before torch is there. What computes for seconds has the marker ``slow`` and is left out too.
Since a test may end anywhere, none may need a process to clean up what it did without one.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import own_node

if TYPE_CHECKING:
    from tests.one_server import OneServer

KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|CI|LD_LIBRARY_PATH|MNB_SOAK|\w+_CA_BUNDLE|\w+_(proxy|PROXY)"
    r"|(MNB_TEST|OPENBLAS|PIP|PYTEST|SSL_CERT|UV|XDG)_\w+"
)
"""Of the caller's variables: where things are, what package clients need, and what is asked of tests.

Others change what Python, a terminal or mnb does, and mnb names some.
"""
ASKED = ("SLURM",) if "MNB_TEST_SLURM" in os.environ else ()
"""What tells tests inside a job of their own cluster of it."""
for name in [name for name in os.environ if not KEPT.fullmatch(name) and not name.startswith(ASKED)]:
    del os.environ[name]

# Runs compile all their modules anew, which takes 8 s: those of the tests share what the first of them compiled.
os.environ["MNB_PYCACHE"] = str(Path(__file__).parents[1] / ".pytest_cache" / "compiled")

# Reading 1 GB of torch after each run takes seconds: numpy shows as well that wheels are compared.
os.environ["MNB_WHEELS"] = "numpy"

# A shell that starts the tests in the background has interrupts ignored, and nohup the end of the terminal, by whatever
# the tests start too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

HEAVY = frozenset({"torch", "torchvision"})
PROCESSES = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
)
"""What Python's audit hooks call the ways to start a process."""
LIMIT_S = 3.0
"""Of processor time: a quick test that takes longer fails, so that the quick tests stay quick."""


WHOLE_NODE = frozenset({"cli", "docs", "fence", "run"})
"""Folders of tests that claim CPUs or count what a run leaves: one at a time, if they cannot have a node each."""
LONG = WHOLE_NODE | {"workloads"}
"""Folders whose files take up to a minute: they come first, so that no process waits for one of them at the end."""


@pytest.fixture(scope="session")
def one_server() -> Iterator[OneServer]:
    """The worker server that tests share; nothing is started until one asks for it."""
    from tests.one_server import OneServer  # here, not above: quick tests do without

    with closing(OneServer()) as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets that all tests share, in all processes of pytest: mnb makes each of them once, whoever asks first."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "data"
    os.environ["MNB_DATAROOT"] = str(root)
    return root


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """What a test leaves in the environment reaches no other: torch names the cache of what it compiled there."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="skip tests that import torch, start a process or are slow")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        sys.addaudithook(skip_what_is_not_quick)
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if "SLURM_JOB_ID" not in os.environ and runs_tests and own_node.possible():  # a job must see its controller
        config.add_cleanup(own_node.OwnNode().close)


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Modules stay to the end: looking through them again and again takes a third of the time of collecting tests."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries look for leaks at the end


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.isdisjoint(Path(item.nodeid).parts[1:2]))


class OneNode(LoadScopeScheduling):
    """Tests of a file share one process of pytest-xdist, and what it sets up; so do those that need the same node."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(nodeid.partition("::")[0])
        return "node" if file.parts[1] in WHOLE_NODE and not own_node.possible() else str(file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneNode:
    return OneNode(config, log)


def skip_what_is_not_quick(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: Python calls it before the import or the process, and what it raises ends the test."""
    if event in PROCESSES:
        pytest.skip("not quick: starts a process", allow_module_level=True)
    if event == "import" and str(arguments[0]).partition(".")[0] in HEAVY:
        pytest.skip("not quick: imports torch", allow_module_level=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if not item.config.getoption("--quick"):
        return (yield)
    if item.get_closest_marker("slow"):
        pytest.skip("not quick: slow")
    began = time.process_time()
    result = yield
    took = time.process_time() - began
    if took > LIMIT_S:
        pytest.fail(f"{took:.1f} s of processor time are not quick: speed the test up, or mark it slow", pytrace=False)
    return result
