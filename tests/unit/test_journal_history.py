from __future__ import annotations

import errno
import json
import os

import pytest
from msgspec.structs import replace

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.exchanges import ExchangeLog, said
from pytest_ultrapar.records import Attempt, EpisodeEnded, EpisodeProgress, EpisodeStarted, Grade
from pytest_ultrapar.store import journal as journal_module
from pytest_ultrapar.store import journal_history
from pytest_ultrapar.store.journal import JournalWriter, Position, segments
from pytest_ultrapar.store.journal_history import (
    GrowingJournal,
    RecoveredIndex,
    cut_off_episodes,
    find_started_not_ended,
    read_history,
    recover,
)
from tests.journals import find_finished, read_at


def ended(case_id, ending, at_us=1):
    return EpisodeEnded(case_id, "gw0", ending, at_us, at_us + 1, 0.5)


def journal(directory, worker, *records):
    writer = JournalWriter(directory, worker, lambda data: data)
    positions = [writer.append(record) for record in records]
    writer.close()
    return positions


def test_recovered_is_seen_by_an_existing_reader(tmp_path):
    worker, controller = RecoveredIndex(tmp_path), RecoveredIndex(tmp_path)
    assert worker.lookup("a") is None
    controller.add({"a": Position("w-gw0-1-0.jsonl", 10, 20)})
    controller.add({"b": Position("s", 1, 2), "c": Position("s", 3, 4)})
    assert worker.lookup("a") == Position("w-gw0-1-0.jsonl", 10, 20)
    assert worker.lookup("c") == Position("s", 3, 4)
    controller.add({"a": Position("w-gw1-1-0.jsonl", 0, 20)})
    assert worker.lookup("a") == Position("w-gw1-1-0.jsonl", 0, 20)
    assert RecoveredIndex(tmp_path).lookup("b") == Position("s", 1, 2)


def test_recovered_waits_for_the_rest_of_an_incomplete_line(tmp_path):
    index = RecoveredIndex(tmp_path)
    index.add({"a": Position("s", 1, 2)})
    path = tmp_path / "recovered.jsonl"
    line = path.read_bytes()
    path.write_bytes(line[:15])
    late = RecoveredIndex(tmp_path)
    assert late.lookup("a") is None
    path.write_bytes(line)
    assert late.lookup("a") == Position("s", 1, 2)


def test_recovered_reports_a_full_disk(tmp_path, monkeypatch):
    def full(_fd, _data):
        raise OSError(errno.ENOSPC, "No space left on device")

    index = RecoveredIndex(tmp_path)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResultsError, match=r"cannot write recovered\.jsonl .*No space left"):
        index.add({"a": Position("s", 1, 2)})


@pytest.mark.parametrize(
    ("ending", "stands"),
    [
        ("returned", True),
        ("refused", True),
        ("error", True),
        ("skipped", True),
        ("infra", False),
        ("interrupted", False),
    ],
)
def test_find_finished_accepts_final_endings(tmp_path, ending, stands):
    (position,) = journal(tmp_path, "gw0", ended("a", ending))
    assert find_finished(read_history(tmp_path)) == ({"a": position} if stands else {})


def test_find_finished_returns_the_last_good_ending_of_all_segments(tmp_path):
    journal(tmp_path, "gw1", ended("a", "returned", 10), ended("b", "error", 50))
    second = journal(
        tmp_path,
        "gw0",
        EpisodeStarted("a", "gw0", 19),
        ended("a", "returned", 20),
        ended("a", "interrupted", 30),
        Grade("a", "gw0", "solved", "passed", 31),
    )
    found = find_finished(read_history(tmp_path))
    assert found["a"] == second[1]
    assert found["b"].segment.startswith("w-gw1-")


def test_find_started_not_ended_names_the_open_cases_of_one_worker(tmp_path):
    journal(
        tmp_path,
        "gw1",
        EpisodeStarted("a", "gw1", 1),
        EpisodeStarted("b", "gw1", 2),
        ended("a", "infra"),
    )
    journal(tmp_path, "gw11", EpisodeStarted("c", "gw11", 1))
    assert find_started_not_ended(tmp_path, "gw1") == {"b"}
    assert find_started_not_ended(tmp_path, "gw2") == set()


@pytest.mark.parametrize("ask", ["new", "lost"])
def test_segment_removed_during_a_read_is_named(tmp_path, monkeypatch, ask):
    def listed_and_removed(directory):
        found = segments(directory)
        for path in found:
            path.unlink()
        return found

    journal(tmp_path, "gw0", ended("a", "returned"))
    growing = GrowingJournal(tmp_path)
    for module in (journal_history, journal_module):
        monkeypatch.setattr(module, "segments", listed_and_removed)
    with pytest.raises(ResultsError, match=r"cannot read .*w-gw0-.*\.jsonl: No such file"):
        list(growing.new()) if ask == "new" else growing.lost()


BODIES = [f'{{"messages": ["the same beginning, {"a" * 40} {n}"]}}'.encode() for n in range(4)]


def went_on(worker="gw0", bodies=BODIES, began_us=10):
    """The records of an episode that continues after each answer."""
    log = ExchangeLog(lambda _: "", bytes)
    found = []
    for n, body in enumerate(bodies):
        log.add(n, api="openai", path="", status=200, sent=body, came=b"{}")
        found.append(
            EpisodeProgress("a", worker, began_us, began_us + n, n, [attempt(n)], log.noted[n:])
        )
    return found


