from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.leading.feeding import Feedable, Feeding, HomeOf


def _feeding(models, homes, seats=4):
    items = [Feedable(index, model) for index, model in enumerate(models)]
    feeding = Feeding(
        items,
        seats_of={model: seats for model in set(models) if model},
        home_of={w: HomeOf(frozenset(own), seats) for w, own in homes.items()},
    )
    for worker in homes:
        feeding.add_worker(worker)
    return feeding


def test_feeding_gives_workers_cases_of_their_home_first():
    feeding = _feeding(["a", "b"] * 20, {"gw0": {"a"}, "gw1": {"b"}})
    sent = feeding.feed_all()
    assert {index % 2 for index in sent["gw0"]} == {0}
    assert {index % 2 for index in sent["gw1"]} == {1}


def test_feeding_lends_a_few_cases_when_home_has_none_left():
    feeding = _feeding(["a"] * 100, {"gw0": {"a"}, "gw1": {"b"}})
    sent = feeding.feed_all()
    assert 2 <= len(sent["gw1"]) < len(sent["gw0"])


def test_feeding_keeps_cases_back():
    feeding = _feeding(["a"] * 1000, {"gw0": {"a"}})
    sent = feeding.feed("gw0")
    assert len(sent) < 50
    assert feeding.n_unsent == 1000 - len(sent)
    feeding.reported("gw0", sent[0])
    assert len(feeding.feed("gw0")) == 1


def test_feeding_counts_episodes_to_come_and_not_reports_to_come():
    items = [Feedable(index, "a", 0, "night" if index % 2 else "") for index in range(400)]
    feeding = Feeding(items, seats_of={"a": 4}, home_of={})
    feeding.add_worker("gw0")
    n_ahead = len(feeding.feed("gw0")) // 2
    feeding.ended("gw0", {"night": 3})
    assert [index % 2 for index in feeding.feed("gw0")] == [1, 1, 1]
    feeding.ended("gw0", {"night": n_ahead + 3, "": 1})
    assert len(feeding.feed("gw0")) == n_ahead + 1
    feeding.remove_worker("gw0")
    feeding.add_worker("gw0")
    assert len(feeding.feed("gw0")) == 2 * n_ahead


def test_feeding_gives_earlier_groups_first():
    items = [Feedable(0, "a", 1), Feedable(1, "a", 0), Feedable(2, "a", 1), Feedable(3, "a", 0)]
    feeding = Feeding(items, seats_of={"a": 1}, home_of={})
    feeding.add_worker("gw0")
    assert feeding.feed("gw0")[:2] == [1, 3]


def test_feeding_gives_suspects_to_an_alone_worker_only():
    feeding = _feeding(["a"] * 6, {"gw0": {"a"}})
    feeding.feed_all()
    feeding.remove_worker("gw0")
    feeding.give_back([0, 1, 2])
    feeding.give_back_alone([3, 4])
    assert feeding.wants_alone_worker
    feeding.add_worker("gw1", alone=True)
    assert not feeding.wants_alone_worker
    assert feeding.feed("gw1") == [3, 4]
    feeding.reported("gw1", 3)
    assert feeding.feed("gw1") == [0]


@given(
    models=st.lists(st.sampled_from(["a", "b", None]), max_size=60),
    n_workers=st.integers(1, 4),
    data=st.data(),
)
def test_feeding_gives_each_item_once_and_never_starves(models, n_workers, data):
    homes = {f"gw{n}": {"ab"[n % 2]} for n in range(n_workers)}
    feeding = _feeding(models, homes)
    reported = []
    sent = feeding.feed_all()
    n_names = n_workers
    while any(feeding.pending(w) for w in feeding.workers) or feeding.n_unsent:
        for worker in feeding.workers:
            # A worker with one item runs nothing (look ahead): it needs two while any are unsent.
            assert len(feeding.pending(worker)) >= 2 or feeding.n_unsent == 0
        busy = [w for w in feeding.workers if feeding.pending(w)]
        worker = data.draw(st.sampled_from(busy))
        if len(feeding.workers) > 1 and data.draw(st.integers(0, 9)) == 0:
            feeding.give_back(feeding.remove_worker(worker))
            feeding.add_worker(f"gw{n_names}")
            n_names += 1
            feeding.feed_all()
            continue
        index = data.draw(st.sampled_from(list(feeding.pending(worker))))
        feeding.ended(worker, {"": data.draw(st.integers(0, len(feeding.pending(worker)) - 1))})
        feeding.reported(worker, index)
        reported.append(index)
        feeding.feed_all()
    assert sorted(reported) == list(range(len(models)))
    assert all(len(set(indices)) == len(indices) for indices in sent.values())
