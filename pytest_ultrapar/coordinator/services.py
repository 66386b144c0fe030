"""The other processes of a run: simulated provider, compaction and, with xdist, the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.compaction_process import CompactionProcess
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.simulator.address import running_simulator
from pytest_ultrapar.store.run_directory import SPENDING_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.broker.daily_limits import DailyLimit
    from pytest_ultrapar.broker.process import BrokerDirectory, BrokerProcess
    from pytest_ultrapar.broker.protocol import KnownLane
    from pytest_ultrapar.broker.settings import SharesSettings
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.simulator.faults.script import FaultScript
    from pytest_ultrapar.simulator.process import SimulatorProcess


SERVER_LOG = "simulator.jsonl"
_PAGE_MODULE = "pytest_ultrapar.report.pages.at_end"
"""Only the module's name is used here, so that this process loads neither pyarrow nor templates."""


class Services:
    """Starts and stops a run's processes. They also end if this process ends or is killed.

    Attributes:
        inherited: File descriptors that the broker's process inherits.
        days: The daily limits that the broker counts.
        known: The states of lanes, as found by a check; the broker gets them before the first
            request.
        faults: The fault script of the run's simulated provider; None if there is no script.
        shared: The rows that this host shares with other hosts, by limit and kind; see
            `BrokerSettings`.
        shares: The source of the broker's shares of these rows; None if hosts share no rows.
    """

    def __init__(self, pool: Pool, directory: Path) -> None:
        self._pool = pool
        self._directory = directory
        self._simulator: SimulatorProcess | None = None
        self.broker: BrokerProcess | None = None
        self._broker_directory: BrokerDirectory | None = None
        self.compaction: CompactionProcess | None = None
        self.faults: FaultScript | None = None
        self._has_page = self._is_writing_page = False
        self._server_log: Path | None = None
        self._simulated: list[str] = []
        self._running: Mapping[str, str] = {}
        self.inherited: tuple[int, ...] = ()
        self.days: tuple[DailyLimit, ...] = ()
        self.known: tuple[KnownLane, ...] = ()
        self.shared: tuple[tuple[str, str], ...] = ()
        self.shares: SharesSettings | None = None

    def start_simulator(
        self,
        running_at: str | None,
        faults: Path | None = None,
        *,
        option: str = "--ultrapar-simulator",
    ) -> None:
        """Start the simulated provider if the pool needs one; `base_urls` waits until it is ready.

        Args:
            running_at: URL of a simulated provider that is already running; None starts one.
            faults: File with the faults for the provider that this run starts.
            option: Name of the option that sets the URL, for messages.

        Raises:
            ConfigError: The URL is not a loopback address, no server listens there, or the faults
                cannot be read.
        """
        asked = {lane.provider for lane in self._pool.lanes}
        simulated = [one.name for one in self._pool.providers if one.is_simulated]
        self._simulated = names = [name for name in simulated if name in asked]
        if not names:
            for name, given in ((option, running_at), ("--ultrapar-faults", faults)):
                if given is not None:
                    refuse(
                        f"{name} needs a selected model of a provider with "
                        f'api = "simulated", but {self._pool.path} has no such model'
                    )
            return
        if running_at is not None:
            if faults is not None:
                refuse(
                    "--ultrapar-faults cannot be used together with --ultrapar-simulator: a "
                    "running server takes its faults from `ultrapar simulate --faults FILE`"
                )
            self._running = running_simulator(running_at, names, option)
            return
        log_path = self._directory / SERVER_LOG
        n_sessions = 1
        while log_path.exists():
            # A resumed run has one log per session, because each server numbers its own requests.
            n_sessions += 1
            log_path = self._directory / f"simulator-{n_sessions}.jsonl"
        if faults is not None:
            from pytest_ultrapar.simulator.faults.file import load_faults  # noqa: PLC0415 - only when asked for

            self.faults = load_faults(faults, _simulated_part(self._pool))
        from pytest_ultrapar.simulator.process import SimulatorProcess  # noqa: PLC0415 - the settings of a server

        self._simulator = SimulatorProcess.start(
            self._pool, log_path=log_path, tokens=None, faults=self.faults
        )
        self._server_log = log_path

    @property
    def base_urls(self) -> Mapping[str, str]:
        """Base URLs of simulated providers, by name. If this run started the server, wait for it.

        Raises:
            ConfigError: The server cannot be started.
        """
        server = self._simulator
        if server is None:
            return self._running
        return {name: server.base_url(name) for name in self._simulated}

    def start_compactor(self, cwd: Path, *, page: bool) -> None:
        """Start the process that makes the tables when the run ends.

        Args:
            cwd: The suite's directory.
            page: Whether the process then writes the run's HTML report.
        """
        self._has_page = page
        afterwards = [_PAGE_MODULE] if page else []
        self.compaction = CompactionProcess.start(self._directory, cwd=cwd, afterwards=afterwards)

    def compact(
        self,
        written: Callable[[int, int], None],
        meanwhile: Callable[[], None],
        said: Callable[[str], None],
    ) -> RunSummary:
        """Make the run's tables from its journal. Call this only once.

        Args:
            written: Called from time to time with the number of cases in the tables and the total
                number of cases.
            meanwhile: Called once, while another process makes the tables.
            said: Called with a sentence for the user if the process from `start_compactor` was
                killed while it made the tables.

        Raises:
            ResultsError: The tables could not be made.
        """
        assert self.compaction is not None
        return self.compaction.compact(written, meanwhile, said)

    def begin_page(self) -> None:
        """Start to write the HTML report. Call it after `compact`, when the summary is final."""
        assert self.compaction is not None
        self.compaction.go_on()

    def wait_for_page(self, said: Callable[[str], None]) -> bool:
        """Wait for the HTML report and return whether it was written.

        Call it once, after `compact`.

        Args:
            said: Called with a sentence if the report could not be written. The run does not fail
                because of that.
        """
        assert self.compaction is not None
        self._is_writing_page = True
        trouble = self.compaction.rest()
        if trouble is not None:
            said(f"the run has no report.html: {trouble}; make it with ultrapar report")
        return self._has_page and trouble is None

    def leave_page(self) -> bool:
        """Cancel the HTML report if the run is only waiting for it; return whether that is so."""
        if self._is_writing_page and self.compaction is not None:
            self.compaction.kill()
        return self._is_writing_page

    @property
    def broker_directory(self) -> BrokerDirectory:
        """The broker's directory, which exists before the broker starts. Used only with xdist."""
        from pytest_ultrapar.broker.process import BrokerDirectory  # noqa: PLC0415 - with xdist only

        if self._broker_directory is None:
            self._broker_directory = BrokerDirectory.make(self._directory)
        return self._broker_directory

    def start_broker(self, settings: BrokerSettings) -> BrokerProcess:
        """Start a broker process. Used only with xdist.

        Call it after the run has taken its keys. The new process also holds them until it ends.

        Args:
            settings: The settings from `broker_settings`.
        """
        from pytest_ultrapar.broker.process import BrokerProcess  # noqa: PLC0415 - with xdist only

        self.broker = BrokerProcess.start(settings, self.broker_directory, inherited=self.inherited)
        return self.broker

    def broker_settings(
        self, episode_timeout_s: float, wait_for_servers_s: float
    ) -> BrokerSettings:
        """Return the settings for the run's broker, which has its own process or runs in this one.

        Args:
            episode_timeout_s: The longest duration of an episode, in seconds.
            wait_for_servers_s: How long to wait for a server that is unavailable, in seconds.
        """
        return BrokerSettings(
            self._pool,
            episode_timeout_s,
            wait_for_servers_s,
            history=str(self._directory),
            known=self.known,
            days=self.days,
            spending_path=str(self._directory / SPENDING_FILE) if self._pool.has_budget else None,
            shared=self.shared,
            shares=self.shares,
        )

    def unused_faults(self) -> tuple[str, ...]:
        """The script's faults that matched no request in this session. Call it after `stop`."""
        if self.faults is None or self._server_log is None:
            return ()
        from pytest_ultrapar.simulator.faults.selection import unused_faults  # noqa: PLC0415 - only when asked for

        return unused_faults(self.faults, self._server_log)

    def stop(self) -> None:
        """Stop all started processes. Idempotent."""
        if self.compaction is not None:
            self.compaction.stop()
        if self.broker is not None:
            self.broker.stop()
        elif self._broker_directory is not None:
            self._broker_directory.remove()
        if self._simulator is not None:
            self._simulator.stop()
            self._simulator = None


def _simulated_part(pool: Pool) -> Pool:
    """The pool with only the lanes of simulated providers, because faults affect no other lanes."""
    simulated = {provider.name for provider in pool.providers if provider.is_simulated}
    lanes = tuple(lane for lane in pool.lanes if lane.provider in simulated)
    names = {name for lane in lanes for name in lane.limits}
    limits = {name: limit for name, limit in pool.limits.items() if name in names}
    return replace(pool, lanes=lanes, limits=limits)
