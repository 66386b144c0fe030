from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.simulator.served_pool import ServerModel


@given(
    knee=st.integers(1, 5),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=80),
)
def test_station_serves_in_order_and_is_never_idle_with_waiting_requests(knee, steps):
    server_model: ServerModel[int] = ServerModel(knee)
    running: list[int] = []
    waiting: list[int] = []
    for number, step in enumerate(steps):
        present = running + waiting
        if step is None or not present:
            began = server_model.arrive(number)
            assert began == (len(running) < knee)
            (running if began else waiting).append(number)
        else:
            gone = present[step % len(present)]
            following = server_model.leave(gone)
            if gone in waiting:
                waiting.remove(gone)
                assert following is None
            else:
                running.remove(gone)
                assert following == (waiting[0] if waiting else None)
                running += [waiting.pop(0)] if following is not None else []
        assert (server_model.n_running, server_model.n_waiting) == (len(running), len(waiting))
        assert len(running) <= knee
        assert not waiting or len(running) == knee
