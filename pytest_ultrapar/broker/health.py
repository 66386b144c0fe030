"""The health of a lane: how each outcome affects the lane, and the circuit breaker."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.apis.failure_classes import (
    ANSWERED,
    CLASSES,
    MAX_RETRY_AFTER_S,
    NOBODY_LISTENS,
    OF_HOST,
    OF_LANE,
    Scope,
    backoff_s,
    is_doubted,
)
from pytest_ultrapar.broker.refusal_cause import RefusalCheck
from pytest_ultrapar.pool.model import Lane
from pytest_ultrapar.pool.settings import EPISODE_TIMEOUT_S
from pytest_ultrapar.records import Microseconds

if TYPE_CHECKING:
    from pytest_ultrapar.apis.failure_classes import BreakerRule
    from pytest_ultrapar.broker.protocol import LeaseRequest


RETRY_AFTER_JITTER = 0.1
"""A pause is longer than requested by up to this share, so that lanes do not all return at once."""
UNREACHABLE_S, NEVER_REACHED_S = 120.0, 2.0
"""If the run does not wait for servers, a lane is removed when its server has been unreachable or
loading its model for `UNREACHABLE_S` seconds. If the lane's instance has never answered,
`NEVER_REACHED_S` seconds are enough."""
NEVER_ANSWERED_S = 60.0
"""If an instance has never answered and its requests fail in other ways, its lane is removed after
this many seconds."""
_LATE_S = 5.0
"""If a process wakes more than this many seconds after the end of a pause, the process was
suspended or the clock has jumped."""
_HOPELESS_COUNT = 5
"""A lane is removed for repeated failures or refusals only after at least this many in a row,
however long they took. With fewer, the requests themselves may be the cause. The breaker's own
threshold is `failure_classes.FAILURES.after`."""
Cause = Literal["rate", "breaker"]


@dataclass(frozen=True, slots=True)
class Pause:
    """The lane pauses until `until_s`. `reason` is a sentence that is shown to users."""

    until_s: float
    reason: str
    cause: Cause = "rate"


@dataclass(frozen=True, slots=True)
class Removal:
    """The lane and all other lanes in `scope` are removed for the rest of the run."""

    scope: Scope
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The lane's pause ends early, because its probe or check is over."""


Verdict = Pause | Removal | Resume


