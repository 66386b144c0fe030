"""Claim cases for a host, in a separate thread, shortly before they are needed.

In each *look*, the thread calls the server and claims a few cases. If a host claimed too many
cases, some would still be waiting there near the end of a run while other hosts were idle. So in
each look, a host claims about as many cases as it began in each of the last few looks. While seats
are free, it claims twice as many as it began in the last look: this fills 500 seats in six looks.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.protocol import NO_PART, TAKEN, BrokerStatus
from pytest_ultrapar.cluster.claim_protocol import (
    SILENT_MS,
    ClaimCall,
    Claimed,
    JoinCall,
    LeaveCall,
    OtherRun,
    SameName,
)
from pytest_ultrapar.cluster.host_counts import HostCounts
from pytest_ultrapar.cluster.run_identity import NumberedCases, refuse_other
from pytest_ultrapar.cluster.server import ClusterServer, ask_patiently
from pytest_ultrapar.errors import UltraparError, refuse
from pytest_ultrapar.pool.model import Lane
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.cluster_progress import ClusterProgress, closed_words, waits_words
from pytest_ultrapar.report.text import counted, one_line, shorten, visible
from pytest_ultrapar.store.cases_file import CLAIMED_NAME, GIVEN_UP
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.cluster.run_identity import CaseLine, RunIdentity

FIRST, LEAST = 8, 2
"""How many cases to claim in advance for each set of kin lines (see `lanes_in_common`): at least
`LEAST`, and at most `FIRST` until the first of their cases has begun."""
LOOK_S, IDLE_S = 0.2, 1.0
"""Seconds between two looks: usually `LOOK_S`, but `IDLE_S` during a problem. `IDLE_S` also applies
once the whole run is over, or a drained host's cases have ended."""
RECENT = 5
"""How many looks are averaged to estimate the number of cases that begin in one look. An average is
necessary because cases begin in bursts. In a measurement that counted only the last look, with 2.5
cases per second, phase 5.3 on three hosts took 1.04 times as long as on one host."""
SOON_S = 0.02
"""Seconds until the next look, if a case has just ended here and other cases may be waiting for
it."""
STILL_S, STUCK_S = 5.0, 60.0
"""After `STILL_S` seconds without a request or an open episode, all claimed cases count as ended.
For cases in groups, for which others may be waiting, this takes `STUCK_S` seconds, because a
fixture may take a while before the first request."""
AT_ONCE = 20_000
"""The maximum number of finished cases to report in one call. A server that forgot the run must be
told all finished cases, and 300,000 in one call would block it for a second."""
MOST_UNGRADED = 2_000
"""The maximum number of answered cases that may be waiting for their tests. A host with more of
them claims no further cases. Otherwise, if answers arrive faster than tests run, one host would
take all cases. Other hosts could not help with these cases, and all of them would be lost if that
host died."""
LEAVE_TRIES = 3
_MOST_OF_A_NAME = 40
"""The maximum length of a host's name in a message."""
HOLD_S = SILENT_MS / 2000
"""How many seconds a host's claims are valid, from the start of the call that made or renewed them.
After that, the host sends nothing until they are renewed. The time is half of `SILENT_MS`, because
the host's clock may run at half the speed of the server's clock. The host's clock also runs while
the machine sleeps."""
SAID_S = 3.0
"""Problems that last for less than this many seconds are not reported."""


class _TakenError(UltraparError):
    """The run continues without this host."""


def lanes_in_common(lines: Sequence[CaseLine], lanes: Iterable[Lane]) -> list[int]:
    """Give each line a number. Lines with the same number are called *kin*.

    Free cases of models with the same limits compete for the same seats and sends. So if a seat is
    free, a case of any of these models can use it. A line of a group has no kin, because its
    cases may have to wait for other cases.

    Args:
        lines: The lines of the run.
        lanes: The lanes of the pool.
    """
    limits = by_key((lane.model, lane.limits) for lane in lanes)
    found: list[int] = []
    firsts: dict[frozenset[tuple[str, ...]], int] = {}
    for at, line in enumerate(lines):
        of_model = frozenset(limits.get(line.model, ()))
        is_alone = line.group is not None or not of_model or () in of_model
        found.append(at if is_alone else firsts.setdefault(of_model, at))
    return found


