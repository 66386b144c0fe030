"""What leases, requests for them and snapshots consist of; `wire` has the messages."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from pytest_ultrapar.apis.failure_classes import FailedOutcome
from pytest_ultrapar.apis.outcome import Allowance, Exceeded
from pytest_ultrapar.pool.model import LaneId

LeaseOutcome = Literal[
    "ok",  # an answer of the provider, whatever it says
    "unsent",  # nothing was sent
    FailedOutcome,
    "cancelled",  # given up by us
]


class KnownLane(msgspec.Struct, frozen=True):
    """What is known of a lane before a run's first request, from a check.

    Attributes:
        lane_id: Which lane.
        at_s: Since when, monotonic seconds of the host.
        removed: Why the run must do without it; empty: it was asked for too much just now, and
            pauses.
        retry_after_s: How long it asked to be left alone from then on; None: it did not say.
    """

    lane_id: LaneId
    at_s: float
    removed: str = ""
    retry_after_s: float | None = None


class Feedback(msgspec.Struct, frozen=True, array_like=True):
    """What an answer says beside its outcome; None: nothing.

    Attributes:
        retry_after_s: Seconds to stay away, finite and > 0.
        exceeded: Of what there was too much, with outcome `rate`.
        tokens: Tokens in and out that the request took, where the answer says both.
        tokens_out: Those of them that are the answer's.
        allowance: The provider's own limits.
        is_wordless: Whether it is a 503 or a refused connection that names no time to come back.
        late_s: How long after its grant the request was sent, or could not be sent any more.
        is_too_many: Whether it is a 429.
        maybe_billed: Whether the provider may have charged for the request although no answer came.
        cache_write_tokens: Of the prompt's tokens, those that were written to a cache.
        is_own: Whether the request is refused for its own sake, while its lane serves others.
        left_out: Fields beside the answer that are not understood, each with what it held.
        words: Stands for what the server said of a `bad_request`: the same for the same words.
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


class Most(NamedTuple):
    """What a request may cost, in tokens of its lane's price.

    Attributes:
        most_in: Tokens that the prompt has at most.
        most_out: Tokens that its answers have at most, those left out that nothing bounds.
        n_guessed: How many these are. Each counts as answers of the model have been so far, at any
            time while the request waits.
    """

    most_in: int
    most_out: int
    n_guessed: int = 0


class LeaseRequest(msgspec.Struct, frozen=True, array_like=True):
    """A wish for one lease.

    Attributes:
        request_id: Unique per connection, chosen by the client.
        model: The lease is for a lane of this model only.
        group: Name of the assignment's group that the case belongs to; empty for none.
        opens: Whether this is the first lease of an episode not yet open. Follow-ups, those of open
            episodes, go first.
        lane: The lane of the episode so far: kept while it is up, else another of the same model.
        case_id: The case of the episode; lets the broker count open episodes by name, so that
            asking twice for a first lease (the first one came back `unsent`) opens one episode and
            not two. Empty: it is not counted.
        tokens: How many tokens, in and out, the request may take; an estimate, >= 0.
        after: The lane on which the try before failed by no fault of the request: a retry, which
            goes to another lane of the model where one is up.
        is_bound: Whether no other lane than `lane` will do: only that has what the request names.
        most: What it may cost, where a budget counts that. Nobody knows it of an episode's first
            request before the episode begins: that is paid when it is known
            (`port.BrokerPort.pay`).
        refused_by: The lanes whose key, model or instance refused it (`failure_classes.DOUBTED`).
        stays: Whether it goes to no other lane than those, once they are checked.
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
    most: Most | None = None
    refused_by: tuple[LaneId, ...] = ()
    stays: bool = False


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """The right to have one request in flight on one lane.

    Attributes:
        lease_id: Unique per broker.
        granted_s: When it was granted, monotonic seconds of the host.
        send_by_s: A request not sent by then must not be sent: return the lease as `unsent` and ask
            again, else a late sender would compress the spacing that the rate limits guarantee.
        late_after_s: What is sent later than that must be said (`port.say_late`).
        seat_wait_s: Seconds this request waited while some limit on requests in flight was full.
        rate_wait_s: Seconds it waited for a rate limit or a pause of the lane while seats were
            free.
        in_flight: Leases out on this lane including this one.
        tokens: What was reserved on the limits that count tokens; 0 where none does. A request that
            may take more must not be sent on it.
        is_answering: Whether the lane's instance has answered something lately: a wordless refusal
            is then `congestion`.
        ends_s: Where hosts share limits or cases: until when this host's part of them holds, not
            before `send_by_s`. Nothing is sent later, whatever it waited for.
        is_check: Whether the lane is under suspicion: a check is to be sent on it, not the request.
        is_first: Whether the lane's instance has never answered: a proxy's 502 or 503 then says
            that the server behind it is not there yet.
        n_served: Requests that the lane has answered so far; `n_refused`: that it refused as too
            much.
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
    """A limit that is estimated, as far as it is known; lanes may share one.

    Adaptive mode estimates from the start, fixed mode from the first refusal on.

    Attributes:
        limit: Its name.
        workers: Requests at once that are known to be borne; None while no limit has shown.
        qps: Sends per second, likewise.
        n_cuts: How often a refusal lowered it.
        peak: Most requests at once.
        declared: Whether the pool says what it is (fixed mode): the provider then seems to allow
            less, unless it is back at that.
        is_back: Whether nothing is left of the cuts.
    """

    limit: str
    workers: int | None
    qps: float | None
    n_cuts: int
    peak: int = 0
    declared: bool = False
    is_back: bool = False