@dataclass(eq=False, repr=False)
class LaneHealth:
    """Decides when a lane pauses or is removed, based on the outcomes of its leases.

    Pure: the caller passes time and randomness. The outcomes of one burst count as one: only a
    request granted after the end of the last pause gives new information.

    Attributes:
        lane: The lane. Its names appear in the reasons.
        rng: Source of all jitter, seeded by the caller.
        episode_timeout_s: How long an episode may last, > 0 seconds. A lane that has answered no
            request for that long is removed. By then, every case that was open at the lane's last
            answer has ended.
        wait_for_servers_s: How long to wait for a server that cannot be reached or is loading its
            model, in seconds. If this is 0, `UNREACHABLE_S` and `NEVER_REACHED_S` apply.
        has_answered: Returns whether the lane's instance has ever answered.
        base_url: The URL of the lane's instance, which appears in reasons; empty if unknown.
        on_trial: Whether the lane's breaker is half-open, so that the next lease is its probe.
        refusal_check: Keeps track of the requests that the provider refused because of a key, model
            or instance.
    """

    lane: Lane
    rng: random.Random
    _: KW_ONLY
    episode_timeout_s: float = EPISODE_TIMEOUT_S
    wait_for_servers_s: float = 0.0
    has_answered: Callable[[], bool] = lambda: False
    base_url: str = ""

    def __post_init__(self) -> None:
        """Start healthy."""
        # Leave out the scheme: a report breaks text that looks like a link.
        self._address = self.base_url.partition("//")[2]
        self._failing = ""
        self._breaker = Breaker(self.rng)
        self._rate_until_s = self._failed_until_s = -math.inf
        self._rate_reason = self._failed_reason = ""
        self._rate_count = 0
        self._rate_since_s = 0.0
        self.on_trial = False
        self.refusal_check = RefusalCheck()

    @property
    def n_opened(self) -> int:
        """How often its breaker has opened."""
        return self._breaker.n_opened

    @property
    def awaits(self) -> str:
        """If the lane is waiting for its server: the server's problem and the longest wait.

        Empty if the lane is not waiting for a server.
        """
        if self._breaker.state == "closed" or self._breaker.rule is not NOBODY_LISTENS:
            return ""
        option = " (--ultrapar-wait-for-servers)" if self.wait_for_servers_s else ""
        return f"{self._why(self._failing)}; giving up after {self._bound_s():g} s{option}"

    def decide(
        self,
        outcome: str,
        retry_after_s: float | None,
        granted_s: float,
        now_s: float,
        pending: int = 0,
        *,
        pause_s: float | None = None,
        request: LeaseRequest | None = None,
        words: int = 0,
    ) -> Verdict | None:
        """Decide how a lease's outcome affects the lane.

        Args:
            outcome: The outcome of the request: a `LeaseOutcome`, or `lost` if the worker that held
                the lease is gone.
            retry_after_s: How many seconds the provider asked the client to wait. The value is
                ignored unless it is finite and > 0.
            granted_s: When the lease was granted, monotonic seconds.
            now_s: Now, monotonic seconds.
            pending: How many other requests are in flight on the lane.
            pause_s: For a refusal that does not say how long to wait: how many seconds the lane
                should pause, because its limit was lowered. None for a back-off instead.
            request: The request, if it may itself be the reason for a refusal; None for a check,
                and for a request that belongs to no case.
            words: See `Feedback`.

        Returns:
            None if nothing changes. A new `Pause` ends later than the last one, with two
            exceptions: a `Resume` came in between, or the new `Pause` takes the place of a
            `Resume`, because another pause has not ended yet.
        """
        if retry_after_s is not None and not 0.0 < retry_after_s < math.inf:
            retry_after_s = None
        check = self.refusal_check
        is_first = outcome == "bad_request" and request is not None and check.is_new
        if outcome in ANSWERED and not is_first and not check.is_deaf:
            self._rate_count = 0
            is_back = self._breaker.answered(granted_s, now_s)
            return self.resume(now_s) if check.answered() or is_back else None
        if outcome in OF_HOST and self.has_answered():
            # The server was there before, so this is a network failure.
            outcome = "connect"
        if outcome not in OF_LANE:
            # The request was not sent, not read, given up or lost.
            return self.resume(now_s) if self._breaker.void(granted_s) else None
        its_class = CLASSES[outcome]
        if request is not None and (
            is_first or is_doubted(outcome, retry_after_s, self.episode_timeout_s)
        ):
            # A server that refuses is running.
            is_back = self._breaker.answered(granted_s, now_s)
            check.refused(request.case_id, outcome, words)
            return self.resume(now_s) if is_back else None
        if its_class.removes is not None:
            back = f" (the server says: retry in {retry_after_s:,.0f} s)" if retry_after_s else ""
            why = f"{self._why(outcome, back)}: removed for the rest of the run"
            return Removal(its_class.removes, why)
        if its_class.breaker is not None:
            return self._failed(outcome, its_class.breaker, granted_s, now_s, pending)
        # A refusal by a rate limit also shows that the server is running.
        is_back = self._breaker.answered(granted_s, now_s)
        if is_back:
            self._failed_until_s = -math.inf
        verdict = self._limited(retry_after_s, granted_s, now_s, after_cut_s=pause_s)
        # Another refusal may have asked for a longer wait. The pause then ends with that wait.
        return self.resume(now_s) if is_back and verdict is None else verdict

    def was_unused(self, since_s: float, now_s: float) -> None:
        """Do not count the time since `since_s` as silence: no request could be sent then."""
        breaker = self._breaker
        if breaker.silent_since_s is not None:
            breaker.silent_since_s += now_s - max(since_s, breaker.silent_since_s)
        if self._rate_count:
            self._rate_since_s += now_s - max(since_s, self._rate_since_s)

    def asked_elsewhere(self, until_s: float, now_s: float) -> Pause | None:
        """Pause until `until_s`, because the provider asked another host to wait until then.

        Returns:
            None if a rate limit already pauses the lane until then or longer.
        """
        return self._pause_until(until_s, f"on another host: paused for {until_s - now_s:.2f} s")

    def wake(self, now_s: float) -> Pause | Removal | None:
        """End the lane's pause. Call this at the time at which the pause should end.

        Returns:
            None if the lane may be used (at first by only one request if it is `on_trial`). A
            removal if the lane has been silent for too long. A new pause if the breaker is still
            open.
        """
        # If the process wakes much too late, it was suspended or the clock has jumped. The lane was
        # then not silent.
        is_in_time = now_s <= max(self._rate_until_s, self._failed_until_s) + _LATE_S
        removal = self._given_up(now_s) if is_in_time else None
        if removal is not None:
            return removal
        self.refusal_check.is_being_checked = False
        breaker = self._breaker
        breaker.wake(now_s)
        if breaker.state == "open":
            # The pause was supposed to end with the lane's removal, but that did not happen.
            self._failed_until_s = breaker.until_s
            return self._pause()
        self.on_trial = breaker.state == "half_open"
        return None

    def probe(self, granted_s: float, end_s: float) -> Pause:
        """Record the grant of a probe, the only request on a lane on trial. It ends by `end_s`."""
        self.on_trial = False
        self._breaker.probe(granted_s)
        lane = self.lane.lane_id
        self._failed_until_s = self._no_later_than_hopeless(end_s, granted_s)
        self._failed_reason = f"lane {lane} failed and is being tested with one request"
        return self._pause()

    def hold(self, until_s: float) -> Pause:
        """Pause for a check, at most until `until_s`. `resume` or an answer ends the pause."""
        self._failed_until_s = max(self._failed_until_s, until_s)
        self._failed_reason = (
            f"lane {self.lane.lane_id} is paused until a check shows whether it still works"
        )
        return self._pause()

    def resume(self, now_s: float) -> Pause | Resume:
        """End the wait for a probe or check. A pause because of a rate limit continues."""
        breaker = self._breaker
        if breaker.state != "probing":
            self._failed_until_s = breaker.until_s if breaker.state == "open" else -math.inf
        if max(self._rate_until_s, self._failed_until_s) > now_s:
            return self._pause()
        self.on_trial = breaker.state == "half_open"
        return Resume()

    def _why(self, outcome: str, back: str = "") -> str:
        lane = self.lane
        where = f" ({self._address})" if self._address else ""
        instance = f"instance {lane.provider}/{lane.instance}{where}"
        names = {"key": lane.key_title, "instance": instance, "model": lane.model}
        return CLASSES[outcome].why.format(**names, back=back)

    def _limited(
        self,
        retry_after_s: float | None,
        granted_s: float,
        now_s: float,
        *,
        after_cut_s: float | None,
    ) -> Pause | Removal | None:
        if after_cut_s is not None and retry_after_s is None:
            # The lower limit is the remedy; it may take a moment to have an effect.
            said = f"and its limit was lowered: paused for {after_cut_s:.2f} s"
            return self._pause_until(now_s + after_cut_s, said) if after_cut_s > 0 else None
        # Requests sent before the last pause ended belong to the burst that caused the pause.
        is_new = granted_s >= self._rate_until_s
        if is_new:
            if self._rate_count == 0:
                self._rate_since_s = min(granted_s, now_s)
            self._rate_count += 1
        lane = self.lane.lane_id
        longest_s = max(MAX_RETRY_AFTER_S, self.episode_timeout_s)
        refused_s = now_s - self._rate_since_s
        if self._rate_count >= _HOPELESS_COUNT and refused_s >= longest_s:
            return Removal(
                "lane",
                f"lane {lane} has returned nothing but refusals for {refused_s:.0f} s: "
                "removed for the rest of the run",
            )
        if retry_after_s is not None:
            if retry_after_s > longest_s:
                return Removal(
                    "lane",
                    f"lane {lane} was rate limited and asked to wait {retry_after_s:,.0f} s, "
                    f"longer than the {longest_s:g} s that a case may wait: "
                    "removed for the rest of the run",
                )
            pause_s = retry_after_s * (1 + self.rng.uniform(0, RETRY_AFTER_JITTER))
            said = f"and asked to wait {retry_after_s:g} s"
            return self._pause_until(now_s + pause_s, f"{said}: paused for {pause_s:.2f} s")
        if not is_new:
            # Draw the jitter only once per burst: the largest of fifty draws would always be near
            # the maximum.
            return None
        # Do not pause for much longer than the lane has been refusing requests so far: it may
        # recover just as soon.
        pause_s = min(backoff_s(self._rate_count, self.rng), 1.0 + 0.5 * refused_s)
        said = f"and not told how long to wait (refusals in a row: {self._rate_count})"
        return self._pause_until(now_s + pause_s, f"{said}: paused for {pause_s:.2f} s")

    def _pause_until(self, until_s: float, said: str) -> Pause | None:
        # Use the longest requested wait, because the answers in a burst may overtake each other.
        if until_s <= self._rate_until_s:
            return None
        self._rate_until_s = until_s
        self._rate_reason = f"lane {self.lane.lane_id} was rate limited {said}"
        return self._pause()

    def _failed(
        self, outcome: str, rule: BreakerRule, granted_s: float, now_s: float, pending: int
    ) -> Pause | Removal | None:
        breaker = self._breaker
        if not breaker.failed(rule, granted_s, now_s, pending=pending):
            return None
        self._failing = outcome
        removal = self._given_up(now_s)
        if removal is not None:
            return removal
        n = breaker.n_in_row
        how = f"{n} times in a row" if n > 1 else "once"
        if rule is NOBODY_LISTENS:
            what = f"was unavailable {how} ({outcome})"
        elif n >= rule.after:
            what = f"failed {how} ({outcome})"
        else:
            what = f"failed more often than not ({outcome})"
        self._failed_until_s = self._no_later_than_hopeless(breaker.until_s, now_s)
        pause_s = self._failed_until_s - now_s
        self._failed_reason = f"lane {self.lane.lane_id} {what}: paused for {pause_s:.2f} s"
        return self._pause()

    def _given_up(self, now_s: float) -> Removal | None:
        """A removal if the lane was silent for as long as its kind of failure allows; else None."""
        breaker = self._breaker
        since_s = breaker.silent_since_s
        if since_s is None or breaker.n_in_row < _HOPELESS_COUNT:
            return None
        # Compute the same sum as in `_no_later_than_hopeless`, so that both are rounded equally.
        if now_s < since_s + self._bound_s():
            return None
        what = "failed without an answer"
        if breaker.rule is NOBODY_LISTENS:
            is_loading = self._failing == "loading"
            what = "was found loading its model" if is_loading else "could not be reached"
        return Removal(
            "lane",
            f"lane {self.lane.lane_id} {what} {breaker.n_in_row} times in a row over "
            f"{now_s - since_s:.1f} s: removed for the rest of the run",
        )

    def _bound_s(self) -> float:
        has_answered = self.has_answered()
        if self._breaker.rule is NOBODY_LISTENS:
            if self.wait_for_servers_s:
                return self.wait_for_servers_s
            bound_s = UNREACHABLE_S if has_answered else NEVER_REACHED_S
        else:
            bound_s = math.inf if has_answered else NEVER_ANSWERED_S
        return min(self.episode_timeout_s, bound_s)

    def _no_later_than_hopeless(self, until_s: float, now_s: float) -> float:
        breaker = self._breaker
        if breaker.silent_since_s is None or breaker.n_in_row < _HOPELESS_COUNT:
            return until_s
        hopeless_s = breaker.silent_since_s + self._bound_s()
        # If a jump of the clock was ignored, this time is in the past. Then this probe decides.
        return min(until_s, hopeless_s) if hopeless_s > now_s else until_s

    def _pause(self) -> Pause:
        if self._rate_until_s >= self._failed_until_s:
            return Pause(self._rate_until_s, self._rate_reason, "rate")
        return Pause(self._failed_until_s, self._failed_reason, "breaker")


