from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.coordinator.dispatch import Dispatch, DispatchItem, HomeShare


def _dispatch(models, homes, seats=4):
    items = [DispatchItem(index, model) for index, model in enumerate(models)]
    dispatch = Dispatch(
        items,
        seats_of={model: seats for model in set(models) if model},
        home_of={w: HomeShare(frozenset(own), seats) for w, own in homes.items()},
    )
    for worker in homes:
        dispatch.add_worker(worker)
    return dispatch


def test_workers_get_cases_of_their_home_first():
    dispatch = _dispatch(["a", "b"] * 20, {"gw0": {"a"}, "gw1": {"b"}})
    sent = dispatch.hand_out_to_all()
    assert {index % 2 for index in sent["gw0"]} == {0}
    assert {index % 2 for index in sent["gw1"]} == {1}


def test_worker_whose_home_has_no_cases_gets_a_few_others():
    dispatch = _dispatch(["a"] * 100, {"gw0": {"a"}, "gw1": {"b"}})
    sent = dispatch.hand_out_to_all()
    assert 2 <= len(sent["gw1"]) < len(sent["gw0"])


def test_worker_gets_only_a_few_cases_at_a_time():
    dispatch = _dispatch(["a"] * 1000, {"gw0": {"a"}})
    sent = dispatch.hand_out("gw0")
    assert len(sent) < 50
    assert dispatch.n_unsent == 1000 - len(sent)
    dispatch.reported("gw0", sent[0])
    assert len(dispatch.hand_out("gw0")) == 1


def test_episodes_that_ended_make_room_before_their_reports():
    items = [DispatchItem(index, "a", 0, "night" if index % 2 else "") for index in range(400)]
    dispatch = Dispatch(items, seats_of={"a": 4}, home_of={})
    dispatch.add_worker("gw0")
    n_ahead = len(dispatch.hand_out("gw0")) // 2
    dispatch.ended("gw0", {"night": 3})
    assert [index % 2 for index in dispatch.hand_out("gw0")] == [1, 1, 1]
    dispatch.ended("gw0", {"night": n_ahead + 3, "": 1})
    assert len(dispatch.hand_out("gw0")) == n_ahead + 1
    dispatch.remove_worker("gw0")
    dispatch.add_worker("gw0")
    assert len(dispatch.hand_out("gw0")) == 2 * n_ahead


def test_cases_of_earlier_groups_come_first():
    items = [
        DispatchItem(0, "a", 1),
        DispatchItem(1, "a", 0),
        DispatchItem(2, "a", 1),
        DispatchItem(3, "a", 0),
    ]
    dispatch = Dispatch(items, seats_of={"a": 1}, home_of={})
    dispatch.add_worker("gw0")
    assert dispatch.hand_out("gw0")[:2] == [1, 3]


def test_suspects_go_only_to_a_worker_that_runs_alone():
    dispatch = _dispatch(["a"] * 6, {"gw0": {"a"}})
    dispatch.hand_out_to_all()
    dispatch.remove_worker("gw0")
    dispatch.give_back([0, 1, 2])
    dispatch.give_back_alone([3, 4])
    assert dispatch.wants_alone_worker
    dispatch.add_worker("gw1", alone=True)
    assert not dispatch.wants_alone_worker
    assert dispatch.hand_out("gw1") == [3, 4]
    dispatch.reported("gw1", 3)
    assert dispatch.hand_out("gw1") == [0]


@given(
    models=st.lists(st.sampled_from(["a", "b", None]), max_size=60),
    n_workers=st.integers(1, 4),
    data=st.data(),
)
def test_each_item_is_handed_out_once_and_no_worker_starves(models, n_workers, data):
    homes = {f"gw{n}": {"ab"[n % 2]} for n in range(n_workers)}
    dispatch = _dispatch(models, homes)
    reported = []
    sent = dispatch.hand_out_to_all()
    n_names = n_workers
    while any(dispatch.pending(w) for w in dispatch.workers) or dispatch.n_unsent:
        for worker in dispatch.workers:
            # xdist's worker does not run its last item, so it needs two while any are unsent.
            assert len(dispatch.pending(worker)) >= 2 or dispatch.n_unsent == 0
        busy = [w for w in dispatch.workers if dispatch.pending(w)]
        worker = data.draw(st.sampled_from(busy))
        if len(dispatch.workers) > 1 and data.draw(st.integers(0, 9)) == 0:
            dispatch.give_back(dispatch.remove_worker(worker))
            dispatch.add_worker(f"gw{n_names}")
            n_names += 1
            dispatch.hand_out_to_all()
            continue
        index = data.draw(st.sampled_from(list(dispatch.pending(worker))))
        dispatch.ended(worker, {"": data.draw(st.integers(0, len(dispatch.pending(worker)) - 1))})
        dispatch.reported(worker, index)
        reported.append(index)
        dispatch.hand_out_to_all()
    assert sorted(reported) == list(range(len(models)))
    assert all(len(set(indices)) == len(indices) for indices in sent.values())
