"""Clients of the broker's process that lie, send garbage or fall silent."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.broker.blocking_client import BlockingBrokerClient
from pytest_ultrapar.broker.client import connect_broker
from pytest_ultrapar.broker.process import BrokerProcess
from pytest_ultrapar.broker.protocol import LeaseRequest
from tests.engine.broker_at_work import PATIENCE_S, assert_served, fresh_name, play, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running(tmp_path) as process:
        yield process


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One process for all hostile clients: no client may harm the tests after it."""
    with running(tmp_path_factory.mktemp("shared")) as process:
        yield process


def raw(broker: BrokerProcess) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(PATIENCE_S)
    client.connect(str(broker.path))
    return client


def say(client: socket.socket, *messages: wire.ClientMessage) -> None:
    frame = bytearray()
    for message in messages:
        wire.append_frame(frame, message)
    client.sendall(frame)


def is_closed_by_the_server(client: socket.socket) -> bool:
    """Whether the server ends the connection; data before the end is discarded."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("name", ["gw0", ""])
def test_name_in_use_and_empty_name_are_refused(broker, name):
    async def story() -> None:
        first = await connect_broker(broker.path, broker.token, "gw0")
        with pytest.raises(ConnectionError, match="the token is wrong or the name is in use"):
            await connect_broker(broker.path, broker.token, name)
        assert await first.acquire(LeaseRequest(1, "m"))
        await first.close()

    play(story())


def test_wrong_token_is_refused_and_not_shown(shared):
    async def story() -> None:
        with pytest.raises(ConnectionError) as refused:
            await connect_broker(shared.path, "0" * 64, fresh_name())
        assert shared.token not in str(refused.value)

    play(story())
    with pytest.raises(ConnectionError):
        BlockingBrokerClient(shared.path, "")
    assert_served(shared)


GARBAGE = {
    "noise": bytes(reversed(range(256))) * 8,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "huge": (2**32 - 1).to_bytes(4, "big"),
    "just too long": (wire.FRAME_BYTES + 1).to_bytes(4, "big"),
    "empty frame": bytes(4),
    "wrong type": (3).to_bytes(4, "big") + b"\x93\x01\x02",
    "nested": (60_000).to_bytes(4, "big") + b"\x91" * 60_000,
    "bad text": (4).to_bytes(4, "big") + b"\xa3\xff\xfe\xfd",
}


@pytest.mark.parametrize("before_hello", [True, False], ids=["stranger", "worker"])
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_ends_only_that_connection(shared, garbage, before_hello):
    witness, client = raw(shared), raw(shared)
    say(witness, wire.Hello(shared.token, fresh_name()))
    if not before_hello:
        say(client, wire.Hello(shared.token, fresh_name()), wire.Acquire(LeaseRequest(1, "m")))
    client.sendall(garbage)
    assert is_closed_by_the_server(client)
    say(witness, wire.AskStatus())
    assert witness.recv(65536)
    witness.close()
    client.close()
    assert_served(shared)


FORBIDDEN: dict[str, list[wire.ClientMessage]] = {
    "assign as worker": [wire.Assign(Assignment())],
    "hello twice": [wire.Hello("", "gw9")],
    "request id twice": [wire.Acquire(LeaseRequest(n, "m")) for n in (0, 1, 2, 3, 3)],
}


@pytest.mark.parametrize("messages", FORBIDDEN.values(), ids=FORBIDDEN)
def test_forbidden_messages_end_the_connection(shared, messages):
    client = raw(shared)
    say(client, wire.Hello(shared.token, fresh_name()), *messages)
    assert is_closed_by_the_server(client)
    client.close()
    assert_served(shared)


@pytest.mark.parametrize(
    "message",
    [wire.Acquire(LeaseRequest(1, "m")), wire.Release(1, "ok"), wire.Withdraw(1)],
    ids=["acquire", "release", "withdraw"],
)
def test_controller_has_no_leases_even_under_a_workers_name(shared, message):
    worker, impostor = raw(shared), raw(shared)
    name = fresh_name()
    say(worker, wire.Hello(shared.token, name), wire.Acquire(LeaseRequest(1, "m")))
    assert worker.recv(65536)
    say(impostor, wire.Hello(shared.token, name, "controller"), message)
    assert is_closed_by_the_server(impostor)
    worker.close()
    impostor.close()
    assert_served(shared)


def test_half_a_frame_and_silence_delay_no_other_client(shared):
    client = raw(shared)
    client.sendall(b"\x00\x00")
    assert_served(shared)
    client.close()
