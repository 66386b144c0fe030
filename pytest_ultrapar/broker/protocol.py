"""Leases, requests for leases, and snapshots of the broker. `wire` defines the messages."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from pytest_ultrapar.apis.failure_classes import FailedOutcome
from pytest_ultrapar.apis.outcome import Allowance, Exceeded
from pytest_ultrapar.pool.model import LaneId

LeaseOutcome = Literal[
    "ok",  # an answer of the provider, with any content
    "unsent",  # no request was sent
    FailedOutcome,
    "cancelled",  # given up by the client
]


class KnownLane(msgspec.Struct, frozen=True):
    """The state of a lane before the first request of a run, as found by a check.

    Attributes:
        lane_id: The lane.
        at_s: The time of the check, in seconds on the host's monotonic clock.
        removed: Why the run cannot use the lane. Empty if the check was refused only because of a
            limit: the lane is then paused.
        retry_after_s: How long the provider asked to wait, in seconds from `at_s`; None if it did
            not say.
    """

    lane_id: LaneId
    at_s: float
    removed: str = ""
    retry_after_s: float | None = None


class Feedback(msgspec.Struct, frozen=True, array_like=True):
    """Information about an answer in addition to its outcome. None means unknown.

    Attributes:
        retry_after_s: How many seconds the provider asks to wait before a retry, finite and > 0.
        exceeded: Which limit was exceeded, if the outcome is `rate`.
        tokens: How many tokens the prompt and the answer have together, if the answer reports both
            numbers.
        tokens_out: How many of these are in the answer.
        allowance: The provider's own limits.
        is_wordless: Whether the connection was refused, or the answer is a 503 without
            `Retry-After`.
        late_s: The seconds from the grant until the request was sent, or until it was given up
            because it was too late to send it.
        is_too_many: Whether the answer is a 429.
        maybe_billed: Whether the provider may have charged for the request although no answer came.
        cache_write_tokens: How many tokens of the prompt were written to a cache.
        is_own: Whether the request itself must have caused the refusal, since its lane serves other
            requests.
        left_out: Unknown fields in the answer, each with its value.
        words: A number that identifies the server's message in a `bad_request`. Equal messages have
            equal numbers.
        is_cut: Whether the answer ended because it reached its token limit.
    """

    retry_after_s: float | None = None
    exceeded: Exceeded | None = None
    tokens: int | None = None
    allowance: Allowance | None = None
    tokens_out: int | None = None
    is_wordless: bool = False
    late_s: float | None = None
    is_too_many: bool = False
    maybe_billed: bool = False
    cache_write_tokens: int = 0
    is_own: bool = False
    left_out: tuple[str, ...] = ()
    words: int = 0
    is_cut: bool = False


NO_FEEDBACK = Feedback()


class TokenBounds(NamedTuple):
    """The maximum number of tokens that a request may use. Their cost depends on the lane's price.

    Attributes:
        most_in: The maximum number of tokens in the prompt.
        most_out: The maximum number of tokens in all answers to the request together, excluding
            unbounded answers.
        n_guessed: The number of unbounded answers. The length of each is estimated from the model's
            answers so far, and the estimate may change while the request waits.
    """

    most_in: int
    most_out: int
    n_guessed: int = 0


class LeaseRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request for one lease.

    Attributes:
        request_id: Unique per connection. The client chooses it.
        model: The model. Only one of its lanes may serve the request.
        group: The name of the case's group in the assignment; empty if it has no group.
        opens: Whether this is an opening request: a request for the first lease of an episode that
            is not open yet. Most follow-ups (requests of open episodes) are served before opening
            requests.
        lane: The lane that the episode has used so far. The episode stays on this lane while the
            lane is up; otherwise it moves to another lane of the same model.
        case_id: The case of the episode. The broker counts open episodes by this id: if the first
            lease is given back as `unsent` and requested again, this is still one open episode.
            If empty, the episode is not counted.
        tokens: An estimate of how many tokens the request may use, in and out; >= 0.
        after: The lane on which the last attempt failed, if the request itself was not the cause. A
            retry goes to another lane of the model if one is up.
        is_bound: Whether only `lane` can serve the request, because the request refers to an object
            that exists only there.
        most: The maximum numbers of tokens, for which money is reserved if there is a budget. They
            are not known yet for the first request of an episode: the money for it is reserved
            later (`interface.BrokerInterface.pay`).
        refused_by: The lanes whose key, model or instance refused the request
            (`failure_classes.DOUBTED`).
        stays: Whether the request must not move to another lane, but waits until the lanes in
            `refused_by` have been checked.
    """

    request_id: int
    model: str
    group: str = ""
    opens: bool = False
    lane: LaneId | None = None
    case_id: str = ""
    tokens: int = 0
    after: LaneId | None = None
    is_bound: bool = False
    most: TokenBounds | None = None
    refused_by: tuple[LaneId, ...] = ()
    stays: bool = False


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """The permission to have one request in flight on one lane.

    Attributes:
        lease_id: Unique per broker.
        granted_s: When it was granted, in seconds on the host's monotonic clock.
        send_by_s: The latest time to send the request. After this time, give the lease back as
            `unsent` and request another one. If the request was sent anyway, the next send could
            follow it sooner than the rate limits allow.
        late_after_s: If you send the request after this time, report its delay
            (`interface.report_late_send`).
        seat_wait_s: How many seconds this request waited while all seats of a limit were taken.
        rate_wait_s: How many seconds it waited although seats were free, for example because of a
            rate limit, a pause of the lane or the retry budget.
        in_flight: How many leases are in use on this lane, including this one.
        tokens: How many tokens are reserved for the request in limits that count tokens; 0 if there
            is no such limit. A request that may use more tokens must not be sent on this lease.
        is_answering: Whether the lane's instance has answered a request recently. If so, a refused
            connection or a 503 without `Retry-After` counts as `congestion`.
        ends_s: If hosts share limits or cases: when this host's shares or claims end; never before
            `send_by_s`. No request may be sent after this time, for any reason.
        is_check: Whether the lane is suspected of refusing all requests (`refusal_cause`). The
            client must then send a check instead of the request.
        is_first: Whether the lane's instance has never answered. A proxy's 502 or 503 then means
            that the server behind it has not started yet.
        n_served: How many requests the lane has answered so far.
        n_refused: How many requests the lane has refused so far because of a limit.
    """

    lease_id: int
    lane: LaneId
    granted_s: float
    send_by_s: float
    seat_wait_s: float
    rate_wait_s: float
    in_flight: int
    tokens: int = 0
    is_answering: bool = False
    late_after_s: float = math.inf
    ends_s: float = math.inf
    is_check: bool = False
    is_first: bool = False
    n_served: int = 0
    n_refused: int = 0


