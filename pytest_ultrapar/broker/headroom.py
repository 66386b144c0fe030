"""Headroom: extra spacing between sends, so that late sends do not exceed a limit.

The provider counts a send some time after it was granted. The `n` sends that a limit allows per
window are therefore spaced over `window + spare_s`. Even if the first of `n + 1` sends is late by
up to `spare_s`, these sends still span a whole window. `late_s` is called the *promise*: the
longest delay that is expected of a send and that the spare time covers.

If a send is later than promised, the run makes up for the excess: the part of the delay that
exceeds the promise. The client reports the delay, and all later sends are postponed by the excess.
If the excess is longer than the interval between two sends, it is cheaper not to send the request
and to request another lease (`Lease.send_by_s`).

A long promise slows down every send. A short promise leaves more delays to make up for. The run
measures the delays of its own sends, and chooses the promise that costs the least throughput. For a
window of one second, a promise of 10 ms is enough on an idle machine. On a busy machine, even 50 ms
may not be enough. Some providers count over shorter periods than they declare: for example, they
enforce a limit per minute in slices of a second. Therefore the first refusal by a rate limit sets
the spare time to 5 % of the window, which covers jitter of 50 ms in such a slice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

LATE_S = (
    *(0.01, 0.0125, 0.016, 0.02, 0.025, 0.032, 0.04, 0.05, 0.063, 0.08),
    *(0.1, 0.125, 0.16, 0.2, 0.25, 0.32, 0.4, 0.5, 0.63, 0.8, 1.0),
)
"""The possible promises, in seconds. Delays in the network are not measured, so no promise is
shorter than the first of these."""
SEEN_S = (*LATE_S, 2 * LATE_S[-1])
"""The classes of delays, in seconds. Each delay is rounded up to the next class. Delays above the
last class are counted in that class."""
MEMORY = 200
"""Each time the count of sends reaches this number, the weight of all sends so far is halved."""
AT_LEAST_EVERY_S = 2.0
"""The minimum time between two choices of a limit's promise, in seconds. Each choice takes 50 us,
and a pool may have hundreds of limits."""
OF_WAKE = 0.5
"""The share of a promise that the broker itself may use up by waking too late to grant a send."""
REFUSED_SHARE, REFUSED_AGAIN_SHARE = 0.05, 0.1
"""The spare time after a refusal, as a share of the window. After the first refusal,
`REFUSED_SHARE` applies for the rest of the run. If a request is refused while the spare time is
already that long, `REFUSED_AGAIN_SHARE` applies for a while."""
AGAIN_WINDOWS, AGAIN_TIMES = 10, 2
"""`REFUSED_AGAIN_SHARE` applies for `AGAIN_WINDOWS` windows. By then, a temporary reason for late
sends is gone, such as fifteen processes that start at the same time. If the provider still refuses
requests after this share was used `AGAIN_TIMES` times, the provider allows less than declared."""
SLICE_S = 1.0
"""The shortest slice in which a provider is assumed to count, in seconds. After a refusal, the
promise is at most `REFUSED_SHARE` of this slice."""


Promise = Callable[[float], float]
"""A function that takes the length of a window and returns its promise, both in seconds."""


def first_late_s(window_s: float) -> float:
    """The promise before any send has been observed: 5 % of the window, but at most 0.1 s.

    In a test, fifteen workers on two cores opened their first connections at the same time, and
    sent their first requests up to 70 ms late. At 18 requests per second without spare time, 3 of
    3,634 requests exceeded the limit. With 5 % spare time, none did.
    """
    return min(0.05 * window_s, 0.1)


def settled_late_s(window_s: float) -> float:
    """The promise that most runs settle on. Forecasts use it."""
    return min(0.02 * window_s, 0.1)


def never_late_s(_: float) -> float:
    """Always 0: in a simulation without clients, sends arrive at the moment of the grant."""
    return 0.0


def longest_late_s(window_s: float) -> float:
    """The longest possible promise: a quarter of the window, but at most 1 s."""
    return min(LATE_S[-1], window_s / 4)


def longest_spare_s(window_s: float) -> float:
    """The maximum time that may be added to a window."""
    return max(longest_late_s(window_s), REFUSED_AGAIN_SHARE * window_s)


class Headroom:
    """The spare time that is added to one window of a limit. Does no I/O.

    Guarantee: the delay that a lease was promised at its grant stays covered by spare time for a
    whole window. This is true even if the promise or the spare time changes in the meantime.

    Attributes:
        window_s: The window, seconds.
        interval_s: The interval between two sends at the declared rate, seconds.
        made_up_s: The total time that sends have waited because others were later than promised.
        late_s: The promise: the longest expected delay of a send that is granted now.
        spare_s: The time added to the window.
        is_taught: Whether a refusal has set the spare time for the rest of the run.
    """

    def __init__(self, window_s: float, first_late_s: float, interval_s: float) -> None:
        """Start with the promise `first_late_s`."""
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
        """How late a request granted now may be sent. A delay beyond the promise is made up for."""
        return min(self.late_s + self.interval_s, longest_late_s(self.window_s))

    def make_up(self, late_s: float, made_up_s: float) -> float:
        """Record a late send, and return how many more seconds all later sends must wait.

        If several sends are late together, their delays do not add up, because only the distance to
        later sends matters. For example, the first sends are all late because they open their
        connections at the same time.

        Args:
            late_s: The delay of the send.
            made_up_s: The value of the attribute `made_up_s` when the send was granted.
        """
        owed_s = max(0.0, late_s - self.late_s - (self.made_up_s - made_up_s))
        self.made_up_s += owed_s
        return owed_s

    def saw(self, late_s: float) -> None:
        """Record the delay of a send, or of a lease that was given back unsent."""
        self._counts[bisect_left(LATE_S, late_s)] += 1.0
        self._n += 1.0
        if self._n >= MEMORY:
            self._n /= 2.0
            self._counts = [count / 2.0 for count in self._counts]

    def revise(self, now_s: float) -> bool:
        """Choose the promise and `spare_s` again, but at most once per window.

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
        # For a whole window, sends have been spaced for the last aim, so this aim may be promised
        # now. If the promise grows, widen the spacing first. If it shrinks, reduce the promise
        # first.
        promised_s, self._aim_s = self._aim_s, self._cheapest_s()
        self.late_s = min(promised_s, self._aim_s)
        self.spare_s = max(promised_s, self._aim_s)
        return self.spare_s != before_s

    def refused(self, granted_s: float, now_s: float) -> bool:
        """Widen the spacing after a request was refused by a rate limit.

        Returns:
            Whether wider spacing can prevent such refusals. If not, the spacing has not changed:
            the provider allows less than declared.
        """
        if granted_s <= self._taught_s:
            # It was sent in the same burst as the request whose refusal already widened the
            # spacing.
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
        """The promise for which wider spacing and making up for delays cost the fewest sends."""
        longest_s = longest_late_s(self.window_s)
        best_s, least = self._first_s, math.inf
        for late_s in LATE_S:
            if late_s > longest_s:
                break
            # Add one send with the delay of the first promise, because few sends prove little.
            beyond = self._made_up(self._first_s, late_s)
            for seen_s, count in zip(SEEN_S, self._counts, strict=True):
                if count and seen_s > late_s:
                    beyond += count * self._made_up(seen_s, late_s)
            loss = late_s / (self.window_s + late_s) + beyond / (self._n + 1.0)
            if loss < least:
                best_s, least = late_s, loss
        return best_s

    def _made_up(self, seen_s: float, late_s: float) -> float:
        """The number of sends lost by making up for a send with this delay, given this promise."""
        return min(1.0, max(0.0, seen_s - late_s) / self.interval_s)
