"""Cases that wait for the answers of other cases, as the cases of a pairwise judge do.

The collected tests determine which answers a case needs: those that another prefetched function
returns for the same parameters, for each model or repetition. A waiting case starts when
all the cases that it needs have ended, no matter in which worker. Until then it takes no seat, so
that other cases can run.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.records import by_key
from pytest_ultrapar.session.prefetch import decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ultrapar.records import Case, EpisodeEnded
    from pytest_ultrapar.session.prefetch import Prefetched
    from pytest_ultrapar.store.journal import Position
    from pytest_ultrapar.store.journal_history import RecoveredIndex

    Peers = dict[Any, str]

POLL_S = 0.05
"""Seconds between two checks for answers from other processes."""


def find_peers(
    cases: Sequence[Case], prefetched: Mapping[int, Prefetched], chosen_by: str
) -> tuple[dict[int, Peers], list[str]]:
    """For each case, find the cases whose answers it waits for.

    Args:
        cases: All cases of the run.
        prefetched: The prefetched function of each case, by the case's position.
        chosen_by: The options that deselected particular cases; empty if there are no such options.

    Returns:
        Two values. The first maps the position of each waiting case to the ids of the cases that it
        waits for, by model or repetition. The second has one sentence for each function that has a
        case whose peers are missing or ambiguous.
    """
    found: dict[int, Peers] = {}
    faults: dict[Prefetched, str] = {}
    if not any(case.stage for case in cases):
        return found, []
    by_function = by_key((prefetched[case.index], case) for case in cases if not case.skipped)
    for function, waiting in by_function.items():
        if (after := function.after) is None:
            continue
        others = by_function.get(after, [])
        names = sorted({name for case in others for name in (*case.params, *case.content)})
        key, fixed = attrgetter("model"), attrgetter("repeat")
        if function.across == "repeat":
            key, fixed = fixed, key
        same = by_key(((fixed(case), *_values(case, names)), case) for case in others)
        for case in waiting:
            peers = same.get((fixed(case), *_values(case, names)), [])
            own = {key(peer): peer.case_id for peer in peers}
            if len(own) < len(peers) or key(case) not in own:
                faults.setdefault(
                    function,
                    f"{case.nodeid} waits for {after.name!r}. Exactly one selected case of "
                    f"{after.name!r} with the same {', '.join(names) or 'parameters'} (found "
                    f"{len(peers)}) must have {function.across} {key(case)!r}. Give this test "
                    f"and the test of {after.name!r} the same parameters and "
                    f"select both{chosen_by and f' (use -k; {chosen_by} selects single cases)'}",
                )
            found[case.index] = own
    return found, [*faults.values()]


def _values(case: Case, names: Sequence[str]) -> list[object]:
    return [case.content.get(name, case.params.get(name)) for name in names]


def stage_of(prefetched: Prefetched) -> int:
    """0 if the case waits for no other case; otherwise the stage of its peers plus one."""
    return 0 if prefetched.after is None else 1 + stage_of(prefetched.after)


class CaseDependencies:
    """The waiting cases in one process and the ended cases in all. Used on the main thread.

    Args:
        ended: Shares ended cases with the other processes of the run.
        peers: The peers of waiting cases by position, from `find_peers`.
    """

    def __init__(self, ended: RecoveredIndex, peers: Mapping[int, Peers]) -> None:
        self._peers = peers
        # The waiting cases by the case that they wait for. Without this, searching all waiting
        # cases after each episode would take quadratic time.
        self._waits_for = by_key(
            (case_id, index) for index, own in peers.items() for case_id in own.values()
        )
        self._n_left = {index: len(own) for index, own in peers.items()}
        self._n_seen = 0
        self._ended = ended
        self.waiting: dict[int, None] = {}
        self._ready: list[int] = []

    def note(self, case_id: str, stored: Position | None) -> None:
        """Record that a case has ended; `stored` is None if the journal has no episode for it."""
        if case_id in self._waits_for:
            self._ended.add({case_id: stored}, "awaited")

    def wait(self, index: int) -> None:
        """Add a waiting case. It waits until `take_ready` returns it."""
        self.waiting[index] = None
        if not self._n_left[index]:
            self._ready.append(index)

    def has_ready(self) -> bool:
        """Whether there is a waiting case whose peers have all ended."""
        self._look()
        return bool(self._ready)

    def take_ready(self) -> list[int]:
        """Remove and return the positions of the cases whose peers have all ended."""
        self._look()
        ready = [index for index in self._ready if index in self.waiting]
        for index in ready:
            del self.waiting[index]
        self._ready.clear()
        return ready

    def _look(self) -> None:
        """Take account of the cases that have ended since the last call, in any process."""
        if not self.waiting or len(known := self._ended.known("awaited")) == self._n_seen:
            return
        # Copy in one step, because the engine's thread may add cases at the same time.
        ended = [*known]
        for case_id in ended[self._n_seen :]:
            for index in self._waits_for.get(case_id, ()):
                self._n_left[index] -= 1
                if not self._n_left[index] and index in self.waiting:
                    self._ready.append(index)
        self._n_seen = len(ended)

    def answers(
        self, index: int, after: Prefetched, read: Callable[[Position], EpisodeEnded]
    ) -> dict[Any, Any]:
        """The values of a case's peers by model or repetition, without peers that have no answer.

        Raises:
            EpisodeError: A value does not fit its annotation.
            ResultsError: The journal cannot be read.
        """
        found = {}
        for key, case_id in self._peers[index].items():
            position = self._ended.lookup(case_id, "awaited")
            ended = None if position is None else read(position)
            if ended is not None and ended.ending == "returned":
                found[key] = decoded(after, ended)
        return found