class ClaimSize:
    """Decides how many cases of each line to claim. Does no I/O.

    Each call of `wants` counts as one look. Kin lines are counted together. Otherwise, with five
    models that share their keys, each host would have ten cases waiting at the end of a run. In a
    measurement without this rule, phase 5.3 on three hosts took 1.05 times as long as on one host.

    Args:
        kin: The number of each line, from `lanes_in_common`.
    """

    def __init__(self, kin: Sequence[int]) -> None:
        self._begun: list[int] = [0] * len(kin)
        self._kin = by_key((number, line) for line, number in enumerate(kin))
        self._recent = {number: deque[int](maxlen=RECENT) for number in self._kin}

    def wants(
        self,
        claimed: Sequence[int],
        begun: Sequence[int],
        unclaimed: Sequence[int],
        room: Sequence[int],
    ) -> list[tuple[int, int]]:
        """Return how many cases to claim now, by line.

        Args:
            claimed: How many cases of each line this host has claimed so far.
            begun: How many of these cases have begun.
            unclaimed: How many cases of each line no host has claimed. Cases that wait for other
                cases are included, because this host may have finished those in the meantime.
            room: How many more requests of each line could be in flight. `NO_PART` means that this
                host has no share of the line's limits, so the cases would have to wait.
        """
        found: list[tuple[int, int]] = []
        for number, lines in self._kin.items():
            n_new = sum(begun[line] - self._begun[line] for line in lines)
            recent = self._recent[number]
            recent.append(n_new)
            most = max(room[line] for line in lines)
            if most == NO_PART:
                continue
            is_first = not any(begun[line] for line in lines)
            faster = min(most, FIRST if is_first else 2 * n_new)
            ahead = max(LEAST, faster, math.ceil(2 * sum(recent) / len(recent)))
            n = ahead - sum(claimed[line] - begun[line] for line in lines)
            found += _dealt(n, {line: unclaimed[line] for line in lines})
        self._begun = list(begun)
        return found


def _dealt(n: int, unclaimed: Mapping[int, int]) -> list[tuple[int, int]]:
    """Take up to `n` cases one by one, each from the line that then has the most cases left."""
    left = dict(unclaimed)
    taken: Counter[int] = Counter()
    for _ in range(min(n, sum(left.values()))):
        line = max(left, key=left.__getitem__)
        left[line] -= 1
        taken[line] += 1
    return list(taken.items())


