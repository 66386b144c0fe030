"""A run as the process that leads it sees it: its directory, its services, its plan and its end."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar import process
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.errors import ResultsError, UltraparError
from pytest_ultrapar.lanes.assignment import Assignment
from pytest_ultrapar.lanes.broker_directory import sweep
from pytest_ultrapar.leading.assigning import make_assignment
from pytest_ultrapar.leading.baseline import draw_sample, with_baseline
from pytest_ultrapar.leading.key_keeping import keep_keys, locked_keys
from pytest_ultrapar.leading.run_manifest import finished_sample, make_manifest
from pytest_ultrapar.leading.services import Services
from pytest_ultrapar.plan.eta import ToAsk
from pytest_ultrapar.results.manifest import read_manifest, write_manifest
from pytest_ultrapar.results.recovered import recover
from pytest_ultrapar.results.rundir import LATEST, RunDirectory, resolve_run
from pytest_ultrapar.runtime import write_assignment
from pytest_ultrapar.suite.taken import write_reused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_ultrapar.lanes.protocol import BrokerStatus, KnownLane
    from pytest_ultrapar.leading.key_keeping import KeptKeys
    from pytest_ultrapar.leading.waiting_line import WaitingLine
    from pytest_ultrapar.pool.model import Lane
    from pytest_ultrapar.records import Case
    from pytest_ultrapar.results.manifest import Manifest


class Run:
    """Everything about a run that is not one process's own.

    Attributes:
        planned: Cases that are going to run; 0 until they are collected.
        n_recovered: Finished episodes that an earlier, interrupted session left behind.
        n_lost: Cases that had finished then, and whose episodes cannot be read any more.
        notes: What did not work and harms no result, a sentence each.
        collecting_since_s: Monotonic seconds at which pytest began to collect.
        assignment: In force; empty until it is made.
        keys: The API keys, ours alone on this host; None until they are.
        last_status: The broker's last words.
        may_have_sent: Whether requests may have been sent with the keys.
        known: What a check before the run found of lanes that the run should not ask, or not yet.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options, self.pool = process.settings(config)
        self.redactor = process.redactor(self.pool)
        self.started_at = datetime.now(UTC)
        self.planned = 0
        self.n_recovered = self.n_lost = 0
        self._recovered: frozenset[str] = frozenset()
        self.notes: list[str] = []
        self.collecting_since_s = time.monotonic()
        self.assignment = Assignment()
        self._restricted = False
        self._sample: tuple[str, ...] = ()
        self.manifest: Manifest | None = None
        self.last_status: BrokerStatus | None = None
        self.directory = self._open()
        sweep(self.directory.runs_beside())
        write_reused(self.directory.path, process.reused(config))
        self.services = Services(self.pool, self.directory.path)
        self.keys: KeptKeys | None = None
        self.may_have_sent = False
        self.known: tuple[KnownLane, ...] = ()

    def _open(self) -> RunDirectory:
        if self.options.resume is None:
            return RunDirectory.create(self.options.out, self.started_at)
        directory = RunDirectory.open_existing(resolve_run(self.options.resume))
        recovery = recover(directory.path)
        self.n_recovered, self.n_lost = len(recovery.finished), len(recovery.lost)
        self._recovered = frozenset(recovery.finished)
        return directory

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Lanes that serve one of the selected models."""
        return process.lanes(self.config)

    def assign(self, workers: Sequence[str], cases: Sequence[Case]) -> Assignment:
        """Make the assignment.

        Raises:
            ConfigError: The hook gave something that cannot be carried out.
        """
        lanes = self.lanes
        assignment = make_assignment(
            self.config,
            workers=workers,
            lanes=lanes,
            cases=cases,
            policy=self.options.policy,
            mode=self.options.mode,
        )
        self._restricted = assignment.is_restricted
        if self.options.baseline is not None:
            self._sample = draw_sample(cases, self.options.baseline, self.options.seed)
            assignment = with_baseline(assignment, cases, lanes, self._sample)
        elif self.options.resume is not None:
            self._sample = finished_sample(self.directory.path)
        self.assignment = assignment
        self.planned = len(cases)
        return assignment

    def write_plan(self, cases: Sequence[Case]) -> None:
        """Leave manifest and assignment where workers and readers find them: the run begins.

        Raises:
            ResultsError: They cannot be written.
        """
        self.manifest = make_manifest(
            self.config,
            self.directory,
            self.started_at,
            cases,
            restricted=self._restricted,
            redact=self.redactor.text,
            serial_sample=self._sample,
            faults=None if self.services.faults is None else self.services.faults.digest,
        )
        self.manifest = msgspec.structs.replace(
            self.manifest, collected_s=time.monotonic() - self.collecting_since_s
        )
        write_manifest(self.directory.path, self.manifest)
        try:
            self.directory.point_latest()
        except ResultsError as error:
            self.notes.append(str(error))
        write_assignment(self.directory.path, self.assignment)
        self.may_have_sent = True

    def collected_before(self) -> tuple[float, int] | None:
        """Seconds that collecting took in the run before, or in this one's earlier session.

        Returns:
            The seconds and how many cases were found; None where nobody knows.
        """
        try:
            earlier = read_manifest(resolve_run(self.options.resume or LATEST))
        except UltraparError:
            return None
        if earlier.collected_s is None:
            return None
        return earlier.collected_s, earlier.n_planned

    def to_ask(self, cases: Sequence[Case]) -> ToAsk:
        """What this session has to ask of the planned cases; after `assign`."""
        unanswered = self._unanswered(cases)
        n_wanted = sum(case.skipped is None for case in cases)
        return ToAsk(
            Counter(case.model for case in unanswered),
            n_wanted - len(unanswered),
            self.lanes,
            tuple(self.pool.limits.values()),
            restricted=self.assignment.is_restricted,
        )

    def _unanswered(self, cases: Sequence[Case]) -> list[Case]:
        return [
            case for case in cases if case.skipped is None and case.case_id not in self._recovered
        ]

    def check_lanes(self, cases: Sequence[Case], line: WaitingLine) -> Iterator[str]:
        """Whether the lanes answer that cases need, if that shall be known; lines for people.

        After `assign` and `keep_keys`.

        Raises:
            ConfigError: One does not, and the run shall not go on without it.
        """
        if self.options.check is None:
            return
        from pytest_ultrapar.leading.lane_check import check_lanes  # noqa: PLC0415 - the HTTP client, only when asked for

        self.may_have_sent = True
        yield from check_lanes(self, self._unanswered(cases), line)

    def keep_keys(self, line: WaitingLine) -> None:
        """Have the keys that the run may use for itself on this host; may wait for another run.

        Raises:
            ConfigError: Another run has one and waiting is not wanted, or they cannot be locked.
        """
        options = self.options
        keys = locked_keys(self.pool, self.lanes, os.environ, options.simulator)
        path = self.directory.path
        self.keys = keep_keys(keys, path, options.key_lock, line, clock=MonotonicClock())
        self.services.inherited = self.keys.fds

    def close(self) -> None:
        """End the services, let go of the keys and unlock the directory. Idempotent."""
        self.services.stop()
        if self.keys is not None and self.may_have_sent:
            self.keys.give_back(MonotonicClock())
        elif self.keys is not None:
            self.keys.give_back_unused()
        options = self.options
        if self.manifest is None and options.out is None and options.resume is None:
            self.directory.discard()
        self.directory.close()
