"""A small suite run on a faulty server, and the checks that hold for every fault."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_ultrapar.engine.lane_check import MESSAGES
from tests.faults.request_log import RequestLog
from tests.plugin.conftest import CANARY, Project
from tests.plugin.test_secrets import leaks

PROBE = MESSAGES[0]["content"]
"""Requests that belong to no case, so that no case records them."""

N_KEYS = 3
KEY_NAMES = {f"{CANARY}-{n}": f"key{n}" for n in range(N_KEYS)}
SEATS = 4
"""Seats of each key, as `Project.write_pool` writes them."""
GRACE_S = 60.0
"""Seconds a run may take beyond its episodes' deadline: some 5 s on an idle machine. Ten times that
distinguishes a slow machine from a run that hangs."""
SUITE = """
@pytest.mark.parametrize("prompt", {prompts!r})
def test_it(answer): pass
"""


@dataclass(frozen=True, slots=True)
class Played:
    """A finished run.

    Attributes:
        rows: The row of results of each prompt.
        attempts: The rows of attempts of each prompt, in order.
        took_s: Seconds from pytest's start to its end.
        worked_s: Seconds from the first lease to pytest's end; `took_s` if nothing was sent.
    """

    result: pytest.RunResult
    rows: dict[str, dict[str, Any]]
    attempts: dict[str, list[dict[str, Any]]]
    took_s: float
    worked_s: float

    @property
    def output(self) -> str:
        return self.result.stdout.str() + self.result.stderr.str()

    def outcome(self, prompt: str) -> tuple[str, str | None]:
        row = self.rows[prompt]
        return row["outcome"], row["kind"]

    def outcomes(self) -> Counter[tuple[str, str | None]]:
        return Counter(self.outcome(prompt) for prompt in self.rows)

    def classes(self, prompt: str) -> list[str]:
        """The failure class of each attempt, `ok` for the attempt with an answer."""
        return [attempt["outcome"] for attempt in self.attempts[prompt]]

    def statuses(self, prompt: str) -> list[int | None]:
        return [attempt["status"] for attempt in self.attempts[prompt]]

    def billed(self, prompt: str) -> list[bool]:
        return [attempt["maybe_billed"] for attempt in self.attempts[prompt]]


def between(prompts: list[str]) -> list[str]:
    """Mix other prompts with these, so that no key sees only faults."""
    others = iter(f"say {n}" for n in range(4 * len(prompts)))
    return [one for prompt in prompts for one in (prompt, *(next(others) for _ in range(4)))]


def play(
    project: Project,
    prompts: Sequence[str],
    *options: str,
    keys: int = 1,
    timeout_s: float = 5,
    episode_timeout_s: float = 20,
    suite: str = SUITE,
    log: RequestLog | None = None,
    judged: bool = True,
) -> Played:
    """Run one case per prompt, and check what holds under every fault.

    - Every case has exactly one final row.
    - The recorded attempts are the requests that the server saw.
    - No key exceeded its seats.
    - No secret is in any file or on the terminal.
    - Nothing crashed.
    - The run ended within its episodes' deadline and a grace period.

    Args:
        project: The project with the faulty server.
        prompts: The prompts, all different.
        options: Options of pytest; `-n0` by default.
        keys: The number of keys, with `SEATS` each.
        timeout_s: The deadline of one request.
        episode_timeout_s: The deadline of one episode.
        suite: Text with `{prompts!r}` for the prompts.
        log: The server's log, if the server is not `project.server`.
        judged: Whether the server's requests must equal the recorded ones; not if connections end
            before a request is read.
    """
    project.write_pool(keys=keys, timeout_s=timeout_s)
    project.suite(suite.format(prompts=list(prompts)))
    return run(
        project,
        prompts,
        *options,
        episode_timeout_s=episode_timeout_s,
        log=log,
        judged=judged,
    )


def run(
    project: Project,
    prompts: Sequence[str],
    *options: str,
    episode_timeout_s: float = 20,
    log: RequestLog | None = None,
    judged: bool = True,
) -> Played:
    """Do the same as `play`, on the existing pool and suite."""
    workers = () if any(one.startswith("-n") or one == "no:xdist" for one in options) else ("-n0",)
    started_s = time.monotonic()
    result = project.run(
        *workers,
        "--ultrapar-coverage=0",
        f"--ultrapar-episode-timeout={episode_timeout_s}",
        *options,
    )
    ended_s = time.monotonic()
    rows = project.rows()
    assert sorted(row["param.prompt"] for row in rows) == sorted(prompts)
    assert len({row["case_id"] for row in rows}) == len(rows)
    prompt_of = {row["case_id"]: row["param.prompt"] for row in rows}
    attempts: dict[str, list[dict[str, Any]]] = {prompt: [] for prompt in prompts}
    for attempt in project.rows("attempts"):
        attempts[prompt_of[attempt["case_id"]]].append(attempt)
    first_s = min((a["t_lease_s"] for found in attempts.values() for a in found), default=started_s)
    played = Played(
        result=result,
        rows={row["param.prompt"]: row for row in rows},
        attempts=attempts,
        took_s=ended_s - started_s,
        worked_s=ended_s - first_s,
    )
    _check(project, played, log or project.server.log, judged=judged)
    # The run does not promise how fast a busy machine starts Python processes.
    assert played.worked_s <= episode_timeout_s + GRACE_S
    return played


def _check(project: Project, played: Played, log: RequestLog, *, judged: bool) -> None:
    recorded = {prompt: len(attempts) for prompt, attempts in played.attempts.items() if attempts}
    for prompt, attempts in played.attempts.items():
        numbers = [(a["turn"], a["attempt"]) for a in attempts]
        assert numbers == [
            (turn, n)
            for turn, count in sorted(Counter(t for t, _ in numbers).items())
            for n in range(count)
        ]
        assert played.rows[prompt]["n_attempts"] == len(attempts)
    if judged:
        counts = log.counts()
        counts.pop(PROBE, None)
        assert counts == recorded
    judge = log.judge()
    for name in KEY_NAMES.values():
        assert judge.max_in_flight(key=name) <= SEATS
    assert leaks(project) == []
    assert CANARY not in played.output
    assert "INTERNALERROR" not in played.output
    assert "Traceback" not in played.output
