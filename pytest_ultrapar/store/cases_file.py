"""The cases of a run, planned or as they come, and those that its suites take from one another."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.journal import frame, unframe, without_surrogates
from pytest_ultrapar.system.files import (
    NOT_THAT_JSON,
    cannot,
    digest_of,
    open_file,
    publish,
    read_file,
    read_whole,
    sync_path,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


MANIFEST_NAME = "manifest.json"
CASES_NAME = "cases.json"
NEXT_NAME = "cases.next.json"
"""The plan of a session that resumes a run, until it stands in the manifest."""
COMING_NAME = "cases.jsonl"
"""In its place while nobody knows yet which cases there will be, one a line."""
CLAIMED_NAME = "claimed.txt"
"""Where several hosts share a run: the ids of the cases that this one claimed, one a line; behind
`GIVEN_UP` those that it left to others again."""
PLAN_NAMES = (CASES_NAME, NEXT_NAME, COMING_NAME, CLAIMED_NAME)
"""All files that hold planned cases."""
GIVEN_UP = "-"
_LONGEST = 120
_WRONG = "does not hold the planned cases of a run"


def write_cases(directory: Path, cases: Sequence[Case], *, resumes: bool = False) -> list[Case]:
    """Put the planned cases into a run directory, whole or not at all; the first writer wins.

    Args:
        directory: The run's.
        cases: As this process collected them.
        resumes: Whether an earlier session may have planned some: then this plan comes beside the
            one that stands there, until `settle_cases`.

    Returns:
        What another process of this session collected, where that is not the same; else nothing.

    Raises:
        ConfigError: A parameter holds a lone surrogate, which no file of results can hold.
        ResultsError: The directory cannot be written.
    """
    content = _encode(cases)
    path = directory / (NEXT_NAME if resumes else CASES_NAME)
    temporary = directory / f".{CASES_NAME}.{os.getpid()}.tmp"
    with cannot(f"write {path}"):
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(content)
            # A link fails where a rename would replace what another worker has written.
            os.link(temporary, path)
            if resumes:
                # The manifest is going to name it.
                sync_path(path)
        except FileExistsError:
            return [] if read_file(path) == content else read_collected(directory)
        finally:
            temporary.unlink(missing_ok=True)
    return []


def settle_cases(directory: Path) -> None:
    """Let the plan of a resumed run take the place of the earlier one, if it was accepted.

    That is when the manifest names it. A session that was refused or killed before leaves the
    earlier plan; one that was killed after it, the plan for the next session to settle.

    Raises:
        ResultsError: It cannot be read or moved.
    """
    coming = directory / NEXT_NAME
    with cannot(f"write {directory / CASES_NAME}"):
        if _plan_path(directory) == coming:
            publish(coming, directory / CASES_NAME)
        else:
            coming.unlink(missing_ok=True)


def _plan_path(directory: Path) -> Path:
    """The file of planned cases that the run's manifest names."""
    coming = directory / NEXT_NAME
    is_named = coming.exists() and digest_of(coming) == _named_digest(directory)
    return coming if is_named else directory / CASES_NAME


def read_collected(directory: Path) -> list[Case]:
    """What this session is going to plan; else as `read_plan`.

    Raises:
        ResultsError: There is no such file, or it holds something else.
    """
    return read_whole(directory / NEXT_NAME, list[Case], None, _WRONG) or read_plan(directory)


def changed_parameter(then: Case, now: Case) -> str | None:
    """The first parameter of a case that holds something else now, as far as both plans tell."""
    for name in {**then.params, **now.params}:
        # No parameter's text or number is a list. Runs of earlier versions kept no content.
        before, after = (
            case.content.get(name) or msgspec.json.encode(case.params.get(name, []))
            for case in (then, now)
        )
        if before != after and (name in then.content or name not in now.content):
            return name
    return None


