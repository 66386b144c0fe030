from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.broker import wire
from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.broker.process import ServerConfig
from pytest_ultrapar.broker.protocol import (
    BrokerStatus,
    Feedback,
    Grant,
    Lease,
    LeaseRequest,
    Refusal,
    TokenBounds,
)
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.pool.model import Limit
from tests.broker_play import Play
from tests.pools import lane, pool

LEASE = Lease(7, "p/a/k0", 1.5, 2.0, 0.25, 0.0, 3)
CLIENT_MESSAGES = [
    wire.Hello("token", "gw0"),
    wire.Acquire(LeaseRequest(1, "modèle", "g", opens=True, lane=None, case_id="c")),
    wire.Withdraw(1),
    wire.Release(7, "rate", Feedback(2.5, "tokens", 12, Allowance(600.0, 1e5))),
    wire.EpisodesOver(("c", "d")),
    wire.Assign(Assignment({"gw0": ("p/a/k0",)}, (Group("g", ("c",), at_once=2),))),
    wire.AskStatus(),
    wire.Acquire(LeaseRequest(1, "m", most=TokenBounds(5, 6))),
    wire.Pay(7, TokenBounds(12, 34, 1)),
]
SERVER_MESSAGES = [
    wire.Welcome(),
    Grant("gw0", 1, LEASE),
    Refusal("gw0", 1, "no lane"),
    wire.Assigned(None),
    wire.Paid(True),
    wire.StatusNow(BrokerStatus(1.0, 0, 0, 0, 0, [])),
]


def frames(messages: list) -> bytearray:
    buffer = bytearray()
    for message in messages:
        wire.append_frame(buffer, message)
    return buffer


def read_all(reader: wire.FrameReader) -> list[bytes]:
    bodies = []
    while (body := reader.next_frame()) is not None:
        bodies.append(body)
    return bodies


@given(cuts=st.lists(st.integers(0, 400), max_size=20))
def test_messages_survive_any_cut_of_the_stream(cuts):
    for messages, kind in (
        (CLIENT_MESSAGES, wire.ClientMessage),
        (SERVER_MESSAGES, wire.ServerMessage),
    ):
        stream = bytes(frames(messages))
        edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
        reader = wire.FrameReader()
        bodies = []
        for start, end in itertools.pairwise(edges):
            reader.feed(stream[start:end])
            bodies += read_all(reader)
        assert [msgspec.msgpack.decode(body, type=kind) for body in bodies] == messages


def test_huge_frame_is_refused_at_its_prefix(monkeypatch):
    monkeypatch.setattr(wire, "FRAME_BYTES", 1000)
    reader = wire.FrameReader()
    reader.feed((1001).to_bytes(4, "big"))
    with pytest.raises(wire.FrameError, match="1001 bytes, but the maximum is 1000"):
        reader.next_frame()


def test_frame_of_exactly_the_allowed_length_is_read(monkeypatch):
    monkeypatch.setattr(wire, "FRAME_BYTES", 1000)
    reader = wire.FrameReader()
    reader.feed((1000).to_bytes(4, "big") + bytes(1000))
    assert reader.next_frame() == bytes(1000)
    assert reader.next_frame() is None


def test_status_of_a_real_broker_survives_the_wire():
    play = Play(pool([lane("a", "k0", "k0")], Limit("k0", "key", 1)))
    play.back(play.ask(), "rate", 600.0)
    status = play.broker.status(play.now_s)
    body = read_all(_fed(frames([wire.StatusNow(status)])))[0]
    assert msgspec.msgpack.decode(body, type=wire.ServerMessage) == wire.StatusNow(status)


def _fed(stream: bytearray) -> wire.FrameReader:
    reader = wire.FrameReader()
    reader.feed(bytes(stream))
    return reader


def test_pool_survives_the_first_line():
    of = pool([lane("a", "k0", "k0", grace_s=2.0)], Limit("k0", "key", 2, qps=0.5, rpm=None))
    config = ServerConfig(BrokerSettings(of, 3.0), "/run/s", "token")
    line = msgspec.json.encode(config)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=ServerConfig) == config


def test_no_repr_contains_the_token():
    of = pool([lane("a", "k0")])
    assert "s3cret" not in repr(wire.Hello("s3cret", "gw0"))
    assert "s3cret" not in repr(ServerConfig(BrokerSettings(of), "/run/s", "s3cret"))
