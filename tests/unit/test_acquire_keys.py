from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from pytest_ultrapar.broker.lane_table import free_s
from pytest_ultrapar.coordinator.keys.acquire_keys import KeptKeys, keep_keys, locked_keys
from pytest_ultrapar.coordinator.keys.key_lock_file import Holder, take_all
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.report.wait_notice import WaitingLine

POOL = """
schema = 1
[[provider]]
name = "a"
api = "openai"
base_url = "https://one.example.com/v1"
keys = [{ name = "k0", env = "K0" }, { name = "k1", env = "K1" }]
qps = 50
per_key = { qps = 10 }
[[provider.model]]
name = "m"
[[provider.model]]
name = "n"
keys = ["k1"]
per_instance = { rpm = 30 }
[[provider]]
name = "box"
api = "openai"
base_url = "http://127.0.0.1/v1"
keys = [{ name = "none" }]
[[provider.model]]
name = "served"
ports = [8001, 8002]
[[provider]]
name = "sim"
api = "simulated"
keys = [{ name = "k0" }]
[[provider.model]]
name = "s"
"""
ENVIRON = {"K0": "secret-0", "K1": "secret-1"}
ONE = "https://one.example.com/v1"


@pytest.fixture
def pool(load):
    return load(POOL)


def test_keys_are_locked_by_server_and_secret_with_their_limits(pool):
    keys = locked_keys(pool, pool.lanes, ENVIRON, None)
    k0, k1 = key_identity(ONE, "secret-0"), key_identity(ONE, "secret-1")
    boxes = [key_identity(f"http://127.0.0.1:{port}/v1", "") for port in (8001, 8002)]
    assert set(keys) == {k0, k1, *boxes}
    assert keys[k0].shown == "a/k0"
    assert [one.name for one in keys[k0].limits] == ["a", "a/k0"]
    assert [one.name for one in keys[k1].limits] == ["a", "a/k1", "a/n"]
    assert [keys[box].shown for box in boxes] == ["box/none"] * 2


def test_keys_of_unselected_models_are_not_locked(pool):
    keys = locked_keys(pool, pool.lanes_of("n"), {"K1": "secret-1"}, None)
    assert [key.shown for key in keys.values()] == ["a/k1"]


def test_simulated_keys_are_locked_only_if_runs_share_the_server(pool):
    assert locked_keys(pool, pool.lanes_of("s"), ENVIRON, None) == {}
    shared = locked_keys(pool, pool.lanes_of("s"), ENVIRON, "http://127.0.0.1:9000")
    other = locked_keys(pool, pool.lanes_of("s"), ENVIRON, "http://127.0.0.1:9001")
    assert [key.shown for key in shared.values()] == ["sim/k0"]
    assert set(shared) != set(other)


@pytest.mark.parametrize(
    ("limits", "wait_s"),
    [
        ([], 0.0),
        ([Limit("l", "key", workers=3)], 0.0),
        ([Limit("l", "key", qps=10)], 0.125 + 0.25),
        ([Limit("l", "key", qps=10, rpm=60)], 1.1 + 1.0),
        ([Limit("l", "key", qps=10), Limit("o", "pool", rpm=6)], 11.0 + 1.0),
        ([Limit("l", "key", tpm=6)], 66.0 + 1.0),
    ],
)
def test_next_run_waits_for_the_interval_of_the_slowest_limit(limits, wait_s):
    assert free_s(limits, 100.0) == pytest.approx(100.0 + wait_s)


