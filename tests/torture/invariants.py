"""The rules that hold after a round. Each invariant yields a sentence for each violation."""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.torture.evidence import Evidence, Sent, Served

_SHOWN = 5
_NOISE = (
    "INTERNALERROR",
    "Traceback (most recent call last)",
    "Exception ignored in",
    "Exception in thread",
    "Fatal Python error",
)

_BOOTSTRAP = re.compile(
    r'^Traceback \(most recent call last\):\n  File "<string>", line 1, in <module>\n'
    r"(?:  .*\n)*\S.*\n",
    re.MULTILINE,
)
"""An interpreter whose controller ended before it sent any code; not an error of the product."""


def sessions_end_as_expected(evidence: Evidence) -> Iterator[str]:
    """Exit codes fit the fault, and the last one is 0; no session hangs."""
    for number, session in enumerate(evidence.sessions, start=1):
        if session.hung:
            yield f"session {number} hung and was killed"
        elif session.code not in session.codes:
            allowed = " or ".join(map(str, sorted(session.codes)))
            yield f"session {number} ended with {session.code}, expected {allowed}"


def outputs_are_clean(evidence: Evidence) -> Iterator[str]:
    """No internal error and no traceback reaches the terminal."""
    for number, session in enumerate(evidence.sessions, start=1):
        for noise in _NOISE:
            if noise in _BOOTSTRAP.sub("", session.output) and not session.hung:
                yield f"session {number} wrote {noise!r}"


def nothing_is_lost(evidence: Evidence) -> Iterator[str]:
    """Every planned case has a row and was solved; the journaled answer is the graded one."""
    rows = {row.case: row for row in evidence.rows}
    missing = sorted(set(range(evidence.n_cases)) - rows.keys())
    if missing:
        yield f"{len(missing)} of {evidence.n_cases} cases have no row: {_some(missing)}"
    unsolved = {case: row.outcome for case, row in sorted(rows.items()) if row.outcome != "solved"}
    if unsolved:
        yield f"{len(unsolved)} cases are not solved: {_some(unsolved.items())}"
    ungraded = [
        f"case {one.case} (episode {one.episode}, graded {rows[one.case].episode})"
        for one in evidence.journaled
        if one.finished and one.case in rows and rows[one.case].episode != one.episode
    ]
    if ungraded:
        yield f"{len(ungraded)} journaled answers were not graded: {_some(ungraded)}"


def nothing_is_doubled(evidence: Evidence) -> Iterator[str]:
    """One row a case, one finished episode a case, one row an attempt."""
    yield from _doubled("results has case", (row.case for row in evidence.rows))
    finished = (one.case for one in evidence.journaled if one.finished)
    yield from _doubled("the journal has a finished episode of case", finished)
    yield from _doubled("attempts has the request", (_name(sent) for sent in evidence.table))


def nothing_is_sent_again(evidence: Evidence) -> Iterator[str]:
    """A case whose episode's end was journaled sends no request afterwards."""
    ends_s: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for one in evidence.journaled:
        if one.finished and one.episode in evidence.episode_ended_s:
            ends_s[one.case].append((evidence.episode_ended_s[one.episode], one.episode))
    again = {
        ask.case
        for ask in evidence.asked
        if any(end_s < ask.t_s and episode != ask.episode for end_s, episode in ends_s[ask.case])
    }
    if again:
        yield f"{len(again)} cases were sent again although they had ended: {_some(sorted(again))}"
    if evidence.n_served_after_the_end:
        yield f"the complete run sent {evidence.n_served_after_the_end} requests when resumed"


def records_match_the_server(evidence: Evidence) -> Iterator[str]:
    """The server saw each recorded request; its other requests were never journaled."""
    journaled = [sent for one in evidence.journaled for sent in one.sent]
    missing = {_name(sent) for sent in journaled} - {_name(sent) for sent in evidence.table}
    if missing and evidence.table:
        yield f"attempts lacks {len(missing)} journaled requests: {_some(sorted(missing))}"
    if not evidence.log_is_whole:
        return
    unseen, rest = _match(journaled, evidence.served)
    if unseen:
        yield f"the server never saw {len(unseen)} recorded requests: {_some(map(_name, unseen))}"
    known = {one.episode for one in evidence.journaled if one.episode is not None}
    unknown = [ask for ask in evidence.asked if ask.episode not in known]
    answered = [served for served in rest if served.status is not None and not served.left]
    if len(answered) > len(unknown):
        yield (
            f"the server answered {len(answered)} requests beyond those recorded, but episodes "
            f"without a journaled value sent {len(unknown)}"
        )


