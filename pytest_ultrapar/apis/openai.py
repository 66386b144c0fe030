"""OpenAI's chat completions, which vLLM, the simulated provider and most gateways also serve.

The module contains the class that implements the API. The code that reads complete answers and
streams follows, and then the JSON shapes that servers send.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from pytest_ultrapar.apis.answer_reading import (
    MOST_TOOL_CALLS,
    NOTHING,
    Answer,
    EventStream,
    Usage,
    answered,
    broken_off,
    failure_in_answer,
    is_error,
    is_nothing,
    joined,
    malformed,
)
from pytest_ultrapar.apis.classify import classify_status
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.rate_headers import parse_allowance
from pytest_ultrapar.apis.reply import NATIVE, Messages, Reply, ToolCall, as_one_body
from pytest_ultrapar.apis.retry_after import parse_retry_after
from pytest_ultrapar.apis.server_json import part_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.apis.outcome import Allowance
    from pytest_ultrapar.apis.registry import Stream

CHAT_PATH = "/chat/completions"
RESPONSES_PATH = "/responses"


class OpenAi:
    """`api = "openai"`. `registry.Api` explains the methods and the attributes other than `path`.

    The classes of all other built-in APIs inherit from this one.

    Attributes:
        path: The path to which `llm.chat()` sends its requests, relative to the base URL.
    """

    path: ClassVar[str] = CHAT_PATH
    version_example: ClassVar[str | None] = None
    endpoint_noun: ClassVar[str] = "model"
    base_url_hint: ClassVar[str] = " (does it end in /v1?)"
    streamed: ClassVar[Mapping[str, Any]] = {
        "stream": True,
        "stream_options": {"include_usage": True},
    }

    serves: ClassVar[Mapping[str, str]] = {
        CHAT_PATH: "openai",
        RESPONSES_PATH: "openai-responses",
        "/completions": "completions",
        "/embeddings": "embeddings",
    }
    # Azure's SDK puts the deployment before the path, and Mistral's SDK adds the version.
    base_paths: ClassVar[str] = r"/v1|/openai/v1|/openai|/openai/deployments/(?P<model>[^/]+)"

    def flaw_of(self, base_url: str) -> str | None:
        """Always None, because a gateway may serve this API under any path."""
        return None

    def url(self, base_url: str, name: str, version: str | None) -> str:
        """The URL of `path`."""
        return self.resource_url(base_url, name, version, self.path)

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """The URL of a path, which is relative to the base URL."""
        return base_url.rstrip("/") + path

    def headers(self, token: str) -> dict[str, str]:
        """The authentication header."""
        return {"authorization": f"Bearer {token}"}

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """The body, with the model's name."""
        return encode_request(name, messages, parameters)

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """The reply in a 200 response, or the reason why it cannot be used."""
        completion = answered(body, _decoder, "chat completion")
        if isinstance(completion, Failure):
            return completion
        if not completion.choices:
            return malformed("the answer has no choices")
        first = completion.choices[0]
        # An answer may be empty if it has a finish reason or tool calls.
        is_blank = all(one.said is None or one.said.is_blank for one in completion.choices)
        if is_blank and first.finish_reason in _ENDS_IN_CALLS and first.failure is None:
            return malformed("the answer's message has no content, not even empty content")
        return reply_of(completion.choices, completion, completion.counted, lane, latency_s)

    def stream(self) -> Stream:
        """A new reader of one streamed answer."""
        return ChatStream()

    def failure(
        self, status: int, body: bytes, headers: Mapping[str, str], *, epoch_s: float
    ) -> Failure:
        """The failure that the status, the words of the error and the headers indicate."""
        return classify_status(status, body, parse_retry_after(headers, epoch_s=epoch_s), headers)

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        """The limits in the headers `x-ratelimit-*`."""
        return parse_allowance(headers)


