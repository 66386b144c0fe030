"""How each episode of a planned run is expected to go, and on what that expectation stands."""

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
    """What a graded episode of an earlier run asked of its own model, or of one in a role.

    Attributes:
        model: Who was asked.
        services_s: Send to answer of each of its requests that took the model's time, in their
            order, at least one.
        tokens_in: Over all its requests; None when no answer said so.
        tokens_out: As `tokens_in`.
        test: Node id of its test function, as `Case.test`.
        role: As whom the model was asked; empty: the case is about it.
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
    """All that an earlier run tells.

    Attributes:
        before_send_s: Median time from a lease to its request's sending, while it holds its seat.
        between_s: Median time from an answer to the asking for the next lease; None where no
            episode had two requests.
        roles: The roles that its pool had; of these its episodes tell how often each was asked.
    """

    episodes: tuple[EarlierEpisode, ...]
    before_send_s: float
    between_s: float | None = None
    roles: tuple[str, ...] = ()


Basis = Literal["case", "test", "suite", "model", "hint"]
"""The same case's earlier episode; one of the same test function and model; one of the same suite
and model; one of the same model in another suite; what pool and suite say."""
MEASURED: tuple[Basis, ...] = ("case", "test")
"""What an expectation stands on when cases like it were seen."""
ASSUMED_WITHIN = 2.0
"""What nobody measured is given as half to twice what was supposed. No statistics: a reminder."""


class Hint(msgspec.Struct, frozen=True):
    """What is supposed of an episode where none like it was ever seen.

    Attributes:
        turns: Requests of an episode on average, >= 1.
        latency: Of one request.
        is_assumed: Whether nobody said anything of the latency either.
        tokens_in: Of a whole episode on average; None when nobody said so.
        tokens_out: As `tokens_in`.
    """

    turns: float
    latency: Latency
    is_assumed: bool = False
    tokens_in: float | None = None
    tokens_out: float | None = None


class Expected(msgspec.Struct, frozen=True):
    """What a case's episode is expected to ask of its own model, or of one in a role.

    Attributes:
        model: Who is asked.
        services_s: Send to answer of each request, in their order, at least one.
        basis: Whence.
        test: Node id of the test function whose episodes it resembles, where they were seen.
        role: As whom the model is asked; empty: the case is about it.
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
"""What was seen, and what is expected."""


def expect(
    cases: Iterable[Case],
    earlier: Sequence[EarlierEpisode],
    hint_of: Callable[[Case], Hint],
    *,
    roles: Mapping[str, tuple[str, Hint]] | None = None,
    known: Collection[str] = (),
) -> tuple[Expected, ...]:
    """An expectation for each case, in their order; the same arguments give the same ones.

    A case that was seen goes as it went. Of others of a test function and model that were seen each
    takes one of these episodes by chance, so that what is rare and long stays so; where only the
    suite was seen with the model, or only the model, one of those. The rest is drawn from the
    hints. Chance is the case's seed.

    After each case comes what it asks of roles: as the episode did that it goes by. A role that
    tells nothing there is supposed to be asked once.

    Args:
        cases: To be planned.
        earlier: Of an earlier run.
        hint_of: What is supposed of a case's own model.
        roles: The model of each role, and what is supposed of it; None for a pool without any.
        known: The roles of which `earlier` tells.
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
    """What cases are expected to ask of their own models: one for each case."""
    return [one for one in expected if not one.role]


def _strata(test: str, suite: str, model: str) -> tuple[tuple[Basis, str, str], ...]:
    """What an episode is like, the nearest first."""
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
    # Whole turns whose mean is the one supposed.
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
    """Tokens, in and out, of each request of an episode, on average; None where nobody knows."""
    if one.tokens_in is None or one.tokens_out is None:
        return None
    return math.ceil((one.tokens_in + one.tokens_out) / len(one.services_s))


def too_large(pool: Pool, lanes: Sequence[Lane], expected: Sequence[Expected]) -> Iterator[str]:
    """A sentence for each model whose requests take more on average than any lane lets pass."""
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
                f"{model}: requests of {mean:,.0f} tokens on average never fit into {name}, whose "
                f"{word} is {most:,.0f}"
            )


def unjudged(pool: Pool, lanes: Sequence[Lane], expected: Sequence[Expected]) -> Iterator[str]:
    """What a plan leaves out about limits on tokens.

    Args:
        pool: For its limits.
        lanes: Those of the run.
        expected: What is expected of the cases.
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
        f"the lower bound does not count tokens ({metered[0]}{more}); the times of the "
        "modes do, with each request at the mean of its episode"
    )
    unknown = len({one.case_id for one in expected if request_tokens(one) is None})
    if unknown:
        n_cases = len(without_roles(expected))
        cases = "case" if n_cases == 1 else "cases"
        yield (
            f"tokens of {unknown:,} of {n_cases:,} {cases} are not known and count as none; say "
            "tokens_in and tokens_out in the mark ultrapar(expect=...), or name a run with "
            "--ultrapar-plan-from"
        )


def _smallest(pool: Pool, lane: Lane) -> tuple[float, str, str]:
    """The least limit on tokens of a lane's path, whose it is, its word; infinity for none."""
    found = [
        (amount, name, kind.word)
        for name in lane.limits
        for kind, amount in pool.limits[name].rows
        if kind.counts == "tokens"
    ]
    return min(found, default=(math.inf, "", ""))
