"""The messages between the broker and its clients on a socket: length-prefixed msgpack frames.

A frame consists of the body's length (four bytes, in network byte order) and the body. A client's
first frame is its `Hello`, and the server's first frame is its `Welcome`. Only then may either of
them send other frames.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from pytest_ultrapar.broker import protocol
from pytest_ultrapar.broker.assignment import Assignment

Role = Literal["worker", "controller"]

FRAME_BYTES = 16 * 1024 * 1024
"""The maximum length of a body, in bytes. An assignment lists every case, so it can have up to
about 800,000 cases."""
PREFIX_BYTES = 4
SIGN_S = 1.0
"""The maximum number of seconds between two messages from a worker whose event loop is running."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """A client introduces itself. Each connection uses a different `worker`."""

    token: str
    worker: str
    role: Role = "worker"

    def __repr__(self) -> str:
        return f"Hello(worker={self.worker!r}, role={self.role!r})"


class Acquire(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A request for a lease."""

    request: protocol.LeaseRequest


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A request is withdrawn. If its grant is already on the way, the client returns the lease."""

    request_id: int


class Release(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A lease is given back."""

    lease_id: int
    outcome: protocol.LeaseOutcome
    feedback: protocol.Feedback = protocol.NO_FEEDBACK


class EpisodesOver(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """These cases need no more leases."""

    case_ids: tuple[str, ...]


class Assign(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """An assignment to carry out. Only controllers may send it."""

    assignment: Assignment


class AskStatus(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A request for a snapshot of the broker."""


class Alive(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A heartbeat: the client's event loop is running."""


class AskSigns(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Asks when each worker last sent data. Only controllers may send it."""


class SentLate(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """Reports how long after the grant of a lease its request was sent."""

    lease_id: int
    late_s: float


class Pay(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Asks the broker to reserve money for the request that a lease is used for."""

    lease_id: int
    most: protocol.TokenBounds


class HoldClaims(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Reports when this host's claims end (`LaneBroker.hold_claims`). Only controllers send it."""

    until_s: float
    taken: list[str] = []
    again: list[str] = []


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The handshake was successful."""


class Assigned(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Whether the assignment is in effect. `error` is None, or the reason why it is not."""

    error: str | None


class StatusNow(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The requested snapshot."""

    status: protocol.BrokerStatus


class Signs(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """When each connected worker last sent data, in seconds on the host's monotonic clock."""

    heard_s: dict[str, float]


class Paid(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Whether the money is reserved."""

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
"""The answers to `Assign`, `AskStatus`, `AskSigns` and `Pay`. The server sends the answers in the
order in which it received these messages."""
ServerMessage = Welcome | protocol.Grant | protocol.Refusal | Answer

MAY_SAY = {
    "worker": (Acquire, Withdraw, Release, EpisodesOver, AskStatus, Alive, SentLate, Pay),
    "controller": (EpisodesOver, Assign, AskStatus, AskSigns, HoldClaims),
}
"""The messages that a client may send after its `Hello`, by role."""


_encoder = msgspec.msgpack.Encoder()


class FrameError(ValueError):
    """A frame is longer than allowed."""


def append_frame(buffer: bytearray, message: ClientMessage | ServerMessage) -> None:
    """Append a message to a buffer, as one frame."""
    start = len(buffer)
    buffer += bytes(PREFIX_BYTES)
    _encoder.encode_into(message, buffer, -1)
    n_body = len(buffer) - start - PREFIX_BYTES
    buffer[start : start + PREFIX_BYTES] = n_body.to_bytes(PREFIX_BYTES, "big")


class FrameReader:
    """Splits a stream of bytes into frames. A frame that is too long is rejected at its prefix."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Add received bytes."""
        self._buffer += chunk

    def next_frame(self) -> bytes | None:
        """Remove the next frame and return its body; None if it has not completely arrived yet.

        Raises:
            FrameError: The next frame is longer than allowed.
        """
        buffer = self._buffer
        if len(buffer) < PREFIX_BYTES:
            return None
        n_body = int.from_bytes(buffer[:PREFIX_BYTES], "big")
        if n_body > FRAME_BYTES:
            raise FrameError(f"a frame has {n_body} bytes, but the maximum is {FRAME_BYTES}")
        end = PREFIX_BYTES + n_body
        if len(buffer) < end:
            return None
        body = bytes(buffer[PREFIX_BYTES:end])
        # CPython moves only the start of the bytearray, so this does not copy the rest.
        del buffer[:end]
        return body
