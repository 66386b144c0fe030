"""The typed records of a run. Engines and graders write them, and all other parts read them.

The journal consists of these records. Most columns of the tables are made from their fields and
have the same names, types and meanings (`store.tables`). Each field is defined once, here.
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
"""Microseconds since the epoch, UTC. The name of such a field ends in `_us`; its column is a
timestamp without that ending."""
NO_COLUMN = "no column"
NoColumn = Annotated[T, NO_COLUMN]
"""A field that is only in the journal."""

Outcome = Literal["solved", "partial", "unsolved", "scored", "infra", "error", "skipped"]
"""The result of a case as a measurement. `scored` means that the case is graded only by scores."""
RATED: frozenset[Outcome] = frozenset({"solved", "partial", "unsolved"})
"""The outcomes that a solved rate includes."""
GRADED: frozenset[Outcome] = RATED | {"scored"}
"""The outcomes that scores and coverage include. The others measure nothing about the model."""

Ending = Literal["returned", "refused", "infra", "error", "skipped", "interrupted"]
"""How an episode ended; `interrupted` episodes run again on resume."""

Replayed = Literal["match", "ambiguous", "resumed"]
"""How a stored answer was found. `match`: no other answer fits. `ambiguous`: the first of several
different answers. `resumed`: an answer of this run, from before the episode was interrupted."""

Scalar = str | int | float | bool | None

_ALWAYS = ("model", "suite", "repeat")
CASE_NAMES = (*_ALWAYS, "file", "test_name", "param_id", "marks")
"""Names that summaries can group by, in addition to parameters. A parameter with the same name
overrides any of the last four."""
LABEL, META = "label.", "meta."
"""The prefixes of columns for `grade`'s labels and the metadata of marks."""
ASYNC_TEST = "async test"
"""The tag of the stored result of an async test. Other episodes store a value instead."""
ASKED_FOR = "label"
"""The parameter of a gateway's cases: the label that the client gave the case."""
_REPETITION = re.compile(r"-r\d+-$")


class Case(msgspec.Struct, frozen=True):
    """One pytest item of the benchmark, as the first worker collected it.

    Attributes:
        index: Position in pytest's collection, the same in every worker.
        case_id: The id of the case: 16 hex digits, the same in every run with the same suite,
            models and seed.
        nodeid: pytest's id of the item.
        suite: The name of the test module's folder, such as `phase53`.
        model: The model's name in the pool.
        repeat: The number of the repetition, counted from 0.
        params: The suite's own parameters as plain values, without `model` and `repeat`.
        seed: The case's seed, derived from the run's seed and the case id; 0 to 2^63 - 1.
        skipped: Why a mark prevents the episode from starting; None if no mark does.
        cluster: The case cluster, as text: the values of the parameters that the mark's `cluster`
            names, and the repetition. None if no mark names any: then the case depends only on
            the repetitions of its cell.
        content: A digest of each parameter that has no plain value, by the parameter's name.
            Empty for runs of earlier versions.
        marks: The names of the test's marks, separated by commas.
        stage: 0, or one more than the stage of the cases whose answers this case needs.
        said: Metadata and labels by column name: `meta.<name>` from its marks and, if the run
            is read from its tables, `label.<name>` from its grade.
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
        """Node id of the test function, without parameters."""
        return function_of(self.nodeid)

    @property
    def file(self) -> str:
        """The test file, as pytest names it."""
        return self.nodeid.partition("::")[0]

    @property
    def test_name(self) -> str:
        """The name of the test function, with its class if there is one."""
        return self.test.partition("::")[2]

    @property
    def param_id(self) -> str:
        """The id of the suite's own parameters, without model and repetition; may be empty."""
        ids = f"-{self.nodeid[len(self.test) + 1 : -1]}-"
        # The text is as pytest writes it: the model comes first and the repetition last.
        model = self.model.encode("unicode_escape").decode()
        return _REPETITION.sub("-", ids.replace(f"-{model}-", "-", 1))[1:-1]

    def value_of(self, name: str) -> str:
        """The case's value, as text, for a name by which summaries group; may be empty."""
        if name in CASE_NAMES and (name in _ALWAYS or name not in self.params):
            return str(getattr(self, name))
        return str(self.facts.get(name, ""))

    @property
    def facts(self) -> dict[str, Scalar]:
        """The parameters, metadata and labels.

        The names cannot clash, because no parameter's name contains a dot.
        """
        return self.params | self.said

    def labelled(self, labels: Mapping[str, str]) -> Case:
        """A copy of the case with the labels from its grade, by name."""
        if not labels:
            return self
        said = self.said | {f"{LABEL}{name}": text for name, text in labels.items()}
        return msgspec.structs.replace(self, said=said)


