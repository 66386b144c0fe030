"""A client of the broker's process, for a controller without an event loop."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, TypeVar

import msgspec

from pytest_ultrapar.broker import wire
from pytest_ultrapar.errors import BrokerGoneError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.broker.protocol import BrokerStatus


Answer = TypeVar("Answer")
READ_BYTES = 1 << 16
_ANSWER_S = 30.0
"""How long to wait for one answer, in seconds."""


class BlockingBrokerClient:
    """Sends requests to the broker's process and waits for the answers; threads take turns."""

    def __init__(self, path: str | Path, token: str, *, name: str = "controller") -> None:
        """Connect as a controller.

        Args:
            path: The broker's socket.
            token: The broker's token.
            name: The name of this client. It appears only in messages.

        Raises:
            BrokerGoneError: No broker listens on the socket, or the token is wrong.
        """
        self._lock = threading.Lock()
        self._reader = wire.FrameReader()
        self._decoder = msgspec.msgpack.Decoder(wire.ServerMessage)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_ANSWER_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise BrokerGoneError(
                f"no broker is listening at {path}: {error.strerror or error}"
            ) from error
        self._ask(wire.Hello(token, name, "controller"), wire.Welcome)

    def assign(self, assignment: Assignment) -> None:
        """Apply an assignment.

        Raises:
            ConfigError: The broker's pool does not allow it.
            BrokerGoneError: The broker is gone.
        """
        error = self._ask(wire.Assign(assignment), wire.Assigned).error
        if error is not None:
            raise ConfigError(error)

    def status(self) -> BrokerStatus:
        """Return a snapshot of the run, for the progress line and the summary.

        Raises:
            BrokerGoneError: The broker is gone.
        """
        return self._ask(wire.AskStatus(), wire.StatusNow).status

    def signs(self) -> dict[str, float]:
        """When the broker last received data from each worker, on the host's monotonic clock.

        Raises:
            ConnectionError: The broker is gone.
        """
        return self._ask(wire.AskSigns(), wire.Signs).heard_s

    def episode_ended(self, case_id: str) -> None:
        """Report that a case needs no more leases, for example because its result is in a journal.

        Raises:
            BrokerGoneError: The broker is gone.
        """
        with self._lock:
            self._send(wire.EpisodesOver((case_id,)))

    def hold_claims(self, until_s: float, taken: Sequence[str], again: Sequence[str]) -> None:
        """Report when this host's claims on cases end (`LaneBroker.hold_claims`).

        Raises:
            BrokerGoneError: The broker is gone.
        """
        with self._lock:
            self._send(wire.HoldClaims(until_s, list(taken), list(again)))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._socket.close()

    def _ask(self, message: wire.ClientMessage, answer: type[Answer]) -> Answer:
        with self._lock:
            self._send(message)
            received = self._receive()
        if not isinstance(received, answer):
            raise BrokerGoneError(
                f"the broker answered {type(received).__name__} instead of {answer.__name__}"
            )
        return received

    def _send(self, message: wire.ClientMessage) -> None:
        frame = bytearray()
        wire.append_frame(frame, message)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            self.close()
            raise BrokerGoneError(f"the broker is gone: {error}") from error

    def _receive(self) -> wire.ServerMessage:
        try:
            while (frame := self._reader.next_frame()) is None:
                chunk = self._socket.recv(READ_BYTES)
                if not chunk:
                    raise ConnectionResetError("it closed the connection")
                self._reader.feed(chunk)
            answer: wire.ServerMessage = self._decoder.decode(frame)
        except (OSError, msgspec.MsgspecError, wire.FrameError) as error:
            self.close()
            raise BrokerGoneError(f"the broker is gone: {error}") from error
        return answer
