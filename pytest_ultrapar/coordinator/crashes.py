"""What is done with the cases of a worker that died, hangs, or dies of a case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.store.recovered import RecoveredIndex, find_finished, find_started_not_ended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path


_DEATHS_BEFORE_ALONE = 2


@dataclass(frozen=True, slots=True)
class Crash:
    """The sentence on each pending item of a dead worker; together they are all of them.

    Attributes:
        again: To be run like any other.
        alone: To be run on a worker that runs one episode at a time.
        lost: Given up: they kill whoever runs them.
        plain: A test that is no case and was running; reported as failed, as xdist does.
    """

    again: tuple[int, ...]
    alone: tuple[int, ...]
    lost: tuple[int, ...]
    plain: int | None


def judge(
    pending: list[int],
    *,
    suspects: AbstractSet[int],
    plain: int | None,
    deaths: Counter[int],
    alone: bool,
) -> Crash:
    """Decide what becomes of a dead worker's items; counts the death in `deaths`.

    Args:
        pending: What the worker had not reported, oldest first.
        suspects: Those of its cases that can have killed it.
        plain: The test it was running, if that is no case.
        deaths: By item, how many workers died while it was a suspect.
        alone: Whether the worker ran one episode at a time.
    """
    deaths.update(suspects)
    lost = set(suspects) if alone and len(suspects) == 1 else set()
    together = {
        index for index in suspects - lost if alone or deaths[index] >= _DEATHS_BEFORE_ALONE
    }
    again = [i for i in pending if i not in lost and i not in together and i != plain]
    return Crash(
        again=tuple(again),
        alone=tuple(index for index in pending if index in together),
        lost=tuple(index for index in pending if index in lost),
        plain=plain,
    )


class Crashes:
    """Reads dead workers' journals and keeps count of deaths. Controller, main thread."""

    def __init__(self, directory: Path, case_ids: Mapping[int, str]) -> None:
        """Begin with no deaths.

        Args:
            directory: The run's directory.
            case_ids: By position in pytest's collection.
        """
        self._directory = directory
        self._case_ids = case_ids
        self._deaths: Counter[int] = Counter()

    def worker_died(
        self, worker: str, pending: list[int], *, running: AbstractSet[int], alone: bool
    ) -> Crash:
        """Judge a dead worker's items, and save the episodes that it had finished.

        Args:
            worker: Its id.
            pending: What it had not reported, oldest first.
            running: Items that pytest was running anywhere.
            alone: Whether it ran one episode at a time.
        """
        journal = self._directory / "journal"
        started = find_started_not_ended(journal, worker)
        suspects = {
            index
            for index in pending
            if index in self._case_ids and (self._case_ids[index] in started or index in running)
        }
        plain = next((i for i in pending if i in running and i not in self._case_ids), None)
        wanted = {self._case_ids[index] for index in pending if index in self._case_ids}
        finished = {
            case_id: position
            for case_id, position in find_finished(journal).items()
            if case_id in wanted
        }
        recovered = RecoveredIndex(self._directory)
        try:
            recovered.add_all(finished)
        finally:
            recovered.close()
        return judge(pending, suspects=suspects, plain=plain, deaths=self._deaths, alone=alone)


class Silence:
    """Counts for how long each worker has given no sign, looked at every now and then.

    A look counts for twice the usual distance between two at most: where the watcher itself stood
    still (Ctrl-Z, a closed lid, a machine that swaps), so may the workers have, through no fault of
    theirs.
    """

    def __init__(self, patience_s: float, look_s: float) -> None:
        """Begin with no worker.

        Args:
            patience_s: For how long a worker may be silent, > 0 seconds.
            look_s: The usual time between two looks, > 0 seconds.
        """
        self._patience_s = patience_s
        self._look_s = look_s
        self._looked_s: float | None = None
        self._signs: dict[str, float] = {}
        self._silent_s: dict[str, float] = {}

    def look(self, signs: Mapping[str, float | None], now_s: float) -> list[str]:
        """The workers that have been silent for longer than they may, in order of their names.

        Args:
            signs: By worker, when it gave its last sign, on any clock; None for no sign at all.
                Workers that are not named are forgotten.
            now_s: Monotonic seconds.
        """
        passed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        silent_s: dict[str, float] = {}
        for worker, sign_s in signs.items():
            is_new = sign_s is not None and sign_s != self._signs.get(worker)
            before_s = self._silent_s.get(worker)
            if is_new or before_s is None:
                silent_s[worker] = 0.0
            else:
                silent_s[worker] = before_s + min(passed_s, 2 * self._look_s)
            if sign_s is not None:
                self._signs[worker] = sign_s
        self._silent_s = silent_s
        return sorted(name for name, one_s in silent_s.items() if one_s > self._patience_s)
