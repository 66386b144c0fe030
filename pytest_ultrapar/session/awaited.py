"""Cases that wait for the answers of others, such as those of a pairwise judge.

Which answers a case waits for is known at collection: those that another prefetched function gave
for the same parameters, with each model or in each repetition. Such a case is not asked before all
of them have ended, whichever worker has them; until then it holds no seat, and others go first.
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
    from pytest_ultrapar.store.recovered import RecoveredIndex

    Peers = dict[Any, str]

POLL_S = 0.05
"""How soon a process hears of an answer that another one got."""


def find_peers(
    cases: Sequence[Case], prefetched: Mapping[int, Prefetched], chosen_by: str
) -> tuple[dict[int, Peers], list[str]]:
    """Which answers each case waits for.

    Args:
        cases: All that are going to run.
        prefetched: The function of each, by position.
        chosen_by: Options that left out cases one by one; empty where none did.

    Returns:
        By position of a case that waits, the ids of the others by model or repetition, its own
        among them; and a sentence for each function of which a case cannot wait.
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
                    f"{case.nodeid} waits for {after.name!r}, of which {len(peers)} selected cases "
                    f"have its {', '.join(names) or 'parameters'}, and {function.across} "
                    f"{key(case)!r} must have one: give both tests the same parameters, and select "
                    f"both{chosen_by and f' (take -k; {chosen_by} chooses case by case)'}",
                )
            found[case.index] = own
    return found, [*faults.values()]


def _values(case: Case, names: Sequence[str]) -> list[object]:
    return [case.content.get(name, case.params.get(name)) for name in names]


def stage_of(prefetched: Prefetched) -> int:
    """0 for a case that waits for no other, else one more than those that it waits for."""
    return 0 if prefetched.after is None else 1 + stage_of(prefetched.after)


class Awaited:
    """What waits in one process, and what has ended in any; for the main thread.

    Args:
        ended: Tells the other processes of the run.
        peers: By position, as of `find_peers`.
    """

    def __init__(self, ended: RecoveredIndex, peers: Mapping[int, Peers]) -> None:
        self._peers = peers
        # Of each case that is waited for, who waits. All of them are asked after each episode: to
        # look at every one that waits would take time with the square of their number.
        self._waits_for = by_key(
            (case_id, index) for index, own in peers.items() for case_id in own.values()
        )
        self._n_left = {index: len(own) for index, own in peers.items()}
        self._n_seen = 0
        self._ended = ended
        self.waiting: dict[int, None] = {}
        self._ready: list[int] = []

    def note(self, case_id: str, stored: Position | None) -> None:
        """A case has ended; None: without an episode in the journal."""
        if case_id in self._waits_for:
            self._ended.add({case_id: stored}, "awaited")

    def wait(self, index: int) -> None:
        """A case waits from now on, until it is taken."""
        self.waiting[index] = None
        if not self._n_left[index]:
            self._ready.append(index)

    def has_ready(self) -> bool:
        """Whether a case waits no longer."""
        self._look()
        return bool(self._ready)

    def take_ready(self) -> list[int]:
        """Positions of the cases that wait no longer; each is taken once."""
        self._look()
        ready = [index for index in self._ready if index in self.waiting]
        for index in ready:
            del self.waiting[index]
        self._ready.clear()
        return ready

    def _look(self) -> None:
        """See which cases have ended since the last time, in this process or another."""
        if not self.waiting or len(known := self._ended.known("awaited")) == self._n_seen:
            return
        # In one step: the engine's thread may read on meanwhile.
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
        """What the others returned, by model or repetition; those without an answer are left out.

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
