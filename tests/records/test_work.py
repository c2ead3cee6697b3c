"""What makes two launches the same work, and what a difference does to the ratio of their rates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from milabench_ng.bench.options import COMMON
from milabench_ng.model.builtin import read_builtin
from milabench_ng.model.profile import Scheme
from milabench_ng.records.work import DataRead, Ratio, Work, declared

READ = DataRead(name="imagenet", kind="twin", scale=1.0, cache="cold")
OPTIONS = {"batch_size": 64, "pinned": True, "workers": 8, "seed": 1, "max_seconds": 60.0, "precision": "fp32"}
ONE = Work(
    workload="vae",
    unit="images",
    classic_factor=1.0,
    bound="gpu-compute",
    options=OPTIONS,
    pace_only=("pinned",),
    precision=("fp32",),
    data=(READ,),
)


def work(**changes: Any) -> Work:
    return msgspec.structs.replace(ONE, **changes)


def options(**changes: Any) -> Work:
    return work(options=OPTIONS | changes)


def read(**changes: Any) -> Work:
    return work(data=(msgspec.structs.replace(READ, **changes),))


@pytest.mark.parametrize(
    ("other", "text", "ratio"),
    [
        (work(workload="dcgan"), "workload vae vs. dcgan", "suppressed"),
        (work(unit="pairs"), "unit images vs. pairs", "suppressed"),
        (work(classic_factor=2.0), "items of 2020 per item 1 vs. 2", "suppressed"),
        (work(scheme=Scheme.NORMAL), "partition scheme per-gpu vs. normal", "suppressed"),
        (work(precision=("tf32",)), "precision fp32 vs. tf32", "suppressed"),
        (read(name="mnist"), "dataset imagenet vs. mnist", "suppressed"),
        (read(scale=0.5), "data scale 1 vs. 0.5", "suppressed"),
        (read(kind="real"), "data kind synthetic vs. real", "counted"),
        (options(batch_size=32), "option batch_size 64 vs. 32", "suppressed"),
        (options(batch_size=""), "option batch_size 64 vs. none", "suppressed"),
        (options(depth=2), "option depth not recorded vs. 2", "not counted"),
        (options(workers=1), "option workers 8 vs. 1", "counted"),
        (options(pinned=False), "option pinned True vs. False", "counted"),
    ],
)
def test_works_are_equal_unless_something_differs(other: Work, text: str, ratio: Ratio) -> None:
    (found,) = ONE.differences(other)
    assert (found.text, found.ratio) == (text, ratio)
    assert other != ONE
    assert ONE.comparable(other) is (ratio == "counted")


@pytest.mark.parametrize(
    "other",
    [
        work(),
        options(seed=7, max_seconds=1.0, max_count=10, sample_duration=1.0),
        options(precision="tf32"),  # what ran counts
        read(cache="warm"),
        work(bound="io"),
    ],
)
def test_how_long_it_works_from_which_seed_and_where_its_data_lay_is_free(other: Work) -> None:
    assert (other == ONE, hash(other) == hash(ONE), other.differences(ONE)) == (True, True, ())


@pytest.mark.parametrize("changes", [{"workers": 1}, {"pinned": False}])
def test_options_of_pace_decide_where_data_set_the_pace(changes: dict[str, Any]) -> None:
    fed = msgspec.structs.replace(ONE, bound="io")
    (found,) = fed.differences(options(**changes))
    assert (found.ratio, fed.comparable(options(**changes))) == ("not counted", False)


def test_one_side_alone_frees_no_option() -> None:
    """Or a bidder's word would."""
    claimed = Work(**{name: getattr(ONE, name) for name in ONE.__struct_fields__} | {"pace_only": ("batch_size",)})
    assert claimed == msgspec.structs.replace(ONE, pace_only=("batch_size",))
    other = msgspec.structs.replace(claimed, options=OPTIONS | {"batch_size": 32})
    assert [one.ratio for one in claimed.differences(other)] == ["counted"]
    assert [one.ratio for one in other.differences(ONE)] == ["suppressed"]


def test_a_value_that_one_side_lacks_leaves_it_unknown() -> None:
    unknown = Work(unit="images", classic_factor=1.0)
    (found,) = ONE.differences(unknown)
    assert (found.text, found.ratio) == ("precision, data and options fp32 vs. not recorded", "not counted")
    (found,) = ONE.differences(work(options={}))
    assert (found.text, found.ratio) == ("options recorded vs. not recorded", "not counted")
    assert ONE.differences(work(workload="")) == (), "older summaries have no workload"


def test_every_common_option_says_what_it_changes() -> None:
    common = Work(options=dict.fromkeys(option.name for option in COMMON("fp32")))
    assert common.options_that_change("work") == {}
    assert ONE.options_that_change("work") == {"batch_size": 64}
    assert ONE.options_that_change("pace") == {"pinned": True, "workers": 8}
    assert ONE.options_that_change("numbers", "precision") == {"seed": 1, "precision": "fp32"}


def test_what_a_workload_declares_in_words() -> None:
    assert declared(ONE) == {
        "unit": "images",
        "classic_factor": "1.0",
        "bound": "gpu-compute",
        "list of derived units": "none",
        "list of options of pace only": "pinned",
    }


def test_what_a_version_did_without_an_option_is_as_if_it_said_so() -> None:
    known = read_builtin()["cv_train"]
    assert known.formerly == {"autotune": True}
    old = Work(workload="cv_train", unit="images", options={"batch_size": 64})
    new = msgspec.structs.replace(old, options=old.options | {"autotune": False})
    assert not old.completed(known).comparable(new.completed(known))
    tuned = msgspec.structs.replace(old, options=old.options | {"autotune": True})
    assert old.completed(known) == tuned.completed(known) == tuned
    assert old.completed(None) == old
