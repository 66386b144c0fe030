from __future__ import annotations

from pytest_ultrapar.broker.adaptive.controller import AdaptiveController
from pytest_ultrapar.broker.adaptive.observation import Observation
from pytest_ultrapar.broker.adaptive.queueing_server import QueueSearch
from pytest_ultrapar.broker.adaptive.server_load import ServerLoad


def settle(works_on: int, *, others: int = 0, reports: int = 40) -> list[int]:
    """The seats after each report of a server that runs `works_on` requests at a time."""
    controller = AdaptiveController("vllm/0", 500)
    seats = []
    for second in range(reports):
        in_flight = controller.cap()
        running = min(works_on, in_flight + others)
        waiting = max(0, in_flight + others - works_on)
        controller.load_reported(ServerLoad(running, waiting), in_flight, float(second))
        seats.append(controller.cap())
    return seats


def test_seats_follow_the_number_of_requests_that_a_server_runs():
    for works_on in (8, 64, 256):
        seats = settle(works_on)
        assert works_on <= max(seats[-10:]) <= works_on * 1.32 + 2
        assert min(seats[-10:]) >= works_on * 0.95


def test_other_clients_of_a_server_keep_their_part():
    seats = settle(64, others=40)
    assert 20 <= min(seats[-10:]) <= max(seats[-10:]) <= 34


def test_seats_never_fall_below_one_nor_by_more_than_half_per_report():
    search = QueueSearch()
    search.reported(10.0, 1000.0, seats=40, in_flight=40)
    assert search.seats == 20
    for _ in range(20):
        search.reported(10.0, 1000.0, seats=int(search.seats), in_flight=int(search.seats))
    assert search.seats == 1


def test_several_reports_before_an_answer_lower_the_seats_once():
    # Twelve requests stay in flight at a server of eight after the seats are lowered.
    search = QueueSearch()
    seats = 12.0
    for _ in range(5):
        search.reported(8.0, 4.0, seats=int(seats), in_flight=12)
        seats = search.seats
        assert seats >= 8


def test_server_with_few_seats_always_has_a_few_requests_in_its_queue():
    for works_on in (1, 2, 4, 8, 16):
        seats = settle(works_on)[-10:]
        assert min(seats) == max(seats)
        assert 1 <= seats[0] - works_on <= 1 + works_on**0.5


def test_seats_that_are_not_in_use_do_not_grow():
    search = QueueSearch()
    search.reported(3.0, 0.0, seats=10, in_flight=3)
    assert search.seats == 10


def test_refusal_cuts_seats_below_the_load_that_the_server_reports():
    controller = AdaptiveController("vllm/0", 500)
    for second in range(5):
        controller.load_reported(ServerLoad(1.0, 0.0), controller.cap(), float(second))
    cap = controller.cap()
    controller.sent(9.0)
    controller.observe(Observation("rate", 9.0, 9.1, cap, cap))
    assert controller.cap() < cap


def test_time_outs_lower_no_seats_after_a_server_stops_reporting_its_queue():
    controller = AdaptiveController("vllm/0", 500)
    for second in range(60):
        in_flight = min(60, controller.cap())
        controller.load_reported(ServerLoad(in_flight, 0.0), in_flight, float(second))
        for n in range(20):
            outcome = "timeout" if n == second % 20 else "ok"
            seen = Observation(outcome, second - 1.0, second + n / 20, in_flight, in_flight)
            controller.observe(seen)
    told = controller.cap()
    controller.observe(Observation("ok", 70.0, 71.0, 60, 60))
    assert controller.cap() >= told - 1 >= 60
