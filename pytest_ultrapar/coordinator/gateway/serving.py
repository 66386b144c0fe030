"""A gateway from start to end. It is a run; each request from a client is one case of the run."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import redirect_stdout, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.cluster.ledger import UNHEARD_S
from pytest_ultrapar.coordinator.daily_limits_left import begun_days, days_left, run_days
from pytest_ultrapar.coordinator.gateway.child_command import (
    ChildCommand,
    environment,
    look_up,
    variables,
)
from pytest_ultrapar.coordinator.gateway.clients import GatewayClients, grade_of
from pytest_ultrapar.coordinator.gateway.sharing import sharing_of
from pytest_ultrapar.coordinator.keys.acquire_keys import keep_keys, locked_keys
from pytest_ultrapar.coordinator.services import Services
from pytest_ultrapar.engine.engine import Engine
from pytest_ultrapar.engine.gateway import Gateway, in_url, listen
from pytest_ultrapar.engine.loop import engine_context
from pytest_ultrapar.errors import ConfigError, ResultsError, refuse
from pytest_ultrapar.pool.keys import sent_lines
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.model import answered_by
from pytest_ultrapar.pool.network import check_routes, is_local
from pytest_ultrapar.pool.price_book import check_budgets, with_book_prices
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.pool.setting_values import Overrides
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.records import EpisodeEnded, JournalRecord
from pytest_ultrapar.report.browse.screen import write_line
from pytest_ultrapar.report.report_file import write_report
from pytest_ultrapar.report.terminal_summary import brief_lines
from pytest_ultrapar.report.text import counted
from pytest_ultrapar.report.wait_notice import WaitingLine
from pytest_ultrapar.session import run_config
from pytest_ultrapar.session.ctrl_c import CtrlC
from pytest_ultrapar.session.engine_settings import engine_settings
from pytest_ultrapar.session.lane_endpoints import lane_endpoints
from pytest_ultrapar.store.cases_file import ComingCases, cases_digest, suite_digest
from pytest_ultrapar.store.journal import JournalWriter, largest_sizes
from pytest_ultrapar.store.manifest import Manifest, conditions, write_manifest
from pytest_ultrapar.store.run_directory import RunDirectory
from pytest_ultrapar.store.string_parts import PartWriter
from pytest_ultrapar.system.clock import MonotonicClock

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Sequence
    from concurrent.futures import Future
    from types import FrameType

    from pytest_ultrapar.broker.interface import BrokerInterface
    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.coordinator.gateway.sharing import GatewaySharing
    from pytest_ultrapar.coordinator.keys.acquire_keys import KeptKeys
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.pool.settings import Recording
    from pytest_ultrapar.records import Case

_WORKER = "main"
_MOST_CLIENTS = 20_000
_INTERRUPTED = 2
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAST_PORT = 65_535
_OF_THE_PORT = frozenset({errno.EADDRINUSE, errno.EACCES})
_STATUS_TIMEOUT_S = 1.0
_SOON_S = 0.5
_SAID_S = 3
"""How long an error of the cluster's server must last before it is printed, in seconds."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, SIGTERM, SIGHUP, or the end of the command.

    The command gets these signals, too. A second Ctrl-C cancels the requests in flight. While the
    tables are being written, Ctrl-C ends the process.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent.
        ResultsError: The run cannot be written.
    """
    if not arguments.command:
        return _serve(arguments)
    # stdout belongs to the command.
    with redirect_stdout(sys.stderr):
        try:
            look_up(arguments.command[0])
        except OSError as error:
            return _not_run(arguments.command, error)
        return _serve(arguments)


def _not_run(command: Sequence[str], error: OSError) -> int:
    write_line(f"ultrapar gateway: error: {command[0]}: {error.strerror}")
    return 127 if isinstance(error, FileNotFoundError) else 126


def _serve(arguments: argparse.Namespace) -> int:
    pool = load_pool(Path(arguments.pool), environ=os.environ, overrides=Overrides())
    if pool.price_book is not None or pool.has_budget:
        pool = with_book_prices(pool)
        check_budgets(pool)
    read_secrets(pool, os.environ)
    check_routes(pool, os.environ)
    token = _token(arguments.token_env)
    ctrl_c = CtrlC(lambda: os._exit(_INTERRUPTED))
    with _listening(arguments) as listening:
        sharing = sharing_of(arguments, pool)
        directory = RunDirectory.create(
            arguments.out, datetime.now(UTC), option="--out", can_be_finished=False
        )
        serving = Serving(pool, directory, listening, arguments, sharing)
        # If `nohup` or a shell's `&` made this process ignore a signal, keep ignoring it.
        before = {one: was for one in _ENDS if (was := signal.getsignal(one)) != signal.SIG_IGN}
        for one in before:
            signal.signal(one, serving.interrupted)
        ctrl_c.install()
        try:
            serving.begin(token)
            try:
                serving.run()
            except KeyboardInterrupt:
                write_line("\nultrapar gateway: ending")
            with suppress(KeyboardInterrupt):
                serving.drain()
            ctrl_c.note_ending()
            serving.end()
        except KeyboardInterrupt:
            return _INTERRUPTED
        finally:
            ctrl_c.note_ending()
            serving.close()
            ctrl_c.remove()
            for one, handler in before.items():
                # Soon after a Ctrl-C, `ctrl_c.remove` leaves its handler in place for the next one,
                # so do not replace that handler.
                if signal.getsignal(one) == serving.interrupted:
                    signal.signal(one, handler)
    return serving.code


def _token(name: str | None) -> str:
    token = os.environ.get(name or "", "").strip()
    if name is not None and not token:
        refuse(f"--token-env {name}: that environment variable is not set")
    return token


def _listening(arguments: argparse.Namespace) -> socket.socket:
    port = _port(arguments.port or ("0" if arguments.command else "8080"))
    host = arguments.host
    for option, seconds in (("max-wait", arguments.max_wait), ("timeout", arguments.timeout)):
        if seconds is not None and not seconds > 0:
            refuse(f"--{option} must be above 0 (got {seconds:g})")
    if not host.strip():
        refuse(f"--host must be an address of this machine, such as 127.0.0.1 (got {host!r})")
    if not is_local(host) and not arguments.allow:
        refuse(
            f"--host {host} is not a loopback address: all clients that reach it with the token "
            "can spend money with the pool's keys; add --allow to permit that"
        )
    try:
        return listen(host, port)
    except OSError as error:
        # The library repeats the address in its message.
        why = (error.strerror or str(error)).partition(" (while ")[0]
        other = "--port" if error.errno in _OF_THE_PORT else "--host"
        raise ConfigError(
            f"cannot listen on {in_url(host)}:{port}: {why}; choose another value for {other}"
        ) from error


def _port(text: str) -> int:
    """Parse a port number.

    Raises:
        ConfigError: The text is not a port number.
    """
    if not (text.isascii() and text.isdigit()) or int(text) > _LAST_PORT:
        refuse(f"--port must be a whole number from 0 to {_LAST_PORT} (got {text!r})")
    return int(text)


class Serving:
    """One gateway and its run.

    Attributes:
        code: Exit code of the command once it has ended; 0 without a command.
    """

    def __init__(
        self,
        pool: Pool,
        directory: RunDirectory,
        listening: socket.socket,
        arguments: argparse.Namespace,
        sharing: GatewaySharing | None = None,
    ) -> None:
        """Prepare the gateway without starting it.

        Args:
            pool: The pool to serve.
            directory: The run's directory.
            listening: The socket for clients.
            arguments: The arguments of `ultrapar gateway`.
            sharing: The limits that the gateway shares through a cluster's server; None if it
                shares no limits.
        """
        self._sharing = sharing
        self._pool = pool
        self._directory = directory
        self._arguments = arguments
        self._started_at = datetime.now(UTC)
        self._services = Services(pool, directory.path)
        self._redactor = run_config.redactor(pool)
        self._journal = JournalWriter(directory.journal, _WORKER, self._redactor.bytes)
        self._cases = ComingCases(directory.path)
        self._parts = PartWriter(directory.path, self._redactor.bytes)
        self._gateway = Gateway(listening, arguments.max_wait)
        self._kept = cast("Recording", pool.record or Options.record.default)
        self._keys: KeptKeys | None = None
        self._engine: Engine | None = None
        self._port: LocalBroker | None = None
        self._lost: BaseException | None = None
        self._over = threading.Event()
        self.code = self._n_refused = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._address = ""
        self._child: ChildCommand | None = None
        # Signals that arrive while the command is starting.
        self._early: list[int] | None = None
        self._variables: list[dict[str, str]] = []

    def begin(self, token: str) -> None:
        """Reserve the keys and start to serve.

        Args:
            token: Token for the gateway's clients; if empty, create a new one.

        Raises:
            ConfigError: The keys are not available.
            ResultsError: The run cannot be written.
        """
        pool, services = self._pool, self._services
        services.start_compactor(Path.cwd(), page=True)
        services.start_simulator(None)
        self._keys = keep_keys(
            locked_keys(pool, pool.lanes, os.environ, None),
            self._directory.path,
            self._arguments.key_lock,
            WaitingLine(None),
            clock=MonotonicClock(),
            option="--key-lock",
            group=None if self._sharing is None else self._sharing.key_group(),
        )
        if self._sharing is None:
            services.days = run_days(pool, pool.lanes, os.environ, None)
        else:
            services.days = self._sharing.days()
            services.shared, services.shares = self._sharing.settings(services.days)
        for line in begun_days(days_left(pool, services.days, MonotonicClock(), claim=True)):
            write_line(line)
        settings = engine_settings(
            pool,
            self._redactor,
            self._parts,
            record=self._kept,
            max_attempts=Options.max_attempts.default,
            n_clients=_MOST_CLIENTS,
            worker=_WORKER,
            connect=self._connect,
            endpoints=lane_endpoints(pool, services.base_urls),
            episode_timeout_s=self._arguments.timeout,
            gateway=self._gateway,
            unheard_s=None if self._sharing is None else UNHEARD_S,
        )
        engine = Engine(
            settings,
            record=self._record,
            ended=lambda told: clients.end(told),  # noqa: PLW0108 - it is made with the engine
            sync=self._sync,
            lost=self._note_lost,
        )
        clients = GatewayClients(
            list(settings.endpoints.values()),
            settings.tokens,
            self._directory.run_id,
            self._cases.add,
            engine.submit,
            settings.shown,
        )
        token = self._gateway.admit(clients, "the gateway", token).token
        self._write_plan([])
        self._directory.point_latest()
        self._engine = engine
        engine.start()
        # Until the broker is ready, clients' requests wait in the socket.
        engine.submit([])
        paths = {path for lane in settings.endpoints.values() for path in lane.api.serves}
        self._variables = variables(paths, self._address, token)

    async def _connect(self) -> BrokerInterface:
        settings = self._services.broker_settings(
            self._arguments.timeout, Options.wait_for_servers_s.default
        )
        self._loop = loop = asyncio.get_running_loop()
        self._port = LocalBroker(settings, MonotonicClock(), loop, worker=_WORKER)
        await self._port.assign(Assignment())
        self._address = self._gateway.open()
        return self._port

    def _announce(self) -> None:
        pool = self._pool
        models = ", ".join(dict.fromkeys(lane.model for lane in pool.lanes))
        write_line(f"ultrapar gateway: {pool.path} at {self._address}; models: {models}")
        for line in sent_lines(pool, pool.lanes):
            write_line(line)
        if self._sharing is not None:
            server = self._sharing.address.shown
            write_line(f"limits shared with all runs and gateways that use {server}")
        if self._arguments.command:
            return
        for own in self._variables:
            (name, address), *_, (key, token) = own.items()
            write_line(f"{name}={address}")
            if self._arguments.token_env is None:
                write_line(f"{key}={token}")
        write_line("Ctrl-C ends the gateway and writes the tables")

    def run(self) -> None:
        """Print the address and serve until the command ends.

        Without a command, serve until a signal arrives, or until an error ends the engine.
        """
        if self._lost is None:
            self._announce()
        command = self._arguments.command
        if not command:
            self._wait()
            return
        everything = environment(os.environ, self._variables, self._arguments.host)
        self._early = []
        try:
            self._child = ChildCommand(command, everything, self._over.set)
        except OSError as error:
            self.code = _not_run(command, error)
            return
        early, self._early = self._early, None
        for number in early:
            self.interrupted(number, None)
        self._wait()
        self.code = self._child.end()
        if self._gateway.n_served:
            # When the command ends, its clients end, too. Give them time to disconnect.
            time.sleep(_SOON_S)
        self._n_refused = self._gateway.n_refused
        self._child = None
        if not self._gateway.n_heard:
            names = ", ".join(next(iter(own)) for own in self._variables)
            write_line(
                f"the gateway received no request: {command[0]} and its processes do not read "
                f"{names}; set the gateway's address and key in the configuration of its clients"
            )

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        """Handle a termination signal. While the command is running, pass the signal on to it."""
        if self._early is not None:
            self._early.append(number)
        elif self._child is None:
            signal.default_int_handler(number, frame)
        else:
            self._child.pass_on(number)
            self._begin_to_drain()

    def drain(self) -> None:
        """Stop sending requests, and wait for the answers to requests in flight."""
        drained = self._begin_to_drain()
        if drained is not None and not wait([drained], _SOON_S).done:
            write_line("waiting for answers to requests in flight; press Ctrl-C again to end now")
            while self._lost is None and not wait([drained], _SOON_S).done:
                pass

    def _begin_to_drain(self) -> Future[None] | None:
        if self._loop is None or self._lost is not None:
            return None
        drain = self._gateway.drain()
        return engine_context().run(asyncio.run_coroutine_threadsafe, drain, self._loop)

    def _wait(self) -> None:
        troubled_s = 0
        noted: set[str] = set()
        while not self._over.wait(1.0):
            status = self._status() if self._sharing is not None else None
            trouble, notes = (status.trouble, status.notes) if status is not None else ("", [])
            for sentence in [one for one in notes if one not in noted]:
                write_line(self._redactor.text(sentence))
            noted.update(notes)
            troubled_s = troubled_s + 1 if trouble else 0
            if troubled_s == _SAID_S:
                write_line(f"{self._redactor.text(trouble)}; nothing is sent meanwhile")

    def end(self) -> None:
        """End all requests, write the tables and print the summary.

        Raises:
            ResultsError: The results cannot be written, or the gateway ended because of an error.
        """
        assert self._engine is not None
        status = self._status()
        self._engine.stop()
        self._journal.sync()
        command = self._arguments.command
        if command and (n := self._gateway.n_refused - self._n_refused):
            write_line(
                f"after {command[0]} had ended, {counted(n, 'request')} that were waiting or "
                "arrived later got 503: let this command wait for its background processes (in a "
                "shell: wait)"
            )
        if self._lost is not None:
            msg = f"the gateway has ended: {type(self._lost).__name__}: {self._lost}"
            raise ResultsError(self._redactor.text(msg))
        manifest = msgspec.structs.replace(
            self._write_plan(self._cases.finish()),
            lanes=status.lanes if status is not None else [],
            ended_at=datetime.now(UTC),
            segments=largest_sizes(self._directory.journal, {}),
        )
        write_manifest(self._directory.path, manifest)
        summary = self._services.compact(lambda _done, _total: None, lambda: None, write_line)
        width = shutil.get_terminal_size().columns
        path = str(self._directory.path)
        write_report(self._directory.path, summary, manifest)
        has_page = self._services.wait_for_page(write_line)
        lines = brief_lines(summary, manifest.lanes, directory=path, width=width, has_page=has_page)
        for line in lines:
            write_line(line)

    def close(self) -> None:
        """Stop everything, and release the keys. Idempotent."""
        if self._engine is not None:
            self._engine.stop()
        self._journal.close()
        self._cases.close()
        self._services.stop()
        if self._keys is not None:
            self._keys.give_back(MonotonicClock())
        if self._engine is None and self._arguments.out is None:
            self._directory.discard()
        self._directory.close()

    def _status(self) -> BrokerStatus | None:
        return self._port.status_from_thread(_STATUS_TIMEOUT_S) if self._port else None

    def _note_lost(self, error: BaseException) -> None:
        self._lost = error
        self._over.set()

    def _record(self, records: Sequence[JournalRecord]) -> Sequence[Any]:
        self._cases.write()
        ended = [one for one in records if isinstance(one, EpisodeEnded)]
        grades = [grade for one in ended if (grade := grade_of(one)) is not None]
        self._journal.append_all([*records, *grades])
        return records

    def _sync(self) -> None:
        self._parts.sync()
        self._cases.sync()
        self._journal.sync()

    def _write_plan(self, cases: Sequence[Case]) -> Manifest:
        """Write the manifest with these planned cases, and return it."""
        pool = self._pool
        manifest = Manifest(
            run_id=self._directory.run_id,
            started_at=self._started_at,
            **conditions(pool),
            answered_by=answered_by(pool),
            simulated=pool.is_simulated,
            mode="ultra",
            asked_by_others=True,
            policy=Options.policy.default or "balanced",
            seed=0,
            repeats=1,
            n_planned=len(cases),
            suite_digest=suite_digest(cases),
            cases_digest=cases_digest(self._directory.path),
            arguments=tuple(map(self._redactor.text, sys.argv[1:])),
            effective=pool.effective,
            record=self._kept,
            pool_lanes=pool.lanes,
            pool_limits=tuple(pool.limits.values()),
        )
        write_manifest(self._directory.path, manifest)
        return manifest
