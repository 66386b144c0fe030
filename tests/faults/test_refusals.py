"""Servers that refuse: rows 7 to 11 of the catalogue."""

from __future__ import annotations

import time
import zlib
from email.utils import formatdate

import pytest

from tests.faults.byte_faults import Asked, Fault, after, refuse, telling
from tests.faults.played import KEY_NAMES, SEATS, SUITE, play, run

STORM_S = 2.0
N_CASES = 120


def of_key(asked: Asked) -> str:
    return KEY_NAMES[asked.token]


def many(n: int = N_CASES) -> list[str]:
    return [f"work {number}" for number in range(n)]


@pytest.fixture(autouse=True)
def _work(project) -> None:
    project.server.faults["work"] = after(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("stricken", [{"key0", "key1", "key2"}, {"key1"}], ids=["all", "one"])
def test_storm_of_refusals_loses_no_case_and_causes_no_storm_of_retries(project, stricken):
    storm = refuse(429, b"retry-after: 1")

    def weather(asked: Asked) -> Fault | None:
        return storm if asked.t_s < STORM_S and of_key(asked) in stricken else None

    project.server.weather = weather
    project.server.faults["work"] = after(0.05)
    # Longer than any pause, however fast the other keys are.
    played = play(project, many(900), keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 900}
    log = project.server.log
    refused = [seen for seen in log.requests if seen.status == 429]
    assert {seen.key for seen in refused} == stricken
    # No lease is granted on a lane during its `Retry-After`. Compare the times of grants on one
    # clock: requests granted earlier may arrive at any time.
    attempts = [attempt for found in played.attempts.values() for attempt in found]
    for one in attempts:
        assert one["status"] != 429 or not [
            other
            for other in attempts
            if other["key"] == one["key"] and 0.4 < other["t_lease_s"] - one["t_end_s"] < 1.0
        ]
    assert len(refused) <= len(stricken) * SEATS * (STORM_S + 1)
    # A lane is used again.
    for key in stricken:
        last_s = max(seen.end_s for seen in refused if seen.key == key)
        assert any(seen.key == key and seen.t_s > last_s for seen in log.requests)
    assert not any(a["maybe_billed"] for attempts in played.attempts.values() for a in attempts)


def share(asked: Asked) -> float:
    """A number from 0 to 1 for this try of this prompt."""
    return zlib.crc32(f"{asked.prompt} {asked.nth}".encode()) / 2**32


@pytest.mark.slow
def test_occasional_errors_are_amplified_by_less_than_a_fifth(project):
    broken = refuse(500)
    project.server.weather = lambda asked: broken if share(asked) < 0.05 else None
    played = play(project, many(300), keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 300}
    failed = [seen for seen in project.server.log.requests if seen.status == 500]
    assert failed
    assert len(project.server.log) / 300 <= 1.2
    classes = {a["outcome"] for attempts in played.attempts.values() for a in attempts}
    assert classes == {"ok", "overload"}


USELESS = {
    "zero": [b"0"],
    "negative": [b"-5"],
    "overflow": [b"1e999"],
    "nan": [b"nan"],
    "infinite": [b"inf"],
    "past": [b"Wed, 21 Oct 2015 07:28:00 GMT"],
    "junk": [b"soon"],
    "digits": [b"\xd9\xa1"],
    "underscore": [b"1_0"],
    "empty": [b""],
    "duplicate": [b"0", b"-1"],
    "moment": [b"1000000000"],
    "eternity": [b"Fri, 31 Dec 9999 23:59:59 GMT"],
}


def test_unusable_retry_after_is_replaced_by_the_plugins_backoff(project):
    for name, values in USELESS.items():
        headers = [b"retry-after: " + value for value in values]
        project.server.faults[name] = refuse(429, *headers)
    prompts = [f"{name}:1 it" for name in USELESS]
    played = play(project, prompts, keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): len(prompts)}
    for prompt in prompts:
        assert played.classes(prompt) == ["rate", "ok"]
        assert played.statuses(prompt) == [429, 200]
        assert played.attempts[prompt][0]["retry_after_s"] is None


USEFUL = {
    "share": ([b"retry-after: 0.3"], 0.3),
    "seconds": ([b"retry-after: 1"], 1.0),
    "millis": ([b"retry-after-ms: 300"], 0.3),
    "both": ([b"retry-after-ms: 400", b"retry-after: 60"], 0.4),
}


def test_retry_after_is_obeyed(project):
    for name, (headers, _) in USEFUL.items():
        project.server.faults[name] = refuse(429, *headers)
    played = play(project, [f"{name}:1 it" for name in USEFUL])
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): len(USEFUL)}
    for name, (_, asked_s) in USEFUL.items():
        prompt = f"{name}:1 it"
        first, second = project.server.log.of(prompt)
        assert second.t_s - first.end_s >= asked_s
        assert played.attempts[prompt][0]["retry_after_s"] == asked_s


