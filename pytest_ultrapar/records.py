"""What a run leaves behind, as typed records: written by engines and graders, read by the rest.

The fields of these records are the journal's, and most columns of the tables are made of them with
their names, types and meanings (`store.tables`). So a field stands once, with what it means.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

T = TypeVar("T")
_K = TypeVar("_K", bound=Hashable)
Long = Annotated[int, "int64"]
"""A whole number whose column has 64 bits; others have 32."""
Microseconds = Annotated[int, "timestamp"]
"""Since the epoch, UTC. The field's name ends in `_us`; its column is a timestamp without that."""
NO_COLUMN = "no column"
NoColumn = Annotated[T, NO_COLUMN]
"""Of the journal alone."""

Outcome = Literal["solved", "partial", "unsolved", "scored", "infra", "error", "skipped"]
"""What became of a case as a measurement; `scored`: its scores are all that is said of it."""
RATED: frozenset[Outcome] = frozenset({"solved", "partial", "unsolved"})
"""Outcomes that a solved rate is a share of."""
GRADED: frozenset[Outcome] = RATED | {"scored"}
"""Outcomes that count in scores and coverage; all others say nothing of the model."""

Ending = Literal["returned", "refused", "infra", "error", "skipped", "interrupted"]
"""How an episode ended; `interrupted` episodes run again on resume."""

Replayed = Literal["match", "ambiguous", "resumed"]
"""How an answer of an earlier run was found: as the only one that fits, or as the first of several
that differ. `resumed`: it is one of this run, from before the episode was cut off."""

Scalar = str | int | float | bool | None

_ALWAYS = ("model", "suite", "repeat")
CASE_NAMES = (*_ALWAYS, "file", "test_name", "param_id", "marks")
"""By which summaries count beside parameters; of the last ones a parameter of that name goes first.
"""
LABEL, META = "label.", "meta."
"""How names of columns begin that `grade` and marks give."""
ASYNC_TEST = "async test"
"""Tag of what an async test said, which stands where other episodes have a value."""
ASKED_FOR = "label"
"""The parameter of a gateway's cases that has what their client called them."""
_REPETITION = re.compile(r"-r\d+-$")


class Case(msgspec.Struct, frozen=True):
    """One pytest item of the benchmark, as the first worker found it at collection.

    Attributes:
        index: Position in pytest's collection, the same in every worker.
        case_id: The case: 16 hex digits, the same in every run of the same suite, models and seed.
        nodeid: pytest's id of the test.
        suite: Name of the test module's folder, such as `phase53`.
        model: As in the pool.
        repeat: Which repetition, from 0.
        params: The suite's own parameters as plain values, without `model` and `repeat`.
        seed: The case's own, made of the run's seed and the case id; from 0 to 2^63 - 1.
        skipped: Why a mark keeps the episode from starting, else None.
        cluster: What it shares with the cases that depend on it, as text: the values of the
            parameters that the mark's `cluster` names, and the repetition. None where no mark
            names any: then it depends on the repetitions of its cell alone.
        content: By name, a digest of what each parameter holds that is no plain value. Nothing of
            runs of earlier versions.
        marks: Names of the test's marks, with commas between them.
        stage: 0, or one more than that of the cases for whose answers it waits.
        said: What is said of it that is no parameter, by the names of columns: `meta.<name>` as
            its marks have it and, where a run is read back, `label.<name>` as it was graded.
    """

    index: int
    case_id: str
    nodeid: str
    suite: str
    model: str
    repeat: int
    params: dict[str, Scalar]
    seed: Long
    skipped: str | None = None
    cluster: str | None = None
    content: dict[str, str] = {}
    marks: str = ""
    stage: int = 0
    said: dict[str, Scalar] = {}

    @property
    def test(self) -> str:
        """Node id of the test function, without the parameters."""
        return function_of(self.nodeid)

    @property
    def file(self) -> str:
        """The test file, as pytest names it."""
        return self.nodeid.partition("::")[0]

    @property
    def test_name(self) -> str:
        """Name of the test function, behind that of its class."""
        return self.test.partition("::")[2]

    @property
    def param_id(self) -> str:
        """The id of the suite's own parameters, without model and repetition; perhaps empty."""
        ids = f"-{self.nodeid[len(self.test) + 1 : -1]}-"
        # As pytest writes it. Ours is the first, and the repetition the last.
        model = self.model.encode("unicode_escape").decode()
        return _REPETITION.sub("-", ids.replace(f"-{model}-", "-", 1))[1:-1]

    def value_of(self, name: str) -> str:
        """What it has of one of the names that summaries count by, as text; empty: nothing."""
        if name in CASE_NAMES and (name in _ALWAYS or name not in self.params):
            return str(getattr(self, name))
        return str(self.facts.get(name, ""))

    @property
    def facts(self) -> dict[str, Scalar]:
        """Its parameters, and what is said of it: a parameter's name has no point."""
        return self.params | self.said

    def labelled(self, labels: Mapping[str, str]) -> Case:
        """With what it was graded with, by name."""
        if not labels:
            return self
        said = self.said | {f"{LABEL}{name}": text for name, text in labels.items()}
        return msgspec.structs.replace(self, said=said)


