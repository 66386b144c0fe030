"""The requests to expect from each episode in a planned run, and the basis of each expectation."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.pool.model import Latency
from pytest_ultrapar.records import Case, by_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.pool.model import Lane, Pool


class EarlierEpisode(msgspec.Struct, frozen=True, array_like=True):
    """The requests of a graded episode in an earlier run, to the case's own model or to one role.

    Attributes:
        model: The model of these requests.
        services_s: For each request that the model served, the seconds from sending it to its
            answer, in order. There is at least one such request.
        tokens_in: The total input tokens of the requests; None if no answer reported any.
        tokens_out: The total output tokens; None if no answer reported any.
        test: The node id of the episode's test function, as in `Case.test`.
        role: The role in which the model is used; empty for the case's own model.
    """

    case_id: str
    suite: str
    model: str
    services_s: tuple[float, ...]
    tokens_in: int | None = None
    tokens_out: int | None = None
    test: str = ""
    role: str = ""


class EarlierRun(msgspec.Struct, frozen=True):
    """The figures of an earlier run.

    Attributes:
        before_send_s: The median time from the grant of a lease to the sending of its request. The
            seat is already occupied during this time.
        between_s: The median time from an answer to the request for the episode's next lease. None
            if no episode had two requests.
        roles: The roles in the run's pool. For each of these roles, the run's episodes show how
            many requests it gets.
    """

    episodes: tuple[EarlierEpisode, ...]
    before_send_s: float
    between_s: float | None = None
    roles: tuple[str, ...] = ()


Basis = Literal["case", "test", "suite", "model", "hint"]
"""Where an expectation comes from. It comes from the earlier episode of the same case (`case`), if
there is one. Otherwise it comes from an episode with the same test function and model (`test`), the
same suite and model (`suite`), or the same model (`model`). If there is no such episode either,
only the hints in the pool and the suite are used (`hint`)."""
MEASURED: tuple[Basis, ...] = ("case", "test")
"""The bases that are measurements of the same case or a similar one."""
ASSUMED_WITHIN = 2.0
"""The real value is taken to be at least the assumed value divided by this factor, and at most the
assumed value multiplied by it. The factor is a convention."""


class Hint(msgspec.Struct, frozen=True):
    """Assumptions about an episode for which there is no similar earlier episode.

    Attributes:
        turns: The mean number of requests in an episode, >= 1.
        latency: The latency of one request, in seconds.
        is_assumed: Whether the latency is only assumed, because none was set.
        tokens_in: The mean number of tokens in all prompts of an episode together; None if not set.
        tokens_out: The mean number of tokens in all answers of an episode together; None if not
            set.
    """

    turns: float
    latency: Latency
    is_assumed: bool = False
    tokens_in: float | None = None
    tokens_out: float | None = None


class Expected(msgspec.Struct, frozen=True):
    """The requests to expect from a case's episode, to the case's own model or to one role.

    Attributes:
        model: The model of these requests.
        services_s: For each request, the seconds from sending it to its answer, in order. There is
            at least one request.
        basis: Where the expectation comes from.
        test: The node id of the test function of the earlier episode from which the expectation was
            made; empty if it was made from a hint.
        role: The role in which the model is used; empty for the case's own model.
    """

    case_id: str
    suite: str
    model: str
    services_s: tuple[float, ...]
    tokens_in: float | None
    tokens_out: float | None
    basis: Basis
    test: str = ""
    role: str = ""


EpisodeLike = EarlierEpisode | Expected
"""Either a measured or an expected episode."""


def expect(
    cases: Iterable[Case],
    earlier: Sequence[EarlierEpisode],
    hint_of: Callable[[Case], Hint],
    *,
    roles: Mapping[str, tuple[str, Hint]] | None = None,
    known: Collection[str] = (),
) -> tuple[Expected, ...]:
    """Return an expectation for each case, in the order of the cases.

    A case that ran earlier is expected to repeat its earlier episode. For any other case, an
    earlier episode of the same test function and model is chosen at random, so that rare long
    episodes stay rare. If there is no such episode, one of the same suite and model is chosen, or
    else one of the same model. If there is no such episode either, the expectation is drawn from
    the hints. All random numbers are determined by the case's seed, so the same arguments give the
    same result.

    The expectation for a case is followed by the case's expected requests to roles, which are taken
    from the same earlier episode. If there is no such episode, or if a role was not in the earlier
    pool, one request to that role is expected.

    Args:
        cases: The cases to plan.
        earlier: The episodes of an earlier run.
        hint_of: Returns the assumptions about a case's requests to its own model.
        roles: For each role, its model and the assumptions about the requests to it. None for a
            pool without roles.
        known: The roles in the earlier run's pool.
    """
    roles = roles or {}
    by_case = {one.case_id: one for one in earlier if not one.role}
    beside = by_key((one.case_id, one) for one in earlier if one.role)
    alike = by_key(
        (stratum, one)
        for one in earlier
        if not one.role
        for stratum in _strata(one.test, one.suite, one.model)
    )
    found = []
    for case in cases:
        draw = random.Random(case.seed)
        seen = by_case.get(case.case_id)
        basis: Basis = "case"
        if seen is None:
            strata = _strata(case.test, case.suite, case.model)
            nearest = next((one for one in strata if one in alike), None)
            if nearest is not None:
                seen, basis = draw.choice(alike[nearest]), nearest[0]
        if seen is None:
            found.append(_of_hint(case, hint_of(case), draw))
        else:
            found.append(_as_seen(case, seen, basis))
            found += [_as_seen(case, one, basis) for one in beside.get(seen.case_id, ())]
        for role, (model, hint) in roles.items():
            if seen is None or role not in known:
                asked = _of_hint(case, hint, draw)
                found.append(msgspec.structs.replace(asked, model=model, role=role))
    return tuple(found)


def without_roles(expected: Iterable[Expected]) -> list[Expected]:
    """Return only the expectations for the cases' own models: one for each case."""
    return [one for one in expected if not one.role]


