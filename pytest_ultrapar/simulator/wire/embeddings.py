"""OpenAI's embeddings.

Source: the types of the official clients `openai` and `mistralai`.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from array import array
from typing import TYPE_CHECKING, Annotated

import msgspec

from pytest_ultrapar.apis.sanitise import UNREADABLE
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.exchange import Request
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.wire import openai

if TYPE_CHECKING:
    from pytest_ultrapar.simulator.answer import Scope
    from pytest_ultrapar.simulator.exchange import Completion
    from pytest_ultrapar.simulator.stream import Piece
    from pytest_ultrapar.simulator.wire.resource import Hollow


class _WireRequest(msgspec.Struct):
    input: openai.Prompts
    model: str | None = None
    encoding_format: str | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    output_dimension: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None


class _Details(msgspec.Struct):
    dimensions: int
    as_base64: bool


_decoder = msgspec.json.Decoder(_WireRequest)
_encode = msgspec.json.encode
_DIMENSIONS = 256
_WORD = re.compile(r"\w+")


class Embeddings:
    """See `wire.resource.Resource`."""

    api = openai.API

    def read(self, body: bytes, *, name: str | None, key: str, scope: Scope) -> Request | ApiError:
        """A request in which each text is a message of its own, and none is answered."""
        del key, scope
        try:
            wire = _decoder.decode(body)
        except UNREADABLE as error:
            return ApiError.bad_request(f"The body is no request for embeddings: {error}")
        texts = openai.texts(wire.input, "input")
        if isinstance(texts, ApiError):
            return texts
        api_name = name or wire.model
        if not api_name:
            return ApiError.bad_request("`model` is missing", param="model")
        if wire.encoding_format not in {None, "float", "base64"}:
            said = "`encoding_format` must be `float` or `base64`"
            return ApiError.bad_request(said, param="encoding_format")
        n = wire.dimensions or wire.output_dimension or _DIMENSIONS
        return Request(
            api_name,
            [ChatMessage("user", text) for text in texts],
            n=0,
            apart=True,
            details=_Details(n, wire.encoding_format == "base64"),
        )

    def whole(self, request: Request, completion: Completion) -> bytes:
        """A vector for each text."""
        details: _Details = request.details
        vectors = [vector_of(one.content, details.dimensions) for one in request.messages]
        usage = {"prompt_tokens": completion.usage.n_in, "total_tokens": completion.usage.n_in}
        return _encode(
            {
                "object": "list",
                # Not OpenAI's; Mistral's client insists on it.
                "id": f"embd-{completion.name}",
                "model": request.api_name,
                "data": [
                    {
                        "object": "embedding",
                        "index": index,
                        "embedding": _packed(vector) if details.as_base64 else vector.tolist(),
                    }
                    for index, vector in enumerate(vectors)
                ],
                "usage": usage,
            }
        )

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """All at once; no request asks for less."""
        return ((1.0, self.whole(request, completion)),)

    def hollow(self, form: Hollow) -> bytes:
        """A list without vectors, or with one that is none."""
        data: dict[Hollow, list[dict[str, object]]] = {
            "empty-choices": [],
            "no-message": [{"object": "embedding", "index": 0}],
            "null-content": [{"object": "embedding", "index": 0, "embedding": None}],
        }
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return _encode({"object": "list", "model": "m", "data": data[form], "usage": usage})


RESOURCE = Embeddings


def vector_of(text: str, dimensions: int) -> array[float]:
    """A vector of length 1 that depends on the text alone.

    Each word adds or takes away one in a place of its own, so that texts with words in common are
    near each other, as retrieval expects.

    Source: Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009, section 2.
    """
    vector = array("f", bytes(4 * dimensions))
    for word in _WORD.findall(text.lower()) or [text]:
        drawn = zlib.crc32(word.encode("utf-8", "replace"))
        vector[(drawn >> 1) % dimensions] += 1.0 if drawn & 1 else -1.0
    length = math.sqrt(sum(one * one for one in vector))
    if not length:
        # Two words took each other away.
        vector[zlib.crc32(text.encode("utf-8", "replace")) % dimensions] = length = 1.0
    return array("f", (one / length for one in vector))


def _packed(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode()
