"""Check a pool: take its keys, send a request to each lane, and print the results."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.coordinator.check.lane_report import (
    first_line,
    in_short,
    lane_answer,
    lane_line,
    learned_limits,
    summary_lines,
)
from pytest_ultrapar.coordinator.check.lane_requests import LaneRequests
from pytest_ultrapar.coordinator.daily_limits_left import day_lines, days_left, run_days
from pytest_ultrapar.coordinator.earlier_run import newest_estimates
from pytest_ultrapar.coordinator.keys.acquire_keys import keep_keys, locked_keys
from pytest_ultrapar.coordinator.services import Services
from pytest_ultrapar.pool.keys import sent_lines
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.network import check_routes
from pytest_ultrapar.pool.setting_values import Overrides
from pytest_ultrapar.pool.vendors import named_pool
from pytest_ultrapar.report.browse.screen import write_line
from pytest_ultrapar.report.text import counted, listed
from pytest_ultrapar.report.wait_notice import WaitingLine
from pytest_ultrapar.session import run_config
from pytest_ultrapar.session.ctrl_c import CtrlC
from pytest_ultrapar.session.lane_endpoints import lane_endpoints
from pytest_ultrapar.session.settings import selected_models
from pytest_ultrapar.system.clock import MonotonicClock, boot_s

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Mapping, Sequence

    from pytest_ultrapar.broker.daily_limits import DailyLimit
    from pytest_ultrapar.coordinator.check.lane_report import LaneAnswer
    from pytest_ultrapar.pool.model import Pool


_QUIET_S = 1.5


def lane_answers(
    pool: Pool,
    base_urls: Mapping[str, str],
    line: WaitingLine,
    days: Sequence[DailyLimit],
    *,
    wait_s: float,
    timeout_s: float = math.inf,
    option: str = "--wait-for-servers",
) -> Generator[LaneAnswer]:
    """Send a request to each lane of a pool; yield the results as they arrive.

    Close the iterator to cancel the remaining requests.

    Args:
        pool: The pool; each lane gets one request.
        base_urls: Base URLs of simulated providers, by the name of the provider.
        line: Shows why the check is waiting.
        days: The daily limits.
        wait_s: How long to wait for servers that are unavailable, in seconds.
        timeout_s: The longest time that one request may take, in seconds. If the pool sets a
            shorter deadline, that one applies.
        option: Name of the option that sets `wait_s`, for messages.

    Raises:
        ConfigError: The environment variable for a key or a proxy is not set.
    """
    asked = {
        lane_id: replace(one, timeout_s=min(one.timeout_s, timeout_s))
        for lane_id, one in lane_endpoints(pool, base_urls).items()
    }
    redact = run_config.redactor(pool).text
    waiting = [lane.lane_id for lane in pool.lanes]
    began_s = boot_s()
    with LaneRequests(pool, asked, days, wait_s) as asking:
        while waiting:
            seen = asking.next(_QUIET_S)
            if seen is None:
                waited_s = boot_s() - began_s
                away = [asking.away[name] for name in waiting if name in asking.away]
                more = f" ({listed(waiting)})"
                if away:
                    more += (
                        f": {in_short(redact(away[0]))}; giving up after {wait_s:g} s ({option})"
                    )
                line.say(counted(len(waiting), "lane"), more, waited_s)
                continue
            line.end()
            lane = seen.lane
            waiting.remove(lane.lane_id)
            yield lane_answer(seen, asked[lane.lane_id], redact=redact)


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
        write_line(line)

    def write(self, content: str, /, *, flush: bool = False) -> None:
        sys.stdout.write(content)
        if flush:
            sys.stdout.flush()

    def flush(self) -> None:
        sys.stdout.flush()


def check_pool(arguments: argparse.Namespace) -> bool:
    """Check the pool that the command line names; return False if a lane failed or no lane is ok.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent.
        KeyboardInterrupt: The user interrupted the check. The results so far have been printed.
    """
    if arguments.pool is None:
        pool = named_pool("--model", arguments.model, os.environ, Overrides())
    else:
        pool = load_pool(Path(arguments.pool), environ=os.environ, overrides=Overrides())
        models = set(selected_models(pool, arguments.model, pool.models, option="--model"))
        pool = replace(pool, lanes=tuple(lane for lane in pool.lanes if lane.model in models))
    check_routes(pool, os.environ)
    ctrl_c = CtrlC(lambda: os._exit(_INTERRUPTED))
    ctrl_c.install()
    with tempfile.TemporaryDirectory() as directory:
        services = Services(pool, Path(directory))
        try:
            services.start_simulator(arguments.simulator, option="--simulator")
            base_urls = services.base_urls
            return _check_alone(pool, base_urls, arguments, WaitingLine(_Stdout()))
        except BaseException:
            ctrl_c.note_ending()
            raise
        finally:
            services.stop()
            ctrl_c.remove()


def _check_alone(
    pool: Pool, base_urls: Mapping[str, str], arguments: argparse.Namespace, line: WaitingLine
) -> bool:
    """Reserve the keys, so that no other run on this machine uses them, and check the lanes."""
    clock = MonotonicClock()
    timeout_s = math.inf if arguments.timeout is None else arguments.timeout
    found: list[LaneAnswer] = []
    keys = keep_keys(
        locked_keys(pool, pool.lanes, os.environ, arguments.simulator),
        None,
        arguments.key_lock,
        line,
        clock=clock,
        option="--key-lock",
    )
    try:
        days = run_days(pool, pool.lanes, os.environ, arguments.simulator)
        left = days_left(pool, days, clock, claim=True)
        write_line(f"ultrapar check: {first_line(pool)}")
        for text in (*sent_lines(pool, pool.lanes), *day_lines(left)):
            write_line(f"ultrapar check: {text}")
        wait_s = arguments.wait_for_servers
        asked = lane_answers(pool, base_urls, line, days, wait_s=wait_s, timeout_s=timeout_s)
        with closing(asked) as answers:
            for answer in answers:
                found.append(answer)
                write_line(lane_line(answer, pool.lanes))
    except KeyboardInterrupt:
        line.end()
        # The terminal has just printed ^C.
        known = "" if found else " before any lane had a result"
        write_line(f"\nultrapar check: interrupted{known}")
        raise
    finally:
        keys.give_back(clock)
        learned = learned_limits(pool, earlier) if (earlier := newest_estimates(pool)) else ()
        for text in (*summary_lines(pool, found), *learned) if found else ():
            write_line(text)
    words = {one.word for one in found}
    return "ok" in words and "failed" not in words
