"""Answer requests with the stored answers of an earlier run, instead of sending them to a provider.

A request gets the answer that the same request of the same case received in that run, on any lane.
Each stored answer is used once. A request with a stored answer needs neither a lease nor a seat,
and takes no time. A request without a stored answer is a miss. Either it ends the case, or it takes
a lease and is sent like any other request.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep  # a test may fake `asyncio.sleep`
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import SequenceMatcher, unified_diff
from http import HTTPStatus
from itertools import product, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.server_json import part_of
from pytest_ultrapar.broker.interface import BrokerInterface
from pytest_ultrapar.engine.answers import Answer, read_answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.errors import (
    BadRequestError,
    InfraError,
    PromptRefused,
    ReplayMissError,
    bare_kind,
)
from pytest_ultrapar.exchanges import canonical, matters, said
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.records import Attempt, EpisodeEnded, Replayed

if TYPE_CHECKING:
    from pytest_ultrapar.apis.reply import Reply
    from pytest_ultrapar.broker.protocol import Lease, LeaseRequest
    from pytest_ultrapar.broker.wire import ClientMessage
    from pytest_ultrapar.engine.answers import Request
    from pytest_ultrapar.engine.conversation import Conversation

_MOMENTS = ("t_ready_s", "t_lease_s", "t_send_s", "t_first_byte_s", "t_end_s")
"""The times of an attempt. In a replayed attempt they are all equal, because it has no duration."""
_ANSWERED = frozenset({"ok", "refused", "bad_request"})
"""Outcomes whose answers depend on the request itself, so that they can be used again."""
LEAVES_LATE_S = 1.0
"""If a request was cancelled in the stored run, the episode gets this many extra seconds to cancel
it again. After that, the request fails."""
_MOST_LINES = 200
"""How many lines of each request are compared. The time for a diff grows with the square of their
number."""
_MOST_SHOWN = 40
_LONGEST_LINE = 200


class Wording(NamedTuple):
    """The parts of a request that must be the same in two requests if they are to count as equal.

    Attributes:
        resource: The same as `Exchange.path`.
        query: As in `Exchange`.
        headers: As in `Exchange`, sorted.
        body: The body in the form of `exchanges.canonical`.
    """

    resource: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Stored(NamedTuple):
    """One request of the earlier run and its answer.

    Attributes:
        asked: The request.
        api: The name of the reader for the answer; empty if the request was never sent.
        status: The HTTP status; None if no answer came.
        came: The answer's body.
        is_stream: Whether the body is a stream of events.
        attempt: The last attempt; None if the request was never sent.
        is_unasked: Whether the client got the stream as one body because it had not asked for a
            stream.
    """

    asked: Wording
    api: str
    status: int | None
    came: bytes
    is_stream: bool
    attempt: Attempt | None
    is_unasked: bool = False

    @property
    def is_answered(self) -> bool:
        """Whether there is a stored answer that can be used again."""
        outcome = None if self.attempt is None else self.attempt.outcome
        # A stream that ended in a refusal is not stored.
        return outcome in _ANSWERED and self.status is not None and bool(self.came)

    def can_be_read_as(self, is_stream: bool | None) -> bool:
        """Whether the answer suits a client that reads streams, single bodies, or both (None)."""
        if is_stream is None or not self.is_answered or self.status != HTTPStatus.OK:
            return True
        return (self.is_stream and not self.is_unasked) is is_stream


class Match(NamedTuple):
    """The stored answer for a request.

    Attributes:
        number: The index of the fitting wording among the request's wordings.
        is_ambiguous: Whether other stored requests, with different answers, fit as well.
    """

    stored: Stored
    number: int
    is_ambiguous: bool


class StoredAnswers:
    """The stored requests of one case.

    Args:
        stored: The requests in the order in which they were sent.
    """

    def __init__(self, stored: Sequence[Stored]) -> None:
        self._left = list(stored)
        self._all = tuple(stored)

    def take(self, ways: Sequence[Wording], *, is_stream: bool | None) -> Match | None:
        """Take the first unused request that fits, and mark it as used; return None for a miss.

        Args:
            ways: The wordings of the request for lanes of different kinds.
            is_stream: Whether the client expects a stream; None if it can read both forms.
        """
        fitting = [one for one in self._left if one.asked in ways and one.can_be_read_as(is_stream)]
        if not fitting:
            return None
        stored = fitting[0]
        # Compare by identity, to remove only one of two equal requests.
        self._left = [one for one in self._left if one is not stored]
        answers = {(one.status, one.came) for one in fitting}
        return Match(stored, ways.index(stored.asked), len(answers) > 1)

    @property
    def n_left(self) -> int:
        """How many answers are still unused."""
        return sum(one.is_answered for one in self._left)

    def difference(self, ways: Sequence[Wording]) -> str | None:
        """Return a diff from the most similar stored request, preferably an unused one.

        Args:
            ways: One or more wordings, as for `take`; the most similar wording is compared.

        Returns:
            Up to `_MOST_SHOWN` lines. The text is empty if the requests are equal, and None if no
            request is stored.
        """
        then = [_lines(one.asked) for one in self._left or self._all]
        if not then:
            return None
        pairs = product(then, map(_lines, ways))
        old, new = max(pairs, key=lambda pair: SequenceMatcher(None, *pair).quick_ratio())
        same = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
        first = max(0, len(list(same)) - 2)
        cut = slice(first, first + _MOST_LINES)
        told = list(unified_diff(old[cut], new[cut], "stored", "now", n=2, lineterm=""))
        shown = [one if len(one) <= _LONGEST_LINE else f"{one[:_LONGEST_LINE]}..." for one in told]
        if len(shown) > _MOST_SHOWN:
            n_more = len(told) - _MOST_SHOWN
            shown[_MOST_SHOWN:] = [f"... and {n_more:,} more line{'s' if n_more > 1 else ''}"]
        return "\n".join(shown)


def _lines(asked: Wording) -> list[str]:
    """Format a request as lines: its body as indented JSON, with line breaks inside strings."""
    try:
        body = msgspec.json.format(asked.body, indent=1)
    except (msgspec.DecodeError, RecursionError):
        body = asked.body
    headers = (f"{name}: {value}" for name, value in asked.headers)
    text = body.decode(errors="backslashreplace").replace("\\n", "\n")
    place = (f"resource: {asked.resource or 'chat'}", f"query: {asked.query}")
    return [*place, *headers, *text.splitlines()]


class StoredCase(msgspec.Struct, frozen=True):
    """The data that a run has stored for one case.

    Attributes:
        episode: The recorded episode; None if it is missing.
        part: Returns the content of one of the run's parts, given the part's name. Parts are long
            strings and bodies that are stored in files of their own (`exchanges`).
        missing: The reason why the episode is missing, as a clause; empty if it is not missing.
    """

    episode: EpisodeEnded | None
    part: Callable[[str], bytes]
    missing: str = ""


class ReplaySettings(msgspec.Struct, frozen=True):
    """The settings of an engine that replays.

    Attributes:
        run: Id of the earlier run, for messages.
        asks: Whether misses are sent. If they are not, a miss ends its case.
        case: Returns the stored data for a case, given the case's id in this run. It is called on
            the engine's thread, once per episode and role, and must not raise.
        redact: Redacts a request in the same way as the stored requests were redacted.
        is_own: Whether the stored answers come from this run itself: the case was interrupted, and
            is now resumed.
    """

    run: str
    asks: bool
    case: Callable[[str], StoredCase]
    redact: Callable[[bytes], bytes]
    is_own: bool = False


@dataclass(eq=False, repr=False)
class EpisodeReplay:
    """Answers the requests of one episode with stored answers. It is used on the engine's loop.

    Attributes:
        settings: The settings of the engine.
        case_id: The id of the case.
        lanes: The lanes of the model.
        role: The role whose requests this object answers; empty for the case's own model.
        now_s: Reads the engine's clock.
        shown: As in `EngineParts`.
    """

    settings: ReplaySettings
    case_id: str
    lanes: Sequence[Endpoint]
    _: KW_ONLY
    role: str
    now_s: Callable[[], float]
    shown: Callable[[str], str]

    def __post_init__(self) -> None:
        """Read the stored data of the case."""
        self._kinds = _kinds(self.lanes)
        self._case = self.settings.case(self.case_id)
        self._missing = self._case.missing
        stored: list[Stored] = []
        if self._case.episode is not None:
            try:
                stored = list(stored_requests(self._case.episode, self._case.part, self.role))
            except Exception as error:  # noqa: BLE001 - a damaged record or part counts as missing
                self._missing = f"the case's stored requests cannot be read: {error}"
        self._unsent = {one.asked.body for one in stored if not one.api}
        self._answers = StoredAnswers([one for one in stored if one.api])

    @property
    def n_unused(self) -> int:
        """As in `EpisodeEnded`."""
        return self._answers.n_left if self.settings.is_own else 0

    async def answer(
        self, turn: int, request: Request, conversation: Conversation
    ) -> tuple[Reply | PromptRefused | BadRequestError, Answer, LaneId] | None:
        """Return the stored answer to a request, and its lane; None if the request must be sent.

        Args:
            turn: The number of the request in the episode, from 0.
            request: The request of this run.
            conversation: Records the request and its answer.

        Raises:
            InfraError: The stored request has no answer.
            PromptRefused: In the stored run, the request was refused within a stream. Such streams
                are not stored.
            ReplayMissError: No stored request fits, and misses are not sent.
        """
        conversation.check()
        there = self._written(request)
        ways = [self._asked(endpoint, body) for endpoint, body in there]
        # To any client except `llm.chat()`, a stream can be passed on only as a stream.
        is_stream = request.pieces is not None if there and there[0][0].read_by else None
        match = self._answers.take(ways, is_stream=is_stream)
        if match is None or not match.stored.is_answered:
            if not self.settings.asks:
                await sleep(_left_after_s(match))
                error = self._failure(match, ways, request)
                if isinstance(error, ReplayMissError):
                    conversation.fail(error)
                raise error
            return None
        endpoint, body = there[match.number]
        return self._given(match, endpoint, body, turn=turn, request=request, note=conversation)

    def _written(self, request: Request) -> list[tuple[Endpoint, bytes]]:
        """Write the request for each kind of lane, except for kinds that do not support it."""
        found: list[tuple[Endpoint, bytes]] = []
        refusal: TypeError | None = None
        for endpoint in self._kinds:
            try:
                found.append(request.on(endpoint))
            except TypeError as error:
                refusal = refusal or error
        if refusal is not None and not found:
            raise refusal
        return found

    def _asked(self, endpoint: Endpoint, body: bytes) -> Wording:
        headers = tuple(sorted(matters(endpoint.headers).items()))
        body = canonical(self.settings.redact(body))
        return Wording(endpoint.resource, endpoint.query, headers, body)

    def _given(
        self,
        match: Match,
        endpoint: Endpoint,
        body: bytes,
        *,
        turn: int,
        request: Request,
        note: Conversation,
    ) -> tuple[Reply | PromptRefused | BadRequestError, Answer, LaneId]:
        """Record a stored answer as if it had just arrived, marked as replayed, and return it."""
        stored = match.stored
        then, now_s = stored.attempt, self.now_s()
        word: Replayed = "ambiguous" if match.is_ambiguous else "match"
        assert then is not None
        assert stored.status is not None
        lane = LaneId(f"{then.provider}/{then.instance}/{then.key}")
        there = replace(
            endpoint,
            lane=lane,
            read_by=endpoint.read_by if stored.api == endpoint.api_word else stored.api,
        )
        kind = "text/event-stream" if stored.is_stream else "application/json"
        headers = {"content-type": kind}
        stream = None
        if stored.is_stream:
            stream = there.reader.stream()
            stream.feed(stored.came, now_s)
            stream.end(now_s)
        answer = Answer(stored.status, headers, stored.came, now_s, stream)
        result = read_answer(answer, there, then.t_end_s - then.t_send_s)
        note.attempts.append(
            msgspec.structs.replace(
                then,
                turn=turn,
                attempt=0,
                **dict.fromkeys(_MOMENTS, now_s),
                t_first_token_s=None,
                retry_after_s=None,
                in_flight_at_send=0,
                maybe_billed=False,
                seat_wait_s=0.0,
                rate_wait_s=0.0,
                replayed=then.replayed or "resumed" if self.settings.is_own else word,
            )
        )
        note.tried(turn, there, body, answer, result)
        note.troubles.pop(then.role, None)
        if isinstance(result, Failure):
            message = self.shown(result.message)
            # Accept the failure's class in that run as well as its class by newer rules.
            if "refused" in {then.outcome, result.outcome}:
                return PromptRefused(result.refused_kind or "refused", message), answer, lane
            if "bad_request" not in {then.outcome, result.outcome}:
                raise InfraError(result.outcome, message)
            return BadRequestError(message), answer, lane
        if request.pieces is not None:
            request.pieces.put(stored.status, headers, stored.came)
            request.pieces.is_whole = True
        return result, answer, lane

    def _failure(
        self, match: Match | None, ways: Sequence[Wording], request: Request
    ) -> InfraError | PromptRefused | ReplayMissError:
        """Return the error for a request that was not answered or not sent in the stored run."""
        run, episode = self.settings.run, self._case.episode
        if match is not None:
            outcome = "unsent" if match.stored.attempt is None else match.stored.attempt.outcome
            # A stream that ended in a refusal is not stored, but the refusal ended the episode in
            # that run.
            ending = "infra" if self.role else "refused"
            if outcome == "refused" and episode is not None and episode.ending == ending:
                kind = bare_kind(episode.kind or outcome)
                return PromptRefused(kind, f"refused in run {run}: {episode.detail or kind}")
            kind = outcome if outcome not in _ANSWERED else "malformed"
            return InfraError(kind, f"run {run} has no answer to this request: {kind}")
        if episode is not None and episode.ending == "infra":
            said = canonical(self.settings.redact(_messages(request)))
            if said in self._unsent or not (episode.exchanges or episode.attempts):
                why = f"run {run} never sent this request: {episode.detail or episode.kind}"
                return InfraError(bare_kind(episode.kind or "infra"), why)
        return ReplayMissError(self._miss(ways))

    def _miss(self, ways: Sequence[Wording]) -> str:
        run = self.settings.run
        if self._missing:
            return f"run {run} has no answer to this request: {self._missing}"
        if not ways:
            return f"run {run} cannot be replayed here: the pool has no lane for this model"
        told = self._answers.difference(ways)
        if told is None:
            return f"run {run} has no answer to this request: the case sent no requests in that run"
        told = told or "it was sent fewer times in that run, or with a different stream setting"
        return (
            f"run {run} has no answer to this request; difference from the most similar stored "
            f"request in this case:\n{told}\n"
            "to send requests that have no stored answer, use --ultrapar-replay-misses ask"
        )


def _left_after_s(match: Match | None) -> float:
    """How many seconds a request waits before it fails because it has no stored answer.

    Only a request that was cancelled in the stored run waits: as long as it was in flight there,
    and a little longer. If the episode cancelled it after a time-out, the episode should cancel it
    again now instead of seeing it fail.
    """
    attempt = None if match is None else match.stored.attempt
    if attempt is None or attempt.outcome != "cancelled":
        return 0.0
    return attempt.t_end_s - attempt.t_send_s + LEAVES_LATE_S


def _messages(request: Request) -> bytes:
    """Encode a request as `Conversation.noted` encodes requests that were never sent."""
    try:
        return msgspec.json.encode({"messages": list(request.messages)})
    except (TypeError, UnicodeEncodeError):
        return b""


def _kinds(lanes: Sequence[Endpoint]) -> list[Endpoint]:
    """Return one lane of each kind. Requests to lanes of the same kind differ only in names."""
    kinds: dict[object, Endpoint] = {}
    for one in lanes:
        own = (one.api_word, one.max_tokens, tuple(sorted(one.parameters.items())))
        kinds.setdefault(own, one)
    return list(kinds.values())


def stored_requests(
    episode: EpisodeEnded, part: Callable[[str], bytes], role: str
) -> Iterator[Stored]:
    """Yield the requests that a recorded episode sent to a role, in the order of sending.

    Args:
        episode: The episode with its exchanges.
        part: Returns the content of a part, given its name, as in `StoredCase`.
        role: The role; empty for the case's own model.

    Raises:
        ValueError: An exchange cannot be unpacked.
    """
    last: Mapping[int, Attempt] = {one.turn: one for one in episode.attempts}
    for one, sent, came in said(episode.exchanges, part):
        if one.role != role:
            continue
        headers = tuple(sorted(one.headers.items()))
        asked = Wording(one.path, one.query, headers, canonical(sent))
        wanted = part_of(sent, _Wanted) or _Wanted()
        unasked = one.is_stream and not wanted.stream and ":stream" not in one.path
        yield Stored(asked, one.api, one.status, came, one.is_stream, last.get(one.turn), unasked)


class _Wanted(msgspec.Struct):
    stream: bool = False


class NoBroker(BrokerInterface):
    """The broker's interface in a run that sends no requests and asks for no leases."""

    def acquire(self, request: LeaseRequest) -> asyncio.Future[Lease]:
        """Never called."""
        raise AssertionError(request)

    def tell(self, message: ClientMessage) -> None:
        """Ignore the message: the run has no broker."""

    def ask(self, message: ClientMessage) -> asyncio.Future[Any]:
        """Never called."""
        raise AssertionError(message)

    async def close(self) -> None:
        """Do nothing: there is no connection."""