IN_A_MONTH = formatdate(time.time() + 30 * 86_400, usegmt=True).encode()


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"100000", IN_A_MONTH, b"121"], ids=["days", "date", "s"])
def test_retry_after_beyond_the_deadline_ends_the_episode(project, value):
    project.server.faults["limited"] = refuse(429, b"retry-after: " + value)
    played = play(project, ["limited it"], episode_timeout_s=2)
    assert played.rows["limited it"]["outcome"] == "infra"
    # A probe is sent, too, since perhaps only this request has to wait.
    assert project.server.prompts.count("limited it") == 1
    assert len(project.server.log) == 2


@pytest.mark.slow
def test_retry_after_beyond_the_deadline_moves_the_case_to_another_lane(project):
    asked_of = {"key0": b"100000", "key1": IN_A_MONTH}
    limited = {key: refuse(429, b"retry-after: " + value) for key, value in asked_of.items()}
    project.server.weather = lambda asked: limited.get(of_key(asked))
    played = play(project, many(40), keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 40}
    for key in limited:
        assert sum(seen.key == key for seen in project.server.log.requests) <= 3 + SEATS


ODD_LIMITS = [
    (b"-1", b"-1"),
    (b"0", b"0s"),
    (b"60", b"1m6s"),
    (b"nan", b"nan"),
    (b"1e999", b"-5"),
    (b"many", b"soon"),
    (b"", b""),
    (b"\xd9\xa1", b"6ms"),
]


def test_odd_headers_about_limits_do_no_harm(project):
    for number, (left, reset) in enumerate(ODD_LIMITS):
        headers = [
            b"x-ratelimit-%s-%s: %s" % (which, what, value)
            for what in (b"requests", b"tokens")
            for which, value in ((b"limit", left), (b"remaining", left), (b"reset", reset))
        ]
        project.server.faults[f"told{number}"] = telling(*headers)
    prompts = [f"told{number} {n}" for number in range(len(ODD_LIMITS)) for n in range(3)]
    played = play(project, prompts, keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): len(prompts)}
    assert {status for prompt in prompts for status in played.statuses(prompt)} == {200}
    assert len(project.server.log) == len(prompts)


@pytest.mark.parametrize(
    ("fault", "failure", "reason"),
    [
        (refuse(401), "auth", "was refused (401"),
        pytest.param(refuse(402), "quota", "has no quota left", marks=pytest.mark.slow),
        (refuse(429, code="insufficient_quota"), "quota", "has no quota left"),
        pytest.param(
            refuse(429, b"retry-after: 1", code="insufficient_quota"),
            "quota",
            "no quota left",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["401", "402", "quota", "quota-with-a-time"],
)
@pytest.mark.cpu_s(2)
def test_key_that_dies_is_removed_once_and_the_others_take_over(project, fault, failure, reason):
    def weather(asked: Asked) -> Fault | None:
        return fault if of_key(asked) == "key1" and len(project.server.log) > 20 else None

    project.server.weather = weather
    played = play(project, many(), keys=3)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): N_CASES}
    failed = [a for attempts in played.attempts.values() for a in attempts if a["status"] != 200]
    # Two failures in a row and the requests in flight; earlier answers may come between them.
    assert 1 <= len(failed) <= 3 + 2 * SEATS
    assert {(a["key"], a["outcome"], a["maybe_billed"]) for a in failed} == {
        ("key1", failure, False)
    }
    assert reason in project.reasons()["p/m/key1"]
    assert {project.reasons()[f"p/m/key{n}"] for n in (0, 2)} == {""}
    assert reason in played.output


@pytest.mark.slow
def test_instance_that_vanishes_is_removed_once_and_the_other_takes_over(project):
    gone = refuse(404)

    def weather(asked: Asked) -> Fault | None:
        return gone if asked.model == "second" and len(project.server.log) > 20 else None

    project.server.weather = weather
    project.write_pool(keys=3, instances='["first", "second"]')
    project.suite(SUITE.format(prompts=many()))
    played = run(project, many())
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): N_CASES}
    failed = [a for attempts in played.attempts.values() for a in attempts if a["status"] != 200]
    assert 1 <= len(failed) <= 3 * (3 + SEATS)
    assert {(a["instance"], a["outcome"]) for a in failed} == {("second", "not_found")}
    found = project.reasons()
    assert all("was not found (404)" in found[f"p/second/key{n}"] for n in range(3))
    assert {found[f"p/first/key{n}"] for n in range(3)} == {""}
