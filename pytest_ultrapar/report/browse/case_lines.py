"""Show the cases of a run as text for a terminal: a line for each case, or one whole case."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.rerun_commands import rerun_command, rerun_lines
from pytest_ultrapar.report.text import (
    counted,
    duration,
    listed,
    one_line,
    shorten,
    text_table,
    visible,
)
from pytest_ultrapar.store.tables import spent_by
from pytest_ultrapar.store.timing import total_tokens
from pytest_ultrapar.store.transcripts import conversation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_ultrapar.records import Attempt, Case, EpisodeEnded, Grade, TurnMessage
    from pytest_ultrapar.report.browse.run_cases import EpisodeReader, RunCase, RunCases


class _Call(msgspec.Struct, frozen=True):
    """One tool call in `TurnMessage.tool_calls`."""

    name: str
    arguments: str


_NOTHING = "-"
_MOST_DAMAGE = 5
_ID = 8
"""How many characters of each case id a list shows; these are enough to identify the case."""
_MOST_SCORES = 2
"""How many scores a list shows for each case. The view of a single case shows all of them."""


# -- all cases -------------------------------------------------------------------------------------


def list_lines(
    run: RunCases, shown: Sequence[RunCase], reader: EpisodeReader, *, width: int
) -> Iterator[str]:
    """Yield a line about the run, then a line for each case.

    Args:
        run: The run.
        shown: The cases to show, in the order of their lines.
        reader: A reader of the run's episodes.
        width: The width of a line, in characters.
    """
    yield head_line(run)
    yield from _damage_lines(run)
    if not shown:
        yield "no case to show"
        return
    test, names = short_names([one.case for one in shown])
    if test:
        yield f"test {one_line(test)}"
    header = ["outcome", "id", "case", "attempts", "time"]
    has_prices = run.manifest is not None and bool(run.manifest.prices)
    rows = []
    for one, name in zip(shown, names, strict=True):
        episode = reader.last(one)
        grade = one.history.grade
        cells = [
            one.shown_state,
            one.case.case_id[:_ID],
            one_line(name),
            _NOTHING if episode is None else f"{len(episode.own_sent):,}",
            _NOTHING if episode is None else duration(episode.duration_s),
        ]
        if has_prices:
            cells.append(_cost(run, reader, [] if episode is None else episode.own_attempts))
        scores = [] if grade is None else _scores(grade)
        rows.append([*cells, listed(scores, _MOST_SCORES) or _NOTHING])
    header += [*(["cost"] if has_prices else []), "scores"]
    head, *lines = text_table(header, rows, n_names=3, width=width)
    yield head
    for number, line in enumerate(lines):  # the last line may be the number of hidden columns
        yield line
        grade = shown[number].history.grade if number < len(shown) else None
        why = (grade.reason or grade.error or "").strip() if grade is not None else ""
        if why:
            yield shorten(f"  {one_line(why.splitlines()[0])}", width)
    counts = Counter(one.state for one in run.cases)
    if run.manifest is not None:
        yield from map(visible, rerun_lines(run.manifest, counts, run.directory))


def short_names(cases: Sequence[Case]) -> tuple[str, list[str]]:
    """Return the test that all cases share, and the bracketed part of each node id.

    If the cases belong to several tests, or if there is only one case, return an empty string and
    the whole node ids.
    """
    parts = [case.nodeid.partition("[") for case in cases]
    tests = {test for test, _, _ in parts}
    if len(cases) < 2 or len(tests) > 1:  # noqa: PLR2004
        return "", [case.nodeid for case in cases]
    return tests.pop(), [own.removesuffix("]") for _, _, own in parts]


def head_line(run: RunCases) -> str:
    """Describe the run, its state, and how many cases are in each state."""
    states = [one.state for one in run.cases]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    manifest = run.manifest
    what = one_line(run.directory.name)
    if manifest is not None:
        what = f"{one_line(manifest.run_id)}, mode {manifest.mode}"
        what += f", a sample of {manifest.drawn_from:,}" if manifest.drawn_from else ""
        what += ", SIMULATED" if manifest.simulated else ""
    in_progress = ", in progress" if run.is_in_use else ""
    became = ", ".join(f"{n:,} {state}" for state, n in counts.items()) or "none"
    return f"run {what}{in_progress}: {counted(len(run.cases), 'case')}: {became}"


def _damage_lines(run: RunCases) -> Iterator[str]:
    if run.manifest is None:
        yield "cannot read the run's manifest, so costs are unknown"
    if run.damage:
        yield f"the journal has {counted(len(run.damage), 'gap')}; lost records are not shown:"
    for one in run.damage[:_MOST_DAMAGE]:
        yield f"  {one_line(one.segment)} at byte {one.offset}: {one_line(one.reason)}"
    if len(run.damage) > _MOST_DAMAGE:
        yield f"  and {len(run.damage) - _MOST_DAMAGE:,} more"


def _scores(grade: Grade) -> list[str]:
    return [f"{one_line(name)} {value:g}" for name, value in grade.scores.items()]


def _cost(run: RunCases, reader: EpisodeReader, attempts: Iterable[Attempt]) -> str:
    cost = reader.cost(attempts)
    if cost is None or run.manifest is None:
        return _NOTHING
    return money(cost, run.manifest.currency)


# -- one case --------------------------------------------------------------------------------------


def case_lines(run: RunCases, one: RunCase, reader: EpisodeReader, *, width: int) -> Iterator[str]:
    """Yield all lines about one case: its facts, grade, requests and conversation.

    Args:
        run: The run.
        one: The case.
        reader: A reader of the run's episodes.
        width: The width of a table, in characters. Messages are not wrapped.
    """
    yield head_line(run)
    yield from _damage_lines(run)
    yield ""
    yield one_line(one.case.nodeid)
    episode = reader.last(one)
    rows = [*_case_facts(one), *_grade_facts(one)]
    if episode is not None:
        rows += _episode_facts(run, reader, episode)
    if run.manifest is not None:
        rows.append(("run again", visible(rerun_command(run.manifest, one.case.nodeid))))
    label = max(len(name) for name, _ in rows)
    for name, text in rows:
        # If a text has several lines, start it on the line below its name, so that tracebacks keep
        # their layout.
        yield from (
            [f"  {name}:", *(f"    {line}" for line in text.split("\n"))]
            if "\n" in text
            else [f"  {name:<{label}}  {text}"]
        )
    for number, each in enumerate(reader.earlier(one), start=1):
        yield from _attempt_lines(
            f"attempts in earlier episode {number}, which ended as {each.ending}", each, width
        )
    if episode is None:
        yield ""
        yield _no_episode(one)
        return
    yield from _attempt_lines("attempts", episode, width)
    for name, text in (("printed", episode.stdout), ("logged", episode.log)):
        if text:
            yield ""
            yield f"== {name}"
            yield from _said(text.rstrip("\n"))
    messages = conversation(run.directory, episode)
    if not messages:
        yield ""
        yield "the conversation is not stored"
    for message in messages:
        yield ""
        yield from _message_lines(message)


def _no_episode(one: RunCase) -> str:
    if one.state == "running":
        return "each request appears here once the case has sent the next request or has ended"
    sent = one.history.had_episode
    return "cannot read this case's requests" if sent else "this case sent no request"


def _case_facts(one: RunCase) -> list[tuple[str, str]]:
    case = one.case
    params = ", ".join(
        f"{visible(name)}={visible(str(value))}" for name, value in case.facts.items()
    )
    rows = [
        ("case id", f"{case.case_id}, seed {case.seed}"),
        ("model", f"{one_line(case.model)}, repetition {case.repeat}"),
    ]
    return [*rows, ("parameters", params)] if params else rows


def _grade_facts(one: RunCase) -> Iterator[tuple[str, str]]:
    grade = one.history.grade
    yield "outcome", one.shown_state
    if grade is None:
        return
    yield "pytest", grade.test
    if grade.labels:
        named = (f"{visible(name)}={visible(text)}" for name, text in grade.labels.items())
        yield "labels", ", ".join(named)
    if grade.scores:
        yield "scores", ", ".join(_scores(grade))
    if grade.reason:
        yield "why", visible(grade.reason)
    if grade.error:
        # Earlier versions wrote reasons into this field.
        went_wrong = one.test_failed or grade.outcome in {"infra", "error"}
        yield "error" if went_wrong else "why", visible(grade.error.rstrip("\n"))


def _episode_facts(
    run: RunCases, reader: EpisodeReader, episode: EpisodeEnded
) -> Iterator[tuple[str, str]]:
    own = episode.own_attempts
    seats_s = sum(each.seat_wait_s for each in episode.attempts)
    rates_s = sum(each.rate_wait_s for each in episode.attempts)
    spent = spent_by(episode)
    if spent.value is not None:
        yield "returned", visible(spent.value)
    yield "took", f"{duration(episode.duration_s)} (answers: {duration(spent.service_s or 0.0)})"
    yield (
        "waited",
        f"{duration(seats_s)} for seats, {duration(rates_s)} for rate limits and pauses, "
        f"{duration(episode.backoff_s)} before retries",
    )
    tokens_in = total_tokens(each.tokens_in for each in own)
    tokens_out = total_tokens(each.tokens_out for each in own)
    yield "tokens", f"{_count(tokens_in)} in, {_count(tokens_out)} out"
    if run.manifest is not None and run.manifest.prices:
        yield "cost", _cost(run, reader, own)


def _attempt_lines(title: str, episode: EpisodeEnded, width: int) -> Iterator[str]:
    attempts = episode.attempts
    if not attempts:
        return
    yield ""
    yield f"== {title}"
    begin_s = min(each.t_ready_s for each in attempts)
    rows = [
        [
            f"{each.turn}.{each.attempt}",
            one_line(f"{each.provider}/{each.instance}/{each.key}"),
            _result(each),
            duration(max(0.0, each.t_send_s - begin_s)),
            duration(max(0.0, each.t_lease_s - each.t_ready_s)),
            duration(max(0.0, each.t_end_s - each.t_send_s)),
            _count(each.tokens_in),
            _count(each.tokens_out),
        ]
        for each in attempts
    ]
    header = ["turn", "lane", "result", "sent at", "waited", "took", "tokens in", "tokens out"]
    yield from text_table(header, rows, n_names=3, width=width)


def _count(tokens: int | None) -> str:
    return _NOTHING if tokens is None else f"{tokens:,}"


def _result(attempt: Attempt) -> str:
    said = [attempt.outcome]
    if attempt.status is not None and attempt.outcome != "ok":
        said.append(str(attempt.status))
    if attempt.retry_after_s is not None:
        said.append(f"retry after {duration(attempt.retry_after_s)}")
    if attempt.replayed is not None:
        said.append("replayed")
    if attempt.role:
        said.append(f"role {one_line(attempt.role)}")
    return ", ".join(said)


def _message_lines(message: TurnMessage) -> Iterator[str]:
    known = {
        "role": message.pool_role,
        "named": message.name,
        "for call": message.tool_call_id,
        "choice": message.choice,
        "ended by": message.finish_reason,
    }
    who = [one_line(message.role) or "message"]
    who += [f"{word} {one_line(str(value))}" for word, value in known.items() if value]
    yield f"== turn {message.turn}: {', '.join(who)}"
    refusal = "" if message.refusal == message.content else message.refusal
    for title, text in (
        ("-- reasoning", message.reasoning),
        ("-- answer" if message.reasoning else "", message.content),
        ("-- refusal", refusal),
        ("-- tool calls", _calls(message.tool_calls or "")),
    ):
        if text:
            if title:
                yield title
            yield from _said(text)


def _calls(tool_calls: str) -> str:
    try:
        calls = msgspec.json.decode(tool_calls, type=list[_Call])
    except msgspec.DecodeError:
        # The text is empty, or it was written by code of a suite or by an earlier version.
        return tool_calls
    return "\n".join(f"{call.name}({call.arguments})" for call in calls)


def _said(text: str) -> Iterator[str]:
    """Indent lines of text from outside the plugin, so that no line looks like a heading."""
    return (f"  {line}" for line in visible(text).split("\n"))