def by_key(pairs: Iterable[tuple[_K, T]]) -> dict[_K, list[T]]:
    """Key and value of each, as the values of each key; keys stand as they come first."""
    found: dict[_K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def function_of(nodeid: str) -> str:
    """Node id of an item's test function: that of the item without its parameters."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.split('[')[0]}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One HTTP request on one lane: most columns of a row of `attempts`.

    The list is `store.tables.ATTEMPTS_COLUMNS`: some fields here are `NoColumn`, and some columns
    come from other records. All `t_*_s` are monotonic seconds of the host. The order of the fields
    is that of the columns and part of the format: a new one comes last.

    Attributes:
        turn: Which request of the episode's clients it was, from 0, roles included.
        attempt: Which try of that turn, from 0.
        provider: As in the pool.
        instance: As in the pool.
        key: The key's name in the pool.
        t_ready_s: When the episode asked for the request.
        t_lease_s: When it was allowed.
        t_send_s: When it was sent.
        t_first_byte_s: When the answer's headers had come.
        t_first_token_s: When the first content, reasoning or tool call of a stream came.
        t_end_s: When the answer was complete, or the request had failed.
        status: HTTP status.
        outcome: What became of it: `ok`, or a failure class.
        retry_after_s: How long the server asked to be left alone.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the answer.
        in_flight_at_send: Requests in flight on this lane when it was sent, this one included.
        maybe_billed: Whether the provider may have charged for it although no answer came.
        seat_wait_s: Of the time until its lease, what it waited for a seat.
        rate_wait_s: What it waited for a rate or the end of a pause.
        cached_tokens: Of the prompt's tokens, those that the provider had cached.
        cache_write_tokens: Of the prompt's tokens, those that the provider wrote to its cache.
        replayed: Nothing was sent, the answer is one of an earlier run: `match`, the only one that
            fits, or `ambiguous`, the first of several that differ. Provider, instance, key, status
            and tokens are those of then, times those of now. None where it was sent. `resumed`: the
            answer is one of this run, given again after a crash; the request that was sent for it
            has a row of its own, and the cost is there.
        role: Which role of the pool was asked, such as `judge`; empty: the case's own model.
    """

    turn: int
    attempt: int
    provider: str
    instance: str
    key: str
    t_ready_s: float
    t_lease_s: float
    t_send_s: float
    t_first_byte_s: float | None = None
    t_first_token_s: float | None = None
    t_end_s: float
    status: int | None = None
    outcome: str
    retry_after_s: float | None = None
    tokens_in: Long | None = None
    tokens_out: Long | None = None
    in_flight_at_send: int
    maybe_billed: bool = False
    seat_wait_s: NoColumn[float] = 0.0
    rate_wait_s: NoColumn[float] = 0.0
    cached_tokens: Long | None = None
    cache_write_tokens: Long | None = None
    replayed: Replayed | None = None
    role: str = ""


class TurnMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation; a turn's record holds only what the turn before had not.

    Attributes:
        turn: Which request of the episode's clients it belongs to, from 0.
        role: `system`, `user`, `assistant`, `tool`, or what else the suite calls it.
        content: Its text; what is no text is shown as JSON.
        tool_calls: Names and arguments of the calls in an answer, as JSON.
        name: Who speaks, or which tool, where the message says so.
        tool_call_id: Of a tool's message: which call it answers.
        tool_call_ids: Ids of the calls in `tool_calls`, in their order, as JSON.
        choice: Of an answer: which of its choices, from 0.
        finish_reason: Of an answer: why it ended, as the API says.
        reasoning: Of an answer: its reasoning, where the API sends it apart.
        refusal: Of an answer: the model's own words for not answering, where sent apart.
        other: All other fields of the message, as JSON; of an answer that came as a stream they are
            in the journal alone.
        parameters: Of an answer: what was asked beside the messages and the model, as JSON.
        answer_id: Of an answer: the id that the provider gave it.
        served_model: Of an answer: which model it came from, as the provider says.
        usage: Of an answer: what the provider counted, as JSON.
        pool_role: `role` of `attempts`: which role of the pool was asked; empty: the case's own
            model.
    """

    turn: int
    role: str
    content: str
    tool_calls: str | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_call_ids: str | None = None
    choice: int | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    other: str | None = None
    parameters: str | None = None
    answer_id: str | None = None
    served_model: str | None = None
    usage: str | None = None
    pool_role: str = ""


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request of an episode and its answer, as `exchanges` packs and unpacks them.

    Attributes:
        turn: Which call of the client it was, from 0.
        api: By its name in the registry.
        path: What was asked, as its API's `serves` has it: without any lane's name for the model.
            Empty for what `llm.chat()` asks. Journals of earlier versions have the lane's own path.
        status: HTTP status; None: no answer came.
        sent: Of the request's body what `base` has not, as text.
        base: Which earlier exchange of the episode, from 0, has the rest of it; None: there is no
            rest.
        first: How many bytes of that body come before `sent`.
        last: How many bytes of it come after.
        came: The answer's body as text; of a stream, compressed (zlib) and in base64.
        is_stream: Whether it is a stream.
        query: What was asked beside the path, encoded; without key and version of the lane.
        headers: Those of the request that change what is answered, names in lower case.
        role: As of `Attempt`.
    """

    turn: int
    api: str
    path: str
    status: int | None
    sent: str
    base: int | None = None
    first: int = 0
    last: int = 0
    came: str = ""
    is_stream: bool = False
    query: str = ""
    headers: dict[str, str] = {}
    role: str = ""


NO_VALUE = msgspec.Raw()
"""Empty, since msgspec reads JSON unread into `Raw`, and not into `Raw | None`."""


class EpisodeStarted(msgspec.Struct, frozen=True, tag="started"):
    """An episode got its first lease."""

    case_id: str
    worker: str
    at_us: int


class WentOnHead(msgspec.Struct, frozen=True, tag="went_on"):
    """Of an `EpisodeWentOn`: what was said is passed over undecoded.

    Attributes:
        case_id: The case.
        worker: As of `EpisodeEnded`; with the case and the next one it names the episode.
        started_at_us: As of `EpisodeEnded`.
    """

    case_id: str
    worker: str
    started_at_us: int


class EpisodeWentOn(WentOnHead, frozen=True, tag="went_on", omit_defaults=True):
    """An episode asks on: what came since its record before; of no use once it has ended.

    Attributes:
        at_us: When it was written, microseconds since the epoch (UTC).
        n_before: Exchanges in the records before.
        attempts: Further requests that were answered or failed.
        exchanges: Further ones that are over. Their `base` counts those before, too.
        began_us: As of `EpisodeEnded`.
    """

    at_us: int
    n_before: int = 0
    attempts: list[Attempt] = []
    exchanges: list[Exchange] = []
    began_us: int = 0


class EpisodeEnded(msgspec.Struct, frozen=True, tag="ended", omit_defaults=True):
    """An episode is over; this is all that grading, replay and the tables will ever know of it.

    Attributes:
        case_id: The case.
        worker: Who ran it: `gw0`, `gw1`, ..., or `main` without `-n`.
        kind: One word for `refused`, `infra` and `error`: `timeout`, `context_length`,
            `ValueError`, ...
        detail: Message or traceback for people.
        value: What the prefetched function returned, as JSON; `NO_VALUE` unless `returned`.
        stdout: What the episode printed, at most 64 KiB.
        log: Its log records as text, at most 64 KiB.
        backoff_s: Seconds it waited between attempts by our own choice.
        started_at_us: First lease, microseconds since the epoch (UTC).
        duration_s: First lease to end.
        messages: What was said, where exchanges are not kept.
        exchanges: What was sent and what came, where that is kept.
        host: In a run that was merged of several: which host ran it, where it has a name.
        began_us: First lease of the try that was cut off, whose answers it was given; 0: none was.
        n_unused: Answers of that try that it did not ask for, as it asked something else.
    """

    case_id: str
    worker: str
    ending: Ending
    started_at_us: int
    ended_at_us: int
    duration_s: float
    value: msgspec.Raw = NO_VALUE
    kind: str | None = None
    detail: str | None = None
    attempts: list[Attempt] = []
    messages: list[TurnMessage] = []
    n_turns: int = 0
    backoff_s: float = 0.0
    stdout: str = ""
    log: str = ""
    exchanges: list[Exchange] = []
    host: str | None = None
    began_us: int = 0
    n_unused: int = 0

    @classmethod
    def unasked(
        cls, now_us: int, case_id: str, worker: str, ending: Ending, *, kind: str, detail: str
    ) -> EpisodeEnded:
        """The record of a case that ends now and was not asked."""
        return cls(case_id, worker, ending, now_us, now_us, 0.0, kind=kind, detail=detail)

    @property
    def sent(self) -> list[Attempt]:
        """Its requests without those that got a stored answer."""
        return [one for one in self.attempts if one.replayed is None]

    @property
    def own_attempts(self) -> list[Attempt]:
        """Its requests to the case's own model; all but those to roles."""
        return [attempt for attempt in self.attempts if not attempt.role]

    @property
    def own_sent(self) -> list[Attempt]:
        """Of `own_attempts` those that were sent, now or before the episode was cut off."""
        sent = {None, "resumed"}
        return [one for one in self.attempts if not one.role and one.replayed in sent]


class Grade(msgspec.Struct, frozen=True, tag="grade", omit_defaults=True):
    """The final word on a case: its outcome as a measurement, and pytest's own result beside it.

    Attributes:
        worker: Who ran its episode: `gw0`, `gw1`, ..., or `main` without `-n`.
        outcome: The measurement: what became of the case.
        test: pytest's own result: `passed`, `failed`, `error`, `skipped`, `xfailed`, `xpassed`.
        kind: One word more: why it is `infra`, why the provider refused it, what ended its grader,
            or the exception of an `error`.
        scores: Numbers by name; bool counts as a number. Never NaN or infinite.
        error: What went wrong: a message, or the beginning of a traceback. Journals of earlier
            versions have the reason here.
        host: As of `EpisodeEnded`.
        reason: The one that `grade` was given.
        labels: Texts by name, which `grade` was given.
    """

    case_id: str
    worker: str
    outcome: Outcome
    test: str
    at_us: int
    kind: str | None = None
    scores: dict[str, float] = {}
    error: str | None = None
    host: str | None = None
    reason: str | None = None
    labels: dict[str, str] = {}


class EngineSpent(msgspec.Struct, frozen=True, tag="engine"):
    """How busy an engine was while it had episodes open; written once, at its end.

    So for the processes that serve all workers, whose loops have no beats, while there were cases.

    Attributes:
        worker: Its id; `controller` or `broker`.
        wall_s: Seconds in which an episode was open.
        cpu_s: CPU of the whole process in them.
        waited_s: For which its threads were ready to run, each for itself, and had no CPU.
        n_beats: How often the loop was asked to wake after a fixed time.
        late_s: By how much it woke too late, summed over all beats.
        latest_s: The most of these.
        stalls: Seconds that it stood still, by the place of the suite's code that kept it.
    """

    worker: str
    wall_s: float
    cpu_s: float
    n_beats: int
    late_s: float
    latest_s: float
    waited_s: float = 0.0
    stalls: dict[str, float] = {}


JournalRecord = EpisodeStarted | WentOnHead | EpisodeEnded | Grade | EngineSpent
"""What the journal has: it is written whole, and of an `EpisodeWentOn` its head is read."""
