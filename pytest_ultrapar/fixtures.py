"""The fixtures that suites use: `llm`, `model`, `case`, `grade`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast, runtime_checkable

import pytest

from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.prefetched import Prefetched

if TYPE_CHECKING:
    # Every pytest run imports this module; the records bring msgspec along (25 ms).
    from pytest_ultrapar.records import EpisodeEnded, Outcome

GRADES: tuple[Outcome, ...] = ("solved", "partial", "unsolved")


class EpisodeError(UltraparError):
    """An episode failed; its own traceback, as text, is the message."""


@runtime_checkable
class Verdict(Protocol):
    """What `grade` accepts in one piece: anything with an outcome and scores."""

    @property
    def outcome(self) -> str:
        """`solved`, `partial` or `unsolved`."""
        ...

    @property
    def scores(self) -> Mapping[str, float]:
        """Numbers by name."""
        ...


@dataclass(frozen=True, slots=True)
class CaseInfo:
    """What an episode may know of its case.

    Attributes:
        case_id: 16 hex digits, the same in every run of the suite with the same seed.
        seed: `hash(run_seed, case_id)`: seed whatever is random in the episode with it.
        run_seed: Seed of the run, for draws that all models and prompts share.
        repeat: Repetition number, from 0.
        params: The item's parameters, `model` included.
        markers: Names of the marks on the test.
    """

    case_id: str
    seed: int
    run_seed: int
    repeat: int
    model: str
    params: Mapping[str, Any]
    markers: tuple[str, ...]


@dataclass(slots=True)
class CaseState:
    """What is known of the case whose item is running; made at set-up, gone after teardown.

    Attributes:
        ended: The stored episode; None when a mark kept it from running.
        graded: What `grade` was called with: outcome, scores, kind.
        outcome: The measurement, once the deciding report is made.
        test: pytest's own result in one word.
        error: One line for the results.
    """

    ended: EpisodeEnded | None
    graded: tuple[Outcome, dict[str, float], str | None] | None = None
    outcome: Outcome | None = None
    test: str | None = None
    error: str | None = None


state_key = pytest.StashKey[CaseState]()


class Grade:
    """The `grade` fixture's value: call it once to record a measurement. It never fails the test."""

    def __init__(self, state: CaseState | None) -> None:
        self._state = state

    def __call__(self, verdict: str | Verdict, /, **scores: float) -> None:
        """Record what the episode was worth.

        Args:
            verdict: `solved`, `partial` or `unsolved`, or an object with `outcome`, `scores` and perhaps `kind`.
            scores: Numbers by name; True and False count as 1 and 0.

        Raises:
            ValueError: Another outcome, or a score that is no finite number.
        """
        outcome: object = verdict
        kind: str | None = None
        numbers: dict[str, Any] = dict(scores)
        if not isinstance(verdict, str):
            outcome, kind = verdict.outcome, getattr(verdict, "kind", None)
            numbers = {**verdict.scores, **numbers}
        if outcome not in GRADES:
            msg = f"grade() got outcome {outcome!r}; allowed are {', '.join(GRADES)}"
            raise ValueError(msg)
        for name, value in numbers.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                msg = f"grade() got {name}={value!r}; a score must be a finite number"
                raise ValueError(msg)
        if self._state is not None:
            plain = {name: float(value) for name, value in numbers.items()}
            self._state.graded = (cast("Outcome", outcome), plain, kind)


def take_episode(request: pytest.FixtureRequest, prefetched: Prefetched) -> object:
    """The value of a finished episode, as the prefetched fixture hands it to the test."""
    state = request.node.stash.get(state_key, None)
    if state is None or state.ended is None:
        _no_episode(prefetched)
    ended = state.ended
    if ended.ending == "infra":
        pytest.skip(f"infra: {ended.kind}: {ended.detail}")
    if ended.ending == "refused":
        pytest.skip(f"refused by the provider: {ended.kind}: {ended.detail}")
    if ended.ending == "skipped":
        pytest.skip(ended.detail or "skipped by its episode")
    if ended.ending != "returned" or ended.value is None:
        raise EpisodeError(ended.detail or ended.kind or "the episode failed")
    import msgspec  # noqa: PLC0415 - only runs with a pool come here

    try:
        return msgspec.json.decode(ended.value, type=prefetched.return_type())
    except (msgspec.MsgspecError, RecursionError) as error:
        msg = (
            f"{prefetched.place}: the value that {prefetched.name!r} returned does not fit its annotation: {error}"
        )
        raise EpisodeError(msg) from None


def _no_episode(prefetched: Prefetched) -> NoReturn:
    msg = (
        f"prefetched fixture {prefetched.name!r} has no episode: it must be named by the test or its fixtures, "
        "not asked for with request.getfixturevalue()"
    )
    raise EpisodeError(msg)


class _OutOfReach:
    """Stands for `llm` and `case` in a test body, where they have no meaning."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        msg = f"{self._name!r} belongs to the prefetched function; a test sees only what that returned"
        raise AttributeError(msg)


@pytest.fixture
def llm(model: str) -> object:  # noqa: ARG001 - `llm` brings the model's parametrisation along
    """In a prefetched function: the client bound to the case's model. `await llm.chat(messages) -> Reply`."""
    return _OutOfReach("llm")


@pytest.fixture
def model(request: pytest.FixtureRequest) -> str:
    """The model's name, parametrised over the pool's models (see --ultrapar-model)."""
    param = getattr(request, "param", None)
    if not isinstance(param, str):
        msg = "the fixture 'model' needs --ultrapar-pool (or ini ultrapar_pool)"
        raise pytest.UsageError(msg)
    return param


@pytest.fixture
def case(request: pytest.FixtureRequest) -> object:
    """In a prefetched function: the case's id, seed, repetition, parameters and markers."""
    return _OutOfReach("case")


@pytest.fixture
def grade(request: pytest.FixtureRequest) -> Grade:
    """Record a measurement: `grade("solved", steps=3)` or `grade(verdict)`. It does not fail the test."""
    return Grade(request.node.stash.get(state_key, None))


@pytest.fixture
def ultrapar_repeat(request: pytest.FixtureRequest) -> int:
    """The repetition number of the case, from 0 (see --ultrapar-repeats)."""
    param = getattr(request, "param", 0)
    return param if isinstance(param, int) else 0


# The mark by which collection knows these functions, also when a suite has a fixture of the same name.
for _name, _fixture in (("llm", llm), ("case", case), ("model", model)):
    _fixture._get_wrapped_function().__ultrapar__ = _name  # type: ignore[attr-defined]  # noqa: SLF001