class EstimatedLimit(msgspec.Struct, frozen=True):
    """A limit that the run estimates, with the values so far. Several lanes may share the limit.

    Adaptive mode estimates limits from the start, fixed mode only after the first refusal.

    Attributes:
        limit: The name of the limit.
        workers: How many requests in flight the provider is known to allow; None if no such maximum
            has been observed yet.
        qps: How many sends per second the provider is known to allow; None if no such maximum has
            been observed yet.
        n_cuts: How often a refusal has lowered the estimate.
        peak: The maximum number of requests in flight so far.
        declared: Whether the pool declares the limit (fixed mode). The provider then seems to allow
            less than declared, unless the estimate is back at the declared limit.
        is_back: Whether the estimate has recovered from all cuts.
    """

    limit: str
    workers: int | None
    qps: float | None
    n_cuts: int
    peak: int = 0
    declared: bool = False
    is_back: bool = False


class LaneStatus(msgspec.Struct, frozen=True):
    """The state and counts of one lane, for the progress line, the summary and `explain`.

    Attributes:
        state: `up`, `paused` (until a certain time) or `out` (removed for the rest of the run).
        reason: One sentence for users if the lane is `paused` or removed, otherwise empty.
        waited_s: How many seconds requests waited, by cause. A cause is a limit and its kind, such
            as `lab/key0 (qps)`, or another reason, such as `pause`, `group`, `home` or `budget`.
        outcomes: How many leases were given back, by outcome. A lease whose holder died has the
            outcome `lost`.
        orphans: How many seats are still taken although their holders died, because the requests
            may still be running.
        pauses: How often it was paused, by cause: `rate` (a rate limit refused a request) or
            `breaker` (requests failed).
        paused_s: How many seconds it was paused, by the same causes.
        n_opened: How often its breaker opened.
        n_moved: How many requests failed here and were sent again on another lane.
        removed_after_s: When it was removed, in seconds after the run's start.
        estimated: The estimated limit that applies to the lane. Adaptive mode always estimates it,
            fixed mode only after the provider has refused a request because of a limit.
        busy_s: How many seconds its leases were in use, summed over all leases.
        widened: The lane's limits whose sends are now spaced further apart, because the provider
            refused some sends that were within the declared rate (`headroom`).
        awaits: The problem with the server for which the lane is waiting; empty if the lane is not
            waiting for a server.
        left_out: Unknown fields in its answers, each with its value.
        cut: How many answers ended because they reached their token limit, and the number of tokens
            in the longest of these.
        is_whole: Whether its requests go to a real (not simulated) server and do not use streaming.
            The server may then not notice that a request was cancelled.
        is_unheard: Whether its server has a `metrics_url` that has not returned any known metric so
            far.
    """

    # Manifests of earlier runs contain `out`, and the older names of the fields given below.
    lane: LaneId
    state: Literal["up", "paused", "out"]
    reason: str
    in_flight: int
    peak_in_flight: int
    granted: int
    n_ok: int
    n_rate_limited: int
    n_failed: int
    waited_s: dict[str, float]
    outcomes: dict[str, int] = {}
    orphans: int = 0
    pauses: dict[str, int] = msgspec.field(default_factory=dict, name="rests")
    paused_s: dict[str, float] = msgspec.field(default_factory=dict, name="rested_s")
    n_opened: int = 0
    n_moved: int = 0
    removed_after_s: float | None = msgspec.field(default=None, name="out_after_s")
    estimated: EstimatedLimit | None = msgspec.field(default=None, name="found")
    busy_s: float = 0.0
    widened: tuple[str, ...] = ()
    awaits: str = ""
    left_out: tuple[str, ...] = ()
    cut: tuple[int, int] = (0, 0)
    is_whole: bool = False
    is_unheard: bool = False

    @property
    def is_removed(self) -> bool:
        """Whether the lane is removed from the run."""
        return self.state == "out"


