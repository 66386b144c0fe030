"""How each episode of a planned run is expected to go, and on what that expectation stands."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pytest_ultrapar.pool.model import Latency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ultrapar.plan.earlier import EarlierEpisode
    from pytest_ultrapar.records import Case

Basis = Literal["case", "test", "suite", "model", "hint"]
"""The same case's earlier episode; one of the same test function and model; one of the same suite
and model; one of the same model in another suite; what pool and suite say."""


@dataclass(frozen=True, slots=True)
class Hint:
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


class EpisodeLike(Protocol):
    """What seen and expected episodes have in common."""

    @property
    def model(self) -> str:
        """Its model."""

    @property
    def test(self) -> str:
        """Node id of its test function."""

    @property
    def services_s(self) -> tuple[float, ...]:
        """Of each request."""

    @property
    def tokens_in(self) -> float | None:
        """Of the whole episode."""

    @property
    def tokens_out(self) -> float | None:
        """Of the whole episode."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a case's episode, and on what that stands.

    Attributes:
        services_s: Send to answer of each request, in their order, at least one.
        basis: Whence.
        test: Node id of the test function whose episodes it resembles, where they were seen.
    """

    case_id: str
    suite: str
    model: str
    services_s: tuple[float, ...]
    tokens_in: float | None
    tokens_out: float | None
    basis: Basis
    test: str = ""


def expect(
    cases: Iterable[Case], earlier: Sequence[EarlierEpisode], hint_of: Callable[[Case], Hint]
) -> tuple[Expected, ...]:
    """An expectation for each case, in their order; the same arguments give the same ones.

    A case that was seen goes as it went. Of others of a test function and model that were seen each
    takes one of these episodes by chance, so that what is rare and long stays so; where only the
    suite was seen with the model, or only the model, one of those. The rest is drawn from the
    hints. Chance is the case's seed.
    """
    by_case = {one.case_id: one for one in earlier}
    alike: dict[tuple[Basis, str, str], list[EarlierEpisode]] = defaultdict(list)
    for one in earlier:
        for stratum in _strata(one.test, one.suite, one.model):
            alike[stratum].append(one)
    found = []
    for case in cases:
        draw = random.Random(case.seed)
        if case.case_id in by_case:
            found.append(_as_seen(case, by_case[case.case_id], "case"))
            continue
        strata = _strata(case.test, case.suite, case.model)
        nearest = next((one for one in strata if one in alike), None)
        if nearest is not None:
            found.append(_as_seen(case, draw.choice(alike[nearest]), nearest[0]))
        else:
            found.append(_of_hint(case, hint_of(case), draw))
    return tuple(found)


def _strata(test: str, suite: str, model: str) -> tuple[tuple[Basis, str, str], ...]:
    """What an episode is like, the nearest first."""
    return (("test", test, model), ("suite", suite, model), ("model", "", model))


def _as_seen(case: Case, own: EarlierEpisode, basis: Basis) -> Expected:
    return Expected(
        case.case_id,
        case.suite,
        case.model,
        own.services_s,
        own.tokens_in,
        own.tokens_out,
        basis,
        own.test,
    )


def _of_hint(case: Case, hint: Hint, draw: random.Random) -> Expected:
    # Whole turns whose mean is the one supposed.
    n_turns = max(1, math.floor(hint.turns + draw.random()))
    share = n_turns / hint.turns
    return Expected(
        case.case_id,
        case.suite,
        case.model,
        tuple(_latency_s(hint.latency, draw) for _ in range(n_turns)),
        None if hint.tokens_in is None else hint.tokens_in * share,
        None if hint.tokens_out is None else hint.tokens_out * share,
        "hint",
    )


def _latency_s(latency: Latency, draw: random.Random) -> float:
    return latency.median_s * draw.lognormvariate(0.0, latency.sigma)
