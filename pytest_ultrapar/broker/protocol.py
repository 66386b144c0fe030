"""Leases, requests for leases, and snapshots of the broker; `wire` has the messages."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from pytest_ultrapar.apis.failure_classes import FailedOutcome
from pytest_ultrapar.apis.outcome import Allowance, Exceeded
from pytest_ultrapar.pool.model import LaneId

LeaseOutcome = Literal[
    "ok",  # an answer of the provider, with any content
    "unsent",  # nothing was sent
    FailedOutcome,
    "cancelled",  # given up by the client
]


class KnownLane(msgspec.Struct, frozen=True):
    """A lane's state before the first request of a run, known from a check.

    Attributes:
        lane_id: The lane.
        at_s: The time of the check, monotonic seconds of the host.
        removed: The reason why the run cannot use the lane. Empty: the check exceeded a limit, and
            the lane pauses.
        retry_after_s: Seconds that the provider asked to wait from then on; None: it named no time.
    """

    lane_id: LaneId
    at_s: float
    removed: str = ""
    retry_after_s: float | None = None


class Feedback(msgspec.Struct, frozen=True, array_like=True):
    """The part of an answer besides its outcome; None stands for unknown.

    Attributes:
        retry_after_s: Seconds to wait, finite and > 0.
        exceeded: Which limit was exceeded, with outcome `rate`.
        tokens: Tokens in and out that the request used, if the answer reports both.
        tokens_out: The tokens of the answer among them.
        allowance: The provider's own limits.
        is_wordless: Whether it is a 503 or a refused connection, without a time to retry.
        late_s: Seconds after its grant when the request was sent, or could no longer be sent.
        is_too_many: Whether it is a 429.
        maybe_billed: Whether the provider may have charged for the request although no answer came.
        cache_write_tokens: The tokens of the prompt that were written to a cache.
        is_own: Whether the request itself is the reason for the refusal: its lane serves others.
        left_out: Unknown fields of the answer, each with its value.
        words: A number for the server's message of a `bad_request`: equal for equal messages.
        is_cut: Whether the answer ended at its limit of tokens.
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
    """The maximum that a request may cost, in tokens of its lane's price.

    Attributes:
        most_in: The maximum of tokens in the prompt.
        most_out: The maximum of tokens in its answers, without the unbounded answers.
        n_guessed: The number of unbounded answers. Each is estimated from the model's answers so
            far, at any time while the request waits.
    """

    most_in: int
    most_out: int
    n_guessed: int = 0


class LeaseRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request for one lease.

    Attributes:
        request_id: Unique per connection, chosen by the client.
        model: The lease is for a lane of this model only.
        group: Name of the assignment's group that the case belongs to; empty: no group.
        opens: Whether this is an opening request: the first lease of an episode that is not open
            yet. Follow-ups, requests of open episodes, are served first.
        lane: The lane of the episode so far: kept while it is up; else another lane of the
            same model.
        case_id: The case of the episode. The broker counts open episodes by this id: if the first
            lease came back `unsent` and is requested again, one episode is open and not two.
            Empty: it is not counted.
        tokens: How many tokens, in and out, the request may take; an estimate, >= 0.
        after: The lane on which the last attempt failed through no fault of the request. A retry
            goes to another lane of the model if one is up.
        is_bound: Whether the request needs `lane`: only that lane has an object that it names.
        most: The maximum cost, if a budget counts money. It is unknown for the first request of an
            episode, which is paid when the cost is known (`interface.BrokerInterface.pay`).
        refused_by: The lanes whose key, model or instance refused it (`failure_classes.DOUBTED`).
        stays: Whether it goes to no other lane, but waits until those are checked.
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
    """The right to have one request in flight on one lane.

    Attributes:
        lease_id: Unique per broker.
        granted_s: When it was granted, monotonic seconds of the host.
        send_by_s: The latest time to send. After it, return the lease as `unsent` and request
            another: a late send would compress the spacing that the rate limits guarantee.
        late_after_s: A send after this time must be reported (`interface.report_late_send`).
        seat_wait_s: Seconds that this request waited while a limit on requests in flight was full.
        rate_wait_s: Seconds it waited for a rate limit or a pause of the lane while seats were
            free.
        in_flight: Leases in use on this lane, including this one.
        tokens: Tokens reserved on the limits that count tokens; 0 if no limit does. A request that
            may take more must not be sent on it.
        is_answering: Whether the lane's instance answered something recently: a 503 without
            `Retry-After` is then `congestion`.
        ends_s: If hosts share limits or cases: when this host's part of them ends, not before
            `send_by_s`. No request is sent later, for any reason.
        is_check: Whether the lane is suspected: the client sends a check, not the request.
        is_first: Whether the lane's instance has never answered: a proxy's 502 or 503 then means
            that the server behind it has not started yet.
        n_served: Requests that the lane has answered so far; `n_refused`: requests that it refused
            because of a limit.
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
    """A limit that the run estimates, as far as it is known. Lanes may share a limit.

    Adaptive mode estimates from the start, fixed mode from the first refusal on.

    Attributes:
        limit: Its name.
        workers: Requests in flight that the provider is known to allow; None while no limit has
            shown.
        qps: Sends per second, in the same sense.
        n_cuts: How often a refusal lowered it.
        peak: The maximum of requests in flight so far.
        declared: Whether the pool declares it (fixed mode). The provider then seems to allow less,
            unless the estimate is back at the declared limit.
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
    """The state and counts of one lane, for progress, summary and `explain`.

    Attributes:
        state: `up`, `paused` (until a time) or `out`: removed, until the end of the run.
        reason: One sentence for people when `paused` or removed, else empty.
        waited_s: Seconds that requests waited, by the cause: a limit and its kind, as in
            `lab/key0 (qps)`, or `pause`, `group`, `home`, `budget`.
        outcomes: Leases given back, by outcome; a lease lost with its holder is `lost`.
        orphans: Seats still taken because their holder died and its request may still be running.
        pauses: How often it was paused, by `rate` (refused for its rate) and `breaker` (failures).
        paused_s: Seconds for which it was paused, by the same words.
        n_opened: How often its breaker opened.
        n_moved: Requests that failed here and were tried again on another lane.
        removed_after_s: Seconds from the run's start until it was removed.
        estimated: The limit on its path that the run estimates: in adaptive mode always, in fixed
            mode once the provider has refused a request because of a limit.
        busy_s: Seconds that its leases were in use, summed over all of them.
        widened: Limits on its path whose sends are spaced wider than at first: the provider refused
            some that kept to the declared rate (`headroom`).
        awaits: The problem of the server that the lane waits for; empty: it does not wait.
        left_out: Unknown fields of its answers, each with its value.
        cut: How many answers ended at their limit of tokens, and the most tokens of one of them.
        is_whole: Whether a real server gets requests without streaming: it may not notice that a
            request is cancelled.
        is_unheard: Whether its server has a `metrics_url` that has returned no known figure.
    """

    # Manifests of earlier runs have `out`, and the older names of fields given below.
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
"""The ratio of neighbouring bins in which seconds are counted."""


class ModelProgress(msgspec.Struct, frozen=True):
    """The counts of one model's episodes and requests so far.

    Attributes:
        ended: Ended episodes, by their number of requests; episodes without a request are missing.
        open: Open episodes, by their requests so far, the one in flight included.
        seconds: Ended requests, by the time that their lease was in use: n stands for about
            `BIN ** n` seconds.
        under_way: Requests in flight, by the time that their lease has been in use, in the same
            bins.
        ended_beside: Requests of its ended episodes to other models, in roles, by model.
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
        begun: Episodes that have had a first lease, or ended without one.
        ended: The episodes among them that are reported ended.
        room: As `BrokerStatus.room`, over the lanes of the group.
    """

    name: str
    begun: int
    ended: int
    room: int


class ShareStatus(msgspec.Struct, frozen=True, array_like=True):
    """This host's share of a limit that hosts share, for display.

    Attributes:
        limit: Its name.
        word: Its kind, the same as the pool's field.
        share: The amount this host may use now, in the pool's unit: 2.0 of `qps` is two per second.
        whole: The amount all hosts together may use.
        coming: This host's share once other hosts have released part of their shares.
        closed: Whether no host gets a share, since the amount spent is unknown.
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
        in_flight: Leases in use now.
        open_episodes: Episodes that have had a first lease and are not reported ended.
        ended_episodes: Distinct cases reported ended.
        waiting: Requests without a lease yet, including requests of groups that may not start.
        trying: Episodes with a request that waits before a retry, after a refusal or a failure.
        models: The counts of each model that was sent requests.
        room: If hosts share limits, by model: how many more requests could be in flight on lanes of
            which this host has a part; `NO_PART` if it has no part.
        groups: If hosts share limits: the groups of the assignment.
        trouble: One sentence if this host's part of the limits cannot be renewed; else empty.
        shares: If hosts share limits, the last known share of each limit; empty before the first.
        notes: Notes on shared limits for the user, a sentence each: a limit that is lower than the
            pool declares, since other hosts declare less; a limit that is closed.
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
"""Reasons why a request cannot be served. No lane is left. The daily limits of all lanes are used
up. The budget is spent. Another host has the case now. The provider refuses this one request and
serves others. The broker is gone."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The request cannot be served; `reason` is one sentence for people, `kind` one word."""

    worker: str
    request_id: int
    reason: str
    kind: str = NO_LANE


Action = Grant | Refusal