RECENT_S = 30.0
RECENT_LEAST = 10
"""The breaker also opens if at least this many requests came back in the last `RECENT_S` seconds
and more than half of them failed."""
JITTER = 0.1
"""The breaker stays open longer by up to this share, so that lanes do not all return at once."""
State = Literal["closed", "open", "half_open", "probing"]


class Breaker:
    """Lets all requests pass when closed, none when open, and one at a time when half-open.

    Pure: the caller passes time and randomness. If the time passed is earlier than in the previous
    call, the previous time is used instead. Requests granted before the breaker last opened give no
    new information and are ignored.

    Attributes:
        state: `probing` means half-open, with its one request in flight.
        until_s: While the breaker is open: when it becomes half-open.
        n_opened: How often the breaker went from closed to open.
        silent_since_s: Since when the lane has been silent; None after an answer. This is the later
            of two times: the last answer, and the grant of the first request that has failed since
            then.
        n_in_row: How many failures were counted since the last answer.
        rule: The rule of the last failure that opened the breaker; None after an answer.
    """

    def __init__(self, rng: random.Random) -> None:
        """Start closed.

        Args:
            rng: Source of the jitter.
        """
        self._rng = rng
        self._recent = _Recent()
        self._now_s = self._answer_s = self._fresh_s = -math.inf
        self._exponent = 0
        self.rule: BreakerRule | None = None
        self.state: State = "closed"
        self.until_s = -math.inf
        self.n_in_row = self.n_opened = 0
        self.silent_since_s: float | None = None

    def answered(self, granted_s: float, now_s: float) -> bool:
        """Record an answer.

        Returns:
            Whether the answer closed the breaker, because it was the answer to the probe.
        """
        # Make no function calls up to the first `return False`: every lease passes through here.
        if now_s > self._now_s:  # noqa: PLR1730
            self._now_s = now_s
        if self.state == "closed":
            self._answer_s = self._now_s
            recent = self._recent
            if self._now_s >= recent.until_s:
                recent.next_second(self._now_s)
            recent.n_now += 1
            if self.n_in_row:
                self.n_in_row = 0
                self.silent_since_s = None
            return False
        if not self._is_probe(granted_s):
            return False
        self.state = "closed"
        self._answer_s = self._now_s
        self._exponent = self.n_in_row = 0
        self.silent_since_s = self.rule = None
        self._recent = _Recent()
        return True

    def failed(
        self, rule: BreakerRule, granted_s: float, now_s: float, *, pending: int = 0
    ) -> bool:
        """Record a failure that counts.

        Failures often come back immediately, but answers only after seconds. So a few failures in a
        row mean little while many more requests are in flight. For example, if 100 requests are
        sent together to a provider that fails one in twenty, the five failures come back first.

        Args:
            rule: When this kind of failure opens the breaker, and for how long.
            granted_s: When the request was granted.
            now_s: When it failed.
            pending: How many other requests are in flight on the lane.

        Returns:
            Whether the failure opened the breaker (until `until_s`).
        """
        self._now_s = now_s = max(now_s, self._now_s)
        if self.state == "closed":
            if granted_s < self._fresh_s:
                return False
        elif not self._is_probe(granted_s):
            # The request was sent before the breaker opened, so it gives no new information.
            return False
        self.n_in_row += 1
        if self.silent_since_s is None:
            self.silent_since_s = min(now_s, max(self._answer_s, granted_s))
        if self.state == "closed":
            recent = self._recent
            if now_s >= recent.until_s:
                recent.next_second(now_s)
            recent.n_now += 1
            recent.n_failed_now += 1
            # Two rules are necessary: a dead server fails many times in a row, but a server that
            # fails two of three requests never does.
            in_row = self.n_in_row >= rule.after and _tells(self.n_in_row, pending)
            if not in_row and not recent.is_mostly_failed(pending):
                return False
            self.n_opened += 1
        if rule is not self.rule:
            # A server that restarts is back in seconds, but a server that fails is not. So the
            # pauses after one kind of failure give no information about the other kind.
            self.rule, self._exponent = rule, 0
        # The exponent is bounded only because 2.0**1024 overflows.
        open_s = min(rule.cap_s, rule.base_s * 2.0 ** min(self._exponent, 32))
        self._exponent += 1
        self.state = "open"
        self.until_s = now_s + open_s * (1 + self._rng.uniform(0, JITTER))
        return True

    def void(self, granted_s: float) -> bool:
        """Record a request that tells nothing about the lane: it was unsent, given up, or lost.

        Returns:
            Whether this request was the probe, so that the next one may be the new probe.
        """
        if self.state != "probing" or granted_s < self._fresh_s:
            return False
        self.state = "half_open"
        return True

    def wake(self, now_s: float) -> None:
        """Let one request pass after the lane's pause, even if the last probe never came back."""
        self._now_s = now_s = max(now_s, self._now_s)
        if self.state == "probing" or (self.state == "open" and now_s >= self.until_s):
            self.state = "half_open"

    def probe(self, granted_s: float) -> None:
        """Record the grant of the one request that a half-open breaker lets pass."""
        # Only one request is sent, regardless of the seats: a server that has just recovered would
        # fail again under the load of all waiting requests.
        self.state = "probing"
        self._fresh_s = granted_s

    def _is_probe(self, granted_s: float) -> bool:
        return self.state == "probing" and granted_s >= self._fresh_s


