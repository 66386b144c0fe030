"""Disks that are full, forbidden or broken: row 16 of the catalogue."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.system.disk import Disk
from tests.faults.played import SUITE
from tests.journals import scan_journal
from tests.light import LIGHT
from tests.plugin.conftest import said_by

LARGEST_FILE = 40_000
N_CASES = 300
LIMIT = f"""
import resource
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    # From the first test on, no file grows beyond {LARGEST_FILE} bytes, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, ({LARGEST_FILE}, resource.RLIM_INFINITY))

def pytest_sessionfinish(session):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


def finished(project) -> set[str]:
    """The cases with a complete episode in the journal."""
    records = (record for _, record in scan_journal(project.directory / "journal"))
    return {r.case_id for r in records if isinstance(r, EpisodeEnded) and r.ending == "returned"}


def suite(project) -> None:
    project.write_pool()
    project.server.faults["work"] = project.server.faults["say"]
    project.suite(SUITE.format(prompts=[f"work {'x' * 200} {n}" for n in range(N_CASES)]))


@pytest.mark.slow
def test_full_disk_stops_the_run_keeps_its_records_and_resume_completes(project):
    suite(project)
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(LIMIT)
    stopped = project.pytester.runpytest_subprocess(
        *LIGHT, "--ultrapar-pool=pool.toml", "-n2", timeout=60
    )
    output = said_by(stopped, 1, 2)
    # The second code if the journal was larger than the limit before the first test set it.
    assert "is the disk full?" in output or os.strerror(errno.EFBIG) in output
    kept = finished(project)
    assert kept
    # After the first failed write, no request was paid for except those in flight.
    n_sent = len(project.server.log)
    assert n_sent <= len(kept) + 2 * 4
    conftest.unlink()
    project.finish(N_CASES)
    assert len(project.server.log) == n_sent + N_CASES - len(kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("fdatasync", errno.EIO),
        ("write", errno.ENOSPC),
    ],
)
def test_disk_error_stops_the_run_with_the_systems_message(project, monkeypatch, call, number):
    suite(project)
    project.server.faults["work"] = project.server.faults["say"]
    real, done = getattr(Disk, call), []

    def broken(fd: int, *args: bytes) -> object:
        if "/journal/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            done.append(fd)
            if call == "fdatasync" or len(done) > 50:
                raise OSError(number, os.strerror(number))
        return real(fd, *args)

    monkeypatch.setattr(Disk, call, broken)
    if call == "fdatasync":
        from tests.faults.byte_faults import after

        project.server.faults["work"] = after(0.05)
    stopped = project.run("-n0")
    assert os.strerror(number) in said_by(stopped, 1, 2)
    assert len(project.server.log) < N_CASES
    monkeypatch.undo()


BROKEN_AT_THE_END = """
import errno
import os
import pytest
from pytest_ultrapar.system.disk import Disk

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    def broken(fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if hasattr(session.config, "workerinput"):
        Disk.fdatasync = broken
    return (yield)
"""


@pytest.mark.slow
def test_worker_whose_journal_fails_at_its_end_ends_the_run(project):
    project.write_pool()
    project.suite(SUITE.format(prompts=["say yes", "say no"]))
    (project.pytester.path / "conftest.py").write_text(BROKEN_AT_THE_END)
    stopped = project.pytester.runpytest_subprocess(
        *LIGHT, "--ultrapar-pool=pool.toml", "-n1", timeout=60
    )
    output = stopped.stdout.str() + stopped.stderr.str()
    assert stopped.ret == 2, output
    assert os.strerror(errno.EIO) in output
    assert "INTERNALERROR" not in output


@pytest.mark.parametrize("place", ["/proc/ultrapar", "pool.toml/run", "pool.toml"])
def test_directory_that_cannot_be_made_is_refused_before_any_request(project, place):
    suite(project)
    refused = project.run("-n0", f"--ultrapar-out={place}")
    assert place in said_by(refused, 4)
    assert len(project.server.log) == 0