def encode_request(model: str | None, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
    """Encode the body of a request.

    Args:
        model: The model's name at the API; None if the URL contains it.
        messages: The conversation.
        parameters: All other fields.

    Raises:
        TypeError: A message or parameter cannot be written as JSON.
    """
    named = {} if model is None else {"model": model}
    # Remove turns in the native form of another API.
    said = [
        {name: value for name, value in one.items() if name != NATIVE} if NATIVE in one else one
        for one in messages
    ]
    return _encoder.encode({**named, "messages": said, **parameters})


_ENDS_IN_CALLS = frozenset({None, "tool_calls"})


def reply_of(
    choices: Sequence[Choice], completion: Completion, usage: Usage, lane: str, latency_s: float
) -> Reply | Failure:
    """Build the reply from complete messages, or return the failure in one of the choices.

    The outcome `refused` counts as a failure only if the first choice has it.

    Args:
        choices: One or more choices with their messages.
        completion: The answer that contains the id and the model's name.
        usage: The token counts.
        lane: The lane that answered.
        latency_s: The latency of the answer, in seconds.
    """
    found: list[Reply] = []
    for choice in choices:
        message = choice.said or WireMessage()
        found.append(
            Reply(
                text=message.text or message.refusal or "",
                reasoning=message.reasoning_content or message.reasoning,
                tool_calls=tuple(
                    ToolCall(one.id or "", one.function.name or "", one.function.arguments_text)
                    for one in message.tool_calls or ()
                ),
                finish_reason=choice.finish_reason,
                tokens_in=usage.count("prompt_tokens"),
                tokens_out=_tokens_out(usage),
                lane=lane,
                latency_s=latency_s,
                refusal=message.refusal or None,
                reasoning_tokens=usage.count("reasoning_tokens", "completion_tokens_details"),
                cached_tokens=usage.count("cached_tokens", "prompt_tokens_details"),
                id=part_of(completion.id, str, "id"),
                model=part_of(completion.model, str, "model"),
                stop_reason=choice.finish_reason,
            )
        )
    first, *others = found
    first = replace(first, others=tuple(others)) if others else first
    if first.finish_reason in _ENDS_IN_CALLS and not first.tool_calls:
        # Copilot sends the tool calls of a message in a separate choice.
        calls = tuple(call for one in others for call in one.tool_calls)
        first = replace(first, tool_calls=calls)
    for choice in choices:
        failure = choice.failure
        if failure is not None and (choice is choices[0] or failure.outcome != "refused"):
            return replace(failure, came=first)
    return first


def _tokens_out(usage: Usage) -> int | None:
    """The number of tokens, not counting the prompt.

    xAI and Gemini's OpenAI-compatible endpoint include reasoning tokens only in `total_tokens`.
    """
    n_in, n_out = usage.count("prompt_tokens"), usage.count("completion_tokens")
    total = usage.count("total_tokens")
    if n_in is None or n_out is None or total is None:
        return n_out
    return max(n_out, total - n_in)


@dataclass(slots=True)
class _Call:
    index: int
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    n_looks: int = 0

    def is_over(self, piece: WireToolCall) -> bool:
        """Whether a piece with the same index, or without an index, begins a new call.

        The signs of a new call are a new id together with a name, a different name, or arguments
        that follow the complete arguments of this call.
        """
        name = piece.function.name
        if piece.id and self.call_id:
            # Some servers use a new id for each piece.
            if name or piece.id == self.call_id:
                return piece.id != self.call_id
        elif not name or not self.name or name != self.name:
            return bool(name and self.name)
        # Each check reads all arguments, so limit the checks: some servers repeat the name.
        self.n_looks += 1
        whole = "".join(self.arguments) if self.n_looks <= _MOST_LOOKS else ""
        is_whole = part_of(whole, dict[str, msgspec.Raw]) is not None
        return is_whole and bool(piece.function.arguments)


_MOST_LOOKS = 20


@dataclass(slots=True)
class _Pieces:
    """The pieces of one choice: its texts by field, and its calls."""

    texts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    calls: list[_Call] = field(default_factory=list)
    known: dict[int | str, _Call] = field(default_factory=dict)
    has_delta: bool = False
    finish_reason: str | None = None

    def whole(self) -> Choice:
        """The whole choice, in the form that it has in an answer without streaming."""
        calls = [
            WireToolCall(None, call.call_id, Function(call.name, joined(call.arguments)))
            for call in sorted(self.calls, key=attrgetter("index"))
        ]
        said = WireMessage("", tool_calls=calls)
        for name, pieces in self.texts.items():
            setattr(said, name, joined(pieces))
        return Choice(message=said, finish_reason=self.finish_reason)


class ChatStream(EventStream["Completion"]):
    """The pieces of one answer that have arrived so far."""

    def __init__(self) -> None:
        super().__init__(_decoder, "chat completion")
        self._choices: dict[int, _Pieces] = {}
        self._named = Completion()
        self._usage = Usage()
        self._is_odd = self._is_text = False

    def _whole(self, lane: str, latency_s: float) -> Reply | Failure:
        if not self._choices:
            return self._cut_off()
        choices = [pieces.whole() for _, pieces in sorted(self._choices.items())]
        found = reply_of(choices, self._named, self._usage, lane, latency_s)
        # Some servers forget `[DONE]`, others the finish reason. If both are missing, the stream is
        # cut off. `[DONE]` after an event of unknown form, such as an error, does not count.
        is_over = (self._said_done and not self._is_odd) or any(
            one.finish_reason for one in choices
        )
        return found if isinstance(found, Failure) or is_over else self._cut_off(found)

    def one_body(self, reply: Reply) -> bytes:
        """The answer in the form that it has without streaming; also for `/completions`."""
        return as_one_body(reply, self._usage, is_text=self._is_text)

    def _take(self, event: Completion, now_s: float) -> None:
        for name in ("id", "model"):
            if (field := getattr(event, name)) is not NOTHING:
                setattr(self._named, name, field)
        self._usage.add(event.counted)
        self._is_odd |= event.choices is None and not event.counted
        for choice in event.choices or ():
            self._take_choice(choice, now_s)

    def _take_choice(self, choice: Choice, now_s: float) -> None:
        index = choice.index or 0
        if index not in self._choices and len(self._choices) >= MOST_TOOL_CALLS:
            self._fail(malformed(f"the stream has more than {MOST_TOOL_CALLS} choices"))
            return
        own = self._choices.setdefault(index, _Pieces())
        own.finish_reason = choice.finish_reason or own.finish_reason
        if (failure := choice.failure) is not None and failure.outcome != "refused":
            self._fail(failure)
        self._is_text |= choice.text is not None
        delta = choice.said
        if delta is None:
            return
        own.has_delta |= choice.delta is not None
        # Some servers repeat the whole message at the end. Skip fields that already came in pieces.
        is_again = own.has_delta and choice.delta is None
        reasoning = delta.reasoning_content or delta.reasoning
        said = {"content": delta.text, "reasoning": reasoning, "refusal": delta.refusal}
        for name, piece in said.items():
            if piece and not (is_again and own.texts[name]):
                own.texts[name].append(piece)
                self._note_token(now_s)
        for call in () if is_again and own.calls else delta.tool_calls or ():
            self._take_call(own, call)
            self._note_token(now_s)

    def _take_call(self, own: _Pieces, piece: WireToolCall) -> None:
        calls, known = own.calls, own.known
        last = calls[-1] if calls else None
        # Some servers send the same index for all calls or no index, or the id only in a call's
        # first piece.
        call = last if piece.index is None else known.get(piece.index)
        if piece.id and (call is not None or not piece.function.name):
            call = known.get(piece.id, call)
        if call is None or call.is_over(piece):
            if len(calls) >= MOST_TOOL_CALLS:
                self._fail(malformed(f"the stream has more than {MOST_TOOL_CALLS} tool calls"))
                return
            after = 0 if last is None else last.index + 1
            call = _Call(after if piece.index is None else piece.index)
            calls.append(call)
        known[call.index if piece.index is None else piece.index] = call
        call.call_id = call.call_id or piece.id or ""
        if call.call_id:
            known[call.call_id] = call
        call.name = call.name or piece.function.name or ""
        if arguments := piece.function.arguments_text:
            call.arguments.append(arguments)


class Function(msgspec.Struct):
    """The function of a tool call. Some servers send its arguments as an object, not JSON text."""

    name: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, which may be invalid; in a delta, a piece of that text."""
        if isinstance(self.arguments, dict):
            return _encoder.encode(self.arguments).decode()
        return self.arguments or ""


class WireToolCall(msgspec.Struct):
    """A tool call; in a delta, a piece of the call with this `index`."""

    index: int | None = None
    id: str | None = None
    function: Function = msgspec.field(default_factory=Function)


class Part(msgspec.Struct):
    """One part of a content list. Only text parts have a `text`."""

    text: str | None = None


class WireMessage(msgspec.Struct):
    """A message from the model, or what one piece of a stream adds to it.

    DeepSeek and older versions of vLLM call the reasoning `reasoning_content`, and newer versions
    of vLLM call it `reasoning`.
    """

    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[WireToolCall] | None = None
    error: msgspec.Raw = NOTHING

    @property
    def is_blank(self) -> bool:
        """Whether the message has no content; an empty string counts as content."""
        said = (self.content, self.reasoning_content, self.reasoning)
        return not (self.refusal or self.tool_calls) and all(one is None for one in said)

    @property
    def text(self) -> str:
        """The text of the content."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class Choice(msgspec.Struct):
    """One of the answers to a request. There are several if the request sets `n` above 1.

    In an answer from `/completions`, which SDKs may use, a choice has a `text` instead of a
    message.
    """

    index: int | None = None
    message: WireMessage | None = None
    delta: WireMessage | None = None
    finish_reason: str | None = None
    text: str | None = None
    error: msgspec.Raw = NOTHING
    usage: msgspec.Raw = NOTHING

    @property
    def said(self) -> WireMessage | None:
        """The message, or what one piece of a stream adds to it."""
        own = self.delta or self.message
        return WireMessage(content=self.text) if own is None and self.text is not None else own

    @property
    def failure(self) -> Failure | None:
        """The failure in this choice, or None. OpenRouter reports upstream errors in choices."""
        for one in (self, self.delta, self.message):
            if one is not None and is_error(one.error):
                return failure_in_answer(bytes(one.error))
        return broken_off(self.finish_reason)


class Completion(Answer):
    """A complete answer, or a piece of a stream.

    The first piece from Azure and the last piece from OpenAI have no choices.
    """

    choices: list[Choice] | None = None
    x_groq: Answer | None = None

    @property
    def counted(self) -> Usage:
        """The usage, which Moonshot sends in a choice and Groq in a field of its own.

        Empty if the answer contains no usage; such an answer is still valid.
        """
        holders = filter(None, (self, self.x_groq, *(self.choices or ())))
        found = (Usage.of(one.usage) for one in holders if not is_nothing(one.usage))
        return next(filter(None, found), Usage())


_decoder = msgspec.json.Decoder(Completion)
_encoder = msgspec.json.Encoder()
API = OpenAi()