class _Recent:
    """Counts the requests that came back in the last `RECENT_S` seconds, and how many failed.

    It keeps one count for each second: for a lane with 300 requests a second, a list of all
    requests would have 9,000 entries.

    Attributes:
        n_now: The requests that came back in the second that ends at `until_s`; `n_failed_now` of
            them failed.
    """

    def __init__(self) -> None:
        self._seconds: deque[tuple[float, int, int]] = deque()
        self._n = self._n_failed = 0
        self.n_now = self.n_failed_now = 0
        self.until_s = -math.inf

    def next_second(self, now_s: float) -> None:
        """Begin a new second."""
        seconds = self._seconds
        seconds.append((self.until_s, self.n_now, self.n_failed_now))
        self._n += self.n_now
        self._n_failed += self.n_failed_now
        while seconds and seconds[0][0] <= now_s - RECENT_S:
            _, n, n_failed = seconds.popleft()
            self._n -= n
            self._n_failed -= n_failed
        self.n_now = self.n_failed_now = 0
        self.until_s = now_s + 1.0

    def is_mostly_failed(self, pending: int) -> bool:
        """Whether there are enough requests to judge by, and more than half of them failed."""
        n = self._n + self.n_now
        n_failed = self._n_failed + self.n_failed_now
        return n >= RECENT_LEAST and 2 * n_failed > n and _tells(n_failed, pending)


