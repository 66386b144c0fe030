"""The rules that hold after each round, regardless of its fault; pure: each yields sentences."""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass

from tests.torture.invariants import _BOOTSTRAP, _NOISE

SECOND_S, MINUTE_S = 1.0, 60.0


@dataclass(frozen=True)
class Session:
    """A pytest session of a host.

    Attributes:
        name: The host, and the number of the session.
        code: Its exit code; None if it hung and had to be ended.
        expected: Exit codes besides 0 that the fault explains.
        output: The text that it wrote.
    """

    name: str
    code: int | None
    expected: frozenset[int]
    output: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence of a round.

    Attributes:
        log: The provider's log.
        keys: Names of its keys.
        seats: Seats of each key.
        qps: `qps` of each key.
        tpm: `tpm` of each key; None for no such limit.
        n_cases: The number of planned cases.
        rows: `(nodeid, outcome)` of the merged run, None if the merge made no run.
        graded: Ids of the cases with a grade, of each part.
        n_reported_twice: The number of cases in several parts, as the merge reported it.
        merge: The output of the merge.
        sessions: All sessions of all hosts.
        sends_s: The time of each request of a key, as its sender measured it, on the log's clock.
        left: Processes that outlived their session.
    """

    log: object
    keys: tuple[str, ...]
    seats: int
    qps: int
    tpm: int | None
    n_cases: int
    rows: list[tuple[str, str]] | None
    graded: tuple[frozenset[str], ...]
    n_reported_twice: int
    merge: str
    sessions: tuple[Session, ...]
    sends_s: dict[str, list[float]]
    left: tuple[str, ...]


def violations(evidence):
    """All broken rules, in words."""
    return [sentence for rule in RULES for sentence in rule(evidence)]


def nothing_was_refused(evidence):
    """The provider, which allows one late arrival, refused no request."""
    refused = [one for one in evidence.log.requests if one.status == 429]
    for one in refused[:3]:
        yield (
            f"request {one.request_id} on {one.key} was refused with 429: "
            f"{_around(evidence, one.key, one.t_arrival_s)}"
        )
    if len(refused) > 3:
        yield f"{len(refused)} requests were refused with 429 in all"


def limits_hold(evidence):
    """Seats hold exactly; rates hold with the one arrival or call that providers allow."""
    for key in evidence.keys:
        most = evidence.log.max_in_flight(key=key)
        if most > evidence.seats:
            yield f"{key} had {most} requests in flight, allowed {evidence.seats}"
        most = evidence.log.max_in_window(SECOND_S, key=key)
        if most > evidence.qps + 1:
            yield f"{key} had {most} requests in a second, allowed {evidence.qps} and one late"
        if evidence.tpm is not None:
            tokens, largest = most_tokens(evidence.log, key)
            if tokens > evidence.tpm + largest:
                yield f"{key} had {tokens} tokens in a minute, allowed {evidence.tpm} and one call"


def every_case_has_one_row(evidence):
    """The merged run has each case once, and each case has an answer."""
    if evidence.rows is None:
        yield f"there is no merged run: {evidence.merge.strip()[-300:]}"
        return
    counts = Counter(nodeid for nodeid, _ in evidence.rows)
    if len(counts) != evidence.n_cases:
        yield f"{len(counts)} of {evidence.n_cases} cases have a row"
    twice = [nodeid for nodeid, n in counts.items() if n > 1]
    if twice:
        yield f"{len(twice)} cases have several rows: {twice[:3]}"
    outcomes = Counter(outcome for _, outcome in evidence.rows)
    if outcomes.keys() - {"solved"}:
        yield f"not all cases are solved: {dict(outcomes)}"


def repeated_cases_are_reported(evidence):
    """The merge reports the true number of cases with a result in several parts."""
    n = n_twice(evidence.graded)
    if n != evidence.n_reported_twice:
        yield f"{n} cases are in several parts, the merge counted {evidence.n_reported_twice}"


def sessions_end(evidence):
    """No session hangs. One that ends with a code other than 0 was killed, or gives a reason."""
    for session in evidence.sessions:
        if session.code is None:
            yield f"{session.name} hung"
        elif session.code < 0 and session.code not in session.expected:
            yield f"{session.name} was ended by signal {-session.code}"
        elif session.code > 2:
            yield f"{session.name} ended with {session.code}"


def outputs_are_clean(evidence):
    """No internal error and no traceback."""
    for session in evidence.sessions:
        text = _BOOTSTRAP.sub("", session.output)
        found = [noise for noise in _NOISE if noise in text]
        if found and session.code is not None:
            yield f"{session.name} wrote {found[0]!r}"


def nothing_is_left(evidence):
    """No process outlives its session."""
    if evidence.left:
        yield f"processes were left: {', '.join(evidence.left)}"


RULES = (
    nothing_was_refused,
    limits_hold,
    every_case_has_one_row,
    repeated_cases_are_reported,
    sessions_end,
    outputs_are_clean,
    nothing_is_left,
)


def n_twice(graded):
    """The number of cases with a grade in more than one part."""
    return sum(n > 1 for n in Counter(case for part in graded for case in part).values())


def most_tokens(log, key):
    """The most tokens that a key used in any minute, and the most of one call."""
    used = [
        (one.t_arrival_s, (one.tokens_in or 0) + (one.tokens_out or 0))
        for one in log.requests
        if one.key == key and one.admitted
    ]
    most = within = begin = 0
    for at_s, tokens in used:
        within += tokens
        while used[begin][0] + MINUTE_S <= at_s:
            within -= used[begin][1]
            begin += 1
        most = max(most, within)
    return most, max((tokens for _, tokens in used), default=0)


def _around(evidence, key, at_s):
    """The requests in flight at an arrival, the arrivals near it, and their sending times.

    If the senders kept their distance, the machine or the network was late; otherwise the product
    was wrong. Senders do not know the requests of killed processes.
    """
    of_key = [one for one in evidence.log.requests if one.key == key]
    in_flight = sum(
        one.admitted and one.t_arrival_s < at_s and (one.t_end_s is None or one.t_end_s > at_s)
        for one in of_key
    )
    came = [one.t_arrival_s - at_s for one in of_key if -SECOND_S < one.t_arrival_s - at_s <= 0]
    sends_s = sorted(evidence.sends_s.get(key, ()))
    first = bisect.bisect(sends_s, at_s - 3)
    sent = [round(one - at_s, 2) for one in sends_s[first : bisect.bisect(sends_s, at_s + 0.1)]]
    return f"{in_flight} in flight, arrivals {[round(one, 2) for one in came]}, sent {sent}"
