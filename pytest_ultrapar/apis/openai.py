"""OpenAI's chat-completions protocol, as Azure, vLLM and most gateways speak it too."""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pytest_ultrapar.apis.failure import Failure, classify_status
from pytest_ultrapar.apis.reply import Messages, Reply, ToolCall

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import LaneId


_LARGEST_BYTES = 1024 * 1024
"""Mending takes up to 13 times the text's size for a moment."""
_BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# A string without its end is one to the end of the text, or each quote in it would be tried anew.
_NO_NUMBER = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_NO_UTF8 = re.compile("[\udc80-\udcff]")


def sanitised(content: bytes) -> bytes | None:
    r"""JSON text that can be read and stored, or None where nothing was found to mend.

    Escapes of lone surrogates and bytes that are no UTF-8 become text that shows them: `\ud800`,
    `\xff`. Numbers that are none become null. A mark of the byte order at the beginning is left
    out.

    Args:
        content: JSON text, perhaps; above 1 MiB it is not looked at.
    """
    if len(content) > _LARGEST_BYTES:
        return None
    text = content.removeprefix(_BOM).decode("utf-8", "surrogateescape")
    whole = _NO_UTF8.sub(_shown_byte, text).encode()
    whole = _ESCAPE.sub(_shown_surrogate, whole)
    whole = _NO_NUMBER.sub(_string_or_null, whole)
    return whole if whole != content else None


def _string_or_null(match: re.Match[bytes]) -> bytes:
    return match[1] or b"null"


def _shown_byte(match: re.Match[str]) -> str:
    return f"\\\\x{ord(match[0]) - 0xDC00:02x}"


def _shown_surrogate(match: re.Match[bytes]) -> bytes:
    return match[0] if match[1] is None else b"\\\\" + match[1]


MOST_OBJECTS = 10_000
_SMALL_BYTES = 256 * 1024
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def has_too_many_objects(content: bytes) -> bool:
    """Whether a JSON text has more objects than an answer needs.

    16 MiB of `{},{},` would become 5.6 million objects of 100 bytes and more. A small text may hold
    what it likes: 256 KiB make 10 MB.
    """
    if len(content) <= _SMALL_BYTES or content.count(b"{") <= MOST_OBJECTS:
        return False
    # Braces are also what code is made of: only those outside strings are objects.
    return _STRING.sub(b"", content).count(b"{") > MOST_OBJECTS


_STATUS_OF_WORD = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "deploymentnotfound": 404,
    "model_not_found": 404,
    "overloaded_error": 529,
}
"""HTTP statuses that the words in `code` and `type` stand for."""


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None


_decoder = msgspec.json.Decoder(_Error)


def failure_in_answer(error: bytes) -> Failure:
    """The failure that an error object stands for, by the rules for HTTP errors.

    vLLM puts the HTTP status into `code`, OpenAI a word there and into `type`; what says neither is
    an error of the server. It may have been billed, since the provider had begun to answer.

    Args:
        error: The object as JSON.
    """
    status = _status(error)
    failure = classify_status(status, error, None)
    message = failure.message.replace("HTTP ", "an error in the answer, as HTTP ", 1)
    return replace(failure, message=message, maybe_billed=True)