def by_key(pairs: Iterable[tuple[_K, T]]) -> dict[_K, list[T]]:
    """Group the values by key. Keys keep the order of their first occurrence."""
    found: dict[_K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def function_of(nodeid: str) -> str:
    """Node id of an item's test function: the item's id without parameters."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.split('[')[0]}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One HTTP request on one lane: most columns of a row of `attempts`.

    The list of columns is `store.tables.ATTEMPTS_COLUMNS`: some fields here are `NoColumn`, and
    some columns come from other records. All `t_*_s` are monotonic seconds of the host. Columns
    have the order of the fields, which is part of the format: add new fields at the end.

    Attributes:
        turn: The number of the request in the episode, counted from 0, including requests to roles.
        attempt: The number of the attempt at that turn, counted from 0.
        provider: The provider's name in the pool.
        instance: The instance's name in the pool.
        key: The key's name in the pool.
        t_ready_s: When the episode made the request.
        t_lease_s: When the request got its lease.
        t_send_s: When the request was sent.
        t_first_byte_s: When the headers of the answer arrived.
        t_first_token_s: When the first content, reasoning or tool call of a stream arrived.
        t_end_s: When the answer was complete or the request failed.
        status: The HTTP status.
        outcome: `ok`, or a failure class.
        retry_after_s: The wait that the server asked for.
        tokens_in: The number of tokens in the prompt.
        tokens_out: The number of tokens in the answer.
        in_flight_at_send: How many requests were in flight on this lane when it was sent, including
            itself.
        maybe_billed: Whether the provider may have charged for the request although no answer
            arrived.
        seat_wait_s: How long it waited for a seat before it got the lease.
        rate_wait_s: How long it waited for a rate or for the end of a pause before it got the
            lease.
        cached_tokens: How many tokens of the prompt the provider had cached.
        cache_write_tokens: How many tokens of the prompt the provider wrote to its cache.
        replayed: None if the request was sent. `match`, `ambiguous`: the request got the only
            matching answer of the replayed run, or the first of several. Provider, instance, key,
            status and tokens are from that run, but the times are from this run. `resumed`: the
            request got an answer of this run again after a crash; the request that was sent has its
            own row, which contains the cost.
        role: The role, such as `judge`; empty for the case's own model.
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
    """One message of a conversation. A turn stores only messages that are new since the last turn.

    Attributes:
        turn: The number of the request in the episode, counted from 0.
        role: `system`, `user`, `assistant`, `tool`, or another role that the suite uses.
        content: The text. Other content is shown as JSON.
        tool_calls: The names and arguments of the calls in an answer, as JSON.
        name: The name of the author or of the tool, if the message contains one.
        tool_call_id: For a message from a tool: the id of the call that it answers.
        tool_call_ids: The ids of the calls in `tool_calls`, in the same order, as JSON.
        choice: For an answer: the number of the choice, counted from 0.
        finish_reason: For an answer: why it ended, in the API's wording.
        reasoning: For an answer: its reasoning, if the API sends it separately.
        refusal: For an answer: the model's refusal, if the API sends it separately.
        other: All other fields of the message, as JSON; for a streamed answer, they are only in the
            journal.
        parameters: For an answer: the request without its messages and model, as JSON.
        answer_id: For an answer: the id that the provider gave it.
        served_model: For an answer: the model that answered, as the provider reports it.
        usage: For an answer: the provider's token counts, as JSON.
        pool_role: The role, as in column `role` of `attempts`; empty for the case's own model.
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
        turn: Number of the client's call, from 0.
        api: Name of the API in the registry.
        path: The requested path as the API's `serves` lists it, without any lane's name for the
            model. Empty for `llm.chat()`. Journals of earlier versions contain the lane's own path.
        status: HTTP status; None: no answer arrived.
        sent: The part of the request's body that the body of `base` does not contain, as text.
        base: Number of an earlier exchange of the episode, from 0, whose body contains the rest;
            None if `sent` is the whole body.
        first: How many bytes from the beginning of the base's body come before `sent`.
        last: How many bytes from the end of the base's body come after `sent`.
        came: The answer's body as text; for a stream, compressed (zlib) and in base64.
        is_stream: Whether the answer is a stream.
        query: The query string, encoded, without the lane's key and version.
        headers: The headers of the request that change the answer, names in lower case.
        role: As in `Attempt`.
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
"""Stands for a missing value. None is not possible, because msgspec can leave JSON undecoded in a
`Raw`, but not in a `Raw | None`."""


class EpisodeStarted(msgspec.Struct, frozen=True, tag="started"):
    """An episode got its first lease."""

    case_id: str
    worker: str
    at_us: int


class EpisodeProgressHead(msgspec.Struct, frozen=True, tag="went_on"):
    """An `EpisodeProgress` without its exchanges, which stay undecoded.

    Attributes:
        case_id: The case.
        worker: As in `EpisodeEnded`; with the case and `started_at_us` it names the episode.
        started_at_us: As in `EpisodeEnded`.
    """

    case_id: str
    worker: str
    started_at_us: int


class EpisodeProgress(EpisodeProgressHead, frozen=True, tag="went_on", omit_defaults=True):
    """The progress of an episode since its previous record; unused once the episode has ended.

    Attributes:
        at_us: When it was written, microseconds since the epoch (UTC).
        n_before: Number of exchanges in the episode's previous records.
        attempts: Requests that were answered or failed since the previous record.
        exchanges: Exchanges that ended since the previous record. Their `base` is counted from the
            first exchange of the episode.
        began_us: As in `EpisodeEnded`.
    """

    at_us: int
    n_before: int = 0
    attempts: list[Attempt] = []
    exchanges: list[Exchange] = []
    began_us: int = 0


class EpisodeEnded(msgspec.Struct, frozen=True, tag="ended", omit_defaults=True):
    """An episode has ended. Grading, replay and the tables read no other record of it.

    Attributes:
        case_id: The id of the case.
        worker: The worker that ran the episode: `gw0`, `gw1`, ..., or `main` without `-n`.
        kind: One word for `refused`, `infra` and `error`: `timeout`, `context_length`,
            `ValueError`, ...
        detail: A message or traceback, for display.
        value: The value that the prefetched function returned, as JSON; `NO_VALUE` unless
            `returned`.
        stdout: The output that the episode printed, at most 64 KiB.
        log: Its log records as text, at most 64 KiB.
        backoff_s: Seconds that it waited between attempts by the run's own choice, not because the
            server asked for a wait.
        started_at_us: Time of the first lease, microseconds since the epoch (UTC).
        duration_s: Seconds from the first lease to the end.
        messages: The messages, if exchanges are not recorded.
        exchanges: The requests and answers, if they are recorded.
        host: In a merged run: the host that ran it, if it has a name.
        began_us: Time of the first lease of the interrupted try whose answers it got; 0 if there
            was no such try.
        n_unused: Answers of that try that it did not use, because it sent other requests.
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
        """Make the record of a case that ends now, without a request."""
        return cls(case_id, worker, ending, now_us, now_us, 0.0, kind=kind, detail=detail)

    @property
    def sent(self) -> list[Attempt]:
        """Its requests, except for those that got a stored answer."""
        return [one for one in self.attempts if one.replayed is None]

    @property
    def own_attempts(self) -> list[Attempt]:
        """Its requests to the case's own model, not to roles."""
        return [attempt for attempt in self.attempts if not attempt.role]

    @property
    def own_sent(self) -> list[Attempt]:
        """The `own_attempts` that were sent, now or before the episode was interrupted."""
        sent = {None, "resumed"}
        return [one for one in self.attempts if not one.role and one.replayed in sent]


class Grade(msgspec.Struct, frozen=True, tag="grade", omit_defaults=True):
    """The final record of a case: its outcome as a measurement, and pytest's own result.

    Attributes:
        worker: The worker that ran the episode: `gw0`, `gw1`, ..., or `main` without `-n`.
        outcome: The outcome of the case as a measurement.
        test: pytest's own result: `passed`, `failed`, `error`, `skipped`, `xfailed`, `xpassed`.
        kind: A more exact word for the outcome: why the case is `infra`, why the provider refused
            it, what ended its grader, or which exception an `error` raised.
        scores: Numbers by name; bool counts as a number. Never NaN or infinite.
        error: The error message, or the beginning of a traceback. Journals of earlier versions
            contain the reason here.
        host: As in `EpisodeEnded`.
        reason: The `reason` argument of `grade`.
        labels: The `labels` argument of `grade`: texts by name.
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

    The controller and the broker write one, too, but count no beats.

    Attributes:
        worker: Its id; `controller` or `broker`.
        wall_s: Seconds in which an episode was open.
        cpu_s: CPU time of the whole process in these seconds.
        waited_s: Time that its threads were ready to run but had no CPU, summed over threads.
        n_beats: How often the loop set a timer for a fixed time.
        late_s: Delay of the loop behind these timers, summed over all beats.
        latest_s: The longest of these delays.
        stalls: Seconds that the loop was blocked, by the place in the suite's code.
    """

    worker: str
    wall_s: float
    cpu_s: float
    n_beats: int
    late_s: float
    latest_s: float
    waited_s: float = 0.0
    stalls: dict[str, float] = {}


JournalRecord = EpisodeStarted | EpisodeProgressHead | EpisodeEnded | Grade | EngineSpent
"""The records in a journal. Readers decode only the head of an `EpisodeProgress`."""
