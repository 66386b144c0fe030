"""This host's part of a cluster run: check the options, join and leave."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.day_file import state_directory
from pytest_ultrapar.cluster.address import check_installed, check_name, read_address
from pytest_ultrapar.coordinator.daily_limits_left import run_days
from pytest_ultrapar.coordinator.keys.acquire_keys import key_identities
from pytest_ultrapar.coordinator.keys.key_lock_file import KeyGroup
from pytest_ultrapar.errors import UltraparError, refuse
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.report.cluster_progress import ClusterProgress, HostPart, joined_words
from pytest_ultrapar.report.text import counted, duration, visible
from pytest_ultrapar.store.clock_stamps import CLOCKS_NAME
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.broker.settings import SharesSettings
    from pytest_ultrapar.broker.shares import Row
    from pytest_ultrapar.cluster.claim_thread import Claiming
    from pytest_ultrapar.cluster.run_identity import NumberedCases, RunIdentity
    from pytest_ultrapar.cluster.server import ClusterServer
    from pytest_ultrapar.pool.model import Lane, Limit, Pool
    from pytest_ultrapar.records import Case
    from pytest_ultrapar.report.wait_notice import WaitingLine
    from pytest_ultrapar.store.manifest import Manifest

_ALONE = {
    "resume": "to finish a cluster run, join it again by its name",
    "regrade": "a regraded run sends nothing",
    "replay": "a replay already has the answers",
    "baseline": "the serial sample measures one host",
    "check": "the check sends requests outside the shared limits",
    "gate": "each host knows only its own cases (run ultrapar merge, then ultrapar gate on the "
    "merged run)",
    "gate_baseline": "each host knows only its own cases (run ultrapar merge, then ultrapar "
    "gate on the merged run)",
}
"""Options that work only in a run on one host. The text says why, or what to do instead."""
_SPEAKS_S = 1.2
"""The longest interval between two reports from a live host to the server, in seconds."""
_DEAD_S = 3.0
"""A host that has been silent for more seconds than this may be dead. A new host with the same name
is then not refused at once: `ClusterRun.join` waits until the name is free."""
_MODES = ("ultra", "phase", "rotate")


def refuse_options(options: Options) -> None:
    """If the options request a cluster run, check that all of them work in one.

    Raises:
        ConfigError: An option does not work in a cluster run.
    """
    if options.cluster_run is None:
        for name in ("cluster", "cluster_host"):
            if getattr(options, name) is not None:
                refuse(f"{getattr(Options, name).option} needs --ultrapar-cluster-run NAME")
        return
    given = "--ultrapar-cluster-run"
    for name in ("cluster_run", "cluster_host"):
        value = getattr(options, name)
        if value is not None:
            check_name(value, getattr(Options, name).option)
    for name, why in _ALONE.items():
        if getattr(options, name):
            refuse(
                f"{getattr(Options, name).option} cannot be used together with {given}: {why}; "
                "leave out one of the two options"
            )
    if options.mode not in _MODES:
        refuse(
            f"{given} does not work with mode {options.mode} ({options.origin['mode']}), which is "
            f"only for runs on one host; use one of the modes {', '.join(_MODES)}"
        )
    check_installed(given)


class ClusterRun:
    """This host's part of a cluster run, from `check_server` to `leave`.

    Attributes:
        name: Name of the run.
        shard: The shard from which this host claims cases; None if it claims from all cases.
        host: This host's name, including its shard.
    """

    def __init__(self, options: Options) -> None:
        from pytest_ultrapar.cluster.server import ClusterServer  # noqa: PLC0415 - with a cluster only
        from pytest_ultrapar.cluster.shards import claims_name  # noqa: PLC0415 - with a cluster only

        assert options.cluster_run is not None
        self.name = options.cluster_run
        self.shard = options.shard
        machine = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100]
        self.host = options.cluster_host or machine or "host"
        if self.shard is not None:
            # Hosts of different shards never have the same name.
            self.host += f"-{self.shard.host}"
        self._claims = claims_name(self.name, options.shard)
        self.address = read_address(options.cluster, os.environ)
        self._options = options
        self._patience_s = options.cluster_patience_s
        self._server = ClusterServer(self.address)
        self._claiming: Claiming | None = None
        self._numbered: NumberedCases | None = None
        self._case_of: dict[str, str] = {}
        self._limits: dict[str, Limit] = {}
        self._lanes: tuple[Lane, ...] = ()

    def check_server(self, line: WaitingLine) -> None:
        """Check that the server can be used; if it does not answer, wait.

        Raises:
            ConfigError: The server cannot be used, or does not answer within
                `--ultrapar-cluster-patience`; or the run already has a live host with this name.
        """
        self._ask_patiently(self._server.read_facts, line)
        _refuse_namesake(self._server, self._claims, self.host)

    def _ask_patiently(self, ask: Callable[[], object], line: WaitingLine) -> None:
        from pytest_ultrapar.cluster.server import ask_patiently  # noqa: PLC0415 - with a cluster only

        began_s = boot_s()
        most = f"the run waits at most {duration(self._patience_s)}"
        with line:
            ask_patiently(
                ask,
                self._patience_s,
                lambda why: line.say("the cluster server", f": {why}; {most}", boot_s() - began_s),
            )

    @property
    def _shown(self) -> str:
        """The run, with its shard if any: each shard counts its own done and claimed cases."""
        return f"run {self.name}" if self.shard is None else f"run {self.name}, shard {self.shard}"

    @property
    def warnings(self) -> list[str]:
        """Warnings about the server."""
        facts = self._server.facts
        if facts is None or not facts.forgets:
            return []
        return [
            f"{self.address.shown} ({facts.name}) runs with appendonly no: if it is killed, it "
            "loses the run's data, and cases may be sent twice; limits still apply"
        ]

    def join(
        self,
        manifest: Manifest,
        directory: Path,
        cases: Sequence[Case],
        *,
        line: WaitingLine,
        status: Callable[[], BrokerStatus | None],
    ) -> list[str]:
        """Join the run, after `own_assignment`; return lines to print.

        Args:
            manifest: Manifest of this host's run.
            directory: Directory of this host's run.
            cases: All cases of the run.
            line: Shows why the host is waiting.
            status: Returns the broker's current status; any thread may call it.

        Raises:
            ConfigError: The other hosts run a different suite or use different settings, or the run
                already has a live host with this name.
        """
        from pytest_ultrapar.cluster.claim_thread import Claiming  # noqa: PLC0415 - with a cluster only
        from pytest_ultrapar.cluster.run_identity import RunIdentity  # noqa: PLC0415

        numbered = self._numbered
        assert numbered is not None
        self._case_of = {case.nodeid: case.case_id for case in cases}
        identity = RunIdentity(
            version=manifest.versions.get("pytest-ultrapar", ""),
            seed=manifest.seed,
            mode=manifest.mode,
            rate_mode=manifest.rate_mode,
            policy=manifest.policy,
            groups=numbered.groups,
            shard=str(self.shard or ""),
            pool=manifest.pool_digest,
            models=numbered.models,
            n_cases=len(numbered),
            suite=numbered.suite,
            order=numbered.order,
            numbers=numbered.numbers,
            data=manifest.data,
        )
        self._claiming = Claiming(
            self._server,
            self._claims,
            self.host,
            numbered,
            self._lanes,
            directory=directory,
            patience_s=self._patience_s,
            status=status,
        )
        self._agree(identity, manifest, line)
        began_s = boot_s()
        with line:
            self._claiming.join(
                identity, lambda what, more: line.say(what, more, boot_s() - began_s)
            )
        whole, told = self.whole, status()
        assert whole is not None
        shares = [] if told is None else told.shares
        return joined_words(whole, self.part, self.address.shown, shares, self._limits)

    @property
    def whole(self) -> ClusterProgress | None:
        """This host's view of the whole run; None before it has joined. Any thread may read it."""
        return None if self._claiming is None else self._claiming.whole

    @property
    def part(self) -> HostPart:
        """The host that the results come from, its run, and the number of all cases in that run."""
        return HostPart(self.host, self._shown.removeprefix("run "), len(self._case_of))

    def _agree(self, identity: RunIdentity, manifest: Manifest, line: WaitingLine) -> None:
        """Check that this shard and the run's other shards are parts of the same whole."""
        if self.shard is None:
            return
        from pytest_ultrapar.cluster.shards import agree  # noqa: PLC0415 - few runs are shards

        shard = self.shard
        self._ask_patiently(
            lambda: agree(self._server, self.name, shard, identity, manifest.generated), line
        )

    def own_assignment(
        self,
        assignment: Assignment,
        cases: Sequence[Case],
        models: Sequence[str],
        lanes: Sequence[Lane],
    ) -> Assignment:
        """Return the part of the run's assignment that this host's broker follows.

        Args:
            assignment: Assignment of the whole run.
            cases: All cases of the run.
            models: The models that have cases (not only a role), in the pool's order.
            lanes: The lanes that cases may use.
        """
        from pytest_ultrapar.cluster.run_identity import NumberedCases  # noqa: PLC0415 - with a cluster only

        self._numbered = NumberedCases(cases, models, assignment.groups)
        return self._numbered.own_assignment(assignment, lanes)

    def share_limits(
        self, pool: Pool, lanes: Sequence[Lane], directory: Path
    ) -> tuple[tuple[Row, ...], SharesSettings]:
        """Return the settings that keep the broker within this host's share of all limits.

        Call it after `own_assignment`.

        Args:
            pool: The pool.
            lanes: The lanes that the run may use.
            directory: Directory of this host's run.

        Returns:
            The rows of the limits that hosts share, and the settings with which the broker gets its
            shares.
        """
        from pytest_ultrapar.cluster import host_shares  # noqa: PLC0415 - with a cluster only
        from pytest_ultrapar.cluster.earlier_daily_use import day_files  # noqa: PLC0415 - with a cluster only
        from pytest_ultrapar.cluster.ledger_rows import shared_rows  # noqa: PLC0415 - with a cluster only

        numbered = self._numbered
        assert numbered is not None
        self._lanes = tuple(lanes)
        self._limits = {name: pool.limits[name] for lane in lanes for name in lane.limits}
        identities = key_identities(pool, lanes, os.environ, self._options.simulator)
        rows = shared_rows(pool, lanes, identities, self.name)
        label = self.address.label
        days = run_days(pool, lanes, os.environ, self._options.simulator, label)
        config = host_shares.SharingSettings(
            # A URL with a password is in the environment, where the broker also finds it.
            url=self._options.cluster,
            run=self.name,
            claims=self._claims,
            host=self.host,
            rows=rows,
            days=day_files(rows, days, label),
            lines=tuple(host_shares.Line(line.model, line.name) for line in numbered.lines),
            n_cases=tuple(last - first for first, last in numbered.ranges),
            epoch_path=str(host_shares.epoch_path(state_directory(os.environ), self.address)),
            clocks_path=str(directory / CLOCKS_NAME),
        )
        return rows.limits, config.for_broker()

    def key_group(self) -> KeyGroup:
        """The group whose members may hold the same keys on one machine at the same time.

        Its members are all hosts of all runs that share limits through this server: the server
        divides the limits of the keys among them.
        """
        return KeyGroup(self.address.digest, f"host {self.host} of run {self.name}")

    @property
    def claiming(self) -> Claiming:
        """The claims of this host. They exist only after `join`."""
        assert self._claiming is not None
        return self._claiming

    def finished(self, nodeid: str, outcome: str) -> None:
        """Record the outcome that was reported for a case."""
        case_id = self._case_of.get(nodeid)
        if self._claiming is not None and case_id is not None:
            self._claiming.finished(case_id, outcome)

    def leave(self) -> None:
        """Release claimed cases that are not finished. Idempotent."""
        if self._claiming is not None:
            self._claiming.leave()

    @property
    def is_elected(self) -> bool:
        """Whether this host has been chosen to report the end of the whole run."""
        said = None if self._claiming is None else self._claiming.said
        return said is not None and said.elected

    def end_lines(self) -> list[str]:
        """Lines about the result of the whole run, from what this host knows of it."""
        claiming = self._claiming
        if claiming is None or claiming.said is None:
            return []
        said, n_done, n_cases = claiming.said, claiming.n_done, len(self._case_of)
        cases = counted(n_cases, "case")
        lines = []
        if said.elected:
            n_failed = claiming.n_failed
            failed = f", {n_failed} of them without an answer" if n_failed else ""
            done = (
                f"all {cases} are done{failed}"
                if n_done >= n_cases
                else f"{n_done} of {cases} are done{failed}, and those that are not done have "
                "answers but no grade yet"
            )
            lines.append(f"{self._shown}: {done}; merge its hosts' directories with ultrapar merge")
        elif said.is_over and not claiming.n_claimed:
            lines.append(f"{self._shown}: all {cases} are done; this session ran 0 of them")
        elif not said.is_over:
            others = said.n_hosts - 1
            rest = (
                f"{counted(others, 'other host')} {'continues' if others == 1 else 'continue'}"
                if others
                else "join it again to continue"
            )
            lines.append(f"{self._shown}: {n_done} of {cases} are done; {rest}")
        if claiming.n_lost:
            lines.append(
                f"other hosts took over {counted(claiming.n_lost, 'case')} from this host while it "
                "was silent. They finish the cases that this host had not answered. If this host "
                "and another one answered the same case, ultrapar merge keeps one of the answers"
            )
        return lines


def _refuse_namesake(server: ClusterServer, run: str, host: str) -> None:
    """Refuse to start if a live host already uses this name. The check may take a few seconds.

    Two hosts with the same name on one machine cannot hold the same keys at the same time. Without
    this check, the second host would wait for the keys until the first one ends. A killed host is
    ignored.

    Raises:
        ConfigError: A live host has this name: it reported to the server during the check.
    """
    before_s = None
    while (silent_s := _silent_s(server, run, host)) is not None and silent_s <= _DEAD_S:
        if before_s is not None and silent_s < before_s + _SPEAKS_S / 2:
            refuse(
                f'--ultrapar-cluster-host: run "{visible(run)}" already has a live host named '
                f'"{visible(host)}"; choose another name with --ultrapar-cluster-host NAME'
            )
        before_s = silent_s
        sleep(_SPEAKS_S)


def _silent_s(server: ClusterServer, run: str, host: str) -> float | None:
    # Ignore errors of the server here: `join` reports them.
    with suppress(UltraparError):
        state = server.run(run)
        if state is not None:
            return min((one.seen_s for one in state.hosts if one.name == host), default=None)
    return None
