"""What a worker sends comes out in the controller as it went in, in its order."""

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
    """Between an outbox and a controller, as execnet and xdist make it.

    Attributes:
        arrived: What the controller was told.
        queue: Its events: a message, or several packed as one.
        n_sent: How many went over the wire.
        starts: What had arrived whenever an item started.
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


def test_items_are_one_message_that_comes_a_little_later(wire, late):
    said(wire, [*ITEM, START, *ITEM, START])
    assert wire.n_sent == 0
    late.set()
    while len(wire.arrived) < 2 * len(ITEM) + 2:
        time.sleep(0.001)
    assert wire.arrived == [*ITEM, START, *ITEM, START]
    assert wire.n_sent == 1


def test_an_item_is_noted_before_anything_is_said_of_it(wire):
    said(wire, [START])
    wire.outbox.flush()
    assert wire.starts == [[]]


def test_note_is_what_was_noted_last(tmp_path):
    note = note_at(tmp_path / "note")
    note(7)
    note(3)
    assert noted_at(tmp_path / "note") == 3


def test_note_of_who_ran_nothing_or_never_began(tmp_path):
    note_at(tmp_path / "note")
    assert [noted_at(tmp_path / name) for name in ("note", "none")] == [-1, -1]


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


def test_what_is_held_goes_before_the_main_thread_waits_for_an_item(wire):
    said(wire, ITEM)
    nothing_ready = SimpleNamespace(has_ready=False, take=lambda: None)
    PrefetchQueue(nothing_ready, Future(), wire.outbox).get()
    assert wire.arrived == ITEM


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


def test_items_are_one_event_and_carried_out_in_their_order(wire):
    finished = ("workerfinished", {"workeroutput": {"exitstatus": 0}})
    said(wire, [START, *ITEM, finished])
    assert wire.queue == ["ultrapar_packed", finished]
    assert wire.arrived == [START, *ITEM, finished]


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
