"""What an error says of itself: its codes and its message, and nothing that it quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

_LOOKED_AT = 16_384
_ADDRESS = re.compile(r"https?://\S+")
_QUOTED_INPUT = re.compile(r"""['"]input['"]: .*""", re.DOTALL)
"""From here on a validation error of pydantic, printed as a list of dicts, quotes the request."""
_NOT_THERE = msgspec.Raw()
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class ErrorSaid:
    """An error in its own words, all in lower case.

    Attributes:
        codes: Its code, type and status, and those of the error within it.
        message: Its message, without addresses and without what it quotes of the request.
    """

    codes: frozenset[str]
    message: str

    @property
    def text(self) -> str:
        """The codes and the message, in one."""
        return " ".join([*sorted(self.codes), self.message])


class _Fields(msgspec.Struct):
    """Whatever else an error has is skipped: a quoted prompt may be as large as an answer."""

    error: msgspec.Raw = _NOT_THERE
    detail: msgspec.Raw = _NOT_THERE
    message: msgspec.Raw = _NOT_THERE
    code: msgspec.Raw = _NOT_THERE
    type: msgspec.Raw = _NOT_THERE
    status: msgspec.Raw = _NOT_THERE
    innererror: msgspec.Raw = _NOT_THERE
    inner_error: msgspec.Raw = _NOT_THERE


_body_decoder = msgspec.json.Decoder(_Fields | list[_Fields])
_fields_decoder = msgspec.json.Decoder(_Fields)
_word_decoder = msgspec.json.Decoder(str | int)


def read_error(body: bytes) -> ErrorSaid:
    """What the body of a response that is an error says.

    Of JSON only the error's own fields are read, under `error`, `detail` or at the top, as OpenAI,
    Azure, vLLM and FastAPI have them. What is no JSON is all message.

    Args:
        body: Of any content and size.
    """
    try:
        found = _body_decoder.decode(body)
    except _UNREADABLE:
        return ErrorSaid(frozenset(), _plain(body[:_LOOKED_AT].decode("utf-8", "replace")))
    if isinstance(found, list):
        found = found[0] if found else _Fields()
    error = _object(found.error) or _object(found.detail) or found
    inner = _object(error.innererror) or _object(error.inner_error)
    words = [
        _word(raw)
        for source in (error, inner)
        if source is not None
        for raw in (source.code, source.type, source.status)
    ]
    codes = frozenset(word.lower() for word in words if word)
    texts = (_word(raw) for raw in (error.message, error.detail, error.error))
    return ErrorSaid(codes, " ".join(_plain(text) for text in texts if text))


def _object(raw: msgspec.Raw) -> _Fields | None:
    try:
        return _fields_decoder.decode(raw)
    except _UNREADABLE:
        return None


def _word(raw: msgspec.Raw) -> str:
    try:
        return str(_word_decoder.decode(raw))[:_LOOKED_AT]
    except (*_UNREADABLE, ValueError):  # an int of more digits than Python prints
        return ""


def _plain(text: str) -> str:
    return _ADDRESS.sub(" ", _QUOTED_INPUT.sub(" ", text.lower()))
