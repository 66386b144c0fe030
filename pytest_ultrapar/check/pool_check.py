"""What `ultrapar check` does: the pool's keys are taken, its lanes asked, and lines printed."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.check.checking import lane_answers
from pytest_ultrapar.check.question import ModelList, SmallestChat
from pytest_ultrapar.check.report import first_line, lane_line, summary_lines
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.ctrl_c import CtrlC
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.leading.key_keeping import keep_keys, locked_keys
from pytest_ultrapar.leading.services import running_simulator
from pytest_ultrapar.leading.waiting_line import WaitingLine
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides
from pytest_ultrapar.pool.route import check_routes
from pytest_ultrapar.settings import selected_models
from pytest_ultrapar.simulator.process import SimulatorProcess

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Mapping

    from pytest_ultrapar.check.lane_answer import LaneAnswer
    from pytest_ultrapar.pool.model import Pool

_INTERRUPTED = 2


class _Stdout:
    """Standard output, for a `WaitingLine`."""

    @property
    def isatty(self) -> bool:
        return sys.stdout.isatty()

    @property
    def hasmarkup(self) -> bool:
        return self.isatty and os.environ.get("TERM") != "dumb"

    def write_line(self, line: str, /) -> None:
        _say(line)

    def write(self, content: str, /, *, flush: bool = False) -> None:
        sys.stdout.write(content)
        if flush:
            sys.stdout.flush()

    def flush(self) -> None:
        sys.stdout.flush()


def check_pool(arguments: argparse.Namespace) -> bool:
    """Check the pool that the command line names; False if a lane failed or none is ok.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent then.
        KeyboardInterrupt: After what was known by then has been printed.
    """
    pool = load_pool(Path(arguments.pool), environ=os.environ, overrides=Overrides())
    models = set(selected_models(pool, arguments.model, option="--model"))
    pool = replace(pool, lanes=tuple(lane for lane in pool.lanes if lane.model in models))
    check_routes(pool, os.environ)
    ctrl_c = CtrlC(lambda: os._exit(_INTERRUPTED))
    ctrl_c.install()
    try:
        return _check_alone(pool, arguments, WaitingLine(_Stdout()))
    except BaseException:
        ctrl_c.note_ending()
        raise
    finally:
        ctrl_c.remove()


def _check_alone(pool: Pool, arguments: argparse.Namespace, line: WaitingLine) -> bool:
    """Check while no other run of the host has one of the keys."""
    clock = MonotonicClock()
    question = ModelList() if arguments.ask == "models" else SmallestChat()
    timeout_s = math.inf if arguments.timeout is None else arguments.timeout
    found: list[LaneAnswer] = []
    with _simulated(pool, arguments.simulator) as base_urls:
        keys = keep_keys(
            locked_keys(pool, pool.lanes, os.environ, arguments.simulator),
            None,
            arguments.key_lock,
            line,
            clock=clock,
            option="--key-lock",
        )
        try:
            _say(f"ultrapar check: {first_line(pool, question)}")
            asked = lane_answers(pool, base_urls, question, line, timeout_s=timeout_s)
            with closing(asked) as answers:
                for answer in answers:
                    found.append(answer)
                    _say(lane_line(answer, pool.lanes))
        except KeyboardInterrupt:
            line.end()
            # The terminal has written ^C.
            known = "" if found else "; nothing is known of any lane"
            _say(f"\nultrapar check: interrupted{known}")
            raise
        finally:
            keys.give_back(clock)
            for text in summary_lines(pool, found, question) if found else ():
                _say(text)
    words = {one.word for one in found}
    return "ok" in words and "failed" not in words


def _say(line: str) -> None:
    # A server may say what the terminal's encoding lacks.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _simulated(pool: Pool, running_at: str | None) -> Generator[Mapping[str, str]]:
    """Base URLs of the pool's simulated providers, served while the block lasts.

    Args:
        pool: May have such providers.
        running_at: URL of a simulated provider that already runs; None starts one.

    Raises:
        ConfigError: The URL cannot be used, or the pool has no such provider.
    """
    of_lanes = {lane.provider for lane in pool.lanes}
    names = [one.name for one in pool.providers if one.api == "simulated" and one.name in of_lanes]
    if running_at is not None:
        if not names:
            msg = (
                f'--simulator is given, but {pool.path} has no provider with api = "simulated" '
                "for the selected models"
            )
            raise ConfigError(msg)
        yield running_simulator(running_at, names, "--simulator")
        return
    if not names:
        yield {}
        return
    with tempfile.TemporaryDirectory() as directory:
        log_path = Path(directory) / "server.log"
        with SimulatorProcess.start(pool, log_path=log_path) as simulator:
            yield {name: simulator.base_url(name) for name in names}
