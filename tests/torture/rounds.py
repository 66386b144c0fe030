"""Play one round: a run, its faults, its resumptions, and the verdict."""

from __future__ import annotations

import os
import shutil
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.simulator.process import SimulatorProcess
from tests.torture import collecting
from tests.torture.evidence import Ended, Evidence
from tests.torture.faults import Hit, strike_at
from tests.torture.invariants import violations
from tests.torture.moments import Watch
from tests.torture.project import write_project
from tests.torture.session import Session, wait_gone

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.plan import Plan, Strike

MOST_SESSIONS = 6
"""A run that is not complete after this many sessions without a fault never becomes complete."""


@dataclass(frozen=True)
class Result:
    """The result of a round.

    Attributes:
        hits: The faults that reached a process.
        n_sessions: The number of pytest sessions until the run was complete.
        violations: The broken rules; empty for a round that passed.
        folder: The folder with all its files.
    """

    plan: Plan
    hits: tuple[Hit, ...]
    n_sessions: int
    violations: tuple[str, ...]
    folder: Path
    took_s: float


def play(plan: Plan, folder: Path) -> Result:
    """Play a round in a new folder. The folder remains; no process does."""
    began_s = time.monotonic()
    stage = _Round(plan, folder)
    try:
        try:
            stage.play()
        finally:
            stage.end()
        found = violations(stage.evidence())
    except Exception:  # noqa: BLE001 - a round without a verdict has not passed
        found = [f"the round could not be judged:\n{traceback.format_exc()}"]
    result = Result(
        plan,
        tuple(stage.hits),
        len(stage.sessions),
        tuple(found),
        folder,
        time.monotonic() - began_s,
    )
    folder.joinpath("round.txt").write_text(_said(result), encoding="utf-8")
    return result


class _Round:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._judge: SimulatorProcess | None = None
        self._session: Session | None = None
        self._left_processes: list[str] = []
        self._complete_s = float("inf")
        self._left_paths: tuple[str, ...] = ()
        self.hits: list[Hit] = []
        self.sessions: list[Ended] = []

    def play(self) -> None:
        plan, folder = self._plan, self._folder
        write_project(folder, plan)
        if not plan.kind.own_simulator:
            pool = load_pool(folder / "pool.toml", environ=os.environ, overrides=Overrides())
            self._judge = SimulatorProcess.start(pool, log_path=folder / collecting.SERVER_LOG)
        for number in range(MOST_SESSIONS):
            strike = plan.strikes[number] if number < len(plan.strikes) else None
            if self._run(strike).code == 0:
                break
        self._left_paths = collecting.left_paths(folder)
        if plan.resume_once_more:
            self._complete_s = time.monotonic()
            self._run(None)

    def end(self) -> None:
        if self._session is not None and self._session.code is None:
            self._session.end()
        if self._judge is not None:
            self._judge.stop()

    def evidence(self) -> Evidence:
        folder, plan = self._folder, self._plan
        served = collecting.served(folder)
        return Evidence(
            n_cases=plan.n_cases,
            seats=plan.seats,
            sessions=tuple(self.sessions),
            asked=collecting.asked(folder),
            episode_ended_s=collecting.episode_ended_s(folder),
            journaled=collecting.journaled(folder),
            served=served,
            log_is_whole=not plan.kind.own_simulator,
            rows=collecting.rows(folder),
            table=collecting.table(folder),
            fault_times_s=tuple(hit.t_s for hit in self.hits if not plan.kind.pauses),
            left_processes=tuple(self._left_processes),
            left_paths=self._left_paths,
            n_served_after_the_end=sum(one.t_arrival_s > self._complete_s for one in served),
        )

    def _run(self, strike: Strike | None) -> Ended:
        plan, folder = self._plan, self._folder
        session = self._session = Session(
            folder,
            plan,
            number=len(self.sessions) + 1,
            resume=(folder / collecting.LATEST).exists(),
            simulator=None if self._judge is None else f"http://127.0.0.1:{self._judge.port}",
        )
        codes = frozenset({0})
        if strike is not None:
            watch = Watch(session, plan, collecting.n_graded(folder))
            hit = None
            if watch.wait_for(strike):
                # If all cases are graded, the run may end before the fault has an effect.
                is_late = collecting.n_graded(folder) == plan.n_cases
                hit = strike_at(session, plan.kind, strike)
                codes = plan.kind.codes | (codes if is_late else set())
            if hit is None:
                codes = frozenset({0})
            else:
                self.hits.append(hit)
        hung = not session.wait()
        self._left_processes += wait_gone(folder)
        output = session.output.read_text(encoding="utf-8", errors="replace")
        code = session.code
        assert code is not None
        ended = Ended(code, codes, output, hung)
        self.sessions.append(ended)
        return ended


def _said(result: Result) -> str:
    lines = [str(result.plan), *(f"{hit.t_s:.6f} {hit.what}" for hit in result.hits)]
    return "\n".join([*lines, *result.violations, ""])


def forget(result: Result) -> None:
    """Remove the files of a round."""
    shutil.rmtree(result.folder.parent)