def attempt(turn):
    times = dict.fromkeys(("t_ready_s", "t_lease_s", "t_send_s", "t_end_s"), 1.0)
    lane = {"provider": "p", "instance": "i", "key": "k"}
    return Attempt(turn=turn, attempt=0, outcome="ok", in_flight_at_send=1, **lane, **times)


def bodies(episode):
    return [one.sent for one in said(episode.exchanges, lambda _: b"")]


def test_interrupted_episode_has_all_its_answers(tmp_path):
    journal(tmp_path, "gw0", EpisodeStarted("a", "gw0", 10), *went_on())
    (one,) = cut_off_episodes(tmp_path, read_history(tmp_path)).values()
    assert (one.case_id, one.worker, one.ending, one.started_at_us) == (
        "a",
        "gw0",
        "interrupted",
        10,
    )
    assert (one.n_turns, len(one.attempts), bodies(one)) == (4, 4, BODIES)
    assert cut_off_episodes(tmp_path, read_history(tmp_path), "gw1") == {}


@pytest.mark.parametrize("of_it", ["w-controller-1-0.jsonl", "w-x-1-0.jsonl"])
def test_episode_with_an_ending_in_any_segment_is_not_interrupted(tmp_path, of_it):
    journal(tmp_path, "gw0", *went_on())
    end = EpisodeEnded("a", "gw0", "interrupted", 10, 13, 0.0)
    (position,) = journal(tmp_path, "end", end)
    (tmp_path / position.segment).rename(tmp_path / of_it)
    assert cut_off_episodes(tmp_path, read_history(tmp_path)) == {}


def test_answers_after_a_damaged_record_count_as_sent_and_are_not_replayed(tmp_path):
    positions = journal(tmp_path, "gw0", *went_on())
    path = tmp_path / positions[1].segment
    data = bytearray(path.read_bytes())
    data[positions[1].offset + 30] ^= 1
    path.write_bytes(data)
    (one,) = cut_off_episodes(tmp_path, read_history(tmp_path)).values()
    assert [each.turn for each in one.attempts] == [0, 2, 3]
    assert bodies(one) == BODIES[:1]


def test_record_with_a_secret_keeps_only_its_attempts(tmp_path):
    secret = b"sk-canary-4f9a1c77e2b05d"
    spoken = [*BODIES[:2], BODIES[2].replace(b"the same", secret), BODIES[3]]

    def redact(data):
        return data.replace(secret, b"***") if secret in data else data

    writer = JournalWriter(tmp_path, "gw0", redact)
    writer.append_all(went_on(bodies=spoken))
    writer.close()
    assert all(secret not in path.read_bytes() for path in segments(tmp_path))
    (one,) = cut_off_episodes(tmp_path, read_history(tmp_path)).values()
    assert (len(one.attempts), bodies(one)) == (4, spoken[:2])


@pytest.mark.parametrize("of", [None, 0, 2, 3, "end"])
def test_records_of_open_episodes_are_searched_for_secrets_once_and_everywhere(tmp_path, of):
    secret = b"sk-canary-4f9a1c77e2b05d"
    spoken = [one.replace(b"the same", secret) if n == of else one for n, one in enumerate(BODIES)]
    searched = []

    def redact(data):
        searched.append(data)
        return data.replace(secret, b"***") if secret in data else data

    records = went_on(bodies=spoken)
    exchanges = [one for record in records for one in record.exchanges]
    attempts = [attempt(n) for n in range(4)]
    detail = f"it said {secret.decode()}" if of == "end" else None
    end = ended("a", "returned", 10)
    end = replace(end, attempts=attempts, exchanges=exchanges, detail=detail)
    writer = JournalWriter(tmp_path, "gw0", redact)
    writer.append_all(records[:3])
    position = writer.append(end)
    writer.close()
    assert all(secret not in path.read_bytes() for path in segments(tmp_path))
    found = read_at(tmp_path, position)
    said_then = [json.loads(one.replace(secret, b"***")) for one in spoken]
    assert [*map(json.loads, bodies(found))] == said_then
    assert len(found.attempts) == 4
    if of is None:
        assert [one.count(b'"api"') for one in searched] == [1, 1, 1, 1]


@pytest.mark.parametrize(("kind", "n_begun"), [("broker", 1), ("judge: broker", 1), ("timeout", 0)])
def test_conversation_that_lost_its_broker_resumes_from_its_answers(tmp_path, kind, n_begun):
    (tmp_path / "journal").mkdir()
    exchanges = [one for record in went_on() for one in record.exchanges]
    end = replace(ended("a", "infra", 10), kind=kind, exchanges=exchanges)
    journal(tmp_path / "journal", "gw0", EpisodeStarted("a", "gw0", 10), *went_on(), end)
    assert recover(tmp_path)[3].n_begun == n_begun


def test_interrupted_episode_is_recovered_once_and_the_last_one_counts(tmp_path):
    run = tmp_path / "run"
    (run / "journal").mkdir(parents=True)
    journal(run / "journal", "gw0", EpisodeStarted("a", "gw0", 10), *went_on())
    assert recover(run)[3] == (1, 1)
    first = RecoveredIndex(run).lookup("a", "cut off")
    assert first is not None
    again = recover(run)
    assert (again[3], again[1]) == ((1, 1), frozenset())
    assert RecoveredIndex(run).lookup("a", "cut off") == first
    journal(run / "journal", "gw0", *went_on(bodies=BODIES[:2], began_us=50))
    assert recover(run)[3] == (1, 1)
    index = RecoveredIndex(run)
    assert index.lookup("a") is None
    assert index.lookup("a", "cut off") != first
    journal(run / "journal", "gw1", ended("a", "returned", 90))
    assert recover(run)[3].n_begun == 0
