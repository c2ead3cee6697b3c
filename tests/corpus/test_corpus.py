"""All that was found so far, and any JSON at all: every reader takes it or refuses it in words."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import fuzz_targets
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

FOUND = sorted(path for path in (Path(__file__).parent / "found").glob("*/*") if path.is_file())
few = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
"""``scripts/fuzz`` draws thousands."""


@pytest.fixture(scope="module", autouse=True)
def tidy() -> Iterator[None]:
    yield
    fuzz_targets.tidy()


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_is_taken_or_refused_in_words(path: Path) -> None:
    fuzz_targets.check(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_the_seeds_are_good(name: str) -> None:
    assert any(fuzz_targets.check(name, content) for content in fuzz_targets.seeds()[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
@few
@given(content=st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
@example(content=b"")
@example(content=b"\xff\xfe{\x00}\x00")
@example(content=b"\xef\xbb\xbf{}")
@example(content=b"[" * 100_000)
@example(content=b'{"a": ' * 500 + b"1" + b"}" * 500)
@example(content=b'{"a": 1' + b"0" * 5000 + b"}")
@example(content=b'{"a": "\\ud800"}')
def test_any_bytes(name: str, content: bytes) -> None:
    fuzz_targets.check(name, content)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
@few
@given(value=_json)
def test_any_json(name: str, value: object) -> None:
    fuzz_targets.check(name, json.dumps(value).encode())


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
@few
@given(seed=st.integers(0, 2**32))
def test_good_files_with_other_values(name: str, seed: int) -> None:
    chance = random.Random(seed)
    fuzz_targets.check(name, fuzz_targets.mutate(chance.choice(fuzz_targets.seeds()[name]), chance))