def changed_message(then: Iterable[Case], now: Iterable[Case]) -> str | None:
    """A clause about cases of both plans whose data are others now; None where none are."""
    before = {case.case_id: case for case in then}
    found = [(case, changed_parameter(before.get(case.case_id, case), case)) for case in now]
    changed = [(case, name) for case, name in found if name is not None]
    if not changed:
        return None
    more = f" (the first of {len(changed):,} such cases)" if len(changed) > 1 else ""
    case, name = changed[0]
    pythons = [one.content.get(name, "").rpartition(":")[0] for one in (before[case.case_id], case)]
    if all(pythons) and pythons[0] != pythons[1]:
        more = f" has code, which {' and '.join(pythons)} tell differently{more}"
    return f"the data of {_shortened(case.nodeid)} are others now: parameter {name!r}{more}"


def missing_message(then: Sequence[Case], now: Sequence[Case]) -> str | None:
    """A sentence about cases of the earlier plan that are not planned any more; None for none."""
    known = {(case.case_id, case.nodeid) for case in now}
    if all((case.case_id, case.nodeid) in known for case in then):
        return None
    before, after = ({case.nodeid: None for case in each} for each in (then, now))
    said = ""
    for when, own, other in (("then", before, after), ("now", after, before)):
        alone = [name for name in own if name not in other]
        if alone:
            more = f" and {len(alone) - 1:,} more" if len(alone) > 1 else ""
            said += f"; cases only {when}: {_shortened(alone[0])}{more}"
    if not said:
        return (
            "the planned cases are not the same, though their names are: the run seed "
            "(--ultrapar-seed) or the suite's folder was another"
        )
    return (
        f"the planned cases are not the same ({len(then)} then, {len(now)} now{said}): name the "
        "same suite, selection (-k, -m, --ultrapar-model, --ultrapar-sample) and repetitions, from "
        "the same directory or with the same --rootdir"
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _encode(cases: Sequence[Case]) -> bytes:
    try:
        return msgspec.json.encode(cases)
    except UnicodeEncodeError as error:
        unfit = error.object
        name = next(c.nodeid for c in cases if unfit in {c.nodeid, c.skipped, *c.facts.values()})
        raise ConfigError(
            f"{without_surrogates(name)}: name, parameters or reason of this test hold half a "
            "surrogate pair, which no file of results can hold; use whole characters"
        ) from error


class ComingCases:
    """The cases of a run that plans none: written down as they come, each before its records.

    Args:
        directory: The run's.

    Raises:
        ResultsError: They cannot be written there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / COMING_NAME
        self._new: list[Case] = []
        self._is_synced = True
        flags = os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        with cannot(f"write {self._path}"):
            self._fd = os.open(self._path, flags, 0o600)

    def add(self, case: Case) -> None:
        """Have a case written by the next `write`, which has to come before its first record."""
        self._new.append(case)

    def write(self) -> None:
        """Write those that were added; when this returns, they outlive this process.

        Raises:
            ResultsError: They could not be written whole.
        """
        new, self._new = self._new, []
        if not new:
            return
        self._is_synced = False
        text = b"".join(frame(msgspec.json.encode(case)) for case in new)
        with cannot(f"write {self._path}"):
            n_written = os.write(self._fd, text)
        if n_written != len(text):
            raise ResultsError(f"cannot write {self._path}: is the disk full?")

    def sync(self) -> None:
        """Wait until all that were written are on the disk itself; nothing after `close`.

        Raises:
            ResultsError: The disk says no.
        """
        if self._is_synced or self._fd < 0:
            return
        # Before it: what is written meanwhile may be on the disk or not.
        self._is_synced = True
        with cannot(f"write {self._path}"):
            os.fdatasync(self._fd)

    def finish(self) -> list[Case]:
        """Put all of them into one file as a plan is; returns them.

        Raises:
            ResultsError: They cannot be written.
        """
        self.write()
        cases = read_plan(self._directory)
        write_whole(self._directory / CASES_NAME, msgspec.json.encode(cases))
        self._path.unlink(missing_ok=True)
        return cases

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_cases(directory: Path) -> list[Case]:
    """The cases of a run, in the order of pytest's collection, or in that in which they came.

    Where several hosts share it, those that this one claimed.

    Raises:
        ResultsError: There is no such file, or it holds something else.
    """
    return [*iter_claimed(directory)]


def claimed_of(directory: Path, cases: Iterable[Case]) -> Iterator[Case]:
    """Those of all cases that this host claimed: all of them where it shares them with nobody.

    Raises:
        ResultsError: What it claimed cannot be read.
    """
    claimed = _claimed(directory)
    return (case for case in cases if claimed is None or case.case_id in claimed)


def iter_claimed(directory: Path) -> Iterator[Case]:
    """As `read_cases`, a few in memory at a time.

    Raises:
        ResultsError: There is no such file, or it holds something else.
    """
    return claimed_of(directory, iter_plan(directory))


def _claimed(directory: Path) -> frozenset[str] | None:
    """Ids of the cases that this host claimed; None where it shares the run with nobody."""
    path = directory / CLAIMED_NAME
    with cannot(f"read {path}"):
        if not path.exists():
            return None
        words = read_file(path).decode("ascii", "replace").split()
    found: set[str] = set()
    for word in words:
        if word.startswith(GIVEN_UP):
            found.discard(word.removeprefix(GIVEN_UP))
        else:
            found.add(word)
    return frozenset(found)


def read_plan(directory: Path) -> list[Case]:
    """All cases of a run, those that other hosts claimed among them; else as `read_cases`.

    Raises:
        ResultsError: There is no such file, or it holds something else.
    """
    return [*iter_plan(directory)]


@contextmanager
def _planned_cases(path: Path) -> Iterator[None]:
    """Say what is wrong with the file of planned cases.

    Raises:
        ResultsError: It cannot be read, or holds something else.
    """
    try:
        with cannot(f"read the planned cases in {path}"):
            yield
    except NOT_THAT_JSON as error:
        raise ResultsError(f"{path} {_WRONG}: {error}") from error


def _come(path: Path, lines: bytes) -> list[Case]:
    """The cases of whole lines, each once; those of earlier versions have no checksums.

    Raises:
        ResultsError: A line was changed.
        msgspec.DecodeError: A line is no case.
    """
    decode = msgspec.json.Decoder(Case).decode
    found: dict[str, Case] = {}
    for number, line in enumerate(lines.splitlines(keepends=True), 1):
        payload = line if line.startswith(b"{") else unframe(line)
        if payload is None:
            raise ResultsError(f"{path} is damaged in line {number}: put back the right one")
        case = decode(payload)
        found[case.case_id] = case
    return [*found.values()]


def cases_digest(directory: Path) -> str:
    """SHA-256 (hex) of the file of cases that this session plans; empty where there is none.

    Raises:
        ResultsError: It cannot be read.
    """
    path = directory / NEXT_NAME
    with cannot(f"read the planned cases in {path}"):
        path = path if path.exists() else directory / CASES_NAME
        return digest_of(path) if path.exists() else ""


class _Named(msgspec.Struct):
    """What the manifest says of the file of planned cases; nothing in earlier versions."""

    cases_digest: str = ""


def _named_digest(directory: Path) -> str:
    """The digest of the planned cases that the run's manifest names; empty where it names none."""
    # Who needs the manifest says what is wrong with it.
    with suppress(ResultsError):
        return read_whole(directory / MANIFEST_NAME, _Named, _Named(), "").cases_digest
    return ""


_BLOCK = 1 << 20
_BETWEEN = b'},{"index":'
"""What stands between two cases, and nowhere else: in a text a quote has a backslash before it."""


def iter_plan(directory: Path) -> Iterator[Case]:
    """As `read_plan`, a few in memory at a time.

    Raises:
        ResultsError: There is no such file, or it holds something else.
    """
    with cannot(f"read the planned cases in {directory}"):
        path = _plan_path(directory)
    coming = directory / COMING_NAME
    if not path.exists() and coming.exists():
        with _planned_cases(coming):
            # A last line that is torn is of a process that died, before any record of that case.
            whole, feed, _ = read_file(coming).rpartition(b"\n")
            yield from _come(coming, whole + feed)
        return
    decode = msgspec.json.Decoder(list[Case]).decode
    digest = hashlib.sha256()
    with _planned_cases(path), open_file(path) as file:
        left = b""
        while block := file.read(_BLOCK):
            digest.update(block)
            whole, between, rest = (left + block).rpartition(_BETWEEN)
            if between:
                yield from decode(whole + b"}]")
                left = b'[{"index":' + rest
            else:
                left = rest
        last = decode(left)
    named = _named_digest(directory)
    if named and named != digest.hexdigest():
        raise ResultsError(
            f"{directory / CASES_NAME} is not the one that {MANIFEST_NAME} names by its digest: it "
            "was changed, or one of both is of another run; put back the right one"
        )
    yield from last


def suite_digest(cases: Iterable[Case]) -> str:
    """SHA-256 (hex) of the case ids, the same in any order: whether two runs ran the same cases."""
    return digest_of_ids(case.case_id for case in cases)


def digest_of_ids(case_ids: Iterable[str]) -> str:
    """`suite_digest`, of the ids alone."""
    return hashlib.sha256("\n".join(sorted(case_ids)).encode()).hexdigest()


GENERATED_NAME = "generated.json"


class Generated(msgspec.Struct, frozen=True):
    """The cases of all shards together before any was selected, or those a sample was drawn from.

    Attributes:
        n_cases: How many.
        digest: Sum of their ids modulo 2**64 (hex): the same in any order, whatever the shard, and
            different where the suite, its models or the seed are; empty for a sample.
    """

    n_cases: int
    digest: str = ""


def write_generated(directory: Path, generated: Generated | None) -> None:
    """Leave it in the run directory, whole or not at all; every worker writes the same.

    Raises:
        ResultsError: The directory cannot be written.
    """
    # The session before may have been a sample.
    text = None if generated is None else msgspec.json.encode(generated)
    write_whole(directory / GENERATED_NAME, text)


def read_generated(directory: Path) -> Generated | None:
    """What the run has a part of; None where it is a whole one.

    Raises:
        ResultsError: The file cannot be read, or holds something else.
    """
    path = directory / GENERATED_NAME
    return read_whole(path, Generated, None, "does not hold what the shards were cut from")


SHARED_NAME = "taken.json"


class Shared(msgspec.Struct, frozen=True):
    """What one suite took instead of asking it again.

    Attributes:
        suite: The one that took.
        here: Ids of cases of another suite of the same run, each once.
        reused: Ids of cases of the run that --ultrapar-reuse named, each once.
    """

    suite: str
    here: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()


def write_shared(directory: Path, taken: Sequence[Shared]) -> None:
    """Leave it in the run directory, whole or not at all; every worker writes the same.

    A run whose suites took nothing has no such file.

    Raises:
        ResultsError: The directory cannot be written.
    """
    # A session that never got as far as its first episode may have left one.
    write_whole(directory / SHARED_NAME, msgspec.json.encode(taken) if taken else None)


def read_shared(directory: Path) -> list[Shared]:
    """What the suites of a run took; empty when nothing.

    Raises:
        ResultsError: The file cannot be read, or holds something else.
    """
    return read_whole(
        directory / SHARED_NAME, list[Shared], [], "does not hold what the suites of a run took"
    )


TABLES_FILE = "tables.json"


def write_tables(directory: Path, tables: Mapping[str, tuple[str, ...]]) -> None:
    """Leave the tests' wishes for the summary's layout; every worker writes the same.

    Raises:
        ResultsError: They cannot be written.
    """
    path = directory / TABLES_FILE
    if not path.exists():
        write_whole(path, msgspec.json.encode(tables))


def read_tables(directory: Path) -> dict[str, tuple[str, ...]]:
    """By test, the names that its summary is laid out by; of earlier versions by suite.

    Raises:
        ResultsError: They cannot be read, or are something else.
    """
    wrong = "does not hold what a run leaves there"
    return read_whole(directory / TABLES_FILE, dict[str, tuple[str, ...]], {}, wrong)
