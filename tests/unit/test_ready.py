from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.session.prefetcher import ReadyQueue


def test_ready_takes_items_of_the_last_place_first():
    ready = ReadyQueue()
    for index, place in enumerate(["a", "b", "a", "b", "a"]):
        ready.add(index, place)
    assert [ready.pop() for _ in range(5)] == [0, 2, 4, 1, 3]
    assert ready.pop() is None


def test_ready_keeps_the_order_of_completion_within_a_place():
    ready = ReadyQueue()
    ready.add(7, "a")
    ready.add(3, "a")
    assert [ready.pop(), ready.pop()] == [7, 3]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"))))
def test_ready_gives_each_item_once(steps):
    ready = ReadyQueue()
    added, popped = [], []
    for adds, place in steps:
        if adds:
            added.append(len(added))
            ready.add(added[-1], place)
        elif (index := ready.pop()) is not None:
            popped.append(index)
    while (index := ready.pop()) is not None:
        popped.append(index)
    assert sorted(popped) == added
    assert not ready
