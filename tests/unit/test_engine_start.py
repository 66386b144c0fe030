"""An engine that is started before there is a broker."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest

from pytest_ultrapar.engine.engine import Engine, EngineSettings
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.sender import EngineParts
from pytest_ultrapar.system.clock import MonotonicClock


def make_engine(connect, lost):
    settings = EngineSettings(
        worker="main",
        connect=connect,
        endpoints={},
        retry=RetryPolicy(3),
        episode_timeout_s=1.0,
        most_open=1,
        clock=MonotonicClock(),
        shown=str,
        masked=bytes,
    )
    return Engine(
        settings,
        record=lambda records: records,
        ended=lambda ended: None,
        sync=lambda: None,
        lost=lost.append,
    )


@pytest.mark.parametrize("kind", [EngineSettings, EngineParts])
def test_how_to_take_secrets_out_has_to_be_said(kind):
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    assert {"shown", "masked"} <= required


def test_engine_that_waits_for_its_broker_can_be_stopped():
    asked, cancelled, lost = threading.Event(), threading.Event(), []

    async def connect():
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    engine = make_engine(connect, lost)
    engine.start()
    assert asked.wait(60)
    engine.stop()
    assert cancelled.wait(60)
    engine.note_skipped("case")  # keeps nobody waiting
    assert lost == []


@pytest.mark.parametrize("error", [ConnectionError("no broker"), LookupError()])
def test_engine_that_finds_no_broker_says_so_and_keeps_nobody_waiting(error):
    async def connect():
        raise error

    lost = []
    engine = make_engine(connect, lost)
    engine.start()
    engine.submit([])
    assert lost == [error]
    engine.stop()
