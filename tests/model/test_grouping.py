"""Items by a key."""

from __future__ import annotations

from milabench_ng.model.grouping import grouped


def test_groups_and_items_stay_in_order() -> None:
    found = grouped(["pear", "fig", "plum", "apple", "date"], len)
    assert found == {4: ["pear", "plum", "date"], 3: ["fig"], 5: ["apple"]}
    assert list(found) == [4, 3, 5]
    assert grouped([], len) == {}
