"""The report of a finished run, in sections. All functions are pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.performance import CLIENT_SHARE
from pytest_ultrapar.analysis.run_summary import ResultsOfTest, all_of
from pytest_ultrapar.apis.failure_classes import ANSWERED, OF_LANE
from pytest_ultrapar.errors import ReplayMissError
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.merged import merged_section
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.text import (
    counted,
    duration,
    listed,
    or_dash,
    percent,
    rate,
    shortened,
    times,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.attribution import Parts
    from pytest_ultrapar.analysis.requests import LimitAudit
    from pytest_ultrapar.analysis.run_summary import Cell, RunSummary, WholeFigure
    from pytest_ultrapar.analysis.statistics import Basis, MeanScore, RunStatistics
    from pytest_ultrapar.broker.protocol import EstimatedLimit, LaneStatus
    from pytest_ultrapar.report.cluster_progress import HostPart
    from pytest_ultrapar.store.cost import RoleUse


MOST_LANES = 24
"""The maximum number of lanes with a line of their own. The manifest lists all lanes."""
_MOST_NAMES = 5
_MOST_LABELS = 10
_LONGEST = 200
_OUT = ": removed for the rest of the run"
_LEFT = " is left: "
LAST_TRY = "; the last try: "
_FAILURES = OF_LANE - ANSWERED
"""The outcomes that are caused by the lane, not by the request."""


def lane_lines(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Yield lines on failing lanes (removed ones first), and then totals; safe for a terminal.

    Lanes that were removed for the same reason share a line, for example all lanes of a key.
    """
    lines = [*_removed_lines(lanes), *(line for lane in lanes if (line := _line(lane)))]
    yield from _first(lines, "about lanes; manifest.json lists all lanes")
    limits = {one.limit: one for lane in lanes if (one := lane.estimated) is not None}
    shown = [one for one in limits.values() if one.n_cuts or not one.declared]
    yield from _first([*map(_estimate_line, shown)], "about estimated limits; see table `limits`")
    if widened := list(dict.fromkeys(name for lane in lanes for name in lane.widened)):
        yield (
            f"requests on {visible(listed(widened, _MOST_NAMES))} were spaced 5 % further apart, "
            "because some were refused at the declared rate. Requests may arrive closer together "
            "than they are sent, or the provider may count over shorter periods"
        )
    odd = by_key((lane.left_out, lane.lane.rpartition("/")[0]) for lane in lanes)
    for fields, instances in odd.items():
        if fields:
            both = dict.fromkeys(instances), fields
            where, what = (listed([*names], _MOST_NAMES) for names in both)
            yield visible(
                f"answers from {where} had fields of unexpected types, which were ignored: {what}"
            )
    unheard = {
        lane.lane.rpartition("/")[0]: None for lane in lanes if lane.is_unheard and lane.granted
    }
    if unheard:
        yield (
            f"metrics_url of {visible(listed([*unheard], _MOST_NAMES))} had no effect: the URL "
            "returned no known metric (from vLLM, SGLang, TGI or llama.cpp)"
        )
    n_refused = sum(lane.n_rate_limited for lane in lanes)
    n_granted = sum(lane.granted for lane in lanes)
    if n_refused:
        were = "was" if n_granted == 1 else "were"
        yield f"{n_refused:,} of {counted(n_granted, 'request')} {were} rate limited"
    n_lost = sum(lane.outcomes.get("lost", 0) for lane in lanes)
    if n_lost:
        yield (
            f"missing from the tables, but possibly billed: {counted(n_lost, 'request')} from "
            "workers that died or hung"
        )


def _first(lines: Sequence[str], more: str) -> Iterator[str]:
    yield from lines[:MOST_LANES]
    if len(lines) > MOST_LANES:
        yield f"... and {counted(len(lines) - MOST_LANES, 'more line')} {more}"


def _estimate_line(estimate: EstimatedLimit) -> str:
    fields = [] if estimate.workers is None else [f"workers = {estimate.workers}"]
    fields += [] if estimate.qps is None else [f"qps = {estimate.qps:.3g}"]
    found = ", ".join(fields)
    cuts = f"refusals lowered the limit of {estimate.limit} {_times(estimate.n_cuts)}"
    if estimate.declared:
        return visible(f"{cuts}, to less than its declared value; {_allowed(estimate, found)}")
    if not found:
        return visible(f"limit of {estimate.limit} not reached: at most {estimate.peak} in flight")
    said = f"estimated limit of {estimate.limit}: {found}"
    return visible(f"{said}; {cuts}" if estimate.n_cuts else said)


