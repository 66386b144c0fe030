"""The broker's words on a socket: length-prefixed msgpack frames.

A frame is four bytes, the body's length in network order, and the body. The first frame of a client
is its `Hello`; everything else comes after the server's `Welcome`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_ultrapar.broker import protocol
from pytest_ultrapar.broker.assignment import Assignment

Role = Literal["worker", "controller"]

FRAME_BYTES = 16 * 1024 * 1024
"""An assignment names every case: some 800,000 fit. A longer frame is garbage."""
PREFIX_BYTES = 4
SIGN_S = 1.0
"""A worker sends something at least this often while its loop runs."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Who connects. `worker` is a name of its own per connection."""

    token: str
    worker: str
    role: Role = "worker"

    def __repr__(self) -> str:
        return f"Hello(worker={self.worker!r}, role={self.role!r})"


class Acquire(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A wish for a lease."""

    request: protocol.LeaseRequest


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The wish is void. A grant may be under way: the client gives that lease back."""

    request_id: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A lease comes back."""

    lease_id: int
    outcome: protocol.LeaseOutcome
    feedback: protocol.Feedback = protocol.NO_FEEDBACK


class EpisodesOver(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Cases need no further lease."""

    case_ids: tuple[str, ...]


class Assign(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """An assignment to carry out; for controllers only."""

    assignment: Assignment


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A wish for a snapshot."""


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Nothing but a sign that the client's loop runs."""


class AskSigns(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A wish to know when each worker gave its last sign; for controllers only."""


class SentLate(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The request of a lease is sent so long after its grant."""

    lease_id: int
    late_s: float


class Pay(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A wish to have the money for the request of a lease reserved."""

    lease_id: int
    most: protocol.Most


class HoldClaims(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Until when the claims of this host hold (`LaneBroker.hold_claims`); for controllers only."""

    until_s: float
    taken: list[str] = []
    again: list[str] = []


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The handshake is done."""


class Assigned(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The assignment is in force, or why it is not."""

    error: str | None


class StatusNow(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The snapshot asked for."""

    status: protocol.BrokerStatus


class Signs(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """When anything last came from each connected worker, monotonic seconds of the host."""

    heard_s: dict[str, float]


class Paid(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Whether it is."""

    is_paid: bool


ClientMessage = (
    Hello
    | Acquire
    | Withdraw
    | Release
    | EpisodesOver
    | Assign
    | AskStatus
    | Alive
    | AskSigns
    | SentLate
    | Pay
    | HoldClaims
)
Answer = Assigned | StatusNow | Signs | Paid
"""Of a client that asks; answers come in the order in which it asked."""
ServerMessage = Welcome | protocol.Grant | protocol.Refusal | Answer

MAY_SAY = {
    "worker": (Acquire, Withdraw, Release, EpisodesOver, AskStatus, Alive, SentLate, Pay),
    "controller": (EpisodesOver, Assign, AskStatus, AskSigns, HoldClaims),
}
"""What a client may say after its `Hello`, by its role."""


_encoder = msgspec.msgpack.Encoder()


class FrameError(ValueError):
    """A frame is longer than allowed."""


def append_frame(buffer: bytearray, message: ClientMessage | ServerMessage) -> None:
    """Add one frame to a buffer."""
    start = len(buffer)
    buffer += bytes(PREFIX_BYTES)
    _encoder.encode_into(message, buffer, -1)
    n_body = len(buffer) - start - PREFIX_BYTES
    buffer[start : start + PREFIX_BYTES] = n_body.to_bytes(PREFIX_BYTES, "big")


class FrameReader:
    """Cuts a stream of bytes into frames; a frame that is too long is never collected."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Add bytes as they came."""
        self._buffer += chunk

    def next_frame(self) -> bytes | None:
        """The next whole body, or None when it has not arrived yet.

        Raises:
            FrameError: When the frame to come is longer than allowed.
        """
        buffer = self._buffer
        if len(buffer) < PREFIX_BYTES:
            return None
        n_body = int.from_bytes(buffer[:PREFIX_BYTES], "big")
        if n_body > FRAME_BYTES:
            raise FrameError(f"a frame of {n_body} bytes; at most {FRAME_BYTES} are allowed")
        end = PREFIX_BYTES + n_body
        if len(buffer) < end:
            return None
        body = bytes(buffer[PREFIX_BYTES:end])
        # CPython moves the start of a bytearray instead of its bytes, so this costs no copy per
        # frame.
        del buffer[:end]
        return body
