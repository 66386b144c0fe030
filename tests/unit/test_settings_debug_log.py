"""The debug log: whose it is, what its lines say, and that nobody pays for it who has none."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker.holding import acquire_lease
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import Lease, LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.engine.answers import Answer
from pytest_ultrapar.engine.debug_log import DebugLog, LineFormatter
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.llm import Llm
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts, Sender
from pytest_ultrapar.engine.watch import WatchedPort
from pytest_ultrapar.errors import BadRequestError, InfraError, ResultsError
from pytest_ultrapar.pool.environment import parse_which
from pytest_ultrapar.pool.fields import Location
from pytest_ultrapar.pool.model import LaneId, Limit
from pytest_ultrapar.pool.settings import number_of
from pytest_ultrapar.records import EpisodeEnded, TurnMessage
from tests.pools import lane, pool
from tests.unit.test_llm_leases import Answers, fine

OPTION = Location("command line", "--ultrapar-debug-log")
SECRET = "sk-canary-9c1f0a2b77e4"
PROMPT = "the prompt that nobody may read"
REPLY = "the reply that nobody may read"


class StillClock:
    def now_s(self) -> float:
        return 12.5


# -- whose log ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "included"),
    [
        ("off", set()),
        ("all", {"main", "gw0", "gw1", "gw9"}),
        ("1", {"main", "gw0"}),
        ("2", {"gw1"}),
    ],
)
def test_words_and_numbers_name_workers(text, included):
    which = parse_which(OPTION, text)

    assert {name for name in ("main", "gw0", "gw1", "gw9") if which.includes(name)} == included
    assert str(which.setting) == text


def test_processes_count_from_one():
    assert [number_of(name) for name in ("main", "gw0", "gw1", "gw14")] == [1, 1, 2, 15]


# -- its lines ---------------------------------------------------------------------------------


def line(created: float, now_s: float, event: str, **values: object) -> str:
    facts = {"created": created, "now_s": now_s, "msg": event, "values": values.items()}
    return LineFormatter(str).format(logging.makeLogRecord(facts))


def test_line_has_both_clocks_the_event_and_what_is_known():
    at_s = datetime(2025, 8, 19, 11, 50, 1, 284000, UTC).timestamp()

    text = line(at_s, 5120.8162154, "lease granted", lane="p/m/k", waited_s=0.5, group=None)

    assert (
        text == "2025-08-19T11:50:01.284Z 5120.816215 lease granted   lane=p/m/k waited_s=0.500000"
    )


@given(value=st.text())
def test_line_is_one_line_of_visible_ascii_whatever_a_value_holds(value):
    text = line(0, 0.0, "episode ended", kind=value, then=1)

    assert text.endswith(" then=1")
    assert text.isascii()
    assert text.isprintable()


def status(number: int) -> Answer:
    return Answer(
        number, httpx.Headers({"retry-after": "0.01"}), f"{PROMPT} {SECRET}".encode(), 0.0
    )


def talk(directory, *answers, max_attempts=3):
    """An episode of one turn against a server that gives these answers; the log's lines."""
    clock = MonotonicClock()
    log = DebugLog(directory, "gw0", clock, lambda text: text.replace(SECRET, "***"))
    endpoint = Endpoint(LaneId("p/a/k0"), "p", "a", "k0", "http://127.0.0.1:1", SECRET, "m", 5.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        broker = LocalBroker(
            BrokerSettings(pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=1))),
            clock,
            loop,
            worker="gw0",
        )
        port = WatchedPort(broker, log, clock)
        parts = EngineParts(
            port=port,
            exchange=Answers(*answers),
            endpoints={LaneId("p/a/k0"): endpoint},
            retry=RetryPolicy(max_attempts),
            clock=clock,
            next_request_id=iter(range(2, 100)).__next__,
            shown=str,
            masked=bytes,
            watch=log,
        )
        first = await acquire_lease(port, LeaseRequest(1, "m", opens=True, case_id="c1"))
        sender = Sender(parts, model="m", group="", case_id="c1", seed=1, first=first)
        llm = Llm(sender)
        try:
            await asyncio.wait_for(llm.chat([{"role": "user", "content": PROMPT}]), 120)
        except (InfraError, BadRequestError):
            pass
        finally:
            sender.return_unused()
            await port.close()

    asyncio.run(main())
    log.close()
    return [
        text.split(" ", 2)[2] for text in (directory / "debug-gw0.log").read_text().splitlines()
    ]


