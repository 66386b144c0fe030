"""Messages of a worker reach the controller unchanged and in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from functools import partial
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
    "outcome": "passed",
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
START = ("logstart", {"nodeid": "two", "location": ("test_x.py", 4, "test")})


class Wire:
    """The connection between an outbox and a controller, as execnet and xdist make it.

    Attributes:
        arrived: The messages that the controller received.
        queue: The controller's events: one message, or several packed into one.
        n_sent: The number of messages sent over the wire.
        starts: The arrived messages at each start of an item.
    """

    def __init__(self):
        self.arrived = []
        self.queue = []
        self.n_sent = 0
        self.node = SimpleNamespace(process_from_remote=self.put, notify_inproc=self.notify)
        receive_packed(self.node)
        hook = SimpleNamespace(pytest_report_from_serializable=lambda config, data: data)
        self.dsession = SimpleNamespace(config=SimpleNamespace(hook=hook))
        for name, arguments in (*ITEM, START):
            setattr(self.dsession, f"worker_{name}", partial(self.tell, name, list(arguments)))
        handle_packed(self.dsession)
        self.starts = []
        self.outbox = Outbox(self.send, lambda: self.starts.append([*self.arrived]))

    def tell(self, name, own, node, **arguments):
        assert node is self.node
        self.arrived.append((name, dict(zip(own, arguments.values(), strict=True))))

    def put(self, message):
        self.queue.append(message)
        self.arrived.append(message)

    def notify(self, name, **arguments):
        self.queue.append(name)
        getattr(self.dsession, f"worker_{name}")(**arguments)

    def send(self, name, **kwargs):
        self.n_sent += 1
        self.node.process_from_remote(loads(dumps((name, kwargs))))


@pytest.fixture
def late(monkeypatch):
    """Set this event to end the delay of held messages."""
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


def test_items_are_sent_in_one_message_after_a_delay(wire, late):
    said(wire, [*ITEM, START, *ITEM, START])
    assert wire.n_sent == 0
    late.set()
    while len(wire.arrived) < 2 * len(ITEM) + 2:
        time.sleep(0.001)
    assert wire.arrived == [*ITEM, START, *ITEM, START]
    assert wire.n_sent == 1


def test_item_is_noted_before_its_messages_are_sent(wire):
    said(wire, [START])
    wire.outbox.flush()
    assert wire.starts == [[]]


def test_note_holds_the_last_item(tmp_path):
    note = note_at(tmp_path / "note")
    note(7)
    note(3)
    assert noted_at(tmp_path / "note") == 3


def test_note_without_an_item_or_file_is_minus_one(tmp_path):
    note_at(tmp_path / "note")
    assert [noted_at(tmp_path / name) for name in ("note", "none")] == [-1, -1]


def test_held_messages_are_sent_before_the_worker_waits(wire):
    said(wire, ITEM)
    wire.outbox.flush()
    wire.outbox.flush()
    assert wire.arrived == ITEM
    assert wire.n_sent == 1


def test_failure_is_sent_immediately(wire):
    failed = ("testreport", {"data": {**DATA, "outcome": "failed"}})
    said(wire, [ITEM[0], failed])
    assert wire.arrived == [ITEM[0], failed]
    said(wire, ITEM[2:])
    assert wire.arrived == [ITEM[0], failed]


def test_held_messages_are_sent_before_the_main_thread_waits_for_an_item(wire):
    said(wire, ITEM)
    nothing_ready = SimpleNamespace(has_ready=False, take=lambda: None)
    PrefetchQueue(nothing_ready, Future(), wire.outbox).get()
    assert wire.arrived == ITEM


def test_held_messages_are_sent_before_the_engine_stops(wire, monkeypatch):
    # The loop of a worker that stops early (`-x`) requests no further item.
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


def test_items_are_one_event_and_handled_in_order(wire):
    finished = ("workerfinished", {"workeroutput": {"exitstatus": 0}})
    said(wire, [START, *ITEM, finished])
    assert wire.queue == ["ultrapar_packed", finished]
    assert wire.arrived == [START, *ITEM, finished]


def test_xdists_end_marker_gets_through(wire):
    end = object()
    wire.node.process_from_remote(end)
    assert wire.arrived == [end]


@pytest.mark.parametrize("strange", [object(), DATA.keys()])
def test_message_that_cannot_be_serialized_raises_as_without_an_outbox(wire, strange):
    said(wire, ITEM[:1])
    wire.outbox.sendevent("testreport", data={**DATA, "strange": strange})
    with pytest.raises(DumpError, match="can't serialize"):
        wire.outbox.sendevent(START[0], **START[1])
    assert wire.arrived == ITEM[:1]


class Text(str):
    """A subclass of `str`, as enum members and texts of many libraries are."""


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
def test_report_with_special_values_is_left_to_execnet(strange, place):
    # marshal accepts any object with a buffer, and returns bytes.
    sent = []
    data = place(strange)
    outbox = Outbox(lambda name, **kwargs: sent.append((name, kwargs)), list)
    outbox.sendevent("testreport", data=data)
    outbox.flush()
    ((name, kwargs),) = sent
    assert name == "testreport"
    assert kwargs["data"] is data


@pytest.mark.parametrize("endless", [False, True], ids=["strange key", "nested without end"])
def test_report_that_marshal_refuses_is_left_to_execnet(endless):
    nested = []
    nested.append(nested)
    data = {**DATA, "user_properties": nested} if endless else {**DATA, np.str_("test"): 1}
    sent = []
    outbox = Outbox(lambda name, **kwargs: sent.append(kwargs["data"]), list)
    outbox.sendevent("testreport", data=data)
    outbox.flush()
    assert len(sent) == 1
    assert sent[0] is data
