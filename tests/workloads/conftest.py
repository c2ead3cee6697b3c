"""One thread for torch: these tests fork, and the machine may be small. The tests of the bench lend their channel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch  # here, not above: a conftest cannot be skipped

    torch.set_num_threads(1)