def named(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split() if "=" in part)


def test_log_tells_the_story_of_a_request_in_order(tmp_path):
    said = talk(tmp_path, status(429), fine(text=REPLY))

    assert [text[:15].rstrip() for text in said] == [
        "log begins",
        "lease asked",
        "lease granted",
        "request sent",
        "lease returned",
        "request ended",
        "retry decided",
        "lease asked",
        "lease granted",
        "request sent",
        "lease returned",
        "request ended",
    ]
    asked, granted, sent, returned, ended, decided = (named(text) for text in said[1:7])
    assert (asked["request"], asked["case"], asked["opens"]) == ("1", "c1", "yes")
    assert (granted["lane"], granted["in_flight"]) == ("p/a/k0", "1")
    assert {"waited_s", "seat_wait_s", "rate_wait_s"} <= granted.keys()
    assert granted["lease"] == sent["lease"] == returned["lease"]
    assert returned["outcome"] == "rate"
    assert (ended["lane"], ended["status"], ended["outcome"]) == ("p/a/k0", "429", "rate")
    assert float(ended["took_s"]) >= 0
    assert (decided["after"], decided["verdict"]) == ("rate", "again")
    assert named(said[-1])["status"] == "200"
    assert named(said[-2])["outcome"] == "ok"


def test_log_tells_why_a_request_is_given_up(tmp_path):
    said = talk(tmp_path, status(500), max_attempts=1)

    assert named(said[-1])["verdict"] == "give_up"


def test_withdrawn_and_denied_requests_are_told(tmp_path):
    log = DebugLog(tmp_path, "main", StillClock(), str)

    async def main() -> None:
        clock = MonotonicClock()
        broker = LocalBroker(
            BrokerSettings(pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=1))),
            clock,
            asyncio.get_running_loop(),
            worker="main",
        )
        port = WatchedPort(broker, log, clock)
        held = await acquire_lease(port, LeaseRequest(1, "m"))
        port.acquire(LeaseRequest(2, "m")).cancel()
        waiting = port.acquire(LeaseRequest(3, "m"))
        port.release(held, "auth")
        with pytest.raises(InfraError):
            await asyncio.wait_for(waiting, 120)
        await port.close()

    asyncio.run(main())
    log.close()
    denied = [
        named(text)
        for text in (tmp_path / "debug-main.log").read_text().splitlines()
        if "lease denied" in text
    ]
    assert {one["request"]: one["reason"] for one in denied} == {
        "2": "withdrawn",
        "3": "NoLaneError",
    }


def test_full_disk_ends_the_log_and_not_the_run(tmp_path):
    log = DebugLog(tmp_path, "main", StillClock(), str)
    full = open("/dev/full", "w", encoding="ascii")  # noqa: PTH123, SIM115 - a device that is always full
    log._handler.setStream(full).close()

    lease = Lease(1, LaneId("p/a/k0"), 0.0, 1.0, 0.0, 0.0, 1)
    log.sent("c1", 0, 0, lease)
    log.sent("c1", 0, 1, lease)

    assert log._handler is None
    assert full.closed


def test_log_that_cannot_be_written_is_refused_by_its_name(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot write .*gone/debug-main.log: No such file"):
        DebugLog(tmp_path / "gone", "main", StillClock(), str)


def test_no_prompt_reply_error_text_or_key_is_in_the_log(tmp_path):
    talk(tmp_path, status(500), status(400))
    log = DebugLog(tmp_path, "gw0", StillClock(), lambda text: text.replace(SECRET, "***"))
    said = [TurnMessage(0, "user", PROMPT), TurnMessage(0, "assistant", REPLY)]
    log.episode_ended(
        EpisodeEnded(
            "c1", "gw0", "error", 0, 1, 1.0, kind=f"Oh{SECRET}", detail=PROMPT, messages=said
        )
    )
    log.close()

    text = (tmp_path / "debug-gw0.log").read_text()
    assert "kind=Oh***" in text
    assert all(word not in text for word in (PROMPT, REPLY, SECRET))
