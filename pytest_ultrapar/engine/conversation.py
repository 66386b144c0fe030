"""Record the requests, answers and attempts of an episode, for its own model and for its roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.reply import Messages, Reply, as_one_body
from pytest_ultrapar.engine.answers import Answer
from pytest_ultrapar.engine.endpoints import Endpoint, without_surrogates
from pytest_ultrapar.errors import BadRequestError, InfraError, PromptRefused
from pytest_ultrapar.exchanges import ExchangeLog, new_messages, without_model
from pytest_ultrapar.records import Attempt, Exchange, TurnMessage

_OF_THE_REQUEST = frozenset({"refused", "bad_request"})


class Conversation(msgspec.Struct):
    """The requests, answers and attempts of an episode so far, for its record.

    Attributes:
        failure: The failure that ends the episode, even if the suite's code continues (`fail`).
        troubles: For each role, the message of the last failure since the last reply. The case's
            own model has the role "".
        n_unawaited: The number of `llm.chat` calls that were never awaited and therefore sent
            nothing.
        exchanges: Stores requests and answers; None if they are not stored.
        keeps_text: Whether messages are stored even if requests and answers are not.
    """

    attempts: list[Attempt] = []
    messages: list[TurnMessage] = []
    n_turns: int = 0
    n_unawaited: int = 0
    backoff_s: float = 0.0
    failure: InfraError | PromptRefused | BadRequestError | None = None
    troubles: dict[str, str] = {}
    exchanges: ExchangeLog | None = None
    keeps_text: bool = True
    _said: dict[str, list[Mapping[str, Any]]] = {}
    _roles: dict[int, str] = {}
    _unsent: dict[int, Messages] = {}
    _unanswered: dict[int, tuple[Endpoint, bytes, Answer | Failure | None]] = {}
    _n_told: tuple[int, int] = (0, 0)

    def fail(self, error: InfraError | PromptRefused | BadRequestError) -> None:
        """End the episode with this failure. Only the first call has an effect."""
        if self.failure is None:
            self.failure = error

    def check(self) -> None:
        """Raise the failure of the episode, if it has one."""
        if self.failure is not None:
            raise self.failure

    def note(self, turn: int, messages: Messages, role: str = "") -> None:
        """Record only new messages, so that a growing conversation is not stored again every turn.

        Args:
            turn: The number of the request in the episode, from 0.
            messages: The whole conversation so far.
            role: The role whose conversation it is; empty for the case's own model.
        """
        if role:
            self._roles[turn] = role
        if self.exchanges is not None:
            self._unsent[turn] = messages
        if self.exchanges is not None or not self.keeps_text:
            return

        def shaped(message: Mapping[str, Any]) -> TurnMessage:
            speaker, text = str(message.get("role", "")), _as_text(message.get("content"))
            return TurnMessage(turn, speaker, text, pool_role=role)

        noted = [one for one in self.messages if one.pool_role == role]
        self.messages += new_messages(messages, self._said.get(role, ()), noted, shaped)
        self._said[role] = [dict(message) for message in messages]

    def heard(self, turn: int, reply: Reply) -> None:
        """Record the model's reply."""
        if self.exchanges is not None or not self.keeps_text:
            return
        calls = None
        if reply.tool_calls:
            calls = msgspec.json.encode(
                [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
            ).decode()
        role = self._roles.get(turn, "")
        self.messages.append(TurnMessage(turn, "assistant", reply.text, calls, pool_role=role))

    def tried(
        self,
        turn: int,
        endpoint: Endpoint,
        body: bytes,
        answer: Answer | Failure | None,
        result: Reply | Failure | None,
    ) -> None:
        """Record a request and its answer. If every attempt fails, the last attempt stays recorded.

        Args:
            turn: The number of the request in the episode, from 0.
            endpoint: The endpoint to which the request was sent.
            body: The body that was sent.
            answer: The answer; None if this process cancelled the request.
            result: The reply or failure that was read from the answer.
        """
        if self.exchanges is None:
            return
        self._unsent.pop(turn, None)
        if isinstance(answer, Answer) and isinstance(result, Failure):
            is_of_request = result.outcome in _OF_THE_REQUEST
            # Half an answer may be useful, but the error page of a server that is down is not
            # useful.
            if answer.stream is not None or not (is_of_request or result.came):
                half = None if is_of_request else result.came
                answer = replace(answer, body=b"" if half is None else as_one_body(half))
        self._unanswered[turn] = (endpoint, body, answer)
        if isinstance(result, Reply):
            self._exchanged(turn, result)

    def _exchanged(self, turn: int, reply: Reply | None = None) -> None:
        assert self.exchanges is not None
        endpoint, body, answer = self._unanswered.pop(turn)
        came, whole, status = b"", None, None
        if isinstance(answer, Answer):
            came, status = answer.body, answer.status
            if reply is not None and answer.stream is not None:
                whole = answer.one_body(reply)
        self.exchanges.add(
            turn,
            api=endpoint.read_by or endpoint.api_word,
            path=endpoint.resource,
            status=status,
            sent=without_model(body, endpoint.api_name),
            came=came,
            whole=whole,
            query=endpoint.query,
            headers=endpoint.headers,
            role=self._roles.get(turn, ""),
        )

    def is_wrong(self, turn: int) -> None:
        """Record a finished request whose answer reported an error in the request."""
        if turn in self._unanswered:
            self._exchanged(turn)

    def news(self) -> tuple[int, list[Attempt], list[Exchange]] | None:
        """Return the number of earlier exchanges, and the new attempts and exchanges.

        An item is new if it was added after the last call. The result is None if there is no new
        exchange, or if exchanges are not stored.
        """
        n_attempts, n_before = self._n_told
        noted = [] if self.exchanges is None else self.exchanges.noted
        if len(noted) == n_before:
            return None
        self._n_told = len(self.attempts), len(noted)
        return n_before, self.attempts[n_attempts:], noted[n_before:]

    def noted(self) -> list[Exchange]:
        """Return the exchanges of an ended episode, including requests that got no answer."""
        if self.exchanges is None:
            return []
        for turn in list(self._unanswered):
            self._exchanged(turn)
        for turn, messages in self._unsent.items():
            try:
                sent = _as_text({"messages": list(messages)}).encode()
            except TypeError:  # the episode has already got this error
                continue
            role = self._roles.get(turn, "")
            self.exchanges.add(turn, api="", path="", status=None, sent=sent, role=role)
        self._unsent.clear()
        return self.exchanges.noted


def _as_text(content: object) -> str:
    if isinstance(content, str):
        return content if content.isascii() else str(without_surrogates(content))
    if content is None:
        return ""
    try:
        return msgspec.json.encode(content).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(content)).decode()