def _tells(n_failed: int, pending: int) -> bool:
    """Whether there are enough failures to judge: at least half as many as requests in flight."""
    return 2 * n_failed >= pending


PAUSES_FILE = "pause-history.jsonl"
"""The file in the run's directory that records the pauses that have ended."""


class LanePause(msgspec.Struct, frozen=True):
    """One pause of a lane.

    Attributes:
        provider: The provider's name in the pool.
        instance: The instance's name in the pool.
        key: The key's name in the pool.
        cause: `rate`: the provider refused a request because of a rate limit; `breaker`: failures
            opened the circuit breaker.
        t_s: When the pause began, on the host's monotonic clock, as in `attempts`.
        t_end_s: When the pause ended, on the same clock.
    """

    provider: str
    instance: str
    key: str
    cause: str
    t_s: float
    t_end_s: float


class PauseRecord(msgspec.Struct, frozen=True):
    """A pause as it is recorded in the file, with its wall-clock time.

    Attributes:
        at_us: When the pause began, UTC.
        host: In a merged run: the name of the host, if it has one. Otherwise None.
    """

    at_us: Microseconds
    pause: LanePause
    host: str | None = None


class PauseLog:
    """Records the pauses of a lane.

    Attributes:
        n: How many pauses began, by cause. A pause that continues for another cause counts for
            both causes.
        over: The ended pauses that have not been collected yet, each with its cause, start and end.
    """

    def __init__(self) -> None:
        self._cause: Cause | None = None
        self._since_s = 0.0
        self._paused_s: dict[str, float] = {}
        self.n: dict[str, int] = {}
        self.over: list[tuple[Cause, float, float]] = []

    def begin(self, cause: Cause, now_s: float) -> None:
        """Begin a pause. Does nothing if the lane is already paused for this cause."""
        if cause == self._cause:
            return
        self.end(now_s)
        self._cause, self._since_s = cause, now_s
        self.n[cause] = self.n.get(cause, 0) + 1

    def end(self, now_s: float) -> None:
        """End the pause, because the lane is up or removed."""
        self._paused_s = self.paused_s(now_s)
        if self._cause is not None and now_s > self._since_s:
            self.over.append((self._cause, self._since_s, now_s))
        self._cause = None

    def paused_s(self, now_s: float) -> dict[str, float]:
        """How many seconds the lane has been paused in total up to `now_s`, by cause."""
        paused_s = dict(self._paused_s)
        if self._cause is not None:
            this_s = max(0.0, now_s - self._since_s)
            paused_s[self._cause] = paused_s.get(self._cause, 0.0) + this_s
        return paused_s
