from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.simulator.served import ServerModel


@given(
    knee=st.integers(1, 5),
    steps=st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=80),
)
def test_station_is_first_come_first_served_and_never_idle_while_somebody_waits(knee, steps):
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


def play(knee, n_clients, service_s, n_requests):
    """Clients that ask again at once: mean latency and requests per second, in virtual time."""
    server_model: ServerModel[int] = ServerModel(knee)
    ends: list[tuple[float, int]] = []
    arrived_s = dict.fromkeys(range(n_clients), 0.0)
    for client in range(n_clients):
        if server_model.arrive(client):
            heapq.heappush(ends, (service_s, client))
    latencies_s = []
    now_s = 0.0
    for request in range(n_clients, n_clients + n_requests):
        now_s, ended = heapq.heappop(ends)
        latencies_s.append(now_s - arrived_s.pop(ended))
        following = server_model.leave(ended)
        if following is not None:
            heapq.heappush(ends, (now_s + service_s, following))
        arrived_s[request] = now_s
        if server_model.arrive(request):
            heapq.heappush(ends, (now_s + service_s, request))
    tail = latencies_s[n_requests // 2 :]
    return sum(tail) / len(tail), n_requests / now_s


@pytest.mark.parametrize(("n_clients", "slower"), [(4, 1), (8, 1), (16, 2), (64, 8)])
def test_beyond_the_knee_throughput_is_flat_and_latency_grows_in_proportion(n_clients, slower):
    latency_s, per_s = play(knee=8, n_clients=n_clients, service_s=0.5, n_requests=4000)
    assert latency_s == pytest.approx(0.5 * slower)
    assert per_s == pytest.approx(min(n_clients, 8) / 0.5, rel=0.01)
