"""The lines of a check, for people."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from pytest_ultrapar.check.question import MESSAGES, PARAMETERS
from pytest_ultrapar.report.numbers import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.check.lane_answer import LaneAnswer
    from pytest_ultrapar.check.question import Question
    from pytest_ultrapar.pool.model import Lane, Model, Pool

_WIDEST = 60
_SHOWN = 4
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


def lane_line(answer: LaneAnswer, lanes: Sequence[Lane]) -> str:
    """One lane: whether it answers, how fast, and if not, why.

    Args:
        answer: Of the lane.
        lanes: All that are asked, for the width of the column.
    """
    width = min(_WIDEST, max(len(lane.lane_id) for lane in lanes))
    took = "" if answer.latency_s is None else duration(answer.latency_s)
    line = f"{answer.word:<8} {answer.lane.lane_id:<{width}} {took:>9}  {answer.why}"
    return line.rstrip()


def summary_lines(pool: Pool, answers: Sequence[LaneAnswer], question: Question) -> Iterator[str]:
    """What the lanes' own lines do not show: how many, what they share, and the cost.

    Args:
        pool: Its lanes were asked.
        answers: What is known of them, in any order; those missing are named.
        question: What was asked.
    """
    known = {one.lane.lane_id for one in answers}
    unknown = [lane.lane_id for lane in pool.lanes if lane.lane_id not in known]
    yield counts(pool, answers)
    for word, label, own in _alike(answers):
        if len(own) > 1:
            causes = {one.cause for one in own}
            why = own[0].cause if len(causes) == 1 else label
            yield f"{word}: {named([one.lane.lane_id for one in own])}: {why}"
    if unknown:
        yield f"nothing is known of {named(unknown)}"
    dead = _models_without_lane(pool, answers)
    if dead:
        yield f"no lane is ok for the model{'s' if len(dead) > 1 else ''} {named(dead)}"
    yield f"cost: {cost(pool, question)}"


def counts(pool: Pool, answers: Sequence[LaneAnswer]) -> str:
    """How many of a pool's lanes are ok, how fast they are, and what the others are, in a line."""
    took_s = [one.latency_s for one in answers if one.word == "ok" and one.latency_s is not None]
    text = "SIMULATED: " if pool.is_simulated else ""
    text += f"{len(took_s):,} of {counted(len(pool.lanes), 'lane')} ok"
    if len(took_s) > 1:
        text += f" (median {duration(median(took_s))}, slowest {duration(max(took_s))})"
    others = Counter(one.label for one in answers if one.word != "ok")
    if others:
        # Not in the order of answers: two checks of the same pool say the same.
        most_first = sorted(others.items(), key=lambda item: (-item[1], item[0]))
        text += ": " + ", ".join(f"{n:,} {label}" for label, n in most_first)
    return text


def failures(answers: Sequence[LaneAnswer]) -> Iterator[str]:
    """A line for each kind of failure, with some of its lanes and why the first of them failed."""
    for word, label, own in _alike(answers):
        first = own[0]
        lanes = named([one.lane.lane_id for one in own])
        if len({one.why for one in own}) == 1:
            yield f"{word}: {lanes}: {first.why}"
        elif len({one.cause for one in own}) == 1:
            yield f"{word}: {lanes}: {first.cause}"
        else:
            yield f"{word}: {lanes}: {label}; {first.lane.lane_id}: {first.why}"


def _alike(answers: Sequence[LaneAnswer]) -> Iterator[tuple[str, str, list[LaneAnswer]]]:
    """Answers that are not ok by word and label, the worst first."""
    found: dict[tuple[str, str], list[LaneAnswer]] = {}
    for one in sorted(answers, key=lambda one: one.lane.lane_id):
        if one.word != "ok":
            found.setdefault((one.word, one.label), []).append(one)
    for (word, label), own in sorted(found.items()):
        yield word, label, own


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
        text += f", without {named(list(dict.fromkeys(unpriced)))} (no price in the pool)"
    if unbounded:
        text += (
            f", without {named(list(dict.fromkeys(unbounded)))} (answers have no bound: the pool "
            "says that max_tokens is not sent)"
        )
    return text


def _is_bounded(model: Model) -> bool:
    return model.parameters.get("max_tokens", "max_tokens") is not None


def _models_without_lane(pool: Pool, answers: Sequence[LaneAnswer]) -> list[str]:
    """Models of which all lanes are known and none is ok, where others have one that is."""
    not_ok = {one.lane.lane_id for one in answers if one.word != "ok"}
    alive = {lane.model for lane in pool.lanes if lane.lane_id not in not_ok}
    if not alive:
        return []
    return [model for model in pool.models if model not in alive and pool.lanes_of(model)]


def named(names: Sequence[str]) -> str:
    """A few of the names, and how many more there are."""
    n_more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {n_more:,} more" if n_more > 0 else "")
