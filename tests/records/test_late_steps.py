"""The late steps of which launches tell what they computed."""

from __future__ import annotations

from itertools import pairwise

from milabench_ng.records.late_steps import late_steps


def test_they_follow_from_nonce_and_test_one_in_each_power_of_two() -> None:
    steps = late_steps("a", "standard.vae")
    assert steps == late_steps("a", "standard.vae")
    assert len({steps, late_steps("b", "standard.vae"), late_steps(None, "standard.vae"), late_steps("a", "x")}) == 4
    assert [step.bit_length() for step in steps] == list(range(8, 34))
    assert all(one < other for one, other in pairwise(steps))


def test_a_draw_by_hand() -> None:
    """``printf :standard.vae:7 | sha256sum`` ends in 0x48, whose last 7 bits are 72."""
    assert late_steps(None, "standard.vae")[0] == 128 + 72
