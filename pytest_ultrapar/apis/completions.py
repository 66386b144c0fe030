"""What SDKs get of `/completions`: the text that a model goes on with, without a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import ChatStream, Choice, Completion, WireMessage, reply_of
from pytest_ultrapar.apis.reading import NOTHING, decoded, failure_in_answer, malformed

if TYPE_CHECKING:
    from pytest_ultrapar.apis.reply import Reply

_LAST = b"[DONE]"


class Completions:
    """A `registry.Reader`."""

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """The first choice's text."""
        found = decoded(body, _decoder, "completion")
        if isinstance(found, Failure):
            return found
        if bytes(found.error) != b"null":
            return failure_in_answer(bytes(found.error))
        if not found.choices:
            return malformed("the answer has no choices")
        whole = found.as_chat()
        return reply_of(whole.choices or [], whole, lane, latency_s)

    def stream(self) -> CompletionStream:
        """An empty stream."""
        return CompletionStream()


class CompletionStream(ChatStream):
    """The pieces of one text so far: as those of a chat, but for where the text stands."""

    def _take(self, data: bytes, now_s: float) -> None:
        if data == _LAST:
            super()._take(data, now_s)
            return
        found = decoded(data, _decoder, "completion")
        if isinstance(found, Failure):
            self._fail(found)
        elif bytes(found.error) != b"null":
            self._fail(failure_in_answer(bytes(found.error)))
        else:
            self._take_completion(found.as_chat(), now_s)


class _Choice(msgspec.Struct):
    text: str | None = None
    index: int | None = None
    finish_reason: str | None = None

    def as_chat(self) -> Choice:
        message = WireMessage(content=self.text)
        return Choice(index=self.index, message=message, finish_reason=self.finish_reason)


class _Completion(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING
    id: msgspec.Raw = NOTHING
    model: msgspec.Raw = NOTHING

    def as_chat(self) -> Completion:
        choices = [choice.as_chat() for choice in self.choices or ()]
        return Completion(choices, self.usage, id=self.id, model=self.model)


_decoder = msgspec.json.Decoder(_Completion)
API = Completions()
