"""The stored answer that a request gets, with any requests in any order."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.engine.replay import Stored, StoredAnswers, Wording
from pytest_ultrapar.exchanges import canonical
from tests.unit.finished_run import attempt


def asked(text, **more):
    return Wording(
        "", "", (), canonical(b'{"messages":[{"content":"%s"}]}' % text.encode()), **more
    )


def stored(text, answer, *, is_stream=False):
    return Stored(asked(text), "openai", 200, answer.encode(), is_stream, attempt(0.0, 0.0))


TEXTS = st.sampled_from("abc")
RUNS = st.lists(st.tuples(TEXTS, st.sampled_from(["x", "y", "z"])), max_size=12)


@given(RUNS, st.data())
def test_each_answer_is_used_once_and_answers_of_equal_requests_in_order(run, data):
    answers = StoredAnswers([stored(*one) for one in run])
    now = data.draw(st.permutations([text for text, _ in run]))
    given_now = {}
    for text in now:
        match = answers.take([asked(text)], is_stream=None)
        assert match is not None
        given_now.setdefault(text, []).append(match.stored.came.decode())
    then = {}
    for text, answer in run:
        then.setdefault(text, []).append(answer)
    assert given_now == then
    assert all(answers.take([asked(text)], is_stream=None) is None for text in "abc")


@given(RUNS, st.lists(TEXTS, max_size=12))
def test_request_sent_more_often_than_in_the_stored_run_is_a_miss(run, now):
    answers = StoredAnswers([stored(*one) for one in run])
    found = Counter(text for text in now if answers.take([asked(text)], is_stream=None) is not None)
    assert found == Counter(now) & Counter(text for text, _ in run)


@given(RUNS)
def test_match_is_ambiguous_if_another_answer_is_left(run):
    answers = StoredAnswers([stored(*one) for one in run])
    left = list(run)
    for text, answer in run:
        match = answers.take([asked(text)], is_stream=None)
        assert match is not None
        fitting = {one for of, one in left if of == text}
        assert match.is_ambiguous == (len(fitting) > 1)
        left.remove((text, answer))


def test_stream_is_only_given_to_requests_for_a_stream():
    answers = StoredAnswers([stored("a", "plain"), stored("a", "events", is_stream=True)])
    match = answers.take([asked("a")], is_stream=True)
    assert match is not None
    assert match.stored.came == b"events"
    assert answers.take([asked("a")], is_stream=True) is None
    assert answers.take([asked("a")], is_stream=False) is not None


def test_another_version_of_an_api_is_another_request():
    now = asked("a")._replace(headers=(("anthropic-version", "2023-06-01"),))
    assert StoredAnswers([stored("a", "old")]).take([now], is_stream=None) is None


@given(TEXTS, st.lists(TEXTS, max_size=4))
def test_difference_is_empty_only_for_a_stored_request(now, then):
    told = StoredAnswers([stored(one, "x") for one in then]).difference([asked(now)])
    assert told is None if not then else (told == "") == (now in then)


def test_difference_is_short_and_begins_where_requests_differ():
    lines = [f"line {n}" for n in range(1000)]
    then = stored("\\n".join(lines), "x")
    lines[900:] = [f"other {n} " + "x" * 5000 for n in range(100)]
    told = StoredAnswers([stored("a", "x"), then]).difference([asked("\\n".join(lines))])
    assert "line 899" in told
    assert "line 800" not in told
    assert len(told) < 10_000
