"""The file of a daily limit: its content, when it is on disk, and refused files."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from zlib import crc32

import pytest

from pytest_ultrapar.broker import day_file
from pytest_ultrapar.broker.day_file import DayMemory, file_name, state_directory
from pytest_ultrapar.broker.day_ledger import DayLedger
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.system import files
from tests.played_clock import PlayedDayClock

START_S = 1_777_636_800.0
CLOCK = PlayedDayClock(START_S)
URL, SECRET = "https://api.example.com/v1", "sk-canary-4f9a1c77e2b05d"


@pytest.fixture
def memory(tmp_path):
    return DayMemory(tmp_path / "state", "requests-1", "requests per day for lab/key0")


def ledger_of(memory, clock=CLOCK, amount=1000):
    return DayLedger(amount, clock, 0.0, memory=memory)


def used(memory, units):
    """Let a run send so many units and end."""
    ledger = ledger_of(memory)
    for _ in range(units):
        ledger.settle(ledger.reserve(1, 0.0), 1, 0.0)
    ledger.close(0.0)


def test_state_directory_comes_from_the_environment(tmp_path):
    home = {"HOME": "/home/me"}
    assert state_directory(home) == Path("/home/me/.local/state/ultrapar")
    shared = home | {"XDG_STATE_HOME": "/var/me"}
    assert state_directory(shared) == Path("/var/me/ultrapar")
    assert state_directory(home | {"XDG_STATE_HOME": "relative"}) == state_directory(home)
    named = shared | {"ULTRAPAR_STATE_DIR": str(tmp_path)}
    assert state_directory(named) == tmp_path
    assert state_directory(shared | {"ULTRAPAR_STATE_DIR": ""}) == state_directory(shared)


def test_directory_that_others_may_write_to_is_refused(tmp_path):
    others, link = tmp_path / "others", tmp_path / "link"
    others.mkdir(mode=0o755)
    link.symlink_to(tmp_path)
    for place in (others, link, "/dev/null"):
        with pytest.raises(
            ConfigError,
            match=r"cannot store the counts of daily limits in .* \(not a link\) .* mode 0700",
        ):
            state_directory({"ULTRAPAR_STATE_DIR": str(place)})


def test_user_without_a_home_gets_the_advice_to_name_a_directory(monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(ConfigError, match=r"no home directory; set .*STATE_DIR to a directory"):
        state_directory({})


def test_each_counted_limit_has_its_own_file_name():
    key = key_identity(URL, SECRET)
    name = file_name("requests", "key", "", key)
    assert name == file_name("requests", "key", "", key)
    others = [
        file_name("tokens", "key", "", key),
        file_name("requests", "key", "", key_identity(URL, "other")),
        file_name("requests", "lane", "", key),
        file_name("requests", "key", "small", key),
        file_name("requests", "provider", key),
    ]
    assert len({name, *others}) == 6


def test_file_is_private_and_contains_nothing_of_a_secret(tmp_path):
    name = file_name("requests", "key", "", key_identity(URL, SECRET))
    memory = DayMemory(tmp_path / "a" / "state", name, "requests per day for lab/key0")
    assert not memory.exists
    used(memory, 3)
    assert memory.exists
    found = sorted(memory.path.parent.iterdir())
    assert [file.suffix for file in found] == [".day", ".lock"]
    for file in found:
        assert file.stat().st_mode & 0o777 == 0o600
        content = file.name + file.read_text()
        assert SECRET[:8] not in content
        assert key_identity(URL, SECRET)[:16] not in content
    assert memory.path.parent.stat().st_mode & 0o777 == 0o700


def test_reading_creates_no_file(memory):
    assert ledger_of(memory).left(0.0) == 1000
    assert not memory.path.parent.exists()


def test_units_are_on_disk_before_they_are_granted(memory, monkeypatch):
    """The new directory, the new file and then its name are synced."""
    done = []

    def fsync(fd):
        done.append(("fsync", Path(f"/proc/self/fd/{fd}").readlink().name))

    def replace(old, new):
        done.append(("replace", old.name, new.name))
        os.rename(old, new)  # noqa: PTH104 - os.replace is patched

    monkeypatch.setattr(day_file.os, "fsync", fsync)
    monkeypatch.setattr(day_file.os, "replace", replace)
    ledger = ledger_of(memory)
    assert ledger.ready_at_s(1, 0.0) == 0.0
    name = memory.path.stem
    assert done[0] == ("fsync", memory.path.parents[1].name)
    assert done[1:] == [
        ("fsync", f"{name}.new"),
        ("replace", f"{name}.new", f"{name}.day"),
        ("fsync", "state"),
    ]
    ledger.reserve(1, 0.0)
    assert len(done) == 4


def test_units_are_reserved_in_blocks_of_a_fiftieth(memory, monkeypatch):
    writes = []
    update = memory.update
    monkeypatch.setattr(memory, "update", lambda *args: writes.append(0) or update(*args))
    used(memory, 1000)
    # The last write, at the end, is for the answers.
    assert len(writes) == 51


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-20],
    "last byte": lambda content: content[:-1],
    "longer": lambda content: content + b"\n",
    "a bit": lambda content: content.replace(b'"requests', b'"repuests'),
    "a digit": lambda content: content.replace(b",1]]", b",0]]"),
    "checksum": lambda content: content.replace(content.split()[3], b"00000000", 1),
    "zeros": lambda content: bytes(len(content)),
    "foreign": lambda content: b"[core]\n\tbare = false\n",
    "no text": lambda content: bytes(range(256)) * 10,
    "twice": lambda content: content * 2,
    "huge": lambda content: content + b" " * 2_000_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_file_is_refused(memory, damage):
    used(memory, 1)
    content = memory.path.read_bytes()
    memory.path.write_bytes(damage(content))
    for use in (ledger_of, lambda memory: memory.update(lambda found: found)):
        with pytest.raises(ConfigError) as refused:
            use(memory)
        said = str(refused.value)
        assert said.startswith(f"{memory.path}, which counts requests per day for lab/key0, is dam")
        assert "restore it, or delete the file after 24 h without requests;" in said
    assert memory.path.read_bytes() == damage(content)


class Failing:
    """The module `os` with one function that fails."""

    def __init__(self, call: str, number: int = errno.ENOSPC) -> None:
        self.call = call
        self.number = number

    def __getattr__(self, name):
        return self._fail if name == self.call else getattr(os, name)

    def _fail(self, *args):
        raise OSError(self.number, os.strerror(self.number))


def fail_with(monkeypatch, system):
    for module in (day_file, files):
        monkeypatch.setattr(module, "os", system)


def test_full_disk_grants_nothing_until_there_is_room(memory, monkeypatch):
    ledger = ledger_of(memory, amount=100)
    ledger.claim(0.0)
    ledger.reserve(2, 1.0)
    fail_with(monkeypatch, Failing("fsync"))
    assert 2.0 < ledger.ready_at_s(1, 2.0) < 10.0
    assert "No space left" in ledger.trouble
    with pytest.raises(ValueError, match="too early"):
        ledger.reserve(1, 2.0)
    ledger.close(2.0)
    assert ledger_of(memory, amount=100).left(2.0) == 98
    monkeypatch.undo()
    assert ledger.ready_at_s(1, 2.5) > 2.5
    assert ledger.ready_at_s(1, 10.0) == 10.0
    assert ledger.trouble == ""


def test_file_that_is_removed_during_a_run_is_made_again(memory):
    used(memory, 500)
    ledger = ledger_of(memory)
    ledger.settle(ledger.reserve(20, 0.0), 20, 0.0)
    memory.path.unlink()
    ledger.reserve(100, 0.0)
    ledger.close(0.0)
    assert ledger_of(memory).left(0.0) == 380


def test_two_runs_share_one_daily_limit(memory):
    first, second = ledger_of(memory), ledger_of(memory)
    for _ in range(100):
        first.settle(first.reserve(5, 0.0), 5, 0.0)
        second.settle(second.reserve(3, 0.0), 3, 0.0)
    first.close(0.0)
    second.close(0.0)
    assert ledger_of(memory).left(0.0) == 200
    second.settle(second.reserve(200, 0.0), 200, 0.0)
    assert first.ready_at_s(1, 0.0) > 86_400.0


def test_lock_that_another_process_holds_is_reported(memory, monkeypatch):
    monkeypatch.setattr(day_file, "_LOCK_WAIT_S", 0.05)
    used(memory, 1)
    with memory._locked(), pytest.raises(ConfigError, match="temporarily unavailable"):
        ledger_of(memory).claim(0.0)


def test_directory_or_link_in_place_of_the_file_is_refused(memory):
    memory.path.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"cannot read .*requests-1.day, which counts requests"):
        ledger_of(memory)
    memory.path.rmdir()
    memory.path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="cannot read"):
        ledger_of(memory)


def test_file_of_another_version_is_refused(memory):
    used(memory, 1)
    memory.path.write_bytes(memory.path.read_bytes().replace(b"day 2", b"day 3", 1))
    with pytest.raises(ConfigError, match=r"written by another version .* use that version, or"):
        ledger_of(memory)


def test_file_of_the_first_version_is_read(memory):
    """That version dates units by two clocks."""
    begin, end = int(START_S) - 60, int(START_S)
    sent = [[begin - 7, end - 7, begin, end, 12], [begin, end, begin + 60, end + 60, 3]]
    payload = json.dumps({"shown": "x", "frame": 0, "time_s": 1.0, "wall_s": 1.0, "sent": sent})
    memory.path.parent.mkdir(mode=0o700)
    memory.path.write_text(f"ultrapar day 1 {crc32(payload.encode()):08x}\n{payload}\n")
    assert ledger_of(memory).left(0.0) == 985
    used(memory, 5)
    assert ledger_of(memory).left(0.0) == 980
