"""Keys that the runs of a group share at the same time; real locks, virtual time."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pytest_ultrapar.coordinator.keys import key_lock_file
from pytest_ultrapar.coordinator.keys.acquire_keys import KeptKeys, LockedKey, keep_keys
from pytest_ultrapar.coordinator.keys.key_lock_file import (
    Holder,
    KeyGroup,
    KeyInUse,
    KeyLocks,
    take_all,
)
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.report.wait_notice import WaitingLine
from tests.unit.test_acquire_keys import VirtualTime

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ME = Holder(1, "/mine", SINCE)


def group(name: str, member: int) -> KeyGroup:
    return KeyGroup(name, f"shard {member}")


def joined(directory: Path, who: KeyGroup | None, names=("k",), holder=ME) -> KeyLocks:
    locks = take_all(directory, names, holder, who)
    assert isinstance(locks, KeyLocks)
    return locks


def crash(fds: tuple[int, ...]) -> None:
    """Close the files, as the system does when a process is killed."""
    for fd in fds:
        key_lock_file._open_fds.discard(fd)
        os.close(fd)


def test_members_share_a_key_and_other_runs_wait_for_all_members(tmp_path):
    one, two = joined(tmp_path, group("a", 1)), joined(tmp_path, group("a", 2))
    for other in (None, group("b", 1), group("a", 2)):
        assert isinstance(take_all(tmp_path, ["k"], ME, other), KeyInUse)
    one.give_back({"k": 0.0})
    for other in (None, group("b", 1), group("a", 2)):
        assert isinstance(take_all(tmp_path, ["k"], ME, other), KeyInUse)
    joined(tmp_path, group("a", 1)).give_back({"k": 0.0})
    two.give_back({"k": 0.0})
    alone = joined(tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == ["k"]
    assert isinstance(take_all(tmp_path, ["k"], ME, group("a", 1)), KeyInUse)
    alone.give_back({})


def test_message_to_a_waiting_run_names_a_member(tmp_path, monkeypatch):
    monkeypatch.setenv("ULTRAPAR_LOCK_DIR", str(tmp_path))
    first = joined(tmp_path, group("a", 1), holder=Holder(11, "/runs/one", SINCE))
    rest = [
        joined(tmp_path, group("a", n), holder=Holder(10 + n, f"/runs/{n}", SINCE)) for n in (2, 3)
    ]
    first.give_back({})
    clock = VirtualTime()

    def said(of: KeyGroup | None) -> str:
        keys = {"k": LockedKey("lab/key0", ())}
        with pytest.raises(ConfigError) as error:
            keep_keys(
                keys, tmp_path, "fail", WaitingLine(None), clock=clock, pause=clock.pause, group=of
            )
        return str(error.value)

    found = said(None)
    assert "key lab/key0 is in use by shard 1 with process id 11 (results in /runs/one" in found
    assert "is in use by shard 2 with process id 12 (results in /runs/2, since" in said(
        group("a", 2)
    )
    for one in rest:
        one.give_back({})


def test_broker_keeps_the_place_of_its_member_after_the_coordinator_died(tmp_path):
    locks = joined(tmp_path, group("a", 1))
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(1, flush=True); sys.stdin.read()"],
        pass_fds=locks.fds,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    crash(locks.fds)
    assert isinstance(take_all(tmp_path, ["k"], ME, group("a", 1)), KeyInUse)
    assert isinstance(take_all(tmp_path, ["k"], ME), KeyInUse)
    joined(tmp_path, group("a", 2)).give_back({})
    child.communicate(b"")
    joined(tmp_path, group("a", 1)).give_back({})


QPS = 4
MEMBERS = {"a": 4, "b": 2}
"""The number of members of each group. A member has an equal part of the limit."""
WHO = [None, None, *(group(name, k) for name, n in MEMBERS.items() for k in range(1, n + 1))]


class Keys(RuleBasedStateMachine):
    """Runs that take a key, send as fast as they may, end or are killed, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self._before = os.environ.get("ULTRAPAR_LOCK_DIR")
        os.environ["ULTRAPAR_LOCK_DIR"] = f"{self._folder.name}/locks"
        self.time = VirtualTime()
        self.kept: dict[int, KeptKeys] = {}
        self.ready_s: dict[int, float] = {}
        self.sent: list[float] = []

    def teardown(self) -> None:
        for kept in self.kept.values():
            kept.give_back(self.time)
        if self._before is None:
            del os.environ["ULTRAPAR_LOCK_DIR"]
        else:
            os.environ["ULTRAPAR_LOCK_DIR"] = self._before
        self._folder.cleanup()

    def qps(self, who: int) -> int:
        of = WHO[who]
        return QPS if of is None else QPS // MEMBERS[of.group_id]

    @rule(who=st.integers(0, len(WHO) - 1))
    def take(self, who: int) -> None:
        living = [WHO[one] for one in self.kept]
        of = WHO[who]
        may = not living or (
            of is not None and all(one is not None and one[0] == of[0] for one in living)
        )
        may = may and of not in living
        keys = {"k": LockedKey("lab/key0", (Limit("lab/key0", "key", qps=self.qps(who)),))}
        try:
            kept = keep_keys(
                keys,
                Path("/run"),
                "fail",
                WaitingLine(None),
                clock=self.time,
                pause=self.time.pause,
                group=of,
            )
        except ConfigError:
            assert not may
            return
        if not may:
            kept.give_back_unused()
        assert may
        self.kept[who] = kept
        self.ready_s[who] = self.time.now_s()

    @rule(name=st.sampled_from([None, *MEMBERS]), n=st.integers(1, 6), is_killed=st.booleans())
    def whole_runs(self, name: str | None, n: int, is_killed: bool) -> None:
        """End all runs; then a whole group, or one run without a group, begins and sends."""
        for kept in list(self.kept):
            self.end(kept, is_killed)
        own = [who for who, of in enumerate(WHO) if (of and of.group_id) == name]
        for who in own[: None if name else 1]:
            self.take(who)
        for _ in range(n):
            self.all_send()

    @rule(who=st.integers(0, len(WHO) - 1), n=st.integers(1, 6))
    def send(self, who: int, n: int) -> None:
        """Send as soon as the run's own part of the limit allows."""
        if who not in self.kept:
            return
        for _ in range(n):
            self.time.pause(max(0.0, self.ready_s[who] - self.time.now_s()))
            self.sent.append(self.time.now_s())
            self.ready_s[who] = self.time.now_s() + 1.0 / self.qps(who)

    @rule()
    def all_send(self) -> None:
        for who in sorted(self.kept, key=self.ready_s.__getitem__):
            self.send(who, 1)

    @rule(who=st.integers(0, len(WHO) - 1), is_killed=st.booleans())
    def end(self, who: int, is_killed: bool) -> None:
        kept = self.kept.pop(who, None)
        if kept is not None and is_killed:
            crash(kept.fds)
        elif kept is not None:
            kept.give_back(self.time)

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0]))
    def wait(self, seconds: float) -> None:
        self.time.pause(seconds)

    @invariant()
    def never_above_the_limit(self) -> None:
        recent = self.sent[-QPS - 1 :]
        assert len(recent) <= QPS or recent[-1] - recent[0] >= 1.0 - 1e-9