def _status(error: bytes) -> int:
    try:
        found = _decoder.decode(error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return HTTPStatus.INTERNAL_SERVER_ERROR
    code = str(found.code)
    # An int of more than 4300 digits cannot be one; three digits are all that a status has.
    if len(code) == len("500") and code.isascii() and code.isdigit() and code[0] in "45":
        return int(code)
    for word in (code, found.type or ""):
        if (status := _STATUS_OF_WORD.get(word.lower())) is not None:
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


T = TypeVar("T")
PATH = "/chat/completions"
MODELS_PATH = "/models"
RESERVED = frozenset({"model", "messages", "stream", "stream_options"})
"""Parameters that a suite may not set: they are the client's own business."""
MOST_TOKENS = 10**9
"""Larger counts of one answer are not believed: a thousand times the longest context there is, and
sums of 10^9 such counts still fit in 64 bits."""


class Function(msgspec.Struct):
    """What a tool call calls; some servers send the arguments as an object, not as JSON text."""

    name: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text, perhaps broken; of a delta, a piece of it."""
        if isinstance(self.arguments, dict):
            return _encoder.encode(self.arguments).decode()
        return self.arguments or ""


class WireToolCall(msgspec.Struct):
    """A tool call, or in a delta a piece of one: `index` then says of which."""

    index: int | None = None
    id: str | None = None
    function: Function = msgspec.field(default_factory=Function)


class Part(msgspec.Struct):
    """One part of a content that is a list; only those of text have any."""

    text: str | None = None


class WireMessage(msgspec.Struct):
    """A message of the model, or what a piece of a stream adds to it.

    `reasoning_content` is DeepSeek's name and vLLM's older one, `reasoning` vLLM's newer one.
    """

    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[WireToolCall] | None = None

    @property
    def is_blank(self) -> bool:
        """Whether it holds nothing at all; an empty string is something that a model says."""
        said = (self.content, self.reasoning_content, self.reasoning)
        return not (self.refusal or self.tool_calls) and all(one is None for one in said)

    @property
    def text(self) -> str:
        """The content as text."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class Choice(msgspec.Struct):
    """One of the answers; we ask for one."""

    index: int | None = None
    message: WireMessage | None = None
    delta: WireMessage | None = None
    finish_reason: str | None = None


_NOTHING = msgspec.Raw(b"null")


class TokenDetails(msgspec.Struct):
    """Of which tokens there were how many."""

    reasoning_tokens: msgspec.Raw = _NOTHING


class Usage(msgspec.Struct):
    """What the API counted, unread: some gateways write 12.0, and no figure spoils an answer."""

    prompt_tokens: msgspec.Raw = _NOTHING
    completion_tokens: msgspec.Raw = _NOTHING
    completion_tokens_details: msgspec.Raw = _NOTHING

    @property
    def details(self) -> TokenDetails | None:
        """The details, where that is what stands there."""
        return _read(self.completion_tokens_details, TokenDetails)


_NO_USAGE = Usage()
_ENDS_WITHOUT_CONTENT = frozenset({"length", "content_filter", "function_call"})


class Completion(msgspec.Struct):
    """A whole answer or a piece of a stream. Azure's first and OpenAI's last have no choices."""

    choices: list[Choice] | None = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING
    object: str | None = None

    @property
    def counted(self) -> Usage | None:
        """The usage, if that is what stands there: an answer counts also without."""
        return _read(self.usage, Usage)


def _read(text: msgspec.Raw, kind: type[T]) -> T | None:
    """What a part of an answer says; None where it is something else or nothing."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


_openai_api_decoder = msgspec.json.Decoder(Completion)
_encoder = msgspec.json.Encoder()


def url(base_url: str) -> str:
    """Where requests go."""
    return base_url.rstrip("/") + PATH


def models_url(base_url: str) -> str:
    """Where the server lists its models."""
    return base_url.rstrip("/") + MODELS_PATH


def authentication(token: str) -> dict[str, str]:
    """The header that opens the door."""
    return {"authorization": f"Bearer {token}"}


def encode_request(model: str | None, messages: Messages, parameters: dict[str, Any]) -> bytes:
    """The request's body.

    Args:
        model: The name that the API knows; None where it stands in the URL.
        messages: The conversation.
        parameters: Everything else.

    Raises:
        TypeError: A message or parameter is nothing that JSON can hold.
    """
    if model is None:
        return _encoder.encode({"messages": list(messages), **parameters})
    return _encoder.encode({"model": model, "messages": list(messages), **parameters})


def parse_completion(content: bytes) -> Completion | Failure:
    """A completion or a piece of one, or what is wrong with it.

    Text that no file can hold comes back with it escaped (`mending.mended`).
    """
    if has_too_many_objects(content):
        return _malformed(f"the answer holds more than {MOST_OBJECTS} objects")
    try:
        return _openai_api_decoder.decode(content)
    except RecursionError:
        return _malformed("the answer is no chat completion: it is nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        whole = sanitised(content)
        if whole is not None:
            return parse_completion(whole)
        return _malformed(f"the answer is no chat completion: {error}")


def decode_response(body: bytes, lane: LaneId, latency_s: float) -> Reply | Failure:
    """The reply in a 200 response, or what is wrong with it."""
    completion = parse_completion(body)
    if isinstance(completion, Failure):
        return completion
    if (failure := error_of(completion, body)) is not None:
        return failure
    if not completion.choices:
        return _malformed("the answer has no choices")
    choice = completion.choices[0]
    if choice.message is None:
        return _malformed("the answer's choice has no message")
    if choice.message.is_blank and not _may_be_blank(choice, completion.counted):
        return _malformed("the answer's message has no content, not even an empty one")
    calls: tuple[ToolCall, ...] = ()
    if choice.message.tool_calls:
        calls = tuple(
            ToolCall(call.id or "", call.function.name or "", call.function.arguments_text)
            for call in choice.message.tool_calls
        )
    return reply_of(choice, calls, completion.counted, lane, latency_s)


def _may_be_blank(choice: Choice, usage: Usage | None) -> bool:
    """Whether the model itself may have left its message without content.

    OpenAI and DeepSeek: `content` is null beside a call, a refusal, reasoning, or an early end. Its
    tokens may also all have gone into reasoning that the API does not show.
    """
    details = usage.details if usage is not None else None
    return choice.finish_reason in _ENDS_WITHOUT_CONTENT or bool(
        details is not None and details.reasoning_tokens
    )


def error_of(completion: Completion, content: bytes) -> Failure | None:
    """The failure for which an answer of status 200 or a piece of it stands, if it is an error."""
    if completion.error is not _NOTHING and bytes(completion.error) != b"null":
        return failure_in_answer(bytes(completion.error))
    return failure_in_answer(content) if completion.object == "error" else None


def reply_of(
    choice: Choice,
    tool_calls: tuple[ToolCall, ...],
    usage: Usage | None,
    lane: LaneId,
    latency_s: float,
) -> Reply | Failure:
    """The reply that a choice with a whole message is, unless the provider stopped it."""
    message = choice.message or WireMessage()
    if choice.finish_reason == "content_filter":
        return Failure(
            "refused", "the provider's content filter stopped the answer", "content_filter"
        )
    usage = usage or _NO_USAGE
    details = usage.details
    return Reply(
        text=message.text or message.refusal or "",
        reasoning=message.reasoning_content or message.reasoning,
        tool_calls=tool_calls,
        finish_reason=choice.finish_reason,
        tokens_in=_count(usage.prompt_tokens),
        tokens_out=_count(usage.completion_tokens),
        lane=lane,
        latency_s=latency_s,
        refusal=message.refusal or None,
        reasoning_tokens=None if details is None else _count(details.reasoning_tokens),
    )


def _count(figure: msgspec.Raw) -> int | None:
    """A number of tokens; None where none is said that can be believed."""
    try:
        number = float(bytes(figure))
    except ValueError:
        return None
    return int(number) if 0 <= number <= MOST_TOKENS else None


def _malformed(reason: str) -> Failure:
    return Failure("malformed", reason, maybe_billed=True)
