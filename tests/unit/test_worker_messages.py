"""What a worker sends comes out in the controller as it went in, in its order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from execnet.gateway_base import DumpError, dumps, loads

from pytest_ultrapar.session import worker, worker_messages
from pytest_ultrapar.session.worker import PrefetchQueue
from pytest_ultrapar.session.worker_messages import (
    Outbox,
    handle_packed,
    note_at,
    noted_at,
    receive_packed,
)

DATA = {
    "nodeid": "test_x.py::test[\u00e9]",
    "location": ("test_x.py", 3, "test"),
    "keywords": {"test": 1},
    "longrepr": ("test_x.py", 3, "Skipped: why"),
    "sections": [("Captured stdout", "text")],
    "user_properties": [],
    "duration": 0.25,
    "when": "call",
    "item_index": 7,
}
ITEM = [
    ("testreport", {"data": {**DATA, "when": "setup"}}),
    ("testreport", {"data": DATA}),
    ("testreport", {"data": {**DATA, "when": "teardown"}}),
    ("logfinish", {"nodeid": "one", "location": ("test_x.py", 3, "test")}),
    ("runtest_protocol_complete", {"item_index": 7, "duration": 0.5}),
]


class Wire:
    """Between an outbox and a controller, as execnet makes it.

    Attributes:
        arrived: The messages that the controller was given.
        queue: Its events, which are the messages here, or several packed as one.
        n_sent: How many went over the wire.
        starts: What had arrived whenever an item started.
    """

    def __init__(self):
        self.arrived = []
        self.queue = []
        self.n_sent = 0
        self.node = SimpleNamespace(process_from_remote=self.process, putevent=self.queue.append)
        receive_packed(self.node)
        self.starts = []
        self.outbox = Outbox(self.send, lambda: self.starts.append([*self.arrived]))

    def process(self, message):
        self.arrived.append(message)
        self.node.putevent(message)

    def send(self, name, **kwargs):
        self.n_sent += 1
        self.node.process_from_remote(loads(dumps((name, kwargs))))


@pytest.fixture
def late(monkeypatch):
    """Set when what is held has been held for long enough."""
    event = threading.Event()
    monkeypatch.setattr(worker_messages, "sleep", lambda _: event.wait())
    return event


@pytest.fixture
def wire(late):
    yield Wire()
    late.set()


def said(wire, messages):
    for name, kwargs in messages:
        wire.outbox.sendevent(name, **kwargs)


START = ("logstart", {"nodeid": "two", "location": ("test_x.py", 4, "test")})


def test_items_are_one_message_that_comes_a_little_later(wire, late):
    said(wire, [*ITEM, START, *ITEM, START])
    assert wire.n_sent == 0
    late.set()
    while not wire.queue:
        time.sleep(0.001)
    assert wire.arrived == [*ITEM, START, *ITEM, START]
    assert wire.n_sent == 1


def test_an_item_is_noted_before_anything_is_said_of_it(wire):
    wire.outbox.stop_holding()
    said(wire, [START, *ITEM])
    assert wire.starts == [[]]


def test_note_is_what_was_noted_last(tmp_path):
    note = note_at(tmp_path / "note")
    note(7)
    note(3)
    assert noted_at(tmp_path / "note") == 3


def test_note_of_who_ran_nothing_or_never_began(tmp_path):
    note_at(tmp_path / "note")
    assert [noted_at(tmp_path / "note") for _ in range(2)] == [-1, -1]
    assert not list(tmp_path.iterdir())


def test_what_is_held_goes_before_the_worker_waits(wire):
    said(wire, ITEM)
    wire.outbox.flush()
    wire.outbox.flush()
    assert wire.arrived == ITEM
    assert wire.n_sent == 1


def test_a_failure_is_told_at_once(wire):
    failed = ("testreport", {"data": {**DATA, "outcome": "failed"}})
    said(wire, [ITEM[0], failed])
    assert wire.arrived == [ITEM[0], failed]
    said(wire, ITEM[2:])
    assert wire.arrived == [ITEM[0], failed]


def test_nothing_of_the_last_item_is_held(wire):
    said(wire, ITEM)
    nothing_ready = SimpleNamespace(has_ready=True, take=lambda: None)
    queue = PrefetchQueue(nothing_ready, Future(), wire.outbox)
    queue.get()
    assert wire.arrived == ITEM
    for n, one in enumerate([START, *ITEM]):
        said(wire, [one])
        assert wire.arrived[len(ITEM) :] == [START, *ITEM][: n + 1]


def test_what_is_held_goes_before_the_engine_is_ended(wire, monkeypatch):
    # The loop of a worker that stops early (`-x`) asks for no further item.
    def stop():
        assert wire.arrived == ITEM
        return "stopped"

    monkeypatch.setattr(worker, "CtrlC", lambda _: SimpleNamespace(install=lambda: None))
    config = type("Config", (), {"workeroutput": {}})()
    session = worker.WorkerSession(config, {})
    session._outbox, session._prefetcher = wire.outbox, SimpleNamespace(stop=stop)
    said(wire, ITEM)
    session.pytest_sessionfinish(SimpleNamespace(config=config))
    assert config.workeroutput == {"shouldstop": "stopped"}


def test_an_item_is_one_event_and_carried_out_in_its_order(wire):
    dsession, done = SimpleNamespace(), []
    for name in {name for name, _ in ITEM}:
        setattr(dsession, f"worker_{name}", lambda name=name, **kwargs: done.append((name, kwargs)))
    handle_packed(dsession)
    finished = ("workerfinished", {"workeroutput": {"exitstatus": 0}})
    said(wire, [*ITEM, finished])
    (name, kwargs), last = wire.queue
    getattr(dsession, f"worker_{name}")(**kwargs)
    assert done == ITEM
    assert last == finished


def test_a_message_that_cannot_be_taken_apart_keeps_no_other_from_the_controller(wire):
    put = wire.node.putevent

    def process(message):
        if message == ITEM[1]:
            raise KeyboardInterrupt
        wire.node.putevent(message)

    wire.node.process_from_remote = process
    receive_packed(wire.node)
    said(wire, ITEM)
    with pytest.raises(KeyboardInterrupt):
        wire.outbox.flush()
    assert wire.queue == [("ultrapar_packed", {"events": [ITEM[0]]})]
    assert wire.node.putevent == put
    wire.node.process_from_remote(START)
    assert wire.queue[1:] == [START]


def test_xdists_end_marker_gets_through(wire):
    end = object()
    wire.node.process_from_remote(end)
    assert wire.arrived == [end]


@pytest.mark.parametrize("strange", [object(), DATA.keys()])
def test_what_cannot_be_sent_is_as_loud_as_without_an_outbox(wire, strange):
    said(wire, ITEM[:1])
    wire.outbox.sendevent("testreport", data={**DATA, "strange": strange})
    with pytest.raises(DumpError, match="can't serialize"):
        wire.outbox.sendevent(START[0], **START[1])
    assert wire.arrived == ITEM[:1]


class Text(str):
    """As enum members and many libraries' own texts are."""


