from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.coordinator.crashes import judge


def test_judge_runs_everything_again_after_a_first_death():
    deaths = Counter()
    crash = judge([4, 5, 6], suspects={5, 6}, plain=None, deaths=deaths, was_alone=False)
    assert crash.again == (4, 5, 6)
    assert crash.alone == crash.lost == ()
    assert deaths == {5: 1, 6: 1}


def test_judge_runs_suspects_alone_after_a_second_death():
    deaths = Counter({5: 1})
    crash = judge([4, 5, 6], suspects={5, 6}, plain=None, deaths=deaths, was_alone=False)
    assert crash.alone == (5,)
    assert crash.again == (4, 6)


def test_judge_gives_up_only_a_case_that_kills_its_worker_alone():
    deaths = Counter({5: 2})
    crash = judge([5, 6], suspects={5}, plain=None, deaths=deaths, was_alone=True)
    assert crash.lost == (5,)
    assert crash.again == (6,)


def test_judge_leaves_a_running_plain_test_to_xdist():
    crash = judge([1, 2], suspects=set(), plain=1, deaths=Counter(), was_alone=False)
    assert crash.plain == 1
    assert crash.again == (2,)


@given(
    pending=st.lists(st.integers(0, 30), unique=True),
    chosen=st.sets(st.integers(0, 30)),
    earlier=st.dictionaries(st.integers(0, 30), st.integers(0, 3)),
    alone=st.booleans(),
)
def test_judge_decides_on_each_item_exactly_once(pending, chosen, earlier, alone):
    suspects = chosen & set(pending)
    crash = judge(pending, suspects=suspects, plain=None, deaths=Counter(earlier), was_alone=alone)
    assert sorted(crash.again + crash.alone + crash.lost) == sorted(pending)
    assert set(crash.lost) <= suspects
    assert set(crash.alone) <= suspects
