"""Each invariant of the torture program catches what it is there for, on made-up evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.torture import invariants
from tests.torture.evidence import Ask, Ended, Evidence, Journaled, Row, Sent, Served

SEATS = 2


def sent(case: int, t_s: float, key: str = "key0", status: int | None = 200) -> Sent:
    return Sent(case, 0, 0, key, t_s, t_s + 1, status)


def served(t_s: float, key: str = "key0", **more: object) -> Served:
    return Served(key, t_s + 0.1, t_s + 0.9, 200, **more)


REQUESTS = (sent(0, 1.0), sent(1, 1.0), sent(2, 2.0))
GOOD = Evidence(
    n_cases=3,
    seats=SEATS,
    sessions=(Ended(-9, frozenset({0, -9}), "...."), Ended(0, frozenset({0}), "3 solved")),
    asked=(Ask(0, 10, 1.0), Ask(1, 11, 1.0), Ask(2, 99, 1.5), Ask(2, 12, 2.0)),
    episode_ended_s={10: 2.0, 11: 2.0, 12: 3.0},
    journaled=tuple(Journaled(n, True, 10 + n, (REQUESTS[n],)) for n in range(3)),
    # Case 2 was asked by an episode that died with its worker at 1.6, too.
    served=(served(1.0), served(1.0), served(2.0), Served("key0", 1.55, 1.7, None, left=True)),
    rows=tuple(Row(n, "solved", 10 + n) for n in range(3)),
    table=REQUESTS,
    fault_times_s=(1.6,),
)


def violated(**changes: object) -> set[str]:
    """The invariants that evidence violates which differs from a good round in this."""
    found = invariants.violations(replace(GOOD, **changes))
    return {sentence.split(":")[0] for sentence in found}


def test_good_round_violates_nothing():
    evidence = replace(GOOD, seats=3)
    assert invariants.violations(evidence) == []


@pytest.mark.parametrize(
    "session",
    [
        Ended(3, frozenset({0}), ""),
        Ended(-9, frozenset({0, -9}), "", hung=True),
    ],
)
def test_unexpected_end_is_a_violation(session):
    assert "sessions_end_as_expected" in violated(sessions=(session,))


@pytest.mark.parametrize(
    "line", ["INTERNALERROR> boom", "Traceback (most recent call last):", "Exception in thread T"]
)
def test_noise_on_the_terminal_is_a_violation(line):
    sessions = (Ended(0, frozenset({0}), f"...\n{line}\n"),)
    assert "outputs_are_clean" in violated(sessions=sessions)


BOOTSTRAP = """created: 2/2 workers
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "<string>", line 5, in <module>
BrokenPipeError: [Errno 32] Broken pipe
"""


def test_worker_that_is_orphaned_before_it_has_read_a_line_of_ours_is_no_noise():
    def noise(output: str) -> list[str]:
        sessions = (Ended(-9, frozenset({-9}), output),)
        return list(invariants.outputs_are_clean(replace(GOOD, sessions=sessions)))

    assert noise(BOOTSTRAP) == []
    assert noise(BOOTSTRAP + "Traceback (most recent call last):\n  File 'ours.py'\nBoom\n")


def test_case_without_a_row_is_lost():
    assert "nothing_is_lost" in violated(rows=GOOD.rows[:2])


def test_case_that_is_infra_at_the_end_is_lost():
    assert "nothing_is_lost" in violated(rows=(*GOOD.rows[:2], Row(2, "infra", None)))


def test_journaled_answer_that_was_not_graded_is_lost():
    assert "nothing_is_lost" in violated(rows=(*GOOD.rows[:2], Row(2, "solved", 77)))


def test_second_row_of_a_case_is_doubled():
    assert "nothing_is_doubled" in violated(rows=(*GOOD.rows, GOOD.rows[0]))


def test_second_row_of_an_attempt_is_doubled():
    assert "nothing_is_doubled" in violated(table=(*REQUESTS, REQUESTS[0]))


def test_second_finished_episode_is_doubled():
    again = Journaled(0, True, 55)
    assert "nothing_is_doubled" in violated(journaled=(*GOOD.journaled, again))


def test_unfinished_episode_beside_a_finished_one_is_not_doubled():
    assert "nothing_is_doubled" not in violated(
        journaled=(Journaled(0, False, None), *GOOD.journaled)
    )


def test_request_after_the_journaled_end_is_asked_again():
    again = Ask(0, 55, 2.5)
    assert "nothing_is_asked_again" in violated(asked=(*GOOD.asked, again))


def test_case_asked_again_and_journaled_again_is_asked_again():
    again = {
        "journaled": (*GOOD.journaled, Journaled(0, True, 55)),
        "asked": (*GOOD.asked, Ask(0, 55, 2.5)),
    }
    assert "nothing_is_asked_again" in violated(**again)
    ended_s = GOOD.episode_ended_s | {55: 3.0}
    assert "nothing_is_asked_again" in violated(**again, episode_ended_s=ended_s)


def test_request_before_the_journaled_end_is_not_asked_again():
    assert "nothing_is_asked_again" not in violated(asked=(*GOOD.asked, Ask(0, 55, 0.5)))


def test_request_of_a_resumed_complete_run_is_asked_again():
    assert violated(seats=3, n_served_after_the_end=1) == {"nothing_is_asked_again"}


def test_record_without_a_request_at_the_server_is_a_violation():
    assert "records_are_the_servers" in violated(served=GOOD.served[1:])


def test_record_that_never_reached_a_server_needs_no_request():
    unsent = replace(REQUESTS[0], status=None)
    first = replace(GOOD.journaled[0], sent=(unsent,))
    found = violated(
        seats=3,
        journaled=(first, *GOOD.journaled[1:]),
        table=(unsent, *REQUESTS[1:]),
        served=GOOD.served[1:],
    )
    assert found == set()


def test_request_at_the_server_that_nobody_recorded_or_lost_is_a_violation():
    more = (served(1.2), served(1.3))
    assert "records_are_the_servers" in violated(served=(*GOOD.served, *more))


def test_answered_request_of_an_episode_that_died_is_none():
    assert violated(seats=9, served=(*GOOD.served, served(1.2))) == set()


def test_journaled_request_that_attempts_lacks_is_a_violation():
    assert "records_are_the_servers" in violated(table=REQUESTS[1:])


def test_log_of_a_killed_server_judges_no_records():
    assert violated(seats=3, served=(), log_is_whole=False) == set()


def test_more_requests_at_once_than_seats_is_a_violation():
    # The arrival at 1.55 is beside two others; its client died at 1.6.
    assert violated() == {"limits_hold"}


def test_request_of_a_killed_client_holds_no_seat_afterwards():
    left = Served("key0", 1.0, 3.0, None, left=True)
    fresh = (Served("key0", 1.7, 2.0, 200), Served("key0", 1.8, 2.1, 200))
    evidence = replace(GOOD, served=(left, *fresh))
    assert list(invariants.limits_hold(evidence)) == []
    assert list(invariants.limits_hold(replace(evidence, fault_times_s=())))


def test_refused_request_counts_as_one_too_many():
    held = (Served("key0", 1.0, 3.0, 200), Served("key0", 1.0, 3.0, 200))
    refused = Served("key0", 2.0, 2.0, 429, refused=True)
    assert list(invariants.limits_hold(replace(GOOD, served=(*held, refused))))
    # Right after an end the server may refuse what it would admit a moment later.
    assert not list(invariants.limits_hold(replace(GOOD, served=(held[0], refused))))


def test_servers_of_their_own_have_limits_of_their_own():
    requests = [Served("key0", 1.0, None, 200, server=name) for name in "abc"]
    assert not list(invariants.limits_hold(replace(GOOD, served=tuple(requests))))


def test_processes_and_paths_that_stay_are_a_violation():
    assert "nothing_is_left" in violated(left_processes=("broker 17",))
    assert "nothing_is_left" in violated(left_paths=(".ultrapar/x/broker-y",))


def test_every_invariant_is_in_force():
    own = {
        name
        for name, value in vars(invariants).items()
        if callable(value)
        and getattr(value, "__module__", "") == invariants.__name__
        and not name.startswith("_")
        and name != "violations"
    }
    assert {invariant.__name__ for invariant in invariants.INVARIANTS} == own
