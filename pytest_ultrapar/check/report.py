"""The lines of a check, for people."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from pytest_ultrapar.check.question import MESSAGES, PARAMETERS
from pytest_ultrapar.report.numbers import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.check.question import Question
    from pytest_ultrapar.check.verdict import Verdict
    from pytest_ultrapar.pool.model import Lane, Model, Pool

_WIDEST = 60
_SHOWN = 8
_MTOK = 1_000_000
MOST_TOKENS_IN = 100 + sum(len(message["content"]) for message in MESSAGES)
"""More than the prompt can take: a token for each byte, and 100 for what a server's template of
conversations puts around it (some have a system prompt of their own, of up to 70)."""


def first_line(pool: Pool, question: Question) -> str:
    """What is going to be sent."""
    models = {lane.model for lane in pool.lanes}
    simulated = " SIMULATED," if pool.is_simulated else ""
    return (
        f"pool {pool.path},{simulated} {counted(len(pool.lanes), 'lane')} of "
        f"{counted(len(models), 'model')}: {question.says} each"
    )


def lane_line(verdict: Verdict, lanes: Sequence[Lane]) -> str:
    """One lane: whether it answers, how fast, and if not, why.

    Args:
        verdict: On the lane.
        lanes: All that are asked, for the width of the column.
    """
    width = min(_WIDEST, max(len(lane.lane_id) for lane in lanes))
    took = "" if verdict.latency_s is None else duration(verdict.latency_s)
    line = f"{verdict.word:<8} {verdict.lane.lane_id:<{width}} {took:>9}  {verdict.why}"
    return line.rstrip()


def summary_lines(pool: Pool, verdicts: Sequence[Verdict], question: Question) -> Iterator[str]:
    """How many lanes answer, which do not and why, models that nobody serves, and the cost.

    Args:
        pool: Its lanes were asked.
        verdicts: What is known of them, in any order; those missing are named.
        question: What was asked.
    """
    known = {one.lane.lane_id for one in verdicts}
    unknown = [lane.lane_id for lane in pool.lanes if lane.lane_id not in known]
    yield counts(verdicts, len(pool.lanes))
    yield from failures(verdicts)
    if unknown:
        yield f"nothing is known of {_named(unknown)}"
    dead = _models_without_lane(pool, verdicts)
    if dead:
        yield f"no lane answers for the model{'s' if len(dead) > 1 else ''} {_named(dead)}"
    yield f"cost: {cost(pool, question)}"


def counts(verdicts: Sequence[Verdict], n_lanes: int) -> str:
    """How many lanes answer, how fast, and how many do not, in one line."""
    words = [one.word for one in verdicts]
    n_ok, n_limited, n_failed = (words.count(one) for one in ("ok", "limited", "failed"))
    text = f"{n_ok:,} of {counted(n_lanes, 'lane')} {'answers' if n_ok == 1 else 'answer'}"
    if n_ok:
        took_s = [one.latency_s for one in verdicts if one.word == "ok" and one.latency_s]
        text += f" (in {duration(median(took_s))}, the slowest in {duration(max(took_s))})"
    if n_limited:
        text += f", {n_limited:,} answer{'s' if n_limited == 1 else ''} that this is too much now"
    if n_failed:
        text += f", {n_failed:,} do{'es' if n_failed == 1 else ''} not answer"
    return text


def failures(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """A line for each thing that failed, with the lanes on which it did."""
    found: dict[tuple[str, str], list[Verdict]] = {}
    for one in verdicts:
        if one.word != "ok":
            found.setdefault((one.word, one.cause), []).append(one)
    for (word, cause), own in sorted(found.items()):
        said = {one.said for one in own}
        why = own[0].why if len(said) == 1 else cause
        yield f"{word}: {_named([one.lane.lane_id for one in own])}: {why}"


def cost(pool: Pool, question: Question) -> str:
    """What asking every lane once costs at most, by the pool's prices."""
    if question.is_free:
        return "none, lists of models are free"
    model_of = {
        (provider.name, model.name): model
        for provider in pool.providers
        for model in provider.models
    }
    whole, unpriced, unbounded = 0.0, [], []
    for lane in pool.lanes:
        model = model_of[lane.provider, lane.model]
        if model.price_per_mtok_in is None or model.price_per_mtok_out is None:
            unpriced.append(model.name)
        elif not _is_bounded(model):
            unbounded.append(model.name)
        else:
            whole += MOST_TOKENS_IN * model.price_per_mtok_in / _MTOK
            whole += PARAMETERS["max_tokens"] * model.price_per_mtok_out / _MTOK
    if len(unpriced) == len(pool.lanes):
        return "not known, there are no prices in the pool"
    text = f"at most {whole:,.2g} in the currency of the pool's prices"
    text += f" ({MOST_TOKENS_IN} tokens in and {PARAMETERS['max_tokens']} out for each request)"
    if unpriced:
        text += f", without {_named(list(dict.fromkeys(unpriced)))}, which have no price"
    if unbounded:
        text += (
            f", without {_named(list(dict.fromkeys(unbounded)))}, whose answers have no bound: "
            "the pool says that max_tokens is not sent"
        )
    return text


def _is_bounded(model: Model) -> bool:
    return model.parameters.get("max_tokens", "max_tokens") is not None


def _models_without_lane(pool: Pool, verdicts: Sequence[Verdict]) -> list[str]:
    failed = {one.lane.lane_id for one in verdicts if one.word == "failed"}
    alive = {lane.model for lane in pool.lanes if lane.lane_id not in failed}
    return [model for model in pool.models if model not in alive and pool.lanes_of(model)]


def _named(names: Sequence[str]) -> str:
    n_more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {n_more:,} more" if n_more > 0 else "")