class LaneStatus(msgspec.Struct, frozen=True):
    """What became of one lane, for progress, summary and `explain`.

    Attributes:
        state: `up`, `paused` (until a time) or `out`: removed, until the end of the run.
        reason: One sentence for people when `paused` or removed, else empty.
        waited_s: Seconds that requests waited, by what bound them: a limit and its kind, as
            `lab/key0 (qps)`, or `pause`, `group`, `home`, `budget`.
        outcomes: Leases given back, by outcome; a lease lost with its holder is `lost`.
        orphans: Seats kept taken because their holder died and its request may still be running.
        pauses: How often it was paused, by `rate` (refused for its rate) and `breaker` (failures).
        paused_s: Seconds for which it was, by the same words.
        n_opened: How often its breaker opened.
        n_moved: Requests that failed here and were tried again on another lane.
        removed_after_s: Seconds from the run's start until it was removed.
        estimated: The limit on its path that is estimated: in adaptive mode always, in fixed mode
            once the provider has refused a request as too much.
        busy_s: Seconds that its leases were out, all of them together.
        widened: Limits on its path on which sends keep more distance than at first, since some were
            refused that kept to the declared rate (`headroom`).
        awaits: What is wrong with its server, which is waited for; empty: it is not.
        left_out: Fields of its answers that are not understood, each with what it held.
        cut: How many answers ended at their limit of tokens, and the most tokens of one of them.
        is_whole: Whether answers of a real server are asked for whole: it may not notice that a
            request is given up.
        is_unheard: Whether its server has a `metrics_url` that has told nothing known.
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
        """Whether nothing is sent there any more."""
        return self.state == "out"


BIN = 1.1
"""Seconds are counted by powers of it."""


class ModelProgress(msgspec.Struct, frozen=True):
    """How the episodes and requests of one model went so far.

    Attributes:
        ended: Episodes that are over, by their number of requests; those without any are missing.
        open: Episodes that are not, by their requests so far, the one in flight included.
        seconds: Requests that are over, by the time that their lease was out: n stands for about
            `BIN ** n` seconds.
        under_way: Requests in flight, by the time that their lease has been out, likewise.
        ended_beside: By other models, requests to them, in roles, of its episodes that are over.
        open_beside: The same of those that are not.
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
    """How far the cases of one group are on this host.

    Attributes:
        begun: Episodes that have had a first lease, or ended without one.
        ended: Those of them that are reported ended.
        room: As `BrokerStatus.room`, over the lanes of the group.
    """

    name: str
    begun: int
    ended: int
    room: int


class ShareStatus(msgspec.Struct, frozen=True, array_like=True):
    """This host's share of a limit that hosts share, for people.

    Attributes:
        limit: Its name.
        word: Of its kind: the same as the pool's field.
        share: What this host may use now, in the pool's unit: 2.0 of `qps` are two a second.
        whole: What all hosts together may use.
        coming: What it will have when other hosts have given theirs back.
        closed: Whether no host gets any, as nobody knows what was spent of it.
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
        in_flight: Leases out now.
        open_episodes: Episodes that have had a first lease and are not reported ended.
        ended_episodes: Distinct cases reported ended.
        waiting: Requests without a lease yet, those of groups that may not start included.
        trying: Episodes of which a request waits by itself, after a refusal or a failure.
        models: How it went so far with each model that was asked.
        room: Where hosts share limits, by model: requests that could be in flight beside those that
            are, on lanes of which this host has a part; `NO_PART` where it has none.
        groups: Where hosts share limits: those of the assignment.
        trouble: Why this host's part of them cannot be renewed, a sentence; or empty.
        shares: Where hosts share limits, what this host was told last of each; empty before.
        notes: What people should know of them, a sentence each: a limit that is lower than the pool
            says, since others who share it say less; one that is closed.
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
    """`worker` may send the request it asked for as `request_id`."""

    worker: str
    request_id: int
    lease: Lease


NO_LANE, DAILY_QUOTA, BUDGET, TAKEN = "no_lane", "daily_quota", "budget", "taken"
OF_REQUEST, GONE = "refusal_of_request", "broker"
"""Why a request cannot be served: no lane is left, the day of each is used up, or the money;
another host has the case by now; this one request is refused, and others are not; or there is no
broker any more."""


class Refusal(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The request cannot be served; `reason` is one sentence for people, `kind` one word."""

    worker: str
    request_id: int
    reason: str
    kind: str = NO_LANE


Action = Grant | Refusal
