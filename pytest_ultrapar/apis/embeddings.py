"""Read the usage in answers from `/embeddings`; only the SDK needs the vectors."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.apis.answer_reading import NOTHING, Answer, Usage, answered, malformed
from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.openai import ChatStream
from pytest_ultrapar.apis.reply import Reply


class Embeddings:
    """The `registry.Reader` for embeddings."""

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """A reply without text.

        The vectors are not decoded: there may be 2,000 vectors, with 3,072 numbers each.
        """
        found = answered(body, _decoder, "list of embeddings")
        if isinstance(found, Failure):
            return found
        if not bytes(found.data).startswith(b"["):
            return malformed("the answer has no list of embeddings")
        tokens_in = Usage.of(found.usage).count("prompt_tokens")
        tokens_out = None if tokens_in is None else 0
        return Reply("", None, (), None, tokens_in, tokens_out, lane, latency_s)

    def stream(self) -> ChatStream:
        """A chat stream. Embeddings are never streamed, so reading any stream fails."""
        return ChatStream()


class _Embeddings(Answer):
    data: msgspec.Raw = NOTHING


_decoder = msgspec.json.Decoder(_Embeddings)
API = Embeddings()
