"""Play one round: hosts, the fault, hosts that join again, the merge, the verdict."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from pytest_ultrapar.records import EpisodeEnded, Grade
from pytest_ultrapar.store.run_directory import JOURNAL_NAME
from pytest_ultrapar.system.clock import boot_s
from tests.cluster_faults.faults import FAULTS
from tests.cluster_faults.machines import HarnessError
from tests.cluster_faults.plan import KEYS
from tests.cluster_faults.stage import Stage
from tests.cluster_faults.verdict import Evidence, Session, n_twice, violations
from tests.journals import scan_journal
from tests.torture.session import pids_of, send

DEADLINE_S = 300.0
"""Seconds of a round until all hosts have ended; one limited by `tpm` takes some 120 s."""
MOST_SESSIONS = 4
"""A host that has joined this often without completing never completes."""
MOST_FINISHERS = 3
GONE_S = 60.0
_TWICE = re.compile(r"^([\d,]+) cases? had a result in more than one part", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """The result of a round.

    Attributes:
        done: A description of the fault.
        violations: The rules that were broken.
        late_s: The most by which this machine was late during the round, in seconds.
        n_requests: Requests that the provider received.
        n_twice: Cases with a result in several parts.
        n_sessions: The number of pytest sessions.
        is_broken: Whether the harness failed, so that the round has no verdict.
    """

    plan: object
    folder: Path
    done: str
    violations: tuple[str, ...]
    late_s: float
    took_s: float
    n_requests: int = 0
    n_twice: int = 0
    n_sessions: int = 0
    makespan_s: float = 0.0
    is_broken: bool = False


class Lateness:
    """Measure all the time how late this machine runs a process that is ready."""

    STEP_S = 0.02

    def __init__(self):
        self._late = []
        threading.Thread(target=self._watch, daemon=True).start()

    def worst_s(self, since_s):
        """The most seconds late since then."""
        return max((late_s for at_s, late_s in list(self._late) if at_s >= since_s), default=0.0)

    def _watch(self):
        while True:
            before_s = boot_s()
            time.sleep(self.STEP_S)
            now_s = boot_s()
            if (late_s := now_s - before_s - self.STEP_S) > self.STEP_S:
                self._late.append((now_s, late_s))


def play(plan, folder, *, apart, lateness):
    """Play a round in a new folder. The folder remains; no process and no namespace does."""
    began_s = boot_s()
    one = _Round(plan, folder, apart=apart)
    found, evidence, is_broken = [], None, False
    try:
        try:
            one.play()
        finally:
            one.end()
        evidence = one.evidence()
        found = violations(evidence)
    except HarnessError as error:
        found, is_broken = [f"harness: {error}"], True
    except Exception:  # noqa: BLE001 - a round without a verdict has not passed
        found, is_broken = [f"the round could not be judged:\n{traceback.format_exc()}"], True
    result = Result(
        plan=plan,
        folder=folder,
        done=one.done,
        violations=tuple(found),
        late_s=lateness.worst_s(began_s),
        took_s=boot_s() - began_s,
        is_broken=is_broken,
        **({} if evidence is None else _counts(evidence)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    said = [str(plan), one.done, f"machine late by {result.late_s:.2f} s", *found, *one.notes]
    (folder / "round.txt").write_text("\n".join([*said, ""]), encoding="utf-8")
    return result


def _counts(evidence):
    return {
        "n_requests": len(evidence.log.requests),
        "n_twice": n_twice(evidence.graded),
        "n_sessions": len(evidence.sessions),
        "makespan_s": evidence.log.phase_s,
    }


class _Round:
    def __init__(self, plan, folder, *, apart):
        self._plan, self._folder, self._apart = plan, folder, apart
        self._stage = None
        self._merged = None
        self._hung = set()
        self._left = []
        self.done = "the fault never happened"
        self.notes = []

    def play(self):
        self._folder.mkdir(parents=True)
        stage = self._stage = Stage(self._folder, self._plan, apart=self._apart)
        deadline_s = time.monotonic() + DEADLINE_S
        for host in stage.hosts:
            host.join()
        striker = threading.Thread(target=self._strike, args=(deadline_s,))
        striker.start()
        self._see_through(stage.hosts, striker, deadline_s)
        striker.join()
        self._finish(stage)
        for host in stage.hosts:
            self._left += self._wait_gone(host)

    def _strike(self, deadline_s):
        plan, stage = self._plan, self._stage
        try:
            if plan.after is not None:
                n = max(1, round(plan.after * plan.n_cases))
                while time.monotonic() < deadline_s and len(stage.log.requests) < n:
                    if all(host.process.code is not None for host in stage.hosts):
                        break
                    time.sleep(0.05)
            time.sleep(plan.later_s)
            at = len(stage.log.requests)
            self.done = f"{FAULTS[plan.fault].strike(stage)} after {at} requests"
        except Exception:  # noqa: BLE001 - in a thread; the round has no verdict
            self.done = f"the fault failed: {traceback.format_exc()}"

    def _see_through(self, hosts, striker, deadline_s):
        """Wait until all hosts have ended; a host that ended too early joins again."""
        again_s = {}
        while True:
            at_work = striker.is_alive()
            for host in hosts:
                code = host.process.code
                if code is None:
                    at_work = True
                elif code != 0 and len(host.sessions) < MOST_SESSIONS:
                    at_work = True
                    due_s = again_s.setdefault(
                        (host, len(host.sessions)), time.monotonic() + self._plan.away_s
                    )
                    if time.monotonic() >= due_s:
                        self.notes.append(f"{host.name} ended with {code} and was joined again")
                        host.join()
            if not at_work:
                return
            if time.monotonic() > deadline_s:
                for host in hosts:
                    if host.process.code is None:
                        self._hung.add(host.process)
                        host.abort()
                return
            time.sleep(0.1)

    def _finish(self, stage):
        """Merge; while cases are left, let a host join again and merge again."""
        for n in range(MOST_FINISHERS):
            out = self._folder / f"whole-{n}"
            code = self._merged_of(stage, out)
            if code == 0 or self._hung or n == MOST_FINISHERS - 1:
                return
            self.notes.append(f"merge {n} ended with {code}, so {stage.hosts[0].name} joined again")
            stage.hosts[0].join()
            if not stage.hosts[0].process.wait(DEADLINE_S):
                self._hung.add(stage.hosts[0].process)
                stage.hosts[0].abort()

    def _merged_of(self, stage, out):
        code, said, parts = stage.merge(out)
        (self._folder / f"{out.name}.txt").write_text(said, encoding="utf-8")
        self._merged = (out, said, parts)
        return code

    def _wait_gone(self, host):
        deadline_s = time.monotonic() + GONE_S
        while left := pids_of(host.suite):
            if time.monotonic() > deadline_s:
                send(9, [pid for pids in left.values() for pid in pids])
                return [f"{role} of {host.name}" for role in left]
            time.sleep(0.05)
        return []

    def end(self):
        if self._stage is not None:
            self._stage.end()

    def evidence(self):
        stage, plan = self._stage, self._plan
        out, said, parts = self._merged
        rows = None
        with contextlib.suppress(FileNotFoundError):
            table = pq.read_table(out / "results.parquet", columns=["nodeid", "outcome"])
            rows = [(row["nodeid"], row["outcome"]) for row in table.to_pylist()]
        twice = _TWICE.search(said)
        ahead_s = {run: host.machine.ahead_s for host in stage.hosts for _, run in host.sessions}
        return Evidence(
            log=stage.log,
            keys=KEYS,
            seats=plan.seats,
            qps=plan.qps,
            tpm=plan.tpm,
            n_cases=plan.n_cases,
            rows=rows,
            graded=tuple(_graded(part) for part in parts),
            n_reported_twice=int(twice[1].replace(",", "")) if twice else 0,
            merge=said,
            sessions=tuple(
                Session(
                    f"{host.name} (session {n})",
                    None if running in self._hung else running.code,
                    frozenset(host.expects),
                    running.said,
                )
                for host in stage.hosts
                for n, (running, _) in enumerate(host.sessions, start=1)
            ),
            sends_s=_sends(ahead_s if stage.network.is_apart else dict.fromkeys(ahead_s, 0)),
            left=tuple(self._left),
        )


def _graded(part):
    return frozenset(
        record.case_id
        for _, record in scan_journal(part / JOURNAL_NAME)
        if isinstance(record, Grade)
    )


def _sends(ahead_s):
    """The times at which requests were sent, for each key, on the provider's clock."""
    found = {}
    for run, ahead in ahead_s.items():
        if not (run / JOURNAL_NAME).is_dir():
            continue
        for _, record in scan_journal(run / JOURNAL_NAME):
            if isinstance(record, EpisodeEnded):
                for attempt in record.attempts:
                    found.setdefault(attempt.key, []).append(attempt.t_send_s - ahead)
    return found


def forget(result):
    """Remove the files of a round."""
    shutil.rmtree(result.folder)


def as_json(result):
    """One line of JSON, for later analysis of rounds."""
    return json.dumps(
        {
            "fault": result.plan.fault,
            "seed": result.plan.seed,
            "violations": result.violations,
            "is_broken": result.is_broken,
            "requests": result.n_requests,
            "cases": result.plan.n_cases,
            "twice": result.n_twice,
            "sessions": result.n_sessions,
            "hosts": len(result.plan.workers),
            "makespan_s": round(result.makespan_s, 2),
            "took_s": round(result.took_s, 1),
            "late_s": round(result.late_s, 3),
            "done": result.done,
        }
    )
