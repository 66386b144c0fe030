"""How much wider than declared sends are spaced, so that late ones break no limit.

A run grants a send at one moment and a provider counts it at a later one. n + 1 sends that are
spaced over a window and a spare second part still span the whole window when the first of them
comes late by that part. So sends are spaced over `window + spare_s`, and it is promised that
none is later than `late_s`, which the spare part covers.

A send that is later than promised is made up for: its client says so as it sends, and all later
sends of the limit are granted so much later. That costs as much as the send was late beyond the
promise; where that is more than the distance of two sends, it is cheaper not to send at all, and to
ask for another lease (`Lease.send_by_s`).

A long promise slows every send down, a short one has more to make up for. Both are losses of the
same rate, and what is least is chosen by how late the run's own sends have been: on a quiet machine
10 ms of a second are enough, on a busy one 50 may not be. Some providers count over less than they
declare, such as a minute by slices of a second: the first refusal of a rate makes the spare part
the 5 % that jitter of 50 ms needs in such a slice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

LATE_S = (
    *(0.01, 0.0125, 0.016, 0.02, 0.025, 0.032, 0.04, 0.05, 0.063, 0.08),
    *(0.1, 0.125, 0.16, 0.2, 0.25, 0.32, 0.4, 0.5, 0.63, 0.8, 1.0),
)
"""What may be promised, seconds. What the network adds is not seen, so it is never less than the
first."""
SEEN_S = (*LATE_S, 2 * LATE_S[-1])
"""As what a late send counts, up to the next of these; the last for all that are later."""
MEMORY = 200
"""After so many sends all of them count half."""
AT_LEAST_EVERY_S = 2.0
"""Choosing takes some 50 us, and a pool may have hundreds of limits."""
OF_WAKE = 0.5
"""Share of a promise that the broker may take itself, waking up late for a send."""
REFUSED_SHARE, REFUSED_AGAIN_SHARE = 0.05, 0.1
"""Shares of the window that are spare after a refusal: one for the rest of the run; where as much
was spare already, the other for a while."""
AGAIN_WINDOWS, AGAIN_TIMES = 10, 2
"""So many windows: what made sends late, such as fifteen processes that start, is over by then. A
provider that refuses still, after so many times, allows less than is declared."""
SLICE_S = 1.0
"""The shortest slice in which a provider may count: after a refusal its share is what is spare."""


Promise = Callable[[float], float]
"""Seconds by which sends may be late, by the seconds of the window."""


def first_late_s(window_s: float) -> float:
    """What is promised before anything is known: 5 % of the window, 0.1 s at most.

    Fifteen workers that opened their first connections at once on two cores sent their first
    requests up to 70 ms late, and 3 of 3,634 requests at 18 per second without anything spare were
    one call too many; with 5 % none was.
    """
    return min(0.05 * window_s, 0.1)


def settled_late_s(window_s: float) -> float:
    """To what it comes down in most runs, for forecasts."""
    return min(0.02 * window_s, 0.1)


def never_late_s(_: float) -> float:
    """Sends arrive when they are granted: in a play, which has no clients."""
    return 0.0


def longest_late_s(window_s: float) -> float:
    """The most that may ever be promised: a quarter of the window, a second at most."""
    return min(LATE_S[-1], window_s / 4)


def longest_spare_s(window_s: float) -> float:
    """The most that may ever be added to a window."""
    return max(longest_late_s(window_s), REFUSED_AGAIN_SHARE * window_s)


class Headroom:
    """What is added to one window of one limit. Pure.

    Guarantee: whatever was promised to a lease is spare for a whole window from then on, also while
    either changes.

    Attributes:
        window_s: The window, seconds.
        interval_s: The distance of two sends that the declared rate asks for.
        made_up_s: For so long sends have waited in all, since others were later than promised.
        late_s: A send that is granted now may be so late.
        spare_s: Sends are spaced as if the window were so much longer.
        is_taught: Whether a refusal set it, for the rest of the run.
    """

    def __init__(self, window_s: float, first_late_s: float, interval_s: float) -> None:
        """Promise `first_late_s` at first."""
        self.window_s = window_s
        self.interval_s = interval_s
        self.late_s = self.spare_s = self._aim_s = self._first_s = first_late_s
        self.made_up_s = 0.0
        self.is_taught = False
        self._taught_s = self._again_until_s = -math.inf
        self._revised_s = -math.inf
        self._n = 0.0
        self._n_again = 0
        self._counts = [0.0] * len(SEEN_S)

    def send_by_s(self) -> float:
        """How late a send that is granted now may be if that is made up for."""
        return min(self.late_s + self.interval_s, longest_late_s(self.window_s))

    def make_up(self, late_s: float, made_up_s: float) -> float:
        """How much longer all later sends must wait after one that was so late.

        Sends that are late together, such as the first ones, whose connections are made at the same
        time, are made up for together: what counts is the distance of the sends behind one to it.

        Args:
            late_s: So late was it.
            made_up_s: The attribute when it was granted.
        """
        owed_s = max(0.0, late_s - self.late_s - (self.made_up_s - made_up_s))
        self.made_up_s += owed_s
        return owed_s

    def saw(self, late_s: float) -> None:
        """A send went, or was given back unsent, so long after its time."""
        self._counts[bisect_left(LATE_S, late_s)] += 1.0
        self._n += 1.0
        if self._n >= MEMORY:
            self._n /= 2.0
            self._counts = [count / 2.0 for count in self._counts]

    def revise(self, now_s: float) -> bool:
        """Choose anew; at most once per window.

        Returns:
            Whether `spare_s` has changed.
        """
        if now_s < self._again_until_s:
            return False
        if self._again_until_s > -math.inf:
            self._again_until_s = -math.inf
            self._revised_s = now_s
            self.spare_s = REFUSED_SHARE * self.window_s
            return True
        since_s = self.window_s + self.spare_s
        if self.is_taught or now_s < self._revised_s + max(since_s, AT_LEAST_EVERY_S):
            return False
        self._revised_s = now_s
        before_s = self.spare_s
        # For a window sends have been spaced for the last aim, so it may be promised now. A longer
        # one is first spaced for, a shorter one first promised.
        promised_s, self._aim_s = self._aim_s, self._cheapest_s()
        self.late_s = min(promised_s, self._aim_s)
        self.spare_s = max(promised_s, self._aim_s)
        return self.spare_s != before_s

    def refused(self, granted_s: float, now_s: float) -> bool:
        """A request was refused for its rate.

        Returns:
            Whether more headroom is the answer; else there is as much as helps, and the provider
            allows less than is declared.
        """
        if granted_s <= self._taught_s:
            # Of the same burst as the refusal that was heeded.
            return True
        if self.spare_s >= REFUSED_AGAIN_SHARE * self.window_s or self._n_again == AGAIN_TIMES:
            return False
        if self.spare_s < REFUSED_SHARE * self.window_s:
            self.is_taught = True
            self.spare_s = REFUSED_SHARE * self.window_s
        else:
            self._n_again += 1
            self.spare_s = REFUSED_AGAIN_SHARE * self.window_s
            self._again_until_s = now_s + AGAIN_WINDOWS * self.window_s
        self._taught_s = now_s
        self.late_s = self._aim_s = min(self.late_s, self._first_s, REFUSED_SHARE * SLICE_S)
        return True

    def _cheapest_s(self) -> float:
        """The promise with the smallest loss of sends: all of them slower, or some made up for."""
        longest_s = longest_late_s(self.window_s)
        best_s, least = self._first_s, math.inf
        for late_s in LATE_S:
            if late_s > longest_s:
                break
            # One more is counted as late as was thought at first: few sends prove little.
            beyond = self._made_up(self._first_s, late_s)
            for seen_s, count in zip(SEEN_S, self._counts, strict=True):
                if count and seen_s > late_s:
                    beyond += count * self._made_up(seen_s, late_s)
            loss = late_s / (self.window_s + late_s) + beyond / (self._n + 1.0)
            if loss < least:
                best_s, least = late_s, loss
        return best_s

    def _made_up(self, seen_s: float, late_s: float) -> float:
        """What a send that was so late costs with that promise, in sends."""
        return min(1.0, max(0.0, seen_s - late_s) / self.interval_s)
