"""The typed records of a run. Engines and graders write them, and all other parts read them.

The journal consists of these records. Most columns of the tables are made from their fields and
have the same names, types and meanings (`store.tables`). Each field is defined here, and only here.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

T = TypeVar("T")
_K = TypeVar("_K", bound=Hashable)
Long = Annotated[int, "int64"]
"""A whole number whose column has 64 bits. The columns of other whole numbers have 32 bits."""
Microseconds = Annotated[int, "timestamp"]
"""Microseconds since the epoch, UTC. The name of such a field ends with `_us`. Its column is a
timestamp, and has the same name without this ending."""
NO_COLUMN = "no column"
NoColumn = Annotated[T, NO_COLUMN]
"""A field that is stored only in the journal and has no column."""

Outcome = Literal["solved", "partial", "unsolved", "scored", "infra", "error", "skipped"]
"""The result of a case as a measurement. `scored` means that the case is graded only by scores."""
RATED: frozenset[Outcome] = frozenset({"solved", "partial", "unsolved"})
"""The outcomes that are included in a solve rate."""
GRADED: frozenset[Outcome] = RATED | {"scored"}
"""The outcomes of graded cases. Scores and coverage count only these cases. The other outcomes say
nothing about the model."""

Ending = Literal["returned", "refused", "infra", "error", "skipped", "interrupted"]
"""How an episode ended. Episodes that were `interrupted` run again when the run is resumed."""

Replayed = Literal["match", "ambiguous", "resumed"]
"""How a stored answer was found. `match`: only one answer fits the request. `ambiguous`: it is the
first of several different answers that fit. `resumed`: this run received it before the episode was
interrupted."""

Scalar = str | int | float | bool | None

_ALWAYS = ("model", "suite", "repeat")
CASE_NAMES = (*_ALWAYS, "file", "test_name", "param_id", "marks")
"""Names by which summaries can be grouped, in addition to the names of a suite's parameters. If a
parameter has one of the last four names, the parameter takes precedence."""
LABEL, META = "label.", "meta."
"""The prefixes of column names: `LABEL` for labels from `grade`, `META` for metadata from marks."""
ASYNC_TEST = "async test"
"""The tag (`type`) in the stored result of an async test. Other episodes store the value of their
prefetched function, which has no such tag."""
ASKED_FOR = "label"
"""The name of the parameter that contains the client label of a case, if the case comes from a
gateway."""
_REPETITION = re.compile(r"-r\d+-$")


class Case(msgspec.Struct, frozen=True):
    """One pytest item of the benchmark, as the first worker collected it.

    Attributes:
        index: The position of the case in pytest's collection, which is the same in every worker.
        case_id: The id of the case: 16 hex digits, the same in every run with the same suite,
            models and seed.
        nodeid: pytest's node id for the item.
        suite: The name of the test module's folder, such as `phase53`.
        model: The model's name in the pool.
        repeat: The number of the repetition, counted from 0.
        params: The suite's own parameters as plain values, without `model` and `repeat`.
        seed: The case's seed, derived from the run's seed and the case id; 0 to 2^63 - 1.
        skipped: Why a mark prevents the episode from starting; None if no mark prevents this.
        cluster: The case cluster, as text: the values of the parameters that the mark's `cluster`
            names, and the repetition. None if no mark names any parameters. The case then depends
            only on the repetitions of its cell.
        content: A digest of the value of each parameter that is not a simple value, by the
            parameter's name. Empty for runs of earlier versions.
        marks: The names of the test's marks, separated by commas.
        stage: 0, or one more than the stage of those cases whose answers this case needs.
        said: Metadata and labels by column name. `meta.<name>` comes from the marks of the test. If
            the run is read from its tables, there is also `label.<name>`, which comes from the
            grade.
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
        """The node id of the test function, without parameters."""
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
        # In the ids that pytest makes, the model comes first and the repetition comes last.
        model = self.model.encode("unicode_escape").decode()
        return _REPETITION.sub("-", ids.replace(f"-{model}-", "-", 1))[1:-1]

    def value_of(self, name: str) -> str:
        """Return the case's value, as text, for a name by which summaries are grouped.

        The text is empty if the case has no such value.
        """
        if name in CASE_NAMES and (name in _ALWAYS or name not in self.params):
            return str(getattr(self, name))
        return str(self.facts.get(name, ""))

    @property
    def facts(self) -> dict[str, Scalar]:
        """The parameters, metadata and labels, by name.

        A parameter cannot clash with the others, because its name never contains a dot.
        """
        return self.params | self.said

    def labelled(self, labels: Mapping[str, str]) -> Case:
        """Return the case with the labels from its grade (`Grade.labels`)."""
        if not labels:
            return self
        said = self.said | {f"{LABEL}{name}": text for name, text in labels.items()}
        return msgspec.structs.replace(self, said=said)