def _strata(test: str, suite: str, model: str) -> tuple[tuple[Basis, str, str], ...]:
    """Return the groups to which an episode belongs, the group with the most similar ones first."""
    return (("test", test, model), ("suite", suite, model), ("model", "", model))


def _as_seen(case: Case, seen: EarlierEpisode, basis: Basis) -> Expected:
    return Expected(
        case.case_id,
        case.suite,
        seen.model,
        seen.services_s,
        seen.tokens_in,
        seen.tokens_out,
        basis,
        seen.test,
        seen.role,
    )


def _of_hint(case: Case, hint: Hint, draw: random.Random) -> Expected:
    # Draw a whole number of turns in such a way that the mean is the assumed number.
    n_turns = max(1, math.floor(hint.turns + draw.random()))
    share = n_turns / hint.turns
    median_s, sigma = hint.latency.median_s, hint.latency.sigma
    return Expected(
        case.case_id,
        case.suite,
        case.model,
        tuple(median_s * draw.lognormvariate(0.0, sigma) for _ in range(n_turns)),
        None if hint.tokens_in is None else hint.tokens_in * share,
        None if hint.tokens_out is None else hint.tokens_out * share,
        "hint",
    )


def request_tokens(one: Expected) -> int | None:
    """Return the mean number of tokens per request, input and output together; None if unknown."""
    if one.tokens_in is None or one.tokens_out is None:
        return None
    return math.ceil((one.tokens_in + one.tokens_out) / len(one.services_s))


def too_large(pool: Pool, lanes: Sequence[Lane], expected: Sequence[Expected]) -> Iterator[str]:
    """Yield a sentence for each model whose average request is too large for all of its lanes."""
    told = ((one.model, request_tokens(one)) for one in expected)
    sizes = by_key((model, tokens) for model, tokens in told if tokens is not None)
    for model, own in sizes.items():
        most, name, word = max(
            (_smallest(pool, lane) for lane in lanes if lane.model == model),
            default=(math.inf, "", ""),
        )
        mean = sum(own) / len(own)
        if mean > most:
            yield (
                f"{model}: requests have {mean:,.0f} tokens on average, but {name} allows no "
                f"request with more than {most:,.0f} ({word})"
            )


def unjudged(pool: Pool, lanes: Sequence[Lane], expected: Sequence[Expected]) -> Iterator[str]:
    """Yield sentences about token limits, which a plan considers only in part.

    Args:
        pool: The pool with the limits.
        lanes: The lanes of the run.
        expected: The expectations for the cases.
    """
    asked = {one.model for one in expected}
    names = {name for lane in lanes if lane.model in asked for name in lane.limits}
    metered = [
        f"{kind.word} of {name}"
        for name, limit in pool.limits.items()
        if name in names
        for kind, _ in limit.rows
        if kind.counts == "tokens" and not kind.is_daily
    ]
    if not metered:
        return
    more = f" and {len(metered) - 1} more" if len(metered) > 1 else ""
    yield (
        f"the lower bound ignores token limits ({metered[0]}{more}); the times of the modes "
        "include these limits, and assume the same number of tokens for all requests in an episode"
    )
    unknown = len({one.case_id for one in expected if request_tokens(one) is None})
    if unknown:
        n_cases = len(without_roles(expected))
        cases = "case" if n_cases == 1 else "cases"
        yield (
            f"the tokens of {unknown:,} of {n_cases:,} {cases} are unknown and count as 0; set "
            "tokens_in and tokens_out in the mark ultrapar(expect=...), or pass an earlier run "
            "with --ultrapar-plan-from"
        )


def _smallest(pool: Pool, lane: Lane) -> tuple[float, str, str]:
    """Return the amount, name and kind of a lane's smallest token limit.

    The amount is infinite if the lane has no token limit.
    """
    found = [
        (amount, name, kind.word)
        for name in lane.limits
        for kind, amount in pool.limits[name].rows
        if kind.counts == "tokens"
    ]
    return min(found, default=(math.inf, "", ""))