@pytest.mark.parametrize(
    "strange",
    [
        np.float64(0.5),
        np.bool_(True),
        np.array([0.5, 1.0]),
        Text("text"),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize(
    "place",
    [
        lambda one: {**DATA, "user_properties": one},
        lambda one: {**DATA, "user_properties": [("score", one)]},
        lambda one: {**DATA, "user_properties": {"a": (one,)}},
    ],
    ids=["bare", "in a pair", "in a mapping"],
)
def test_report_with_anything_but_plain_values_is_left_to_execnet(strange, place):
    # marshal takes whatever has a buffer, and gives bytes back.
    sent = []
    data = place(strange)
    outbox = Outbox(lambda name, **kwargs: sent.append((name, kwargs)), list)
    outbox.sendevent("testreport", data=data)
    outbox.flush()
    ((name, kwargs),) = sent
    assert name == "testreport"
    assert kwargs["data"] is data


@pytest.mark.parametrize("endless", [False, True], ids=["strange key", "nested without end"])
def test_report_that_marshal_does_not_take_is_left_to_execnet(endless):
    nested = []
    nested.append(nested)
    data = {**DATA, "user_properties": nested} if endless else {**DATA, np.str_("test"): 1}
    sent = []
    outbox = Outbox(lambda name, **kwargs: sent.append(kwargs["data"]), list)
    outbox.sendevent("testreport", data=data)
    outbox.flush()
    assert len(sent) == 1
    assert sent[0] is data