BIN = 1.1
"""Durations are counted in bins. The durations in a bin are this many times as long as those in the
bin before it."""


class ModelProgress(msgspec.Struct, frozen=True):
    """The counts of one model's episodes and requests so far.

    Attributes:
        ended: How many episodes have ended, by their number of requests. Episodes without requests
            are left out.
        open: How many episodes are open, by their number of requests so far, including the request
            in flight.
        seconds: How many requests have ended, by the time for which their lease was in use. The key
            n means about `BIN ** n` seconds.
        under_way: How many requests are in flight, by the time for which their lease has been in
            use, in the same bins as `seconds`.
        ended_beside: How many requests its ended episodes sent to models that have a role, such as
            a judge, by the name of that model.
        open_beside: The same for its open episodes.
    """

    model: str
    ended: dict[int, int]
    open: dict[int, int]
    seconds: dict[int, int]
    under_way: dict[int, int]
    ended_beside: dict[str, int] = {}
    open_beside: dict[str, int] = {}


NO_PART = -1


class GroupProgress(msgspec.Struct, frozen=True):
    """The progress of one group's cases on this host.

    Attributes:
        begun: How many episodes have got their first lease, or have ended without one.
        ended: How many of these episodes were reported as ended.
        room: Like `BrokerStatus.room`, for the lanes of the group.
    """

    name: str
    begun: int
    ended: int
    room: int


class ShareStatus(msgspec.Struct, frozen=True, array_like=True):
    """This host's share of a limit that hosts share, for display.

    Attributes:
        limit: The name of the limit.
        word: The kind of limit: the name of its field in the pool.
        share: The amount that this host may use now, in the pool's unit. For example, 2.0 for `qps`
            means two per second.
        whole: The amount that all hosts together may use.
        coming: The share that this host gets once others have released part of their shares.
        closed: Whether the limit is closed: no host gets a share, because it is unknown how much
            has been spent.
    """

    limit: str
    word: str
    share: float
    whole: float
    coming: float
    closed: bool = False


class BrokerStatus(msgspec.Struct, frozen=True):
    """A snapshot of the whole broker.

    Attributes:
        in_flight: How many leases are in use now.
        open_episodes: How many episodes have got their first lease but have not been reported as
            ended.
        ended_episodes: How many distinct cases have been reported as ended.
        waiting: How many requests have no lease yet. This includes requests of groups that are not
            allowed to start yet.
        trying: How many episodes are waiting to retry a request that was refused or failed.
        models: The counts for each model that has received requests.
        room: If hosts share limits: how many more requests each model could have in flight, on
            lanes for which this host has a share. `NO_PART` if there are no such lanes.
        groups: If hosts share limits, the progress of the groups in the assignment.
        trouble: A sentence for the user if this host cannot renew its shares, otherwise empty.
        shares: If hosts share limits, the last known share of each limit; empty until it is known.
        notes: Notes for the user on shared limits, one sentence each. They name the limits that are
            closed, and those that are lower than in this host's pool because another host declares
            less.
    """

    now_s: float
    in_flight: int
    peak_in_flight: int
    open_episodes: int
    ended_episodes: int
    lanes: list[LaneStatus]
    waiting: int = 0
    trying: int = 0
    models: list[ModelProgress] = []
    room: dict[str, int] | None = None
    trouble: str = ""
    groups: list[GroupProgress] = []
    shares: list[ShareStatus] = []
    notes: list[str] = []


class Grant(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """`worker` may send the request `request_id`."""

    worker: str
    request_id: int
    lease: Lease


NO_LANE, DAILY_QUOTA, BUDGET, TAKEN = "no_lane", "daily_quota", "budget", "taken"
OF_REQUEST, GONE = "refusal_of_request", "broker"
"""Kinds of reasons why a request cannot be served. `NO_LANE`: all lanes are removed. `DAILY_QUOTA`:
the daily limits of all lanes are used up. `BUDGET`: the budget is spent. `TAKEN`: another host has
taken over the case. `OF_REQUEST`: the provider refuses only this request. `GONE`: the broker has
ended."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The request cannot be served. `reason` is one sentence for users, `kind` is one word."""

    worker: str
    request_id: int
    reason: str
    kind: str = NO_LANE


Action = Grant | Refusal