def limits_hold(evidence: Evidence) -> Iterator[str]:
    """No key ever has more requests in flight at the server than it has seats.

    A request of a killed client holds nothing from then on: when the server notices depends on the
    machine.
    """
    of_key: defaultdict[tuple[str, str], list[Served]] = defaultdict(list)
    for served in evidence.served:
        of_key[served.server, served.key].append(served)
    times_s = sorted(evidence.fault_times_s)
    for (_, key), requests in sorted(of_key.items()):
        most, when_s = _most_in_flight(requests, times_s)
        if most > evidence.seats:
            yield f"{key} had {most} requests in flight at {when_s:.6f}, allowed {evidence.seats}"


def nothing_is_left(evidence: Evidence) -> Iterator[str]:
    """No process outlives its session; no private folder or socket outlives the run."""
    if evidence.left_processes:
        yield f"processes remained: {_some(evidence.left_processes)}"
    if evidence.left_paths:
        yield f"{len(evidence.left_paths)} paths remained: {_some(evidence.left_paths)}"


INVARIANTS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    sessions_end_as_expected,
    outputs_are_clean,
    nothing_is_lost,
    nothing_is_doubled,
    nothing_is_sent_again,
    records_match_the_server,
    limits_hold,
    nothing_is_left,
)


def violations(evidence: Evidence) -> list[str]:
    """All violations, each with the invariant's name."""
    return [
        f"{invariant.__name__}: {sentence}"
        for invariant in INVARIANTS
        for sentence in invariant(evidence)
    ]


def _match(sent: list[Sent], served: Iterable[Served]) -> tuple[list[Sent], list[Served]]:
    """Pair recorded and seen requests of one status; return the rest of both.

    A request was seen if it arrived between its send and its end.

    The earliest end comes first: if a complete pairing exists, this finds one.
    """
    arrivals: defaultdict[tuple[str, int | None], list[Served]] = defaultdict(list)
    for one in sorted(served, key=lambda one: one.t_arrival_s):
        arrivals[one.key, one.status].append(one)
    unseen = []
    for one in sorted(sent, key=lambda one: one.t_end_s):
        if one.status is None:
            continue
        there = arrivals[one.key, one.status]
        first = bisect.bisect_left(there, one.t_send_s, key=lambda seen: seen.t_arrival_s)
        if first < len(there) and there[first].t_arrival_s <= one.t_end_s:
            del there[first]
        else:
            unseen.append(one)
    return unseen, [one for rest in arrivals.values() for one in rest]


def _most_in_flight(requests: list[Served], fault_times_s: list[float]) -> tuple[int, float]:
    """The most requests that held or requested a seat at one moment, and that moment."""
    changes: list[tuple[float, int, int]] = []
    for one in requests:
        end_s = one.t_end_s
        if one.left and end_s is not None:
            n_before = bisect.bisect_right(fault_times_s, end_s)
            end_s = max(fault_times_s[n_before - 1], one.t_arrival_s) if n_before else end_s
        if one.refused:
            # It requests a seat and returns it in one step; at the same moment, ends come first.
            changes += [(one.t_arrival_s, 1, 1), (one.t_arrival_s, 2, -1)]
            continue
        if end_s == one.t_arrival_s:
            continue
        changes.append((one.t_arrival_s, 1, 1))
        if end_s is not None:
            changes.append((end_s, 0, -1))
    most, when_s, now = 0, 0.0, 0
    for t_s, _, change in sorted(changes):
        now += change
        if now > most:
            most, when_s = now, t_s
    return most, when_s


def _doubled(what: str, names: Iterable[object]) -> Iterator[str]:
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        yield f"{what} more than once: {_some(twice)}"


def _name(sent: Sent) -> str:
    return f"case {sent.case} turn {sent.turn} try {sent.attempt} at {sent.t_send_s:.6f}"


def _some(names: Iterable[object]) -> str:
    listed = [str(name) for name in names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more
