"""The worker server is forked only while it has one thread."""

from __future__ import annotations

import pytest

from milabench_ng.errors import MnbError
from milabench_ng.orchestrator.starting import check_threads


def test_a_server_with_threads_is_not_forked() -> None:
    check_threads(1)
    with pytest.raises(MnbError, match=r"has 3 threads after importing torch .* Use --start cold"):
        check_threads(3)
