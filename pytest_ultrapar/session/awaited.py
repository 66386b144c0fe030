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
    cases: Sequence[Case], prefetched: Mapping[int, Prefetched]
) -> tuple[dict[int, Peers], list[str]]:
    """Which answers each case waits for.

    Args:
        cases: All that are going to run.
        prefetched: The function of each, by position.

    Returns:
        By position of a case that waits, the ids of the others by model or repetition, its own
        among them; and a sentence for each that cannot wait.
    """
    found: dict[int, Peers] = {}
    faults: list[str] = []
    if not any(case.stage for case in cases):
        return found, faults
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
                faults.append(
                    f"{case.nodeid} waits for {after.name!r}, of which {len(peers)} selected cases "
                    f"have its {', '.join(names) or 'parameters'}, and {function.across} "
                    f"{key(case)!r} must have one: give both tests the same parameters, and select "
                    "both"
                )
            found[case.index] = own
    return found, faults


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
        self._ids = {case_id for own in peers.values() for case_id in own.values()}
        self._ended = ended
        self.waiting: dict[int, None] = {}

    def note(self, case_id: str, stored: Position | None) -> None:
        """A case has ended; None: without an episode in the journal."""
        if case_id in self._ids:
            self._ended.add({case_id: stored}, "awaited")

    def has_ready(self) -> bool:
        """Whether a case waits no longer."""
        return any(map(self._is_ready, self.waiting))

    def take_ready(self) -> list[int]:
        """Positions of the cases that wait no longer; each is taken once."""
        ready = [index for index in self.waiting if self._is_ready(index)]
        for index in ready:
            del self.waiting[index]
        return ready

    def _is_ready(self, index: int) -> bool:
        return all(self._ended.has(one, "awaited") for one in self._peers[index].values())

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