TestKeys = Keys.TestCase
TestKeys.settings = settings(stateful_step_count=30, deadline=None)

RUNNER = """
import os, sys
from datetime import datetime, UTC
from pathlib import Path
from pytest_ultrapar.coordinator.keys.key_lock_file import Holder, KeyGroup, KeyLocks, take_all
folder, me = Path(sys.argv[1]), sys.argv[2]
name = me.split("-")[0]
group = None if name == "alone" else KeyGroup(name, me.split("-")[1])
n = 0
sys.stdin.readline()
for _ in range(1000):
    holder = Holder(os.getpid(), me, datetime.now(UTC))
    locks = take_all(folder / "locks", ["j", "k"], holder, group)
    if not isinstance(locks, KeyLocks):
        continue
    n += 1
    own = folder / "inside" / f"{me}-{os.getpid()}"
    own.touch(exist_ok=False)
    for other in os.listdir(folder / "inside"):
        if other != own.name:
            of = other.split("-")
            assert name != "alone" and of[0] == name and of[1] != me.split("-")[1], (me, other)
    own.unlink()
    locks.give_back({"j": 0.0, "k": 0.0})
print(n)
"""


@pytest.mark.slow
def test_processes_that_race_for_a_key_meet_only_their_own_group(tmp_path):
    (tmp_path / "inside").mkdir()
    names = ["alone", "alone", "a-1", "a-1", "a-2", "a-3", "b-1", "b-2"]
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RUNNER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for one in racing:
        one.stdin.write("go\n")
        one.stdin.flush()
    n_taken = 0
    for name, one in zip(names, racing, strict=True):
        out, error = one.communicate(timeout=60)
        assert one.returncode == 0, f"{name}: {error}"
        n_taken += int(out)
    assert n_taken >= len(racing)