def by_key(pairs: Iterable[tuple[_K, T]]) -> dict[_K, list[T]]:
    """Group the values by key. The keys stay in the order in which they first occur."""
    found: dict[_K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def function_of(nodeid: str) -> str:
    """Return the node id of an item's test function: the item's own id, without parameters."""
    path, _, name = nodeid.partition("::")
    return f"{path}::{name.split('[')[0]}"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One HTTP request on one lane. Most columns of the table `attempts` are fields of this record.

    `store.tables.ATTEMPTS_COLUMNS` lists all columns: some fields here are `NoColumn`, and some
    columns come from other records. All `t_*_s` are in seconds on the host's monotonic clock. The
    columns are in the order of the fields. This order is part of the format, so add new fields at
    the end.

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
        retry_after_s: How long the server asked the client to wait.
        tokens_in: The number of tokens in the prompt.
        tokens_out: The number of tokens in the answer.
        in_flight_at_send: How many requests were in flight on this lane when this request was sent,
            including this request.
        maybe_billed: Whether the provider may have charged for the request although no answer
            arrived.
        seat_wait_s: How long it waited for a seat before it got the lease.
        rate_wait_s: How long it waited for a rate or for the end of a pause before it got the
            lease.
        cached_tokens: How many tokens of the prompt the provider had cached.
        cache_write_tokens: How many tokens of the prompt the provider wrote to its cache.
        replayed: Null if the request was sent. `match`: the request got the only matching answer in
            the replayed run. `ambiguous`: it got the first of several different answers that match.
            In both cases, provider, instance, key, status and tokens are from that run, but the
            times are from this run. `resumed`: after an interruption, the request got the answer
            that this run had already stored. The request that was originally sent has its own row,
            which contains the cost.
        role: The role to which the request was sent, such as `judge`; empty for the case's own
            model.
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
    """One message in a conversation. A turn stores only messages that are new in this turn.

    Attributes:
        turn: The number of the request in the episode, counted from 0.
        role: `system`, `user`, `assistant`, `tool`, or another role that the suite uses.
        content: The text of the message. Content that is not plain text is shown as JSON.
        tool_calls: For an answer: the names and arguments of its tool calls, as JSON.
        name: The name of the author or the tool, if the message contains a name.
        tool_call_id: For a message from a tool: the id of the tool call that it answers.
        tool_call_ids: The ids of the calls in `tool_calls`, in the same order, as JSON.
        choice: For an answer: the number of this choice, counted from 0.
        finish_reason: For an answer: why it ended, in the API's wording.
        reasoning: For an answer: its reasoning, if the API sends it separately.
        refusal: For an answer: the model's refusal, if the API sends it separately.
        other: All other fields of the message, as JSON; for a streamed answer, they are only in the
            journal.
        parameters: For an answer: its request without messages and model, as JSON.
        answer_id: For an answer: the id that the provider gave it.
        served_model: For an answer: the model that answered, as the provider reports it.
        usage: For an answer: the provider's token counts, as JSON.
        pool_role: The role to which the request was sent, as in the column `role` of `attempts`;
            empty for the case's own model.
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
    """One request of an episode and its answer, in the form into which `exchanges` packs them.

    Attributes:
        turn: The number of the client's call, counted from 0.
        api: The name of the API in the registry.
        path: The requested path in the form in which the API's `serves` lists it, without any
            lane's name for the model. Empty for `llm.chat()`. Journals of earlier versions contain
            the lane's own path.
        status: The HTTP status; None if no answer arrived.
        sent: The part of the request's body that is not in the body of `base`, as text.
        base: The number, counted from 0, of an earlier exchange of the episode whose request body
            contains the rest. None if `sent` is the whole body.
        first: How many bytes at the beginning of the base's body come before `sent`.
        last: How many bytes at the end of the base's body come after `sent`.
        came: The answer's body as text. The body of a stream is compressed with zlib and encoded as
            base64.
        is_stream: Whether the answer is a stream.
        query: The encoded query string, without the lane's key and version.
        headers: The headers of the request that can change the answer, with names in lower case.
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
"""Stands for a missing value. This is not None, because msgspec can leave JSON undecoded in a
field of type `Raw`, but not in a field of type `Raw | None`."""


class EpisodeStarted(msgspec.Struct, frozen=True, tag="started"):
    """The record of an episode that got its first lease."""

    case_id: str
    worker: str
    at_us: int


class EpisodeProgressHead(msgspec.Struct, frozen=True, tag="went_on"):
    """The first fields of an `EpisodeProgress`, for readers that do not decode the rest.

    Attributes:
        case_id: The id of the case.
        worker: As in `EpisodeEnded`. Together with the case and `started_at_us`, it identifies the
            episode.
        started_at_us: As in `EpisodeEnded`.
    """

    case_id: str
    worker: str
    started_at_us: int


class EpisodeProgress(EpisodeProgressHead, frozen=True, tag="went_on", omit_defaults=True):
    """The progress of an episode since its previous record. Not used once the episode has ended.

    Attributes:
        at_us: When the record was written, in microseconds since the epoch (UTC).
        n_before: How many exchanges the episode's previous records contain.
        attempts: The requests that were answered or failed since the previous record.
        exchanges: The exchanges that ended since the previous record. Their `base` is counted from
            the first exchange of the episode.
        began_us: As in `EpisodeEnded`.
    """

    at_us: int
    n_before: int = 0
    attempts: list[Attempt] = []
    exchanges: list[Exchange] = []
    began_us: int = 0


class EpisodeEnded(msgspec.Struct, frozen=True, tag="ended", omit_defaults=True):
    """The final record of an episode. Grading, replay and tables use no other record of an episode.

    Attributes:
        case_id: The id of the case.
        worker: The worker that ran the episode: `gw0`, `gw1`, ..., or `main` without `-n`.
        kind: For an episode that ended `refused`, `infra` or `error`: one word, such as `timeout`,
            `context_length` or `ValueError`.
        detail: A message or a traceback, to be shown to users.
        value: The value that the prefetched function returned, as JSON. `NO_VALUE` unless the
            episode ended `returned`.
        stdout: The output that the episode printed, at most 64 KiB.
        log: The log records of the episode as text, at most 64 KiB.
        backoff_s: How many seconds the episode waited between attempts because the run chose to,
            and not because the server asked for it.
        started_at_us: When the episode got its first lease, in microseconds since the epoch (UTC).
        duration_s: How many seconds the episode took from the first lease to its end.
        messages: The messages of the conversation, if exchanges are not recorded.
        exchanges: The requests and answers, if they are recorded.
        host: In a merged run: the host that ran the episode, if the host has a name.
        began_us: If the episode got the answers of an interrupted try: when that try got its first
            lease, in microseconds since the epoch. Otherwise 0.
        n_unused: How many answers of that try were not used, because the episode sent different
            requests.
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
        """Make the record of an episode that ends now. The record contains no requests."""
        return cls(case_id, worker, ending, now_us, now_us, 0.0, kind=kind, detail=detail)

    @property
    def sent(self) -> list[Attempt]:
        """The episode's requests, except for requests that got a stored answer."""
        return [one for one in self.attempts if one.replayed is None]

    @property
    def own_attempts(self) -> list[Attempt]:
        """The episode's requests to the case's own model, and not those to roles."""
        return [attempt for attempt in self.attempts if not attempt.role]

    @property
    def own_sent(self) -> list[Attempt]:
        """The `own_attempts` that were sent, including those sent before an interruption."""
        sent = {None, "resumed"}
        return [one for one in self.attempts if not one.role and one.replayed in sent]


class Grade(msgspec.Struct, frozen=True, tag="grade", omit_defaults=True):
    """The final record of a case: its outcome as a measurement, and pytest's own result.

    Attributes:
        worker: The worker that ran the episode: `gw0`, `gw1`, ..., or `main` without `-n`.
        outcome: The measured outcome of the case.
        test: pytest's own result: `passed`, `failed`, `error`, `skipped`, `xfailed` or `xpassed`.
        kind: A word that adds detail to the outcome. It says why the case is `infra`, why the
            provider refused the prompt, what ended the grader, or which exception caused the
            `error`.
        scores: The scores by name. A bool counts as a number. No score is NaN or infinite.
        error: The error message, or the beginning of a traceback. In runs of earlier versions of
            the plugin, it may be the `reason`.
        host: As in `EpisodeEnded`.
        reason: The `reason` argument of `grade`.
        labels: The `labels` argument of `grade`, which maps names to texts.
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
    """How busy an engine was while it had open episodes. Written once, when the engine ends.

    The run also stores such a record for the controller and one for the broker. These count no
    beats (timers of the event loop).

    Attributes:
        worker: The id of the worker; or `controller` or `broker`.
        wall_s: For how many seconds at least one episode was open.
        cpu_s: The CPU time of the whole process during these seconds.
        waited_s: How long threads of the process were ready to run but had no CPU, in seconds,
            added up over threads.
        n_beats: How often the event loop set a timer for a fixed time.
        late_s: How late the event loop was for these timers, in seconds, added up over all beats.
        latest_s: The longest of these delays.
        stalls: For how many seconds the event loop was blocked, by place in the suite's code.
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
"""The types of records in a journal. An `EpisodeProgress` is read as an `EpisodeProgressHead`."""
