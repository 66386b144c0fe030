"""Processes beside pytest's own: simulated provider, compaction and, with xdist, the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.compactor_process import CompactionProcess
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
"""Named and not imported: this process does without pyarrow and templates."""


class Services:
    """Starts what a run needs; all ends with `stop`, or with this process, however that ends.

    Attributes:
        inherited: File descriptors that the broker's process inherits.
        days: What its broker counts per day.
        known: Lanes of which its broker knows something before the first request.
        faults: The script that its simulated provider follows; None for none.
        shared: Rows of limits that other hosts share (`BrokerSettings`).
        shares: Who tells the broker its part of them.
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
        """Start the simulated provider if the pool needs it; `base_urls` waits for it.

        Args:
            running_at: URL of one that runs already; None starts one for this run.
            faults: What goes wrong at the one that is started.
            option: Which option gave the URL, for messages.

        Raises:
            ConfigError: The URL is no loopback address, nothing listens there, or the faults cannot
                be had.
        """
        asked = {lane.provider for lane in self._pool.lanes}
        simulated = [one.name for one in self._pool.providers if one.is_simulated]
        self._simulated = names = [name for name in simulated if name in asked]
        if not names:
            for name, given in ((option, running_at), ("--ultrapar-faults", faults)):
                if given is not None:
                    refuse(
                        f"{name} is given, but no selected model of {self._pool.path} is of a "
                        'provider with api = "simulated"'
                    )
            return
        if running_at is not None:
            if faults is not None:
                refuse(
                    "--ultrapar-faults cannot be used together with --ultrapar-simulator: a server "
                    "that runs already takes its faults from `ultrapar simulate --faults FILE`"
                )
            self._running = running_simulator(running_at, names, option)
            return
        log_path = self._directory / SERVER_LOG
        n_sessions = 1
        while log_path.exists():
            # A resumed run has a log per session: each server numbers its own requests.
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
        """Base URL by provider of those that are simulated; waits for the one that was started.

        Raises:
            ConfigError: It cannot be started.
        """
        server = self._simulator
        if server is None:
            return self._running
        return {name: server.base_url(name) for name in self._simulated}

    def start_compactor(self, cwd: Path, *, page: bool) -> None:
        """Have a process that is ready to compact the run when it is over.

        Args:
            cwd: Where the suite stands.
            page: Whether it writes the run's page then.
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
        """Make the run's tables of its journal, once.

        Args:
            written: Called now and then with how many cases are in the tables, and of how many.
            meanwhile: Called once, while another process makes them.
            said: Called with a sentence when that process is gone.

        Raises:
            ResultsError: It could not be done.
        """
        assert self.compaction is not None
        return self.compaction.compact(written, meanwhile, said)

    def begin_page(self) -> None:
        """Have the run's page written; after `compact`, when the summary is final."""
        assert self.compaction is not None
        self._is_writing_page = True
        self.compaction.go_on()

    def wait_for_page(self, said: Callable[[str], None]) -> bool:
        """Whether the run's page is there; after `compact`, once. It is begun if it was not.

        Args:
            said: Called with a sentence where it could not be written. No run fails because of it.
        """
        if not self._is_writing_page:
            self.begin_page()
        assert self.compaction is not None
        trouble = self.compaction.rest()
        if trouble is not None:
            said(f"the run has no report.html: {trouble}; ultrapar report makes it")
        return self._has_page and trouble is None

    def leave_page(self) -> bool:
        """Do without the page where only that is waited for; whether it was so."""
        if self._is_writing_page and self.compaction is not None:
            self.compaction.kill()
        return self._is_writing_page

    @property
    def broker_directory(self) -> BrokerDirectory:
        """Where the broker is going to be, known before it is there; with xdist only."""
        from pytest_ultrapar.broker.process import BrokerDirectory  # noqa: PLC0415 - with xdist only

        if self._broker_directory is None:
            self._broker_directory = BrokerDirectory.make(self._directory)
        return self._broker_directory

    def start_broker(self, settings: BrokerSettings) -> BrokerProcess:
        """Have a broker process; with xdist only.

        Only when the keys are ours: it keeps them while it lives.

        Args:
            settings: As of `broker_settings`.
        """
        from pytest_ultrapar.broker.process import BrokerProcess  # noqa: PLC0415 - with xdist only

        self.broker = BrokerProcess.start(settings, self.broker_directory, inherited=self.inherited)
        return self.broker

    def broker_settings(
        self, episode_timeout_s: float, wait_for_servers_s: float
    ) -> BrokerSettings:
        """What the run's broker starts with, in this process or in one of its own.

        Args:
            episode_timeout_s: How long an episode may last, seconds.
            wait_for_servers_s: How long a server may be away, seconds.
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
        """Faults of the script that took no request of this session; after `stop`."""
        if self.faults is None or self._server_log is None:
            return ()
        from pytest_ultrapar.simulator.faults.book import unused_faults  # noqa: PLC0415 - only when asked for

        return unused_faults(self.faults, self._server_log)

    def stop(self) -> None:
        """End everything that was started. Idempotent."""
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
    """The lanes of simulated providers, with their limits: no fault of the others' would happen."""
    simulated = {provider.name for provider in pool.providers if provider.is_simulated}
    lanes = tuple(lane for lane in pool.lanes if lane.provider in simulated)
    names = {name for lane in lanes for name in lane.limits}
    limits = {name: limit for name, limit in pool.limits.items() if name in names}
    return replace(pool, lanes=lanes, limits=limits)