class Terminal:
    """The part of pytest's terminal reporter that writes."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.hasmarkup = self.isatty = is_terminal
        self.written: list[str] = []

    def write_line(self, line: str) -> None:
        self.written.append(line)

    def write(self, text: str, *, flush: bool) -> None:
        assert flush
        self.written.append(text)

    def flush(self) -> None:
        pass


class VirtualTime:
    """A clock that moves only during a pause."""

    def __init__(self) -> None:
        self._now_s = 1000.0

    def now_s(self) -> float:
        return self._now_s

    def pause(self, seconds: float) -> None:
        self._now_s += seconds


def keep(keys, run, how, *, time=None, terminal=None) -> KeptKeys:
    time = time or VirtualTime()
    return keep_keys(keys, run, how, WaitingLine(terminal), clock=time, pause=time.pause)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_LOCK_DIR", str(tmp_path / "locks"))
    return tmp_path / "locks"


@pytest.fixture
def keys(pool):
    return locked_keys(pool, pool.lanes_of("n"), ENVIRON, None)


def holder(ended_s: float | None = None) -> Holder:
    return Holder(99, "/runs/\x1bother", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), ended_s)


def test_run_that_does_not_wait_is_told_which_run_has_the_key(directory, keys, tmp_path):
    locks = take_all(directory, keys, holder())
    with pytest.raises(
        ConfigError, match=r"key a/k1 is in use by the run with process id 99 "
    ) as e:
        keep(keys, tmp_path, "fail")
    assert r"(results in /runs/\x1bother, since 2026-01-02 03:04:05 UTC)" in str(e.value)
    assert "secret-1" not in str(e.value)
    locks.give_back({})


@pytest.mark.parametrize(
    ("free_at_s", "waits"),
    [(None, True), (1003.0, True), (999.0, False), (0.5, False), (9e9, True)],
    ids=["killed", "ended just now", "ended long ago", "long since boot", "before this boot"],
)
def test_run_begins_when_sends_of_the_earlier_run_no_longer_count(
    directory, keys, tmp_path, free_at_s, waits
):
    name = next(iter(keys))
    locks = take_all(directory, keys, holder())
    locks.give_back({name: 0.0} if free_at_s is None else {name: free_at_s})
    if free_at_s is None:
        (directory / name).write_text('{"pid":99,"run":"/r","since":"2026-01-02T03:04:05Z"}\n')
    clock, terminal = VirtualTime(), Terminal(is_terminal=False)
    kept = keep(keys, tmp_path, "wait", time=clock, terminal=terminal)
    now_s = clock.now_s()
    if free_at_s == 1003.0:
        assert 1003.0 <= now_s < 1003.2
    elif waits:  # rpm = 30: 2.2 s and 1 s for a send that was late
        assert 1003.2 <= now_s < 1003.4
    else:
        assert now_s < 1000.2
    assert len(terminal.written) == waits
    assert kept.waited_for == ""
    kept.give_back(clock)
    found = take_all(directory, keys, holder())
    assert found.earlier[name].pid == os.getpid()
    assert found.earlier[name].free_s == pytest.approx(now_s + 3.2)
    found.give_back({})


def test_finished_wait_is_reported_in_the_past_tense(directory, keys, tmp_path):
    locks = take_all(directory, keys, holder())
    time, terminal = VirtualTime(), Terminal(is_terminal=False)

    def pause(seconds):
        time.pause(seconds)
        if time.now_s() > 1015:
            locks.give_back({})

    line = WaitingLine(terminal)
    kept = keep_keys(keys, tmp_path, "wait", line, clock=time, pause=pause)
    who = r"the run with process id 99 (results in /runs/\x1bother, since 2026-01-02 03:04:05 UTC)"
    assert kept.waited_for == f"key a/k1, which was in use by {who}"
    assert terminal.written == [
        f"ultrapar: waiting for key a/k1, which is in use by {who}",
        "ultrapar: still waiting for key a/k1: 10.0 s",
    ]
    kept.give_back_unused()


def test_interrupted_wait_ends_with_a_sentence(directory, keys, tmp_path):
    locks = take_all(directory, keys, holder())

    def pause(_seconds):
        raise KeyboardInterrupt

    terminal = Terminal(is_terminal=False)
    with pytest.raises(KeyboardInterrupt):
        keep_keys(keys, tmp_path, "wait", WaitingLine(terminal), clock=VirtualTime(), pause=pause)
    assert terminal.written[1:] == [
        "",
        "ultrapar: stopped waiting for key a/k1; no request was sent",
    ]
    locks.give_back({})


def test_terminal_shows_one_line_that_is_redrawn_every_ten_seconds():
    terminal = Terminal(is_terminal=True)
    line = WaitingLine(terminal)
    for tenths in range(350):
        line.say("key k", ", which is in use", tenths / 10)
    assert terminal.written == [
        "ultrapar: waiting for key k, which is in use",
        *(f"\r\x1b[2Kultrapar: still waiting for key k: {at}.0 s" for at in (10, 20, 30)),
    ]
    line.say("key l", "", 35)
    assert terminal.written[-2:] == ["\r\x1b[2K", "ultrapar: waiting for key l"]


def test_check_that_holds_a_key_is_named_as_a_check(directory, keys, tmp_path):
    time = VirtualTime()
    checking = keep_keys(keys, None, "wait", WaitingLine(None), clock=time, pause=time.pause)
    with pytest.raises(
        ConfigError, match=r"key a/k1 is in use by a lane check with process id \d+ \(since 2"
    ):
        keep(keys, tmp_path, "fail")
    checking.give_back(time)
    assert keep(keys, tmp_path, "fail").waited_s > 0


def test_unused_keys_do_not_delay_the_next_run(directory, keys, tmp_path):
    keep(keys, tmp_path, "fail").give_back_unused()
    found = take_all(directory, keys, holder())
    assert found.earlier == {}
    found.give_back({})


def test_log_reports_waiting_at_growing_intervals():
    terminal = Terminal(is_terminal=False)
    line = WaitingLine(terminal)
    for tenths in range(3000):
        line.say("key k", ", which is in use", tenths / 10)
    line.end()
    assert terminal.written == [
        "ultrapar: waiting for key k, which is in use",
        *(
            f"ultrapar: still waiting for key k: {at}"
            for at in ("10.0 s", "30.0 s", "70.0 s", "2 min 30 s")
        ),
    ]
