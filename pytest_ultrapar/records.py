"""What a run leaves behind, as typed records: written by engines and graders, read by the rest."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["solved", "partial", "unsolved", "infra", "error", "skipped"]
"""What became of a case as a measurement; only `solved`, `partial`, `unsolved` count in scores."""

Ending = Literal["returned", "refused", "infra", "error", "skipped", "interrupted"]
"""How an episode ended; `interrupted` episodes run again on resume."""

Scalar = str | int | float | bool | None


class Case(msgspec.Struct, frozen=True):
    """One pytest item of the benchmark, as the first worker found it at collection.

    Attributes:
        index: Position in pytest's collection, the same in every worker.
        case_id: 16 hex digits; holds nothing of lanes, keys, workers or order.
        nodeid: pytest's name of the item.
        suite: Name of the test module's folder, such as `phase53`.
        repeat: Repetition number, from 0.
        params: The suite's own parameters as plain values, without `model` and `repeat`.
        seed: `hash(run seed, case id)`, 0 <= seed < 2**63.
        skipped: Why a mark keeps the episode from starting, else None.
        cluster: What it shares with the cases that depend on it, as text: the values of the
            parameters that the mark's `cluster` names, and the repetition. None: it depends on no
            other case.
    """

    index: int
    case_id: str
    nodeid: str
    suite: str
    model: str
    repeat: int
    params: dict[str, Scalar]
    seed: int
    skipped: str | None = None
    cluster: str | None = None

    @property
    def test(self) -> str:
        """Node id of the test function, without the parameters."""
        return function_of(self.nodeid)


def function_of(nodeid: str) -> str:
    """Node id of an item's test function: that of the item without its parameters."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.split('[')[0]}"


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One HTTP request on one lane. All `t_*_s` are monotonic seconds of the host.

    Attributes:
        turn: Which call of `llm.chat` in the episode, from 0.
        attempt: Which try of that turn, from 0.
        outcome: A `LeaseOutcome`.
        t_first_byte_s: When the headers of its answer had come.
        t_first_token_s: When the first content, reasoning or tool call of a stream came.
        maybe_billed: Whether the provider may have charged for it although no answer came.
    """

    turn: int
    attempt: int
    provider: str
    instance: str
    key: str
    t_ready_s: float
    t_lease_s: float
    t_send_s: float
    t_end_s: float
    outcome: str
    in_flight_at_send: int
    t_first_byte_s: float | None = None
    status: int | None = None
    retry_after_s: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    maybe_billed: bool = False
    seat_wait_s: float = 0.0
    rate_wait_s: float = 0.0
    t_first_token_s: float | None = None


class TurnMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the conversation; a turn's record holds only what the turn before had not."""

    turn: int
    role: str
    content: str
    tool_calls: str | None = None


class EpisodeStarted(msgspec.Struct, frozen=True, tag="started"):
    """An episode got its first lease."""

    case_id: str
    worker: str
    at_us: int


class EpisodeEnded(msgspec.Struct, frozen=True, tag="ended", omit_defaults=True):
    """An episode is over; this is all that grading, replay and the tables will ever know of it.

    Attributes:
        kind: One word for `refused`, `infra` and `error`: `timeout`, `context_length`,
            `ValueError`, ...
        detail: Message or traceback for people.
        value: What the prefetched function returned, as JSON; None unless `returned`.
        stdout: What the episode printed, at most 64 KiB.
        log: Its log records as text, at most 64 KiB.
        backoff_s: Seconds it waited between attempts by our own choice.
        started_at_us: First lease, microseconds since the epoch (UTC).
        duration_s: First lease to end.
    """

    case_id: str
    worker: str
    ending: Ending
    started_at_us: int
    ended_at_us: int
    duration_s: float
    value: msgspec.Raw | None = None
    kind: str | None = None
    detail: str | None = None
    attempts: list[Attempt] = []
    messages: list[TurnMessage] = []
    n_turns: int = 0
    backoff_s: float = 0.0
    queue_wait_s: float = 0.0
    stdout: str = ""
    log: str = ""


class Grade(msgspec.Struct, frozen=True, tag="grade", omit_defaults=True):
    """The final word on a case: its outcome as a measurement, and pytest's own result beside it.

    Attributes:
        test: pytest's own result: `passed`, `failed`, `error`, `skipped`, `xfailed`, `xpassed`.
        scores: Numbers by name; bool counts as a number. Never NaN or infinite.
    """

    case_id: str
    worker: str
    outcome: Outcome
    test: str
    at_us: int
    kind: str | None = None
    scores: dict[str, float] = {}
    error: str | None = None


class EngineSpent(msgspec.Struct, frozen=True, tag="engine"):
    """How busy an engine was while it had episodes open; written once, at its end.

    Attributes:
        wall_s: Seconds in which an episode was open.
        cpu_s: CPU of the whole process in them.
        n_beats: How often the loop was asked to wake after a fixed time.
        late_s: By how much it woke too late, summed over all beats.
        latest_s: The most of these.
    """

    worker: str
    wall_s: float
    cpu_s: float
    n_beats: int
    late_s: float
    latest_s: float


JournalRecord = EpisodeStarted | EpisodeEnded | Grade | EngineSpent
