"""A plan as plain text. All functions are pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.plan.expectations import ASSUMED_WITHIN
from pytest_ultrapar.analysis.plan.load import QPS_PER_PROCESS, binding
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.text import (
    columns_of,
    counted,
    duration,
    listed,
    percent,
    text_table,
    times,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_ultrapar.analysis.plan.load import KeyLoad, LimitLoad
    from pytest_ultrapar.analysis.plan.run_plan import Amount, ModelPlan, Prediction, RunPlan


_NAMED = 4


def key_lines(loads: Sequence[KeyLoad]) -> list[str]:
    """Show which processes of the original scripts share each key, and how heavily they load it.

    Returns:
        A heading, and a line for each key that processes use, in the order of the pool. Empty if no
        key is used by a process.
    """
    lines = [
        "load: for each key, the processes of the original scripts, at 1 QPS per worker and up to "
        f"{QPS_PER_PROCESS} QPS per process (in this run, limits apply to all processes together)"
    ]
    for load in loads:
        if load.processes:
            form = "{:g}" if load.qps_limit is None else "{:g} of {:g}"
            processes = listed(load.processes, _NAMED)
            rate = f"{load.most_at_once} at once, {form.format(load.qps, load.qps_limit)} QPS"
            lines.append(f"load: {load.name}: {rate}: {processes}")
    return lines if len(lines) > 1 else []


MOST_ROWS = 20
"""At most this many limits are shown. A pool with 300 instances has more limits, but only the first
ones bind."""
_UNKNOWN = "unknown"


def plan_lines(
    plan: RunPlan,
    *,
    settings: Sequence[str],
    sources: Sequence[str],
    warnings: Sequence[str],
    simulated: bool,
    width: int,
) -> list[str]:
    """Return the lines of a plan, without colours and safe for a terminal.

    Args:
        plan: The plan to show.
        settings: The settings of the run, and what the run leaves out.
        sources: The sources of the estimates. The most important one comes first.
        warnings: Sentences about settings without effect and about implausible figures.
        simulated: Whether the pool is simulated.
        width: The width of the terminal, in characters.
    """
    lines = ["SIMULATED: a plan for the simulated provider"] if simulated else []
    lines.append("; ".join(["no request was sent", *settings]) + "; estimates come from:")
    lines += [f"  {line}" for line in (*_bases(plan), *sources)]
    for part in (
        _sums(plan, width),
        _limits(plan.chosen, width),
        _processes(plan),
        _modes(plan, width),
    ):
        found = list(part)
        lines += ["", *found] if found else []
    if warnings:
        lines += ["", *(f"WARNING: {warning}" for warning in warnings)]
    return [visible(line) for line in lines]


def _bases(plan: RunPlan) -> Iterator[str]:
    words = {
        "case": "the same case in the earlier run",
        "test": "a case of the same test with the same model in the earlier run",
        "suite": "a case of the same model in another test of the suite, in the earlier run",
        "model": "a case of the same model in another suite, in the earlier run",
        "hint": "the pool's latencies and the suite's turns, declared and not measured",
    }
    for basis, n in plan.bases.items():
        yield f"{words[basis]} (for {counted(n, 'case')})"


def _sums(plan: RunPlan, width: int) -> Iterator[str]:
    header = ["model", "cases", "calls", "tokens in", "tokens out", "service time"]
    rows = [
        _row(f"{one.model} ({one.role})" if one.role else one.model, one) for one in plan.models
    ]
    if len(rows) > 1:
        rows.append(_row("all", plan))
    yield from text_table(header, rows, n_names=1, width=width)
    yield ""
    ranges: list[tuple[str, Amount | None, Callable[[float], str]]] = [
        ("calls", plan.calls, _whole),
        ("tokens in", plan.tokens_in, _whole),
        ("tokens out", plan.tokens_out, _whole),
        ("service time, added up", plan.service_s, duration),
    ]
    if plan.cost is not None:
        ranges.append((f"cost, in {plan.currency}", plan.cost, _money))
    yield from text_table(
        ["total", "expected", "from", "to"],
        [[name, *_shown(amount, form)] for name, amount, form in ranges],
        n_names=1,
        width=width,
    )
    if plan.budget is not None:
        cost = "unknown" if plan.cost is None else money(plan.cost.value, plan.currency)
        yield f"the pool's budget: {money(plan.budget, plan.currency)}; expected cost: {cost}"
    yield from _without_price(plan)
    yield (
        "from ... to: the range for 95 % of new runs, if the cases of a test with one model vary "
        f"as in the earlier run. Unmeasured values may be wrong by a factor of {ASSUMED_WITHIN:g}"
    )


def short_of_money(plan: RunPlan) -> Iterator[str]:
    """Yield a warning if the run is expected to exceed its budget, or if it might."""
    if plan.budget is None or plan.cost is None or plan.cost.high <= plan.budget:
        return
    is_short = plan.cost.value > plan.budget
    amount = plan.cost.value if is_short else plan.cost.high
    cost = money(amount, plan.currency)
    yield (
        f"the run {'is expected to' if is_short else 'may'} cost {cost}, but the pool's budget "
        f"is {money(plan.budget, plan.currency)}: cases that exceed the budget end as infra; "
        f"raise --ultrapar-budget to {money(max(amount, plan.cost.high), plan.currency)} or more"
    )


def _without_price(plan: RunPlan) -> Iterator[str]:
    models_of = by_key((fields, model) for model, fields in plan.unpriced.items())
    cost = "the cost excludes" if plan.cost is not None else "the cost is unknown for"
    for fields, models in models_of.items():
        have = "has" if len(models) == 1 else "have"
        yield f"{cost} {', '.join(models)}, which {have} no {' and no '.join(fields)} in the pool"


def _row(name: str, own: ModelPlan | RunPlan) -> list[str]:
    both = (own.tokens_in, own.tokens_out)
    tokens = [_UNKNOWN if one is None else _whole(one.value) for one in both]
    n_calls, service = _whole(own.calls.value), duration(own.service_s.value)
    return [name, f"{own.n_cases:,}", n_calls, *tokens, service]


def _limits(prediction: Prediction, width: int) -> Iterator[str]:
    loads = prediction.limits
    if not loads:
        if prediction.forecast is not None:
            yield "no limit in the pool applies to any request"
        return
    rows = [
        [
            one.limit,
            f"{one.allows:g} {LIMIT_KINDS[one.kind].rate}",
            f"{one.requests:,}",
            percent(one.share),
            _alone(one),
        ]
        for one in loads[:MOST_ROWS]
    ]
    header = [f"limit, mode {prediction.way.mode}", "allows", "requests", "share", "time alone"]
    yield from text_table(header, rows, n_names=1, width=width)
    if len(loads) > MOST_ROWS:
        yield f"({counted(len(loads) - MOST_ROWS, 'more limit')}, which would need less time)"


def _alone(load: LimitLoad) -> str:
    kind = LIMIT_KINDS[load.kind]
    if not kind.is_daily:
        return duration(load.alone_s)
    n_more = round(load.alone_s / kind.window_s)
    return f"{n_more + 1} days" if n_more else "within a day"


def _processes(plan: RunPlan) -> Iterator[str]:
    for one in plan.predictions:
        lines = key_lines(one.way.processes)
        if lines:
            yield f"mode {one.way.mode}, policy {one.way.policy}: {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])
            on_keys = [load for load in one.limits if load.level == "key"]
            if on_keys:
                first = one.limits[0]
                alone = duration(first.alone_s)
                other = f"; binding limit: {binding(one.limits)} (time alone: {alone})"
                other = "" if first.level == "key" else other
                yield (
                    f"  binding key: {binding(on_keys)} (time alone: "
                    f"{duration(on_keys[0].alone_s)}){other}"
                )


def _modes(plan: RunPlan, width: int) -> Iterator[str]:
    bound = plan.bound
    yield f"lower bound on the time: {duration(bound.seconds)}, {_bound_by(plan)}"
    serial = next((one for one in plan.predictions if one.way.mode == "serial"), None)
    serial_s = serial.forecast.makespan_s if serial is not None and serial.forecast else None
    rows, refused = [], []
    for one in plan.predictions:
        mark = " <-" if one.way.mode == plan.mode else ""
        if one.forecast is None or one.makespan_s is None:
            refused.append(f"mode {one.way.mode}: {one.way.refusal}")
            continue
        made_s = one.forecast.makespan_s
        low, high = duration(one.makespan_s.low), duration(one.makespan_s.high)
        row = {
            "mode": one.way.mode + mark,
            "policy": one.way.policy,
            "time": duration(made_s),
            "from ... to": f"{low} to {high}",
            "speed-up": times(serial_s / made_s) if serial_s is not None and made_s > 0 else "-",
            "bound/time": percent(bound.seconds / made_s) if made_s > 0 else "-",
            "in flight": f"{one.forecast.peak_in_flight:,}",
            "most loaded": binding(one.limits),
        }
        rows.append(row)
    if rows:
        header, cells = columns_of(rows)
        yield from text_table(header, cells, n_names=2, width=width)
        yield "<-: the mode of this run"
    yield from refused


def _bound_by(plan: RunPlan) -> str:
    """Name the binding limit. If several bind equally, name the first one, and count the others."""
    alike = {(one.limit, one.kind) for one in plan.bound.alike}
    first = next((one for one in plan.chosen.limits if (one.limit, one.kind) in alike), None)
    if first is None:
        by_limit = bool(plan.bound.prices)
        return f"set by {plan.bound.binding}" if by_limit else "set by the longest episode"
    return f"set by {first.name}" + (f" and {len(alike) - 1} like it" if len(alike) > 1 else "")


def _shown(amount: Amount | None, form: Callable[[float], str]) -> list[str]:
    if amount is None:
        return [_UNKNOWN, "-", "-"]
    return [form(amount.value), form(amount.low), form(amount.high)]


_whole, _money = "{:,.0f}".format, "{:,.2f}".format