def _allowed(estimate: EstimatedLimit, found: str) -> str:
    """Say how much the provider allows, after it refused requests within a declared limit."""
    if estimate.is_back:
        return "the limit is back at its declared value"
    if not found:
        return "too few requests were answered to estimate what the provider allows"
    return (
        f"the provider seems to allow {found}: declare this limit, or let the run estimate it from "
        "the start (--ultrapar-rate-mode adaptive)"
    )


def _removed_lines(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    alike = by_key((lane.reason, lane) for lane in lanes if lane.is_removed)
    for reason, group in alike.items():
        # Shorten the provider's message, but keep the end of our own sentence.
        shown = shortened(reason.removesuffix(_OUT), _LONGEST) + _OUT
        more = [counted(len(group), "lane")] if len(group) > 1 else []
        after_s = [lane.removed_after_s for lane in group if lane.removed_after_s is not None]
        more += [f"after {duration(min(after_s))}"] if after_s else []
        yield "; ".join([f"{shown} ({', '.join(more)})" if more else shown, *_happened(group)])


def _line(lane: LaneStatus) -> str:
    """Describe what happened on a lane that is not removed; empty if nothing happened."""
    happened = list(_happened([lane]))
    if lane.state == "paused":
        return "; ".join([shortened(lane.reason, _LONGEST), *happened])
    if lane.state == "up" and happened:
        return f"{visible(f'lane {lane.lane}')}: {'; '.join(happened)}"
    return ""


def _happened(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    failures = _failures(lanes)
    if failures:
        kinds = ", ".join(f"{n:,} {outcome}" for outcome, n in failures.most_common())
        n_moved = sum(lane.n_moved for lane in lanes)
        moved = f", {n_moved:,} retried on other lanes" if n_moved else ""
        yield f"{counted(failures.total(), 'failed request')} ({kinds}){moved}"
    if n_cut := sum(lane.cut[0] for lane in lanes):
        share = percent(n_cut / sum(lane.outcomes["ok"] for lane in lanes))
        most = max(lane.cut[1] for lane in lanes)
        yield f"{share} of the answers were cut off at max_tokens = {most or 'unknown'}"
    n_late = sum(lane.outcomes.get("timeout", 0) for lane in lanes if lane.is_whole)
    if n_late:
        yield (
            f"{counted(n_late, 'request')} timed out: without `stream = true`, the server may"
            " continue to compute abandoned answers"
        )
    n_pauses = sum(lane.pauses.get("rate", 0) for lane in lanes)
    if n_pauses:
        paused_s = sum(lane.paused_s.get("rate", 0.0) for lane in lanes)
        yield f"paused {_times(n_pauses)}, for {duration(paused_s)} in total"
    n_opened = sum(lane.n_opened for lane in lanes)
    if n_opened:
        paused_s = sum(lane.paused_s.get("breaker", 0.0) for lane in lanes)
        yield f"circuit breaker opened {_times(n_opened)}, for {duration(paused_s)} in total"


def _failures(lanes: Sequence[LaneStatus]) -> Counter[str]:
    found: Counter[str] = Counter()
    for lane in lanes:
        found.update({name: n for name, n in lane.outcomes.items() if n and name in _FAILURES})
    return found


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n:,} times")


MOST_LIMITS = 4
_LEAST_SHARE = 0.001
_LEAST_WAIT_S = 0.05
_MOST_WAITS = 3
_MOST_STALLS = 3
_WAITS = {
    "pause": "paused lanes",
    "home": "lanes kept for their home workers",
    "group": "other cases in their group",
    "budget": "the budget",
    "retry budget": "the retry budget",
}
"""Texts for those names in `LaneStatus.waited_s` that are not names of limits."""
PARTS = {
    "rate_wait_s": "waiting for rates",
    "seat_wait_s": "waiting for seats",
    "backoff_s": "back-off",
    "rules_s": "rules of the mode or policy",
    "client_s": "client",
    "startup_s": "start-up",
    "tail_s": "uneven end",
    "misrouted_s": "lanes other than the best",
    "other_s": "other",
}


def performance_lines(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Yield sentences on the bound, the efficiency, the parts of the makespan and the limits.

    Args:
        summary: The run's summary.
        lanes: The final state of each lane.
    """
    # With a single case, nothing can run in parallel.
    several = summary.statistics.n_timed > 1
    if several and summary.bound_s is not None and summary.efficiency is not None:
        longer = stretch_words(summary)
        yield (
            f"lower bound{summary.session} {duration(summary.bound_s)}"
            f" ({visible(summary.binding or '')}); efficiency {percent(summary.efficiency)}"
            f"{longer and f' at these response times, but {longer}'}"
        )
    elif several and summary.rate_mode != "fixed" and summary.statistics.makespan_s is not None:
        providers = dict.fromkeys(lane.lane.split("/")[0] for lane in lanes if lane.estimated)
        limits = f"the limits of {visible(', '.join(providers))}" if providers else "limits"
        yield f"no lower bound, because {limits} were estimated"
    if summary.start_s is not None and summary.statistics.makespan_s is not None:
        yield from _whole(summary, summary.statistics.makespan_s)
    if several and summary.attribution is not None:
        idle = "client"
        if any(lane.is_removed for lane in lanes):
            idle = "client or removed lanes"
        elif any(lane.estimated is not None and lane.estimated.declared for lane in lanes):
            idle = "client or lowered limits"
        yield _parts(summary.attribution.run, summary.attribution.makespan_s, idle)
    bound = summary.client_bound if several else ""
    if bound:
        yield f"CLIENT-BOUND: {bound}"
    if summary.stalls and not any(at in bound for at in summary.stalls):
        calls = [f"{duration(own_s)} in {visible(at)}" for at, own_s in summary.stalls.items()]
        yield (
            f"BLOCKED: a call stopped all episodes in a process for {listed(calls, _MOST_STALLS)}:"
            " await the slow call there, or run it in a thread: await llm.run(function)"
        )
    if summary.audit:
        yield from _audit(summary)
    if summary.n_without_request:
        n_graded = counted(summary.statistics.n_graded, "graded case")
        yield (
            f"{summary.n_without_request:,} of {n_graded} sent no request through llm;"
            " requests sent by other means are neither limited nor counted"
        )


_CURES = {
    "after the last answer": "tests or graders were still running; add workers (-n) or grader jobs",
    "tables": "one process writes them; fewer score names (one column each) make them smaller",
}
"""Parts of a run after the last answer: for each, cause and remedy if it takes too long."""
_LEAST_AFTER_S = 3.0
"""Shorter parts get no sentence with a remedy, because a change to the suite would save little
time."""


def _whole(summary: RunSummary, asking_s: float) -> Iterator[str]:
    """Yield the total time with its parts, and a sentence for each part that took too long."""
    sample = summary.statistics.sample
    parts = {
        "start": summary.start_s or 0.0,
        "serial sample": sample.duration_s if sample is not None else 0.0,
        "requests": asking_s,
        "after the last answer": summary.behind_s or 0.0,
        "tables": summary.tables_s or 0.0,
    }
    whole_s = sum(parts.values())
    said = ", ".join(f"{name} {duration(part_s)}" for name, part_s in parts.items() if part_s)
    efficiency = ""
    if summary.bound_s is not None and summary.statistics.n_timed > 1:
        share = summary.bound_s / (whole_s - parts["serial sample"])
        efficiency = f"; efficiency of the whole run {percent(share)}"
    yield f"total time {duration(whole_s)}: {said}{efficiency}"
    for name, cure in _CURES.items():
        if parts[name] >= max(_LEAST_AFTER_S, CLIENT_SHARE * whole_s):
            yield f"CLIENT-BOUND: '{name}' took {percent(parts[name] / whole_s)} of the run: {cure}"


def waits_line(lanes: Sequence[LaneStatus], audit: Sequence[LimitAudit] = ()) -> str:
    """Name the limits or other causes that delayed requests most; empty if no wait was long.

    Args:
        lanes: The final state of each lane.
        audit: The run's limits. Equal limits of one provider count as one cause, under the name
            that the lower bound also uses.
    """
    names = _alike(audit)
    waited_s: dict[str, float] = {}
    for lane in lanes:
        for name, seconds in lane.waited_s.items():
            called = names.get(name, name)
            waited_s[called] = waited_s.get(called, 0.0) + seconds
    longest = [
        f"{visible(_WAITS.get(name, name))} ({duration(seconds)})"
        for name, seconds in sorted(waited_s.items(), key=lambda one: -one[1])[:_MOST_WAITS]
        if seconds >= _LEAST_WAIT_S
    ]
    return f"in total, requests waited longest for {', '.join(longest)}" if longest else ""


def _alike(audit: Sequence[LimitAudit]) -> dict[str, str]:
    """Map limits that are equal to a common name, such as `ideallab/key0 (qps) and 2 like it`."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for one in audit:
        provider, *levels = one.limit.split("/")
        for kind in LIMIT_KINDS.values():
            _, most = one.of(kind)
            if most is not None and levels:
                like = (provider, len(levels), kind.word, most)
                groups.setdefault(like, []).append(f"{one.limit} ({kind.word})")
    return {
        name: f"{own[0]} and {len(own) - 1} like it"
        for own in groups.values()
        for name in own
        if len(own) > 1
    }


def _parts(parts: Parts, makespan_s: float, idle: str) -> str:
    # `idle` also names removed lanes or lowered limits, because their empty seats look as if the
    # client had been slow.
    names = {**PARTS, "client_s": idle}
    amounts = {name: getattr(parts, name) for name in names}
    shown = [
        f"{names[name]} {duration(seconds)}"
        for name, seconds in sorted(amounts.items(), key=lambda item: -item[1])
        if seconds >= _LEAST_SHARE * makespan_s
    ]
    bound = f"bound {duration(parts.used_s)} ({percent(parts.used_s / makespan_s)})"
    return f"where the time went: {', '.join([bound, *shown])}"


def _audit(summary: RunSummary) -> Iterator[str]:
    passed = [one for one in summary.audit if one.passed]
    for one in passed:
        yield f"LIMIT EXCEEDED ({', '.join(one.passed)}): {_fall(one)}"
    fullest = sorted(summary.audit, key=_use, reverse=True)[:MOST_LIMITS]
    n_more = len(summary.audit) - len(fullest)
    more = f"; {counted(n_more, 'more limit')} in summary.json" if n_more > 0 else ""
    way = "the gateway" if summary.asked_by_others else "llm"
    held = "" if passed else f"; no request through {way} exceeded a limit"
    falls = "; ".join(map(_fall, fullest))
    yield (
        f"at most {counted(summary.peak_in_flight, 'request')}{summary.session} in flight{held};"
        f" highest use of limits in this run's records: {falls}{more}"
    )


def _fall(one: LimitAudit) -> str:
    said = []
    for kind in LIMIT_KINDS.values():
        n, most = one.of(kind)
        # Leave out daily limits. A run uses only a part of them, and the line with the remaining
        # part says more.
        if n is not None and (not kind.is_daily or kind.word in one.passed):
            form = ",.0f" if kind.counts == "tokens" else "g"
            said.append(f"{n:,}{f' of {most:{form}}' if most is not None else ''} {kind.within}")
    return f"{visible(one.limit)} {', '.join(said)}"


def _use(one: LimitAudit) -> float:
    pairs = map(one.of, LIMIT_KINDS.values())
    return max((n / most for n, most in pairs if n and most), default=0.0)


MOST_ROWS = 1_000
MOST_SHOWN = 5
SIMULATED = (
    "SIMULATED: all answers come from the simulated provider and say nothing about a real model"
)
_LEGEND = (
    "n: graded cases; a case belongs to the suite that sent its requests. 95 % interval: Wilson "
    "interval of the solve rate. Dependent cases count as one cluster: the cases that the suite's "
    "mark groups or, without such a mark, the repetitions of a cell. Without such a mark, "
    "repetitions count separately in a row with a single cell. Scores: the mean over the cases "
    "with that score, and the mean's 95 % interval. The row `all` has no interval, because its "
    "cases may share tasks"
)
_REPETITIONS = (
    "a cell is left out if fewer than k of its repetitions were graded (for majority: half or "
    "fewer); k is the number in the figure's name. There is no interval if the suite's mark "
    "declares that each repetition draws new random values and k is more than half the number of "
    "repetitions"
)
_BASIS: dict[Basis, str] = {
    "at_most": "from response times, which did not rise with the number of requests in flight",
    "estimated": "an estimate that is usually too high",
    "sampled": "from the serial sample",
    "full": "measured",
}


def summary_sections(
    summary: RunSummary, lanes: Sequence[LaneStatus], *, directory: str, goes_on: bool = False
) -> Iterator[Section]:
    """Yield the whole report of a run.

    Args:
        summary: The summary that the compaction made.
        lanes: The final state of each lane.
        directory: The directory of the results, as text to show.
        goes_on: Whether the run is still in progress.
    """
    simulated = [SIMULATED] if summary.simulated else []
    said = (verdict(summary, goes_on=goes_on), *_mean_scores(summary.statistics))
    yield Section(f"Run {summary.run_id}", notes=(*simulated, *said))
    if summary.merged is not None:
        yield merged_section(summary.merged)
    if summary.cells:
        yield from _results(summary)
    if summary.repetitions:
        yield _repetitions(summary)
    if summary.figures:
        yield Section("Figures from the suite", notes=(*map(figure_line, summary.figures),))
    waited = filter(None, [waits_line(lanes, summary.audit)])
    speed = (*_speed(summary), *performance_lines(summary, lanes), *waited)
    for title, notes in (
        ("Speed and requests", speed),
        ("Lanes", tuple(lane_lines(lanes))),
        ("Cases by kind", (*_kinds(summary, lanes),)),
        ("Failures", (*_troubles(summary, goes_on=goes_on),)),
    ):
        if notes:
            yield Section(title, notes=notes)
    yield Section("Files", notes=(f"results in {directory}: {', '.join(summary.files)}",))


def _results(summary: RunSummary) -> Iterator[Section]:
    """Yield a table of all cases, and then one for each test.

    The table of a single test is left out if it adds nothing.
    """
    every, tests = ResultsOfTest("", summary.summary_by, summary.cells), summary.tests
    if len(tests) == 1 and tests[0].by in {("model",), every.by}:
        tests = []
    hidden = [counted(n, "more test") for n in [summary.n_tests - len(tests)] if tests and n]
    for one in (every, *tests):
        of_all = ["all"] * (len(one.by) - 1)
        rows = [msgspec.structs.replace(own, names=(*own.names, *of_all)) for own in one.wholes]
        rows = sorted([*rows, *one.cells], key=lambda cell: cell.names[0])
        everything = all_of(one.cells, "all", *[""] * len(of_all))
        scores = [*(everything if one.test else summary.statistics).scores]
        totals = [everything] if (len(one.wholes) or len(rows)) > 1 else []
        rates = [("solved", "95 % interval"), ("partial", "unsolved")]
        first, last = rates if everything.n_rated or not everything.n_graded else ((), ())
        n_more = len(rows) - MOST_ROWS
        more = [counted(n_more, "more row")] if n_more > 0 else []
        notes = [f"{each} in the tables" for each in [*more, *(() if one.test else hidden)]]
        yield Section(
            f"Results of {one.test}" if one.test else "Results",
            (*one.by, "n", *first, *scores, *last, "not graded"),
            tuple(_row(cell, scores, rates=bool(first)) for cell in (*rows[:MOST_ROWS], *totals)),
            n_names=len(one.by),
            notes=(*notes, *(() if one.test else (_LEGEND,))),
        )


def _row(cell: Cell, scores: Sequence[str], *, rates: bool) -> tuple[str, ...]:
    n = cell.n_rated
    shares = (cell.counts[one] / n if n else None for one in ("solved", "partial", "unsolved"))
    shown = (or_dash(share, percent) for share in shares)
    solved, *others = (f"{one} of {n:,}" if 0 < n < cell.n_graded else one for one in shown)
    return (
        *cell.names,
        str(cell.n_graded),
        *((solved, _bounds(cell.interval) if cell.interval else "-") if rates else ()),
        *(mean_text(cell.scores[name]) if name in cell.scores else "-" for name in scores),
        *(others if rates else ()),
        str(cell.n - cell.n_graded),
    )


def figure_line(figure: WholeFigure) -> str:
    """Return `f1 0.81 (0.78 to 0.85)`, or only `f1 0.81` if the figure has no interval."""
    bounds = " ({:.4g} to {:.4g})".format(*figure.interval) if figure.interval else ""
    return f"{figure.name} {figure.value:.4g}{bounds}"


def mean_text(score: MeanScore, digits: int = 3) -> str:
    """Return a mean as text, with its interval if it has one."""
    low, high = (f"{bound:.{digits}f}" for bound in score.interval or (0.0, 0.0))
    return f"{score.mean:.{digits}f}{f' ({low} to {high})' if score.interval else ''}"


def _repetitions(summary: RunSummary) -> Section:
    """Return a table of each model's figures over the repetitions of its cells."""
    rows = tuple(
        (
            one.figure,
            one.model or "all",
            f"{one.n} of {one.n + one.n_left_out}" if one.n_left_out else str(one.n),
            or_dash(one.value, percent),
            _bounds(one.interval) if one.interval else "-",
        )
        for one in summary.repetitions
    )
    n = summary.n_repetitions
    note = (
        f"pass@{n}: at least one of {n} repetitions of a cell is solved; pass^{n}: all are;"
        f" majority: more than half are; {_REPETITIONS}"
    )
    header = ("figure", "model", "cells", "mean", "95 % interval")
    return Section("Repetitions", header, rows, n_names=2, notes=(note,))


def _bounds(interval: tuple[float, float]) -> str:
    return " to ".join(f"{bound * 100:.1f}" for bound in interval)


def verdict(summary: RunSummary, part: HostPart | None = None, *, goes_on: bool = False) -> str:
    """State how many cases have each outcome, and what the coverage is.

    Args:
        summary: The summary that the compaction made.
        part: The host, and the run that it is part of; None if the run is on one host.
        goes_on: Whether the run is still in progress.
    """
    statistics = summary.statistics
    if not statistics.n_planned:
        # This happens on a host that joined late, for example. A coverage of 100 % would look like
        # a success.
        if part is None:
            return "0 cases: nothing to run"
        return f"host {part.host} ran none of the {counted(part.n_cases, 'case')} in run {part.run}"
    counts = statistics.counts | {
        "finished but not graded": summary.n_ungraded,
        "running" if goes_on else "interrupted": summary.n_interrupted,
        "waiting" if goes_on else "never ran": summary.n_never_ran,
    }
    always = "" if counts.get("scored") else "solved"
    said = ", ".join(f"{n:,} {name}" for name, n in counts.items() if n or name == always)
    cases = counted(statistics.n_planned, "case")
    if part is not None:
        cases = f"{statistics.n_planned:,} of {counted(part.n_cases, 'case')} on host {part.host}"
    if summary.drawn_from:
        cases += f", a sample of {summary.drawn_from:,}"
    return f"{cases}: {said}; coverage {percent(statistics.coverage)}"


def _mean_scores(statistics: RunStatistics) -> Iterator[str]:
    if statistics.scores:
        means = (
            f"{visible(name)} {score.mean:.3f} (n = {score.n})"
            for name, score in statistics.scores.items()
        )
        yield f"mean scores: {', '.join(means)}"


def pace(summary: RunSummary) -> str:
    """Return a line with cases, time, throughput and latency; empty if nothing was measured."""
    statistics, said = summary.statistics, []
    if statistics.makespan_s is not None and statistics.throughput is not None:
        said.append(
            f"{summary.mode}: {counted(statistics.n_timed, 'case')}{summary.session} in"
            f" {duration(statistics.makespan_s)}"
        )
        said[0] += f", {rate(statistics.throughput)}" * (statistics.n_timed > 1)
    if (latency := statistics.latency) is not None and latency.n > 1:
        said.append(
            f"latency p50 {duration(latency.p50_s)}, p95 {duration(latency.p95_s)},"
            f" p99 {duration(latency.p99_s)}"
        )
    return "; ".join(said)


def speedup_line(summary: RunSummary) -> str:
    """State the speed-up over a serial run; empty if there is no meaningful speed-up."""
    statistics = summary.statistics
    if statistics.speedup is None or statistics.serial_s is None:
        return ""
    if summary.mode == "serial" or statistics.n_timed < 2:  # noqa: PLR2004
        return ""
    if statistics.is_at_most:
        longer = stretch_words(summary)
        return (
            f"speed-up at most {times(statistics.speedup)} over a serial run:"
            f" {statistics.speedup:,.1f} cases in progress on average"
            f"{longer and f'; {longer}'}; measure the speed-up with"
            f" --ultrapar-baseline={min(30, max(1, statistics.n_planned // 4))}"
        )
    interval = ""
    if statistics.speedup_interval is not None:
        low, high = map(times, statistics.speedup_interval)
        interval = f" (interval of at least 95 %: {low} to {high})"
    return (
        f"speed-up {times(statistics.speedup)}{interval} over a serial run"
        f" ({duration(statistics.serial_s)}, {_BASIS[statistics.basis]})"
    )


def stretch_words(summary: RunSummary) -> str:
    """Say how much longer answers took with more in flight; empty if they took no longer."""
    found = summary.stretch
    if found is None or not found.is_seen:
        return ""
    return (
        f"answers took {times(found.factor)} as long with {found.many:,.0f} requests in flight"
        f" as with {found.few:,.0f}"
    )


def _speed(summary: RunSummary) -> Iterator[str]:
    statistics = summary.statistics
    sample = statistics.sample
    if sample is not None:
        yield (
            f"serial sample: {counted(sample.n, 'case')} one after another in"
            f" {duration(sample.duration_s)}, {rate(sample.n / sample.duration_s)};"
            " not included in the times below"
        )
    yield from filter(None, [pace(summary), speedup_line(summary)])
    if summary.replayed is not None:
        yield replay_line(summary)
    yield from resumed_lines(summary)
    if summary.n_requests:
        yield _took(statistics) + (", excluding roles" if summary.roles else "")
        for role, use in summary.roles.items():
            cost = ""
            if use.cost is not None and summary.cost is not None:
                cost = f", {money(use.cost, summary.cost.currency)}"
            yield f"role {visible(role)}: {_took(use)}{cost}"
        yield from cost_lines(summary)
        if (first := summary.first_token) is not None:
            yield (
                f"time to first token of {counted(first.n, 'stream')}: p50 {duration(first.p50_s)},"
                f" p95 {duration(first.p95_s)}, p99 {duration(first.p99_s)}"
            )
        in_roles = sum(use.n_attempts for use in summary.roles.values())
        n_more = summary.n_requests - statistics.n_attempts - in_roles
        if n_more:
            yield f"{counted(n_more, 'more request')} in episodes that are not (yet) counted"
        if summary.n_maybe_billed:
            n_lost = counted(summary.n_maybe_billed, "request")
            yield f"{n_lost} got no answer but may have been billed"


def resumed_lines(summary: RunSummary) -> Iterator[str]:
    """State how many interrupted conversations continued from their stored answers.

    Also state how many others sent a request that differs from the stored one. Empty if both
    numbers are 0.
    """
    if summary.n_resumed or summary.n_strayed:
        strayed = (
            f"; {counted(summary.n_strayed, 'other')} sent a different request and got new answers "
            "from then on"
        )
        yield (
            f"{counted(summary.n_resumed, 'conversation')} resumed from stored "
            f"answers{strayed if summary.n_strayed else ''}"
        )


def replay_line(summary: RunSummary) -> str:
    """State how many answers were replayed, and in how many cases an answer was missing."""
    ambiguous = f" ({summary.n_ambiguous:,} of them ambiguous)" if summary.n_ambiguous else ""
    n_missed = summary.kinds.get(f"error/{ReplayMissError.kind}", 0)
    missed = f", {counted(n_missed, 'case')} lacked a stored answer" if n_missed else ""
    sender = "" if summary.regraded is None else f" by run {summary.regraded}"
    return (
        f"replay of run {summary.replayed}: {counted(summary.n_replayed, 'answer')} "
        f"replayed{ambiguous}, {counted(summary.n_requests, 'request')} sent{sender}{missed}"
    )


def _took(use: RunStatistics | RoleUse) -> str:
    tokens = [
        f"{counted(n, 'token')} {direction}"
        for n, direction in ((use.tokens_in, "in"), (use.tokens_out, "out"))
        if n is not None
    ]
    return ", ".join([counted(use.n_attempts, "request"), *tokens])


def cost_lines(summary: RunSummary) -> Iterator[str]:
    """Yield the run's cost, and how many requests have an unknown cost; nothing without prices."""
    cost = summary.cost
    if cost is None:
        return
    shown = {model: money(amount, cost.currency) for model, amount in cost.by_model.items()}
    models = [f"{visible(model)} {text}" for model, text in shown.items()]
    of_models = f" ({', '.join(models)})" if len(models) > 1 else ""
    graded = summary.statistics
    per_case = ""
    if graded.cost is not None and graded.n_graded:
        per_case = f", {money(graded.cost / graded.n_graded, cost.currency)} per graded case"
        per_case += " excluding roles" if summary.roles else ""
    yield (
        f"cost {money(cost.total, cost.currency)}{of_models}{per_case}, at prices from "
        f"{visible(', '.join(cost.origins))}"
    )
    if cost.by_label:
        labels = sorted(cost.by_label.items(), key=lambda both: -both[1])
        each = [f"{visible(label)} {money(amount, cost.currency)}" for label, amount in labels]
        yield f"cost by label: {listed(each, _MOST_LABELS)}"
    if cost.n_unknown:
        named = ", ".join(map(visible, filter(None, cost.unpriced)))
        why = f"no price for {named}" if named else "their answers do not report all token counts"
        yield f"the cost of {counted(cost.n_unknown, 'more request')} is unknown: {why}"


def trouble_lines(summary: RunSummary) -> Iterator[str]:
    """Yield lines, safe for a terminal, on why cases were not solved or have no grade."""
    yield from _kinds_line(summary)
    yield from _troubles(summary, goes_on=False)


def _kinds_line(summary: RunSummary) -> Iterator[str]:
    if summary.kinds:
        kinds = (f"{n} {visible(kind)}" for kind, n in summary.kinds.items())
        yield f"kinds: {', '.join(kinds)}"


def _kinds(summary: RunSummary, lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Yield a line that counts cases by kind, and then one that counts failed requests."""
    yield from _kinds_line(summary)
    if summary.kinds and lanes:
        n_failed = sum(lane.n_failed for lane in lanes)
        n_refused = sum(lane.n_rate_limited for lane in lanes)
        said = f"{n_failed or 'none'} failed, {n_refused or 'none'} rate limited"
        yield (
            "these numbers count cases, not requests; of "
            f"{counted(summary.n_requests, 'request')}, {said}"
        )


def _troubles(summary: RunSummary, *, goes_on: bool) -> Iterator[str]:
    """Yield lines on why cases have no grade."""
    alike: dict[tuple[str, str], list[str]] = {}
    said_last: dict[tuple[str, str], str] = {}
    for note in summary.notes:
        reason = (note.error or note.kind or "").strip().partition("\n")[0]
        front, told, words = reason.partition(LAST_TRY)
        if front.endswith(_OUT):
            # The lines on lanes give the reason for the removal. Repeat only the server's message
            # here.
            reason = front
            if told:
                said = f"{front.partition(_LEFT)[0]}{_LEFT[:-2]}{told}{words}"
                said_last.setdefault((note.outcome, front), said)
        alike.setdefault((note.outcome, reason), []).append(note.nodeid)
    shown = list(alike.items())[:MOST_SHOWN]
    for (outcome, front), nodeids in shown:
        reason = said_last.get((outcome, front), front)
        n_more = f" and {len(nodeids) - 1:,} more" if len(nodeids) > 1 else ""
        why = f": {shortened(reason, _LONGEST)}" if reason else ""
        yield f"  {outcome}: {visible(nodeids[0])}{n_more}{why}"
    counts = summary.statistics.counts
    yield from _more(counts["error"] + counts["infra"] - sum(len(own) for _, own in shown))
    if not goes_on:
        for nodeid in summary.never_ran[:MOST_SHOWN]:
            yield f"  never ran: {visible(nodeid)}"
        yield from _more(summary.n_never_ran - len(summary.never_ran[:MOST_SHOWN]))
    for damage in summary.damage[:MOST_SHOWN]:
        yield (
            f"  journal damaged: {damage.segment}, {counted(damage.length, 'byte')} from byte"
            f" {damage.offset}: {shortened(damage.reason, _LONGEST)}; --ultrapar-resume runs the"
            " missing cases again"
        )


def _more(n_hidden: int) -> Iterator[str]:
    if n_hidden > 0:
        yield f"  ... and {n_hidden:,} more"
