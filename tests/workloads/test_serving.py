"""Continuous batching: what a schedule plans, by hand and in general, and when tokens were said."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milabench_ng.workloads.modern.serving import Mix, Pages, Plan, Reading, Request, Schedule, pages_for
from milabench_ng.workloads.modern.token_times import TokenTimes

LENGTHS = ((3, 3), (2, 2), (1, 1), (1, 2))


class Known(Mix, frozen=True):
    """Requests of known lengths."""

    def request(self, number: int) -> Request:
        return Request(number, *LENGTHS[number % len(LENGTHS)])


def schedule(*, pages: int, concurrency: int = 2, chunk: int = 2) -> Schedule:
    return Schedule(Known(3, 3, 0), concurrency=concurrency, pages=pages, page=2, chunk=chunk)


def told(plan: Plan) -> tuple[object, ...]:
    """What a plan says, in short: who reads from where to where, positions, table, who ended."""
    reading = plan.reading and (plan.reading.request.number, plan.reading.start, plan.reading.count)
    return reading, plan.position.tolist(), plan.table.tolist(), [request.number for request in plan.ended]


def test_steps_by_hand() -> None:
    """Request 0 keeps 5 tokens in 3 pages of 2, request 1 keeps 3 in 2, and request 2 keeps one in one."""
    made = schedule(pages=6)
    plans = [made.step() for _ in range(6)]
    assert list(map(told, plans)) == [
        ((0, 0, 2), [-1, -1], [[1, 0, 0], [0, 0, 0]], []),
        ((0, 2, 1), [-1, -1], [[1, 2, 0], [0, 0, 0]], []),
        ((1, 0, 2), [3, -1], [[1, 2, 0], [3, 0, 0]], []),
        (None, [4, 2], [[1, 2, 4], [3, 5, 0]], [0, 1]),
        ((2, 0, 1), [-1, -1], [[1, 0, 0], [0, 0, 0]], [2]),
        ((3, 0, 1), [-1, -1], [[0, 0, 0], [1, 0, 0]], []),
    ]
    assert [plan.said for plan in plans] == [0, 1, 2, 2, 1, 1]
    assert [plan.first for plan in plans] == [False, True, True, False, True, True]
    assert [plan.reach for plan in plans] == [2, 3, 4, 6, 2, 2]
    assert [[request.number for request in plan.arriving] for plan in plans] == [[], [], [], [2, 3], [4], []]


def test_a_request_waits_until_all_its_pages_are_there() -> None:
    """With 4 pages, 3 of which are promised to request 0, request 1 is admitted when that ends."""
    made = schedule(pages=4)
    plans = [made.step() for _ in range(5)]
    assert [plan.position.tolist() for plan in plans[:4]] == [[-1, -1], [-1, -1], [3, -1], [4, -1]]
    assert told(plans[4]) == ((1, 0, 2), [-1, -1], [[1, 0, 0], [0, 0, 0]], [])


def test_the_lowest_free_page_goes_first() -> None:
    pages = Pages(3)
    assert [pages.take(), pages.take()] == [1, 2]
    pages.give_back([1])
    assert [pages.take(), pages.take()] == [1, 3]


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2)])
def test_pages_for_tokens(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 4) == pages


def test_requests_follow_from_their_number_and_the_seed() -> None:
    mix = Mix(1000, 100, 7)
    requests = [mix.request(number) for number in range(200)]
    assert requests == [Mix(1000, 100, 7).request(number) for number in range(200)]
    assert requests != [Mix(1000, 100, 8).request(number) for number in range(200)]
    assert all(800 <= one.prompt <= 1000 and 80 <= one.answer <= 100 for one in requests)
    assert len({one.prompt for one in requests}) > 100
    prompt = mix.tokens(requests[3], 50)
    assert len(prompt) == requests[3].prompt
    assert np.array_equal(prompt, mix.tokens(requests[3], 50))
    assert 0 <= prompt.min() <= prompt.max() < 50


@settings(max_examples=60, deadline=None)
@given(
    mix=st.builds(Mix, st.integers(1, 30), st.integers(1, 30), st.integers(0, 5)),
    concurrency=st.integers(1, 6),
    page=st.integers(1, 7),
    spare=st.integers(0, 40),
    chunk=st.integers(1, 40),
    midway=st.booleans(),
)
def test_no_token_is_lost_and_no_page_is_shared(
    mix: Mix, concurrency: int, page: int, spare: int, chunk: int, midway: bool
) -> None:
    """However few pages there are, all requests are read once and whole, in order, and answered to the last token."""
    pages = pages_for(mix.kept, page) + spare
    made = Schedule(mix, concurrency=concurrency, pages=pages, page=page, chunk=chunk)
    if midway:
        made.begin_midway()
    kept, read, said, begun = {}, Counter[int](), Counter[int](), {}
    for plan in (made.step() for _ in range(150)):
        assert plan.reading or plan.said
        used = plan.table[plan.table > 0]
        assert len(set(used.tolist())) == len(used) <= pages
        assert plan.reach <= pages + 1
        assert plan.said <= concurrency
        reading = plan.reading
        if reading is not None:
            number = reading.request.number
            assert number not in read or read[number] == reading.start
            assert plan.position[reading.slot] == -1
            read[number] += reading.count
            begun.setdefault(reading.slot, number)
            assert begun[reading.slot] == number
            said[number] += reading.last
            kept[reading.slot] = read[number]
        for slot in np.flatnonzero(plan.position >= 0):
            assert slot not in kept or plan.position[slot] == kept[slot]
            kept[slot] = plan.position[slot] + 1
            said[begun.get(slot, -1)] += 1
        for slot, tokens in kept.items():
            assert (plan.table[slot] > 0).sum() == pages_for(int(tokens), page)
        for request in plan.ended:
            if read[request.number]:
                assert (read[request.number], said[request.number]) == (request.prompt, request.answer)
                slot = next(slot for slot, number in begun.items() if number == request.number)
                del begun[slot], kept[slot]
            else:  # it was under way before the first step
                kept = {slot: tokens for slot, tokens in kept.items() if slot in begun}


def test_what_is_under_way_from_the_start_is_spread_over_the_answers() -> None:
    mix = Mix(40, 1000, 0)
    made = Schedule(mix, concurrency=10, pages=1000, page=16, chunk=64)
    made.begin_midway()
    plan = made.step()
    assert plan.reading is None
    assert plan.said == 10
    for slot in range(10):
        request = mix.request(slot)
        done = (plan.position[slot] - request.prompt) / request.answer
        assert done == pytest.approx((slot + 0.5) / 10, abs=0.01)


# When tokens were said


def step(times: TokenTimes, now_s: float, position: list[int], **more: object) -> tuple[object, ...]:
    plan = Plan.of(
        np.zeros((len(position), 1), np.int64),
        np.array(position),
        more.get("reading"),  # type: ignore[arg-type]
        (),
        more.get("arriving", ()),  # type: ignore[arg-type]
    )
    said = times.step(plan, now_s)
    return said.first_s, said.next_s, said.in_time


def reads(number: int, slot: int, *, last: bool = True) -> Reading:
    return Reading(Request(number, 5, 9), slot, 0, 5 if last else 2)


def test_first_and_later_tokens_by_hand() -> None:
    """Slot 0 was under way before the clock; request 7 comes at 1.0 s, and says its first token at 2.5 s."""
    times = TokenTimes(2, first_limit_s=2.0, next_limit_s=1.0)
    assert step(times, 1.0, [4, -1], arriving=(Request(7, 5, 9),)) == (None, (), 1)
    assert step(times, 2.0, [5, -1], reading=reads(7, 1, last=False)) == (None, ((1.0, 1),), 1)
    assert step(times, 2.5, [6, -1], reading=reads(7, 1)) == (1.5, ((0.5, 1),), 2)
    assert step(times, 3.0, [7, 5]) == (None, ((0.5, 2),), 2)
    assert step(times, 6.0, [8, 6]) == (None, ((3.0, 2),), 0)  # 4 tokens in 5 s, and 2 in 3.5 s
    assert step(times, 6.0, [9, 7]) == (None, ((0.0, 2),), 1)  # 5 in 5 s, which is in time on average


def test_a_text_whose_first_token_was_late_is_late_to_its_end() -> None:
    times = TokenTimes(1, first_limit_s=1.0, next_limit_s=1.0)
    assert step(times, 0.0, [4], arriving=(Request(3, 5, 9), Request(4, 5, 9))) == (None, (), 1)
    assert step(times, 1.5, [-1], reading=reads(3, 0)) == (1.5, (), 0)
    assert step(times, 1.6, [5])[2] == 0
    times.step(Plan.of(np.zeros((1, 1), np.int64), np.array([-1]), reads(4, 0)), 1.0)
    assert step(times, 1.6, [5]) == (None, ((pytest.approx(0.6), 1),), 1)
