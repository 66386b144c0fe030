"""The controller of one limit. It finds the cause of each refusal and adjusts the limit."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.adaptive.observation import SATURATED, LimitChange
from pytest_ultrapar.broker.adaptive.pace import PaceSearch
from pytest_ultrapar.broker.adaptive.queueing_server import PlateauSearch, QueueSearch
from pytest_ultrapar.broker.adaptive.seats import START, SeatSearch

if TYPE_CHECKING:
    from pytest_ultrapar.apis.outcome import Allowance
    from pytest_ultrapar.broker.adaptive.observation import Observation
    from pytest_ultrapar.broker.adaptive.server_load import ServerLoad

MOST_VOTES = 3
"""Refusals vote for a limit on the rate (1) or on seats (-1). The sum of the votes stays between -3
and 3, so that a few new votes can outvote many old ones."""
MOST_TROUBLE = 0.2
"""If the share of errors and time-outs among recent outcomes, without refusals, is higher than
this, no limit grows."""
_TROUBLE_WEIGHT = 0.05
"""The weight of a new outcome in the share of errors and time-outs. With this weight, the share is
an average over about 20 outcomes."""
_MINUTE_S = 60.0
NEAR_LEVEL, FEW = 0.93, 4
LOAD_HOLDS_S = 5.0
"""A server's report about its queue is ignored after this many seconds. By then, five newer reports
should have arrived."""
SPREAD, TRY_SPREAD, LEAST_SPREAD_S = 0.5, 1.1, 0.02
"""The minimum interval between sends is the time that an answer takes, divided by the number of
seats and multiplied by `SPREAD`. While more requests are in flight than ever before, the factor is
`TRY_SPREAD`. Intervals shorter than `LEAST_SPREAD_S` are not enforced: they have no effect and only
cost wake-ups."""
QUEUED = 0.5
"""If a refusal takes at least this share of the time that an answer takes, the request must have
waited in a queue first. A provider with a queue limits seats, not the rate."""
WARY, MOST_WARY_S = 2.0, 1.0
"""At the start and after refusals, the interval between sends is `WARY` times the duration of a
refusal. It is at least `LEAST_SPREAD_S` and at most `MOST_WARY_S` seconds, and applies until a
request is served. So if the first request is refused, the others have not been sent yet."""
LEAST_STORM_S, STORM_S = 0.45, 10.0
"""The shortest and the longest storm (a period in which all requests are refused), in seconds.
Refusals count as a storm if a request is still refused after `LEAST_STORM_S`, although no other
request is in flight. A provider that allows two requests per second or more would have accepted
this request."""
CALM_S = 60.0
"""The shortest time between two storms, in seconds. Refusals that come sooner than this after a
storm are attributed to a limit."""
LEAST_PAUSE_S = 0.01
WORTH_NOTING = 0.02
"""If the rate changes by a smaller fraction than this, the change is not recorded in the
history."""
OF_STATED = 0.95
"""If the provider states a rate, this share of it is used. The rest is a margin, because sends at
exact intervals may arrive less evenly."""


class AdaptiveController:
    """Estimates how many requests, in flight and per second, a provider allows. Does no I/O.

    There is one controller for all processes of a run. If several controllers estimated one limit,
    each would try to exceed it, and one that started late would never get its share from the
    others.

    There are four searches, and the evidence decides which of them is used. Until the first
    refusal, the number of seats doubles as long as that increases the answers per second
    (`SeatSearch`). When doubling no longer helps, the server must be queueing requests. From then
    on, the smallest number of seats that brings the same number of answers per second is used
    (`PlateauSearch`). If the server reports the length of its queue, the report determines the
    seats (`QueueSearch`).

    A refusal lowers the number of seats or the rate (`PaceSearch`). If it does not name the limit
    that was exceeded, the number of requests in flight decides which of the two is lowered. A
    provider that counts seats accepts as many requests in flight as it has recently served. So a
    refusal at this number or below is a vote for a limit on the rate. A refusal above it is a vote
    for a limit on seats. If the provider's headers state the rate, no search is necessary.

    A storm is a period of a few seconds in which all requests are refused. A storm gives no
    information about limits, so the cuts that it caused are undone when a request is served again.

    Attributes:
        seats: The search for the limit on seats.
        pace: The search for the rate.
        plateau: The search for the number of seats above which further seats bring no gain.
        queue: The search that is used if the server reports the length of its queue.
        heeds_headers: Whether limits that are stated in answers apply to all lanes of this
            controller. They do if all its lanes belong to one model.
        n_cuts: How often a refusal lowered the seats or the rate.
        forgiven_s: When a storm last ended and its cuts were undone.
        pause_s: How long the lanes should pause after the last refusal if the provider does not say
            how long. It is 0 if requests were served until the refusal, so that lowering the limit
            is enough. It is a short time if the last cut is too recent to have had an effect. It is
            None if the lanes must back off, because no requests are being served.
    """

    def __init__(self, name: str, ceiling: float = math.inf, *, start: float = START) -> None:
        """Start the search.

        Args:
            name: The limit's name, for the history.
            ceiling: The maximum number of seats, >= 1.
            start: The initial number of seats, >= 1. It is reduced to the ceiling if necessary.
        """
        self._name = name
        self.seats = SeatSearch(ceiling, start)
        self.pace = PaceSearch()
        self.plateau = PlateauSearch(ceiling)
        self.queue = QueueSearch()
        self._votes = 0
        self.heeds_headers = True
        self.n_cuts = 0
        self.pause_s: float | None = None
        self._served_since_cut = False
        self._refusal_s = 0.0
        self._wary_s = -math.inf
        # The last storm: the searches before it (None if there was no storm), when it began, and
        # whether it is certain.
        self._before: tuple[SeatSearch, PaceSearch, PlateauSearch, QueueSearch] | None = None
        self._storm_s = self._refused_s = self.forgiven_s = -math.inf
        self._is_storm = False
        self._cut_s = self._load_s = -math.inf
        self._noted = (0, math.inf)
        self._is_new = True
        self._level = 0
        self._trouble = 0.0
        self._tokens = 0.0
        self._changes: list[LimitChange] = []

    def cap(self) -> int:
        """How many seats are allowed now, >= 1 and never above the ceiling."""
        held = self.queue.seats if self.queue.seats is not None else self.plateau.seats
        return self.seats.seats if held is None else int(min(held, self.seats.ceiling))

    def interval_s(self) -> float:
        """The interval between sends in seconds; 0 if the rate is not limited.

        Once a request has been refused, sends are spread even if there are only a few seats.
        Otherwise a provider that limits the rate could accept one of two simultaneous requests and
        refuse the other, as if it had only one seat. Sends are also spread at the start, and more
        widely after a refusal, until a request is accepted.
        """
        most = self._level / SATURATED if self._level > START else self._level
        if self.seats.pause_s:
            # All seats are empty after the pause, including the seats that are known to be allowed.
            most = max(most, self.seats.held or 0)
        spread = TRY_SPREAD if self.cap() > most else SPREAD
        spread_s = spread * self.seats.service_s / self.cap() if self.n_cuts else 0.0
        if not self._served_since_cut or self._wary_s > -math.inf:
            spread_s = max(spread_s, LEAST_SPREAD_S, min(MOST_WARY_S, WARY * self._refusal_s))
        return max(1.0 / self.pace.rate, spread_s if spread_s >= LEAST_SPREAD_S else 0.0)

    def served_before(self, n: int, service_s: float) -> None:
        """Record how many requests were served before the search, and their total duration."""
        self.seats.service_s = service_s / max(1, n)
        self.pace.accepted.was_any_served = n > 0

    def note_start(self, now_s: float, in_flight: int) -> None:
        """Record the start of the search in the history."""
        self._is_new = False
        self._note(now_s, in_flight, "start")

    def sent(self, now_s: float) -> None:
        """Record that a lease was granted."""
        if self._is_new:
            self.note_start(now_s, 0)
        self.pace.accepted.sent(now_s)

    def observe(self, seen: Observation) -> None:
        """Learn from a returned lease. This may change the cap and the interval."""
        reason = ""
        if self.queue.seats is not None and seen.now_s > self._load_s + LOAD_HOLDS_S:
            # The server stopped reporting: continue from the last limit.
            self.seats.limit = float(self.cap())
            self.queue = QueueSearch()
        if seen.feedback.allowance is not None and self.heeds_headers:
            self._heed(seen.feedback.allowance)
            reason = "stated"
        if seen.is_served:
            reason = self._served(seen) or reason
        elif seen.is_limited:
            self._refusal_s = max(self._refusal_s, seen.now_s - seen.granted_s)
            if self._wary_s > -math.inf:
                self._wary_s = seen.now_s
            self.pace.accepted.refused(seen.granted_s)
            reason = self._refused(seen)
        elif seen.is_troubled:
            self._trouble += _TROUBLE_WEIGHT * (1.0 - self._trouble)
            if seen.outcome == "timeout" and self.queue.seats is None:
                reason = self._compare(seen)
        cap, rate = self._noted
        if self.cap() != cap or abs(1.0 / self.pace.rate - 1.0 / rate) > WORTH_NOTING / rate:
            self._note(seen.now_s, seen.in_flight, reason)

    def estimate(self) -> tuple[int | None, float | None]:
        """The allowed requests in flight and sends per second; None if no limit was observed.

        Tries above the known limit do not count, because one second without a refusal proves
        nothing.
        """
        if self.queue.seats is not None or self.plateau.is_reached:
            return self.cap(), self.pace.held
        return self.seats.held, self.pace.held

    def load_reported(self, load: ServerLoad, in_flight: int, now_s: float) -> None:
        """Learn from the server's report about its queue, which overrides any search for seats.

        Args:
            load: How many requests are running and waiting on the server.
            in_flight: How many seats are taken now.
            now_s: The current time.
        """
        self._load_s = now_s
        self.queue.reported(load.running, load.waiting, seats=self.cap(), in_flight=in_flight)
        if self.cap() != self._noted[0]:
            self._note(now_s, in_flight, f"server reports {load.waiting:g} waiting")

    def take_changes(self) -> list[LimitChange]:
        """Return the changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def _served(self, seen: Observation) -> str:
        self._trouble -= _TROUBLE_WEIGHT * self._trouble
        if seen.feedback.tokens:
            n = seen.feedback.tokens
            self._tokens += 0.1 * (n - self._tokens) if self._tokens else n
        self._served_since_cut = self.pace.accepted.was_any_served = True
        before = self._before
        if before is not None and seen.granted_s > self._storm_s:
            self._before = None
            if self._is_storm and self._refused_s - self._storm_s < STORM_S:
                self.forgiven_s = seen.now_s
                self.seats, self.pace, self.plateau, self.queue = before
                self._wary_s, self._refusal_s = -math.inf, 0.0
                return "storm over"
        if seen.granted_s >= self._wary_s:
            self._wary_s = -math.inf
            self._refusal_s = 0.0
        if seen.granted_s >= self.seats.cut_s:
            # A provider that counts seats accepts this many requests again. `_vote` relies on this.
            self._level = max(self._level, seen.at_grant)
        if self._trouble > MOST_TROUBLE:
            # Do not change the limit of a failing server: errors do not show where its limit is.
            return ""
        if self.pace.served(seen):
            return "rate grows"
        if self.queue.seats is not None:
            return ""
        if reason := self._compare(seen):
            return reason
        step = 1.0 if self.n_cuts else self.plateau.step(self.seats.limit, seen)
        return "seats grow" if step and self.seats.served(seen, step) else ""

    def _compare(self, seen: Observation) -> str:
        """Learn from an answer or a time-out whether more requests in flight bring more answers."""
        if self.plateau.is_reached:
            self.plateau.served(seen)
            return "plateau"
        # A provider that refuses requests does not queue them, so longer answers do not mean a
        # plateau.
        return "plateau" if not self.n_cuts and self.plateau.doubles(seen) else ""

    def _refused(self, seen: Observation) -> str:
        if self._before is None:
            search, pace, queue = copy.copy(self.seats), copy.copy(self.pace), copy.copy(self.queue)
            self._before = search, pace, self.plateau, queue
            is_calm = seen.granted_s - self.forgiven_s >= CALM_S
            may_be = is_calm and self.pace.accepted.is_flow(seen.now_s)
            self._storm_s, self._is_storm = seen.granted_s if may_be else -math.inf, False
        self._refused_s = seen.granted_s
        self._is_storm |= seen.is_alone and self._refused_s - self._storm_s >= LEAST_STORM_S
        if self.plateau.is_reached or self.queue.seats is not None:
            # More requests were sent until the search noticed that growth had ended. Their number
            # shows how many are allowed.
            self.seats.limit = float(max(self.cap(), seen.at_grant))
            self.plateau = PlateauSearch(self.seats.ceiling)
        if seen.granted_s < self._cut_s:
            # A burst counts once, even if its refusals name different limits.
            self.seats.follow(seen)
            self.pause_s = 0.0
            return "refused"
        before = self.cap(), self.pace.rate
        exceeded = seen.feedback.exceeded
        is_rate = self._vote(seen) if exceeded is None else exceeded != "in_flight"
        if not self.pace.is_bounded and not self.pace.accepted.is_known(seen.now_s):
            # The accepted rate is still unknown.
            is_rate = False
        if is_rate:
            was_free = not self.pace.is_bounded
            is_brief = seen.now_s - self._storm_s < STORM_S
            if self.pace.refused(seen, is_serving=self._served_since_cut, is_brief=is_brief):
                self.n_cuts += 1
                self._cut_s = seen.now_s
                if was_free:
                    # Earlier cuts of the seats may have been due to the rate: undo their effect.
                    self.seats.widen(2.0 * self._level, seen.now_s)
                self._relieve(before)
            else:
                self._pause_until(self.pace.settles_s, seen.now_s)
            return "refused: rate"
        if self.seats.refused(seen):
            if self.queue.seats is not None:
                self.queue.seats = min(self.queue.seats, self.seats.limit)
            self.n_cuts += 1
            self._cut_s = seen.now_s
            self._level = 0
            self._relieve(before)
        else:
            self._pause_until(self.seats.settles_s, seen.now_s)
        return "refused: seats"

    def _relieve(self, before: tuple[int, float]) -> None:
        """Decide on a pause after a cut: none if requests were served since the previous cut."""
        was_lowered = self.cap() < before[0] or self.pace.rate < before[1]
        self.pause_s = 0.0 if self._served_since_cut and was_lowered else None
        self._back_off(self._cut_s)
        self._served_since_cut = False

    def _pause_until(self, settles_at_s: float, now_s: float) -> None:
        settles_s = max(LEAST_PAUSE_S, settles_at_s - now_s)
        self.pause_s = settles_s if self._served_since_cut else None
        self._back_off(now_s)

    def _back_off(self, now_s: float) -> None:
        """If only a back-off helps, leave long gaps until a later request is served."""
        if self.pause_s is None:
            self._wary_s = now_s

    def _vote(self, seen: Observation) -> bool:
        """Whether a refusal that does not name a limit is due to the rate."""
        if seen.now_s - seen.granted_s >= QUEUED * self.seats.service_s > 0:
            return False
        if seen.is_alone and self.pace.accepted.is_quiet(seen.now_s):
            self._votes = min(MOST_VOTES, max(0, self._votes) + 1)
            return True
        if not self._level:
            return self._votes > 0
        if self.pace.is_bounded and seen.at_grant < SATURATED * self.seats.seats:
            # Neither the seats nor the rate were fully used. A provider that counts seats refuses
            # requests only near the maximum number in flight that it has served. (It may be
            # slightly below the maximum, because a request that fails fast has no seat there.) A
            # provider that counts a rate may refuse requests at any number below that maximum. If
            # there are only a few seats, only the maximum itself counts as near.
            near = NEAR_LEVEL * self._level if self._level > FEW else self._level
            vote = -1 if seen.at_grant > near else 1
        else:
            vote = 1 if seen.at_grant <= self._level else -1
        self._votes = max(-MOST_VOTES, min(MOST_VOTES, self._votes + vote))
        return (self._votes >= 0 and vote > 0) or self._votes > 0

    def _heed(self, allowance: Allowance) -> None:
        stated = []
        if allowance.requests:
            stated.append(allowance.requests / _MINUTE_S)
        if allowance.tokens and self._tokens:
            stated.append(allowance.tokens / _MINUTE_S / self._tokens)
        if stated:
            self.pace.state(OF_STATED * min(stated))

    def _note(self, now_s: float, in_flight: int, reason: str) -> None:
        self._noted = self.cap(), self.pace.rate
        rate = None if math.isinf(self.pace.rate) else round(self.pace.rate, 6)
        self._changes.append(LimitChange(self._name, now_s, self.cap(), rate, in_flight, reason))
