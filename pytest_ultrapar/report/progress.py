"""Show the progress of a run in one line for each step. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from pytest_ultrapar.analysis.plan.eta import Eta
from pytest_ultrapar.records import RATED
from pytest_ultrapar.report.cluster_progress import ClusterProgress
from pytest_ultrapar.report.cluster_progress import seconds_left as whole_seconds_left
from pytest_ultrapar.report.text import counted, duration, rate

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import BrokerStatus

T = TypeVar("T", bound=tuple[float, ...])
WINDOW_S = 30.0
"""The period over which rates are measured, in seconds. It is long enough for slow models, and
short enough for a pause to become visible."""

LINE_S = 10.0
LINE_SHARE = 0.02
"""The time until the next line in a log, as a share of the time so far."""

_STEP_S = 0.5
_BACKLOG_S = 2.0
_LEAST_BACKLOG = 20
"""If fewer cases than this are answered but not graded, grading is not the bottleneck: it is
waiting for answers."""


@dataclass(frozen=True, slots=True)
class ProgressState:
    """Everything that is known about a run in progress.

    Attributes:
        total: How many cases are planned.
        answered: For how many cases the episode has ended, whether or not the case is graded.
        counts: How many cases are graded, by outcome.
        in_flight: How many requests are in flight.
        all_answered: Whether all episodes have ended.
        seen: Recent observations, oldest first, at most two per second. Each contains the time on
            the monotonic clock, the number of answered cases and the number of graded cases.
        eta: The estimate, made at `eta_at_s`, of when the last episode ends. None while unknown.
        whole: The progress of all hosts together; None for a run on one host.
        whole_at_s: When `whole` was observed, on the same clock.
        share: This host's share of the limits, in words.
        waits: A phrase that names the servers that the run is waiting for, or says why it sends
            nothing. Empty if neither applies.
        whole_seen: Recent observations, like `seen`. Each contains the time on the same clock, and
            how many cases all hosts together had finished.
        begun: For each model with an observed claim, the last observation before its first claim:
            the time, and how many of the model's cases were unclaimed.
    """

    total: int
    answered: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0
    all_answered: bool = False
    seen: tuple[tuple[float, int, int], ...] = ()
    eta: Eta | None = None
    eta_at_s: float = 0.0
    whole: ClusterProgress | None = None
    whole_at_s: float = 0.0
    share: str = ""
    waits: str = ""
    whole_seen: tuple[tuple[float, int], ...] = ()
    begun: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def graded(self) -> int:
        """How many cases have an outcome, even one that measures nothing, such as `infra`."""
        return sum(self.counts.values())


def observe(
    state: ProgressState,
    *,
    answered: int,
    counts: Mapping[str, int],
    in_flight: int,
    now_s: float,
    all_answered: bool = False,
    waits: str = "",
) -> ProgressState:
    """Return the state updated with what was observed of the run at `now_s`."""
    return replace(
        state,
        answered=answered,
        counts=dict(counts),
        in_flight=in_flight,
        all_answered=all_answered,
        waits=waits,
        seen=_window(state.seen, (now_s, answered, sum(counts.values()))),
    )


def awaited(status: BrokerStatus) -> str:
    """Name the servers that a run is waiting for.

    If there are no such servers, and the run is only waiting to retry cases, count these cases.
    """
    said = list(dict.fromkeys(lane.awaits for lane in status.lanes if lane.awaits))
    more = f"; {counted(len(said) - 1, 'more server')}" if len(said) > 1 else ""
    if said:
        return f"waiting: {said[0]}{more}"
    n = 0 if status.in_flight or status.waiting else status.trying
    verb = "is waiting" if n == 1 else "are waiting"
    return f"{counted(n, 'case')} {verb} for a retry after refusals or failures" if n else ""


def observe_whole(
    state: ProgressState, whole: ClusterProgress, *, share: str, waits: str, now_s: float
) -> ProgressState:
    """Return the state updated with what was observed of all hosts at `now_s`."""
    begun = dict(state.begun)
    for model, n in state.whole.unclaimed.items() if state.whole is not None else ():
        if whole.unclaimed.get(model, 0) < n:
            begun.setdefault(model, (state.whole_at_s, n))
    return replace(
        state,
        whole=whole,
        whole_at_s=now_s,
        share=share,
        waits=waits,
        whole_seen=_window(state.whole_seen, (now_s, whole.n_done)),
        begun=begun,
    )


def _window(seen: tuple[T, ...], look: T) -> tuple[T, ...]:
    """Return the recent observations, plus the new one if it is due. Each begins with its time."""
    now_s = look[0]
    if not seen or now_s - seen[-1][0] >= _STEP_S:
        seen = (*seen, look)
    # Keep one observation from before the window, so that the whole window is always covered.
    while len(seen) > 1 and now_s - seen[1][0] >= WINDOW_S:
        seen = seen[1:]
    return seen


def answered_per_s(state: ProgressState, now_s: float) -> float | None:
    """How many episodes ended per second recently; None if no episode ended."""
    since_s, answered, _ = state.seen[0] if state.seen else (now_s, 0, 0)
    return _per_s(state.answered - answered, now_s - since_s)


def graded_per_s(state: ProgressState, now_s: float) -> float | None:
    """How many cases were graded per second recently; None if no case was graded."""
    since_s, _, graded = state.seen[0] if state.seen else (now_s, 0, 0)
    return _per_s(state.graded - graded, now_s - since_s)


def seconds_left(state: ProgressState, now_s: float) -> float | None:
    """How many seconds are left until all cases are graded; None while unknown."""
    per_s = graded_per_s(state, now_s)
    backlog = state.answered - state.graded
    grading_s = None
    if per_s and (state.all_answered or backlog >= max(_LEAST_BACKLOG, _BACKLOG_S * per_s)):
        grading_s = (state.total - state.graded) / per_s
    if state.all_answered:
        return grading_s
    if state.eta is None:
        return None
    asking_s = max(0.0, state.eta.seconds - (now_s - state.eta_at_s))
    return max(asking_s, grading_s or 0.0)


def said(state: ProgressState, now_s: float) -> dict[str, str]:
    """Return a few words for each known fact, in the order in which the facts are shown.

    The step is `running` while episodes are running, and then `grading`. The slowest limit is shown
    while episodes are running. For a run on several hosts, the step, the rate and the ETA cover all
    hosts.
    """
    if state.whole is not None:
        return _said_of_whole(state, state.whole, now_s)
    step = "grading" if state.all_answered else "running"
    per_s = graded_per_s(state, now_s) if state.all_answered else answered_per_s(state, now_s)
    left_s = seconds_left(state, now_s)
    counts = state.counts
    facts = {"step": f"{step}: {state.graded:,}/{state.total:,} graded"}
    if state.waits:
        facts["waits"] = state.waits
    n_scored = counts.get("scored")
    for outcome in ("solved", "partial", "unsolved", "scored", "infra", "error"):
        # Cases that are graded only by scores have no solve rate.
        if counts.get(outcome) or (outcome in RATED and not n_scored):
            facts[outcome] = f"{counts.get(outcome, 0):,} {outcome}"
    if not state.all_answered:
        facts["in flight"] = f"{state.in_flight:,} in flight"
    if per_s is not None:
        facts["rate"] = rate(per_s)
    if left_s is not None and state.graded < state.total:
        facts["ETA"] = f"ETA {duration(left_s)}"
        if not state.all_answered and state.eta is not None and state.eta.slowest:
            facts["slowest"] = f"slowest: {state.eta.slowest}"
    return facts


def _said_of_whole(state: ProgressState, whole: ClusterProgress, now_s: float) -> dict[str, str]:
    # This host's own results may be newer, because the server receives them a moment later.
    n_done = max(whole.n_done, min(state.graded, whole.n_cases))
    hosts = counted(whole.n_hosts, "host")
    facts = {"step": f"running on {hosts}: {n_done:,}/{whole.n_cases:,} done"}
    since_s, n_before = state.whole_seen[0] if state.whole_seen else (now_s, 0)
    per_s = _per_s(whole.n_done - n_before, now_s - since_s)
    if per_s is not None:
        facts["rate"] = f"{rate(per_s)} in total"
        if n_done < whole.n_cases:
            left_s = whole_seconds_left(whole.n_cases - n_done, per_s, _paces(state, whole, now_s))
            facts["ETA"] = f"ETA {duration(left_s)}"
    facts["here"] = f"{state.graded:,} graded here"
    for outcome in ("solved", "partial", "unsolved", "scored", "infra", "error"):
        if n := state.counts.get(outcome):
            facts[outcome] = f"{n:,} {outcome}"
    if n_done >= whole.n_cases:
        return facts
    if state.waits:
        facts["waits"] = state.waits
        return facts
    facts["in flight"] = f"{state.in_flight:,} in flight"
    if state.share:
        facts["share"] = state.share
    return facts


def _paces(
    state: ProgressState, whole: ClusterProgress, now_s: float
) -> Iterator[tuple[int, float]]:
    """Yield, for each model, how many cases are unclaimed, and how many are claimed per second.

    The rates cover the whole time since the first claim, because slow cases are claimed rarely.
    Nothing is yielded if groups wait for each other, because a model's past then does not predict
    its future.
    """
    for model, (since_s, n_before) in () if whole.in_groups else state.begun.items():
        n = whole.unclaimed.get(model, 0)
        claimed_per_s = _per_s(n_before - n, now_s - since_s)
        if claimed_per_s is not None:
            yield n, claimed_per_s


_RANKS = (
    *("step", "waits", "ETA", "here", "share", "infra", "error", "solved", "in flight", "unsolved"),
    *("partial", "scored", "slowest", "rate"),
)
"""The facts in a line, most important first. If a line is too long, the least important facts are
dropped."""


def progress_line(state: ProgressState, now_s: float, width: int) -> str:
    """Return a line of at most `width` characters, dropping the least important facts if needed."""
    facts = said(state, now_s)
    room = width - len(facts["step"]) - 2
    if len(facts.get("waits", "")) > max(room, 0):
        facts["waits"] = f"{facts['waits'][: max(0, room - 3)]}..."
    return _fitted([(_RANKS.index(name), text) for name, text in facts.items()], width)


def next_line_s(waited_s: float) -> float:
    """Return the seconds until the next line in a log (150 lines in the first hour, 310 in a day).

    Args:
        waited_s: How many seconds ago the first step began.
    """
    return max(LINE_S, LINE_SHARE * waited_s)


def collecting_line(waited_s: float, before: tuple[float, int] | None, width: int) -> str:
    """Return the line to show while pytest is collecting.

    The ETA comes from the previous run, because pytest does not report how much is left.

    Args:
        waited_s: How many seconds collection has taken so far.
        before: How many seconds collection took in the previous run, and how many cases that run
            had. None if this is unknown.
        width: The maximum length of the line, in characters.
    """
    parts = [(0, f"collecting: {duration(waited_s)} so far")]
    if before is not None:
        before_s, n_cases = before
        if waited_s < before_s:
            parts.append((1, f"ETA {duration(before_s - waited_s)}"))
        cases = counted(n_cases, "case")
        parts.append((2, f"the latest run collected its {cases} in {duration(before_s)}"))
    return _fitted(parts, width)


def tables_line(done: int, total: int, waited_s: float, width: int) -> str:
    """Return the line to show while the tables are being written.

    Args:
        done: How many cases have been written.
        total: How many cases there are in total.
        waited_s: How many seconds this step has taken so far.
        width: The maximum length of the line, in characters.
    """
    parts = [(0, f"writing tables: {done:,}/{total:,} cases")]
    if done:
        parts.append((1, f"ETA {duration(waited_s * (total - done) / done)}"))
    return _fitted(parts, width)


def _per_s(n: int, seconds: float) -> float | None:
    return n / seconds if n > 0 and seconds > 0 else None


def _fitted(parts: list[tuple[int, str]], width: int) -> str:
    for limit in range(max(rank for rank, _ in parts), -1, -1):
        line = ", ".join(text for rank, text in parts if rank <= limit)
        if len(line) <= width:
            return line
    return parts[0][1][: max(width, 0)]
