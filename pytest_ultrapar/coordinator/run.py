"""A run in its coordinating process, from opening its directory to releasing its locks."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.plan.eta import ToAsk
from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.broker.process import sweep
from pytest_ultrapar.coordinator.daily_limits_left import DayLeft, days_left, run_days
from pytest_ultrapar.coordinator.keys.acquire_keys import keep_keys, locked_keys
from pytest_ultrapar.coordinator.keys.key_lock_file import KeyGroup
from pytest_ultrapar.coordinator.policies import make_assignment
from pytest_ultrapar.coordinator.serial_sample import draw_sample, with_serial_sample
from pytest_ultrapar.coordinator.services import Services
from pytest_ultrapar.errors import ResultsError, UltraparError, refuse
from pytest_ultrapar.pool.model import addresses, answered_by
from pytest_ultrapar.pool.served_models import Wait, unnamed, with_served_names
from pytest_ultrapar.pool.setting_values import effective
from pytest_ultrapar.report.text import counted
from pytest_ultrapar.session import run_config, selection
from pytest_ultrapar.session.answer_source import Regrade, Replay
from pytest_ultrapar.session.runtime import write_assignment
from pytest_ultrapar.store import cases_file
from pytest_ultrapar.store.journal import largest_sizes
from pytest_ultrapar.store.journal_history import CutOff, recover
from pytest_ultrapar.store.manifest import (
    FILE_NAME,
    Manifest,
    conditions,
    describe_files,
    read_manifest,
    resume_differences,
    settings_differ,
    shards_differ,
    write_manifest,
)
from pytest_ultrapar.store.regraded import as_measured, take_episodes
from pytest_ultrapar.store.replayed import Origins, prepare_replay, read_replayed
from pytest_ultrapar.store.run_directory import (
    DEFAULT_PARENT,
    LATEST,
    RunDirectory,
    held,
    remove_latest_link,
    resolve_run,
)
from pytest_ultrapar.system.clock import MonotonicClock, boot_s, utc_now

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    import pytest

    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.broker.settings import BrokerSettings
    from pytest_ultrapar.coordinator.cluster_run import ClusterRun
    from pytest_ultrapar.coordinator.keys.acquire_keys import KeptKeys
    from pytest_ultrapar.pool.model import Lane
    from pytest_ultrapar.records import Case
    from pytest_ultrapar.report.wait_notice import WaitingLine
    from pytest_ultrapar.store.journal import Damage


_DEFAULT_SUMMARY = ("model",)


def _summary_by(tables: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """The summary layout that all tests choose; the default layout if their choices differ."""
    asked = set(tables)
    return (len(asked) == 1 and asked.pop()) or _DEFAULT_SUMMARY


class Run:
    """The part of a run's state that is the same with and without xdist.

    Attributes:
        planned: How many cases this run has planned; 0 until they are collected.
        recovered: Cases whose finished episodes come from an earlier, interrupted session or from
            the regraded run.
        n_lost: How many cases finished in the earlier session but have results that can no longer
            be read.
        cut_off: The cases that an earlier session did not finish; None if there was no earlier
            session.
        source: The source of answers.
        resumed: Manifest of the earlier session, if there was one.
        regraded: Manifest of the regraded run, if any.
        replayed: Manifest of the replayed run, if any.
        notes: A sentence for each problem that affects no result, and for each part of an earlier
            run that is left out.
        collecting_since_s: When pytest began to collect, in seconds on the monotonic clock.
        assignment: The assignment of this run; empty until it is made.
        keys: The API keys that this run holds on this machine; None until it has them.
        last_status: The broker's status when it was last read.
        may_have_sent: Whether any request may have been sent with the keys.
        days: How many units of each daily limit remained when the run started.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options, self.pool = run_config.settings(config)
        self.source = run_config.source(config)
        self.redactor = run_config.redactor(self.pool)
        self.started_at = utc_now()
        self.planned = 0
        self.n_lost = 0
        self.cut_off: CutOff | None = None
        self.recovered: frozenset[str] = frozenset()
        self.resumed: Manifest | None = None
        self.regraded: Manifest | None = None
        self.replayed: Manifest | None = None
        self._held_run = ExitStack()
        self.notes: list[str] = []
        self.collecting_since_s = boot_s()
        self.assignment = Assignment()
        self._restricted = False
        self._sample: tuple[str, ...] = ()
        self.manifest: Manifest | None = None
        self.last_status: BrokerStatus | None = None
        self.directory = self._open()
        sweep(self.directory.runs_beside())
        selection.write_reused(self.directory.path, selection.reused(config))
        self.services = Services(self.pool, self.directory.path)
        self.keys: KeptKeys | None = None
        self.may_have_sent = False
        self.days: tuple[DayLeft, ...] = ()
        self.cluster: ClusterRun | None = None

    def _open(self) -> RunDirectory:
        """Open the run's directory, and copy into it what the run needs from an earlier run.

        Raises:
            ConfigError: The earlier run is in use, does not match this run, or contains nothing
                that this run can use.
        """
        options, source = self.options, self.source
        with ExitStack() as held_run:
            if isinstance(source, Regrade | Replay):
                earlier = resolve_run(source.run)
                held_run.enter_context(held(earlier, source.option))
            if options.resume is not None:
                directory = RunDirectory.open_existing(resolve_run(options.resume))
            else:
                # A host that joins a cluster run again uses a new directory, so its old directory
                # cannot be finished.
                alone = options.cluster_run is None
                directory = RunDirectory.create(options.out, self.started_at, can_be_finished=alone)
            try:
                if options.resume is not None:
                    self._resume(directory.path)
                if isinstance(source, Replay):
                    self.replayed, damaged = prepare_replay(earlier, directory.path, source.option)
                    self._note_unreadable(earlier, damaged)
                elif isinstance(source, Regrade):
                    self.regraded = read_manifest(earlier)
                    found, damaged = take_episodes(earlier, directory.path)
                    held_run.close()
                    self.recovered = frozenset(found)
                    self._note_unreadable(earlier, damaged)
            except BaseException:
                if options.resume is None:
                    directory.discard()
                directory.close()
                raise
            # A replay keeps the earlier run locked until it ends, because workers that replace dead
            # workers read the earlier run, too.
            self._held_run = held_run.pop_all()
        return directory

    def _resume(self, directory: Path) -> None:
        """Read the state of the run to resume.

        Raises:
            ConfigError: The run to resume was a different shard. Without this check, a later
                message would say that all cases are different.
        """
        shard = None if self.options.shard is None else str(self.options.shard)
        if (directory / FILE_NAME).exists():
            self.resumed = read_manifest(directory)
            if self.resumed.shard != shard:
                refuse(
                    f"--ultrapar-resume: {directory} cannot be finished by this run: "
                    f"{shards_differ(self.resumed.shard, shard)}"
                )
            if self.resumed.drawn_from and self.options.sample is None:
                was = f"the run was a sample drawn from {self.resumed.drawn_from:,} cases"
                self.notes.append(f"{was}; without --ultrapar-sample, it now covers them all")
        cases_file.settle_cases(directory)
        finished, lost, damaged, self.cut_off = recover(directory)
        self._note_unreadable(directory, damaged)
        self.recovered, self.n_lost = frozenset(finished), len(lost)

    def _note_unreadable(self, run: Path, damaged: Sequence[Damage]) -> None:
        """Add a note about unreadable parts of an earlier run."""
        if not damaged:
            return
        first = damaged[0]
        self.notes.append(
            f"the journal of {run} has {counted(len(damaged), 'gap')}, which this run skips; the "
            f"first is in {first.segment} at byte {first.offset}: {first.reason}"
        )

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that serve a selected model or a role."""
        return run_config.lanes(self.config)

    def assign(self, workers: Sequence[str], cases: Sequence[Case]) -> Assignment:
        """Make and return the run's assignment; store this host's part of it in `assignment`.

        Raises:
            ConfigError: The hook returned an invalid assignment, or the resumed or regraded run had
                different cases.
        """
        self._compare_cases(cases)
        lanes = run_config.case_lanes(self.config)
        assignment = make_assignment(
            self.config,
            workers=workers,
            lanes=lanes,
            cases=cases,
            policy=self.options.policy,
            mode=self.options.mode,
        )
        if self.regraded is not None and self.recovered.isdisjoint(case.case_id for case in cases):
            refuse(
                f"--ultrapar-regrade: run {self.regraded.run_id} has no episode of these "
                f"{len(cases)} cases: select the same suite, tests and models as in that run"
            )
        if self.replayed is not None:
            self._compare_with_replayed(self.replayed, cases)
            # Stored answers arrive in any order and at any rate. Groups of episodes would mean
            # nothing, and an episode that waits for others could block them.
            assignment = Assignment(assignment.home)
        self._restricted = assignment.is_restricted
        if self.options.baseline is not None:
            self._sample = draw_sample(cases, self.options.baseline, self.options.seed)
            assignment = with_serial_sample(assignment, cases, lanes, self._sample)
        elif self.resumed is not None:
            # If the earlier session did not finish some cases of the serial sample, they now run at
            # the same time as other cases. They no longer belong to the sample.
            sample = self.resumed.serial_sample
            self._sample = tuple(case_id for case_id in sample if case_id in self.recovered)
        self.assignment = assignment
        if self.cluster is not None:
            self.assignment = self.cluster.own_assignment(
                assignment, cases, self.pool.subjects, lanes
            )
            shared = self.cluster.share_limits(self.pool, self.lanes, self.directory.path)
            self.services.shared, self.services.shares = shared
        self.planned = len(cases)
        return assignment

    def _compare_cases(self, cases: Sequence[Case]) -> None:
        """Compare the cases with those in the resumed or regraded run.

        Raises:
            ConfigError: Cases are missing, or the data of some cases has changed and no option
                allows the run to keep the old answers.
        """
        if self.regraded is None and self.resumed is None:
            return
        run = resolve_run(self.options.regrade) if self.options.regrade else self.directory.path
        then = cases_file.read_plan(run)
        answered = [case for case in cases if case.case_id in self.recovered]
        said = None if self.resumed is None else cases_file.missing_message(then, cases)
        if said is None and (changed := cases_file.changed_message(then, answered)):
            self.notes.append(f"{changed}; the answers to the earlier data are kept")
            if self.resumed is not None and not self.options.keep_changed:
                said = (
                    f"{changed}; start a new run, or add --ultrapar-keep-changed to keep the "
                    "answers to the earlier data"
                )
        if said is not None:
            refuse(f"--ultrapar-resume: {run} cannot be finished by this run: {said}")

    def _compare_with_replayed(self, replayed: Manifest, cases: Sequence[Case]) -> None:
        """Add a note if the data of any case has changed, because its requests may differ, too.

        Raises:
            ConfigError: The replayed run has no answer for any of these cases.
        """
        found = read_replayed(self.directory.path)
        assert found is not None
        origins = Origins(found.origins)
        if cases and all(isinstance(origins.find(case), str) for case in cases):
            refuse(
                f"--ultrapar-replay: run {replayed.run_id} has no episode of these {len(cases)} "
                "cases: select the same suite, tests and models as in that run"
            )
        answered = [one.case for one in found.origins if one.position is not None]
        if changed := cases_file.changed_message(answered, cases):
            self.notes.append(
                f"{changed}; the answers to the earlier data are replayed, and a changed request "
                "has no stored answer"
            )

    def write_plan(self, cases: Sequence[Case]) -> None:
        """Write the manifest and the assignment, which workers and other programs read.

        From then on, the run counts as started.

        Raises:
            ResultsError: A file cannot be written.
        """
        self.manifest = self._made_manifest(cases)
        if self.regraded is not None:
            self.manifest = as_measured(self.manifest, self.regraded)
        if self.resumed is not None:
            then, now = (
                addresses(one.effective, one.pool_lanes) for one in (self.resumed, self.manifest)
            )
            self.notes += settings_differ(then, now)
        if self.pool.has_budget:
            from pytest_ultrapar.coordinator.spending import begin_spending  # noqa: PLC0415 - few runs have one

            if said := begin_spending(self.directory.path, self.manifest, self.resumed):
                self.notes.append(said)
        write_manifest(self.directory.path, self.manifest)
        cases_file.settle_cases(self.directory.path)
        try:
            self.directory.point_latest()
        except ResultsError as error:
            self.notes.append(str(error))
        write_assignment(self.directory.path, self.assignment)
        if self.services.compaction is not None:
            self.services.compaction.follow()
        self.may_have_sent = True

    def _made_manifest(self, cases: Sequence[Case]) -> Manifest:
        """Make the manifest as it is written before the first request.

        Raises:
            ConfigError: The resumed run had different cases or settings.
        """
        options, pool, lanes = self.options, self.pool, self.lanes
        on_path = {name for lane in lanes for name in lane.limits}
        resumed = options.resume is not None
        answers, is_simulated = answered_by(pool), pool.is_simulated
        replayed, directory = self.replayed, self.directory
        if self.resumed is not None:
            # The run cannot read a model's name from a server that gets no request in this session,
            # so keep the name from the earlier session.
            then = self.resumed.answered_by
            answers |= {name: then.get(name, answers[name]) for name in unnamed(pool)}
        if replayed is not None:
            answers = {name: replayed.answered_by.get(name, who) for name, who in answers.items()}
            is_simulated = replayed.simulated or (self.source.sends and is_simulated)
        manifest = Manifest(
            run_id=directory.run_id,
            started_at=self.started_at,
            **conditions(pool),
            answered_by=answers,
            simulated=is_simulated,
            mode=options.mode,
            policy=options.policy,
            seed=options.seed,
            repeats=options.repeats.n,
            n_planned=len(cases),
            collected_s=boot_s() - self.collecting_since_s,
            suite_digest=cases_file.suite_digest(cases),
            cases_digest=cases_file.cases_digest(directory.path),
            arguments=tuple(map(self.redactor.text, map(str, self.config.invocation_params.args))),
            effective=(*pool.effective, *effective(options)),
            storage_format=options.storage,
            record=options.record,
            data=run_config.data(self.config),
            files=describe_files(self.config.rootpath, (case.nodeid for case in cases)),
            reused=resolve_run(options.reuse).name if options.reuse else None,
            replayed=None if replayed is None else replayed.run_id,
            summary_by=_summary_by(cases_file.read_tables(directory.path).values()),
            resumed=resumed,
            measured_from=self.started_at if resumed else None,
            restricted=self._restricted,
            serial_sample=self._sample,
            faults=None if self.services.faults is None else self.services.faults.digest,
            shard=str(options.shard) if options.shard is not None else None,
            host=self._host(),
            cluster_run=options.cluster_run,
            generated=cases_file.read_generated(directory.path),
            pool_lanes=lanes,
            pool_limits=tuple(limit for name, limit in pool.limits.items() if name in on_path),
        )
        earlier = self.resumed
        if earlier is None:
            return manifest
        differences = resume_differences(earlier, manifest)
        if differences:
            refuse(
                f"--ultrapar-resume: {directory.path} cannot be finished by this run: "
                + "; ".join(differences)
            )
        # If the limits are the same, keep the earlier lower bound until this session computes its
        # own.
        same = (earlier.pool_limits, earlier.pool_lanes, earlier.rate_mode) == (
            manifest.pool_limits,
            lanes,
            manifest.rate_mode,
        )
        return msgspec.structs.replace(
            manifest,
            bound=earlier.bound if same else None,
            merged=earlier.merged,
            segments=largest_sizes(directory.journal, earlier.segments),
        )

    def _host(self) -> str | None:
        """This host's name, if several hosts share the run."""
        if self.options.divided_by is not None:
            return self.options.divided_by.host
        return None if self.cluster is None else self.cluster.host

    def collected_before(self) -> tuple[float, int] | None:
        """Return how long collection took in the last run, or in this run's earlier session.

        Returns:
            The seconds, and the number of cases found; None if unknown.
        """
        try:
            earlier = self.resumed or read_manifest(resolve_run(LATEST))
        except UltraparError:
            return None
        return None if earlier.collected_s is None else (earlier.collected_s, earlier.n_planned)

    def to_ask(self, cases: Sequence[Case]) -> ToAsk:
        """Return this session's work: the cases without a stored answer. Call after `assign`."""
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
            case for case in cases if case.skipped is None and case.case_id not in self.recovered
        ]

    def broker_settings(self) -> BrokerSettings:
        """Return the settings with which the run's broker starts."""
        options = self.options
        return self.services.broker_settings(options.episode_timeout_s, options.wait_for_servers_s)

    def check_lanes(self, cases: Sequence[Case], line: WaitingLine) -> Iterator[str]:
        """If the user requested it, check the lanes that the cases need; yield lines to print.

        Call it after `assign` and `keep_keys`.

        Raises:
            ConfigError: A lane failed, and the run must not continue without it.
        """
        if self.options.check is None:
            return
        from pytest_ultrapar.coordinator.check import run_check  # noqa: PLC0415 - the HTTP client, only when asked for

        self.may_have_sent = True
        needed = run_check.needed_lanes(
            self.lanes, self.assignment, self._unanswered(cases), self.pool.roles.values()
        )
        self.services.known = yield from run_check.check_lanes(
            replace(self.pool, lanes=needed),
            self.services.base_urls,
            line,
            self.services.days,
            go_on=self.options.check == "warn",
            wait_s=self.options.wait_for_servers_s,
        )

    def keep_keys(self, cases: Sequence[Case], line: WaitingLine) -> None:
        """On this machine, reserve the keys that cases may use; if another run holds one, wait.

        Also read what remains of each daily limit.

        Raises:
            ConfigError: Settings for the servers are missing, another run holds a key and waiting
                is off, keys cannot be locked, or the file of a daily limit cannot be used.
        """
        options = self.options
        if not self.source.sends:
            return
        pool = run_config.asked_pool(self.config, self._unanswered(cases))
        run_config.check_keys(self.config, pool)
        named = with_served_names(pool, Wait(options.wait_for_servers_s, line.say))
        self.pool = replace(named, lanes=self.pool.lanes)
        keys = locked_keys(pool, pool.lanes, os.environ, options.simulator)
        path = self.directory.path
        group, shard = self._key_group(), str(options.divided_by or "")
        if self.cluster is not None:
            shard = self.cluster.address.label
        self.keys = keep_keys(
            keys, path, options.key_lock, line, clock=MonotonicClock(), group=group
        )
        self.services.inherited = self.keys.fds
        counted = run_days(pool, pool.lanes, os.environ, options.simulator, shard)
        self.days = days_left(pool, counted, MonotonicClock(), claim=True)
        self.services.days = counted

    def _key_group(self) -> KeyGroup | None:
        """The group with which this run shares its keys; None if it shares them with no other run.

        For a shard, the group consists of all shards into which the same cases and limits are
        divided.
        """
        shard = self.options.shard
        if self.cluster is not None:
            return self.cluster.key_group()
        if shard is None:
            return None
        on_path = {name for lane in self.lanes for name in lane.limits}
        same = (
            shard.n,
            self.options.seed,
            self.pool.digest,
            cases_file.read_generated(self.directory.path),
            [limit for name, limit in self.pool.undivided.items() if name in on_path],
        )
        return KeyGroup(hashlib.sha256(msgspec.json.encode(same)).hexdigest(), f"shard {shard}")

    def how_to_resume(self, *, at_failure: bool = False) -> str:
        """Return a phrase that says how to resume the interrupted run.

        Args:
            at_failure: Whether `-x` or `--maxfail` interrupted the run.
        """
        # The failed test fails again with its stored answer, and `-x` would stop the run again.
        same = "the same command (without -x or --maxfail)" if at_failure else "the same command"
        if self.cluster is not None:
            return f"{same} and a new --ultrapar-out" if self.options.out is not None else same
        if isinstance(self.source, Regrade):
            # A regrade is not resumed. It starts again from the beginning, because it costs
            # nothing.
            return same
        if self.options.out is not None:
            # A run outside the default directory cannot be found by its id, so use its path. The
            # option that named its directory must be left out.
            return f"{same} and --ultrapar-resume {self.options.out} instead of --ultrapar-out"
        if self.options.resume is not None:
            return same
        return f"{same} and --ultrapar-resume {self.directory.run_id}"

    def how_to_ask_again(self) -> str:
        """Return a phrase that says how to rerun cases that ended without an answer."""
        if self.cluster is None:
            return self.how_to_resume()
        # The server regards these cases as done.
        name = self.options.cluster_run
        return (
            f"ultrapar cluster reopen {name} DIR, where DIR is the merged run, and then "
            f"{self.how_to_resume()}"
        )

    @property
    def is_part(self) -> bool:
        """Whether this host's files count as results: it is the only host, or has joined the run.

        The files of a host that never joined do not belong to the cluster run. A merge that
        included them would fail.
        """
        alone = self.options.cluster_run is None
        return alone or (self.cluster is not None and self.cluster.whole is not None)

    def close(self) -> None:
        """Leave the cluster run, stop the services and release all locks. Idempotent."""
        if self.cluster is not None:
            self.cluster.leave()
        self.services.stop()
        if self.keys is not None and self.may_have_sent and self.is_part:
            self.keys.give_back(MonotonicClock())
        elif self.keys is not None:
            self.keys.give_back_unused()
        options = self.options
        with suppress(ResultsError):
            cases_file.settle_cases(self.directory.path)
        is_unused = self.manifest is None and options.out is None and options.resume is None
        if is_unused or not self.is_part:
            self.directory.discard()
            remove_latest_link(DEFAULT_PARENT, {self.directory.path})
        self._held_run.close()
        self.directory.close()
