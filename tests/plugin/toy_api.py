"""An API that differs from the others in all respects: a new API needs only such a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pytest_ultrapar.apis.failure import Failure
from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.apis.reply import Reply


class ToyStream:
    def __init__(self) -> None:
        self.done = False
        self.t_first_token_s: float | None = None
        self._text = b""

    def feed(self, piece: bytes, now_s: float) -> None:
        if self.t_first_token_s is None:
            self.t_first_token_s = now_s
        self._text += piece
        self.done = piece.endswith(b".")

    def end(self, now_s: float) -> None:
        self.done = True

    def reply(self, lane: str, latency_s: float) -> Reply | Failure:
        return API.reply(b"3 4 " + self._text, lane, latency_s)


class Toy:
    version_example = None
    endpoint_noun = "toy"
    base_url_hint = ""
    streamed: ClassVar = {"stream": "yes"}

    def flaw_of(self, base_url: str) -> str | None:
        return None if base_url.endswith("/toys") else "must end in /toys"

    def url(self, base_url: str, name: str, version: str | None) -> str:
        return f"{base_url}/{name}"

    def headers(self, token: str) -> dict[str, str]:
        return {"x-toy-key": token, "content-type": "text/plain"}

    def request(self, name, messages, parameters: Mapping[str, object]) -> bytes:
        said = [f"{one['role']}: {one['content']}" for one in messages]
        given = [f"{field}={value}" for field, value in sorted(parameters.items())]
        return "\n".join([*given, *said]).encode()

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        n_in, n_out, text = body.decode().split(" ", 2)
        return Reply(text, None, (), "stop", int(n_in), int(n_out), lane, latency_s)

    def stream(self) -> ToyStream:
        return ToyStream()

    def failure(
        self, status: int, body: bytes, headers: Mapping[str, str], *, epoch_s: float
    ) -> Failure:
        assert status == 418
        return Failure("rate", "too many toys", retry_after_s=0.01)

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        return None


API = Toy()