@dataclass(eq=False, repr=False)
class Claiming:
    """Supplies a host with cases until the whole run is over.

    The functions that are passed to `start` are called in a separate thread. Everything else runs
    in pytest's main thread.

    Attributes:
        server: The server with the claims.
        run: The run's name, including its shard if it has one.
        name: This host's name.
        cases: All cases of the run.
        lanes: The lanes that the run may use.
        directory: The host's run directory.
        patience_s: How many seconds to wait for the server to answer, or for closed limits to open.
        status: Returns the broker's current status. It can be called from any thread.
        said: The server's last answer; None before `join`.
        n_claimed: How many cases this host has claimed, excluding those that it gave up again.
    """

    server: ClusterServer
    run: str
    name: str
    cases: NumberedCases
    lanes: Sequence[Lane]
    _: KW_ONLY
    directory: Path
    patience_s: float
    status: Callable[[], BrokerStatus | None]

    def __post_init__(self) -> None:
        """Start without claims."""
        self._numbers = {case.case_id: number for number, case in enumerate(self.cases.cases)}
        self._path = self.directory / CLAIMED_NAME
        self._life = secrets.token_hex(8)
        self._identity = ""
        self._host = self._seq = 0
        self.said: Claimed | None = None
        self._lost_cases: set[int] = set()
        self._claim_size = ClaimSize(lanes_in_common(self.cases.lines, self.lanes))
        self._counts = HostCounts(self.cases)
        self._holding: set[int] = set()
        self.n_claimed = 0
        self._done: list[int] = []
        self._failed: list[int] = []
        self._all_done: set[int] = set()
        self._all_failed: set[int] = set()
        self._new: deque[tuple[int, str]] = deque()
        self._is_over = False
        self._busy_s = boot_s()
        self._trouble = ""
        self._has_warned = self._is_drained = False
        self._noted: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def whole(self) -> ClusterProgress | None:
        """The state of the whole run; None before this host has joined. Any thread may read it."""
        said = self.said
        if said is None:
            return None
        unclaimed = dict.fromkeys(self.cases.models, 0)
        for line, n in zip(self.cases.lines, said.unclaimed, strict=False):
            unclaimed[line.model] += n
        return ClusterProgress(
            n_hosts=said.n_hosts,
            n_cases=len(self.cases),
            n_done=said.n_done,
            n_open=said.n_open,
            unclaimed=unclaimed,
            in_groups=bool(self.cases.groups),
            n_claimed=self.n_claimed,
            hears_first=said.waits_ms > 0,
            drained=said.drained,
        )

    @property
    def n_done(self) -> int:
        """How many cases of the run are finished, including those not yet reported by this host."""
        told = 0 if self.said is None else self.said.n_done
        n_new = sum(outcome != TAKEN for _, outcome in self._new)
        return told + len(self._done) + len(self._failed) + n_new

    @property
    def n_failed(self) -> int:
        """How many cases of the run are finished without an answer."""
        told = 0 if self.said is None else self.said.n_failed
        n_new = sum(outcome == "infra" for _, outcome in self._new)
        return told + len(self._failed) + n_new

    @property
    def n_lost(self) -> int:
        """How many cases other hosts took because this host was silent. Some may have run twice."""
        return len(self._lost_cases)

    # -- the main thread ---------------------------------------------------------------------------

    def join(self, identity: RunIdentity, waiting: Callable[[str, str], object]) -> Claimed:
        """Join the run. Before that, wait if the server is silent or this name may be in use.

        Args:
            identity: The facts that all hosts must agree on.
            waiting: Called while this method waits, with two texts: the server or name that it
                waits for, and the reason.

        Raises:
            ConfigError: The other hosts have different cases or settings, a host with this name is
                alive, or the server cannot be used.
        """
        self._identity = identity.text()
        self._path.touch()
        silent_ms = -1
        while True:
            said = ask_patiently(
                lambda: self.server.claim(self.run, self._join_call(comes_back=False)),
                self.patience_s,
                lambda why: waiting("the cluster's server", f": {why}"),
            )
            if isinstance(said, Claimed):
                return self._joined(self._checked(said))
            if isinstance(said, OtherRun):
                raise refuse_other(self.run, identity, said.identity)
            assert isinstance(said, SameName)
            if silent_ms >= 0 and said.silent_ms < silent_ms + IDLE_S * 500:
                refuse(
                    f'--ultrapar-cluster-host: run "{self.run}" already has an active host named '
                    f'"{self.name}"; give each host a different name'
                )
            silent_ms = said.silent_ms
            waiting(
                f'the name "{visible(self.name)}" to become free',
                f": a killed host keeps its name for {SILENT_MS // 1000} s",
            )
            sleep(IDLE_S)

    def start(
        self,
        offer: Callable[[Sequence[int]], object],
        over: Callable[[], object],
        lost: Callable[[str], object],
        troubled: Callable[[str], object],
        hold: Callable[[float, Sequence[str], Sequence[str]], object],
    ) -> None:
        """Start claiming cases. Call `join` first.

        Args:
            offer: Called with the cases that this host must run, as positions in pytest's
                collection.
            over: Called once, when no host has anything left to run, or when this host was drained
                and its cases have ended.
            lost: Called once, with the reason, if this host cannot continue, for example because
                the server has been unusable for longer than `patience_s`.
            troubled: Called with a sentence for the user, for example if the server is unusable at
                present, a limit is lower than in the pool, or the host was drained.
            hold: Called before cases are offered, and whenever claims have been renewed, with three
                values: the time until which the claims are valid (`boot_s`), the ids of cases that
                now belong to other hosts, and the ids of cases that belong to this host again.
        """
        self._offer, self._over, self._lost, self._troubled = offer, over, lost, troubled
        self._hold = hold
        self._thread = threading.Thread(target=self._claim_on, name="ultrapar-claims", daemon=True)
        self._thread.start()

    def finished(self, case_id: str, outcome: str) -> None:
        """Record the outcome that was reported for a case."""
        number = self._numbers.get(case_id)
        if number is not None:
            self._new.append((number, outcome))

    def leave(self) -> None:
        """Stop claiming cases and release the unfinished ones. Idempotent. Failures are ignored."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._host:
            self._collect()
            call = LeaveCall(host=self._host, life=self._life, done=self._done, failed=self._failed)
            # If no call succeeds, the claims expire with the host, and the cases that it finished
            # since the last look run again.
            for _ in range(LEAVE_TRIES):
                with suppress(UltraparError):
                    self.server.claim(self.run, call)
                    break
        self.server.close()

    # -- the thread --------------------------------------------------------------------------------

    def _claim_on(self) -> None:
        try:
            self._claim_until_over()
        except Exception as error:  # noqa: BLE001 - otherwise the run would wait forever
            self._lost(f"cannot claim cases any more: {error!r} (please report this)")

    def _claim_until_over(self) -> None:
        may_be_another = is_another = False
        # Measure from the first failed call and not from the last success, because the machine may
        # have slept in between.
        troubled_since_s: float | None = None
        call: ClaimCall | None = None
        while not self._stop.is_set():
            call = call or self._next_call()
            trouble, begun_s = "", boot_s()
            try:
                # A restarted server may have lost recent calls. It must get all facts again before
                # any other call.
                is_another = is_another or (may_be_another and self.server.is_another())
                said = None if is_another else self.server.claim(self.run, call)
                if isinstance(said, Claimed):
                    self._take(self._checked(said), call, begun_s)
                else:
                    said = self._come_back()
                    is_another = False
                call, may_be_another = None, self.server.was_reconnected()
            except _TakenError as error:
                self._lost(str(error))
                return
            except UltraparError as error:
                # A refused call may succeed soon, for example a write after the disk was full.
                trouble, said, may_be_another = str(error), None, True
            # The renewal of limits may fail even if this call succeeds.
            trouble = trouble or self._trouble
            now_s = boot_s()
            troubled_since_s = (troubled_since_s or now_s) if trouble else None
            if troubled_since_s is None:
                self._has_warned = False
            elif self._lasts_too_long(now_s - troubled_since_s, trouble):
                self._lost(f"{trouble}; gave up after {self.patience_s:g} s")
                return
            if said is not None:
                if said.drained and not self._is_drained:
                    self._is_drained = True
                    words = "draining this host: it finishes its cases in progress, then stops"
                    self._troubled(words)
                is_over = said.is_over or (said.drained and not self._n_open())
                if is_over and not self._is_over:
                    self._is_over = True
                    self._over()
            if self._is_over or trouble:
                self._stop.wait(IDLE_S)
            else:
                self._wait_for_next_look()

    def _wait_for_next_look(self) -> None:
        """Wait until the next look is due.

        Return early if a case has ended and other cases may be waiting for it.
        """
        assert self.said is not None
        if self.said.claimable == self.said.unclaimed:
            self._stop.wait(LOOK_S)
            return
        until_s = boot_s() + LOOK_S
        while boot_s() < until_s and not self._stop.wait(SOON_S):
            status = self.status()
            if self._new or (status is not None and status.ended_episodes > self._counts.n_ended):
                return

    def _lasts_too_long(self, troubled_s: float, trouble: str) -> bool:
        """Report a problem once, after `SAID_S`. Return whether it has lasted too long."""
        if troubled_s > SAID_S and not self._has_warned:
            self._has_warned = True
            self._troubled(
                f"{trouble}; this host may send no requests until the problem is resolved"
            )
        return troubled_s > self.patience_s

    def _next_call(self) -> ClaimCall:
        self._collect()
        status, whole, words = self.status(), self.whole, ""
        assert self.said is not None
        assert whole is not None
        if status is not None:
            # If the broker is starting or busy, there is no status. The next look then reads it.
            self._counts.update(status)
            if status.in_flight or status.waiting or status.open_episodes:
                self._busy_s = boot_s()
            # Keys without shared limits may still send requests.
            closed = closed_words(whole, status, self.lanes)
            self._trouble = "" if status.in_flight else status.trouble or closed
            words = waits_words(whole, status, self.lanes) or _told(status)
            for sentence in status.notes:
                if sentence not in self._noted:
                    self._noted.add(sentence)
                    self._troubled(sentence)
        counts, n_open = self._counts, self._n_open()
        is_behind = len(self._holding) - n_open > MOST_UNGRADED
        wants = self._claim_size.wants(
            counts.claimed, counts.begun(n_open), self.said.unclaimed, counts.room
        )
        return ClaimCall(
            host=self._host,
            life=self._life,
            seq=self._seq,
            done=self._done[:AT_ONCE],
            failed=self._failed[:AT_ONCE],
            open=n_open,
            open_of=self._open_of(),
            # Workers that are shutting down would keep new cases.
            wants=[] if self._is_over or is_behind else wants,
            said=words,
        )

    def _n_open(self) -> int:
        """Return how many cases of this host have episodes that have not ended.

        A failed engine does not report the end of episodes. Therefore the result is 0 after a
        while without a request or an open episode.
        """
        if boot_s() - self._busy_s > STILL_S:
            return 0
        return self._counts.n_open()

    def _open_of(self) -> list[tuple[int, int]]:
        return [] if boot_s() - self._busy_s > STUCK_S else self._counts.open_of()

    def _take(self, said: Claimed, call: ClaimCall, begun_s: float) -> None:
        if self.said is not None and said.n_dead > self.said.n_dead:
            self._troubled(dead_host_message(said.last_dead, said.n_dead - self.said.n_dead))
        given, done, failed = [], [], []
        for number in said.given:
            # If the case is already finished here, the server forgot this, or it was reopened.
            if number in self._all_done:
                done.append(number)
            elif number in self._all_failed:
                failed.append(number)
            elif number not in self._holding:
                given.append(number)
        cases = [self.cases.cases[number] for number in given]
        if cases:
            with self._path.open("a", encoding="utf-8") as file:
                file.writelines(f"{case.case_id}\n" for case in cases)
        self.said = said
        self._seq += 1
        for numbers in (call.done, call.failed):
            self._holding.difference_update(numbers)
        self._done = self._done[len(call.done) :] + done
        self._failed = self._failed[len(call.failed) :] + failed
        again = self._lost_cases.intersection(said.given)
        self._lost_cases -= again
        self._hold(begun_s + HOLD_S, (), self._ids(again))
        if not given:
            return
        self._busy_s = boot_s()
        self._holding.update(given)
        for number in given:
            self._counts.claim(number)
        self.n_claimed += len(given)
        self._offer([case.index for case in cases])

    def _come_back(self) -> Claimed:
        """Join again, because this host was treated as dead or the server forgot it."""
        begun_s = boot_s()
        call = self._join_call(comes_back=True)
        said = self.server.claim(self.run, call)
        if not isinstance(said, Claimed):
            raise _TakenError(
                f'run "{self.run}" continues without this host: another host now has the same name'
            )
        self._checked(said)
        # Report the remaining finished cases before any host gets cases.
        self._done = sorted(self._all_done.difference(call.done))
        self._failed = sorted(self._all_failed.difference(call.failed))
        self._lost_cases.update(said.lost)
        self._hold(begun_s + HOLD_S, self._ids(said.lost), ())
        return self._joined(said)

    def _ids(self, numbers: Iterable[int]) -> list[str]:
        return [self.cases.cases[number].case_id for number in numbers]

    def _join_call(self, *, comes_back: bool) -> JoinCall:
        return JoinCall(
            name=self.name,
            life=self._life,
            identity=self._identity,
            lines=self.cases.ranges,
            groups=self.cases.rules(),
            comes_back=comes_back,
            holding=sorted(self._holding - self._all_done - self._all_failed),
            # A server that forgot the run needs all finished cases.
            done=sorted(self._all_done)[:AT_ONCE],
            failed=sorted(self._all_failed)[:AT_ONCE],
            open_of=self._open_of(),
        )

    def _checked(self, said: Claimed) -> Claimed:
        """Return the answer if it fits this run.

        Raises:
            ConfigError: It does not fit, because another program wrote to the run's Redis keys.
        """
        n_lines, n_cases = len(self.cases.ranges), len(self.cases)
        by_line = (said.unclaimed, said.claimable)
        is_ours = (
            all(len(one) == n_lines and min(one, default=0) >= 0 for one in by_line)
            and all(0 <= number < n_cases for number in (*said.given, *said.lost))
            and min(said.n_done, said.n_open) >= 0
        )
        if not is_ours:
            what = "cases that the run does not have"
            raise self.server.unexpected_answer(what)
        return said

    def _joined(self, said: Claimed) -> Claimed:
        self._host, self._seq, self.said = said.host, 0, said
        return said

    def _collect(self) -> None:
        while self._new:
            number, outcome = self._new.popleft()
            failed = outcome == "infra"
            self._counts.report(number, outcome)
            if outcome == TAKEN:
                self._give_up(number)
                continue
            (self._failed if failed else self._done).append(number)
            (self._all_failed if failed else self._all_done).add(number)

    def _give_up(self, number: int) -> None:
        """Give up a case that another host has. If this host now has it again, offer it again."""
        case = self.cases.cases[number]
        if number not in self._lost_cases:
            self._counts.claim(number)
            self._offer([case.index])
            return
        self._holding.discard(number)
        self.n_claimed -= 1
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{GIVEN_UP}{case.case_id}\n")


def dead_host_message(name: str, n: int) -> str:
    """Return a sentence about `n` dead hosts. One is called `name`, which may be any text."""
    name = shorten(one_line(name), _MOST_OF_A_NAME)
    silent = f"been silent for {SILENT_MS // 1000} s"
    if n > 1:
        others = counted(n - 1, "other host")
        return (
            f"host {name} and {others} have {silent}; live hosts are taking over the unfinished "
            "cases"
        )
    return f"host {name} has {silent}; other hosts are taking over its unfinished cases"


def _told(status: BrokerStatus) -> str:
    """Return the text that `ultrapar cluster status` shows next to a host's counts."""
    waited: dict[str, float] = {}
    for lane in status.lanes:
        for limit, seconds in lane.waited_s.items():
            waited[limit] = waited.get(limit, 0.0) + seconds
    most = max(waited, key=waited.__getitem__, default="")
    waits = f", waited longest for {most}" if most else ""
    return f"{status.in_flight} in flight, {status.waiting} waiting{waits}"
