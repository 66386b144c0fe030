"""A case while it is run: what its episode may know of it, and what is known of its item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ultrapar.records import EpisodeEnded, Outcome
from pytest_ultrapar.suite.prefetched import Prefetched


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
    """What is known of the case whose item is running; made at each set-up, gone after teardown.

    Attributes:
        prefetched: The function whose episode it is.
        calling: Whether the test's body runs; reports made meanwhile are of its subtests.
        subtest_error: What made a subtest fail; an error of the suite outweighs a wrong answer.
        n_subtests_failed: How many did.
        ended: The stored episode; None when a mark kept it from running.
        is_again: Whether the item was set up before: plugins run tests again, on the same episode.
        raised: What the test's body raised.
        graded: What `grade` was called with: outcome, scores, kind.
        outcome: The measurement, once the deciding report is made.
        test: pytest's own result in one word.
        error: One line for the results.
    """

    prefetched: Prefetched
    ended: EpisodeEnded | None
    is_again: bool = False
    raised: BaseException | None = None
    calling: bool = False
    subtest_error: BaseException | None = None
    n_subtests_failed: int = 0
    graded: tuple[Outcome, dict[str, float], str | None] | None = None
    outcome: Outcome | None = None
    test: str | None = None
    error: str | None = None
