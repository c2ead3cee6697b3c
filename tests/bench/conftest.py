"""One thread for torch: these tests fork, and the machine may be small."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch  # here, not above: a conftest cannot be skipped

    torch.set_num_threads(1)
