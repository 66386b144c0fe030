"""The debug log: the workers that write it, its lines, and its errors."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.broker import debug_log
from pytest_ultrapar.broker.debug_log import DebugLog
from pytest_ultrapar.broker.interface import acquire_lease
from pytest_ultrapar.broker.local import LocalBroker
from pytest_ultrapar.broker.protocol import LeaseRequest
from pytest_ultrapar.broker.settings import BrokerSettings
from pytest_ultrapar.engine.answers import Answer
from pytest_ultrapar.engine.endpoints import Endpoint
from pytest_ultrapar.engine.llm import Llm
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts, Sender
from pytest_ultrapar.errors import BadRequestError, InfraError, ResultsError
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.model import LaneId, Limit
from pytest_ultrapar.pool.setting_values import parse_which
from pytest_ultrapar.system.clock import MonotonicClock
from tests.pools import lane, pool
from tests.unit.test_llm_leases import Answers, fine

OPTION = Location("command line", "--ultrapar-debug-log")
SECRET = "sk-canary-9c1f0a2b77e4"
PROMPT = "a prompt that must not be logged"
REPLY = "a reply that must not be logged"


# -- workers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "included"),
    [
        ("off", set()),
        ("all", {"main", "gw0", "gw1", "gw9"}),
        ("1", {"main", "gw0"}),
        ("2", {"gw1"}),
    ],
)
def test_words_and_numbers_select_workers(text, included):
    which = parse_which(OPTION, text)

    assert {name for name in ("main", "gw0", "gw1", "gw9") if which.includes(name)} == included
    assert str(which.setting) == text


# -- lines -------------------------------------------------------------------------------------


@given(value=st.text())
def test_line_is_one_line_of_printable_ascii_for_any_value(value):
    with TemporaryDirectory() as directory:
        log = DebugLog(Path(directory), "main", str)
        debug_log.tell("episode ended", kind=value, group=None, took_s=0.5)
        log.close()
        _, text = (Path(directory) / "debug-main.log").read_text().splitlines()

    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \d+\.\d{6} episode ended   kind=", text)
    assert text.endswith(" took_s=0.500000")
    assert "group" not in text
    assert text.isascii()
    assert text.isprintable()


def status(number: int) -> Answer:
    return Answer(
        number, httpx.Headers({"retry-after": "0.01"}), f"{PROMPT} {SECRET}".encode(), 0.0
    )


def talk(directory, *answers, max_attempts=3):
    """Run an episode of one turn with these answers and return the lines of the log."""
    clock = MonotonicClock()
    log = DebugLog(directory, "gw0", lambda text: text.replace(SECRET, "***"))
    endpoint = Endpoint(LaneId("p/a/k0"), "p", "a", "k0", "http://127.0.0.1:1", SECRET, "m", 5.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        port = LocalBroker(
            BrokerSettings(pool([lane("a", "k0", "k0")], Limit("k0", "key", workers=1))),
            clock,
            loop,
            worker="gw0",
        )
        parts = EngineParts(
            port=port,
            exchange=Answers(*answers),
            endpoints={LaneId("p/a/k0"): endpoint},
            retry=RetryPolicy(max_attempts),
            clock=clock,
            next_request_id=iter(range(2, 100)).__next__,
            shown=str,
            masked=bytes,
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


def test_log_shows_the_events_of_a_request_in_order(tmp_path):
    said = talk(tmp_path, status(429), fine(text=REPLY))

    assert [text[:15].rstrip() for text in said] == [
        "log begins",
        "lease requested",
        "lease granted",
        "request sent",
        "lease returned",
        "request ended",
        "retry decided",
        "lease requested",
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


def test_log_shows_that_a_request_is_given_up(tmp_path):
    said = talk(tmp_path, status(500), max_attempts=1)

    assert named(said[-1])["verdict"] == "give_up"


def test_full_disk_ends_the_log_and_not_the_run(tmp_path):
    log = DebugLog(tmp_path, "main", str)
    full = open("/dev/full", "w", encoding="ascii")  # noqa: PTH123, SIM115 - a device that is always full
    log.setStream(full).close()

    debug_log.tell("request sent", case="c1")

    assert not debug_log.is_on()
    assert full.closed


def test_log_that_cannot_be_written_is_refused_with_its_path(tmp_path):
    with pytest.raises(ResultsError, match=r"cannot write .*gone/debug-main.log: No such file"):
        DebugLog(tmp_path / "gone", "main", str)


def test_log_contains_no_prompt_reply_error_text_or_key(tmp_path):
    talk(tmp_path, status(500), status(400), fine(text=REPLY))
    log = DebugLog(tmp_path, "gw0", lambda text: text.replace(SECRET, "***"))
    debug_log.tell("episode ended", kind=f"Oh{SECRET}")
    log.close()

    text = (tmp_path / "debug-gw0.log").read_text()
    assert "kind=Oh***" in text
    assert all(word not in text for word in (PROMPT, REPLY, SECRET))


def test_suite_cannot_capture_or_disable_the_log(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    logging.disable()
    try:
        assert len(talk(tmp_path, fine())) == 6
    finally:
        logging.disable(logging.NOTSET)
    assert "lease" not in caplog.text
    assert not debug_log.is_on()
