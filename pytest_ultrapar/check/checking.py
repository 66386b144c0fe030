"""A check of a pool's lanes: each is asked, and told about as soon as its answer is known."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ultrapar import process
from pytest_ultrapar.check.asking import Asking
from pytest_ultrapar.check.lane_answer import lane_answer
from pytest_ultrapar.lane_endpoints import lane_endpoints
from pytest_ultrapar.report.numbers import counted

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pytest_ultrapar.check.lane_answer import LaneAnswer
    from pytest_ultrapar.check.question import Question
    from pytest_ultrapar.leading.waiting_line import WaitingLine
    from pytest_ultrapar.pool.model import Pool

_QUIET_S = 5.0
_SHOWN = 3


def lane_answers(
    pool: Pool,
    base_urls: Mapping[str, str],
    question: Question,
    line: WaitingLine,
    *,
    timeout_s: float = math.inf,
) -> Generator[LaneAnswer]:
    """The answers of all lanes of a pool, as they are known.

    Close the iterator to take back what was not answered.

    Args:
        pool: Its lanes are asked, each once.
        base_urls: Base URL by provider of those that are simulated.
        question: What is asked.
        line: Tells people who is waited for.
        timeout_s: Deadline of one request, where the pool's own is longer.

    Raises:
        ConfigError: The environment variable of a key, or of a proxy, is not set.
    """
    declared = lane_endpoints(pool, base_urls, question.url_of)
    asked = {
        lane_id: question.prepared(replace(one, timeout_s=min(one.timeout_s, timeout_s)))
        for lane_id, one in declared.items()
    }
    variable_of = {
        (provider.name, key.name): None if provider.api == "simulated" else key.env
        for provider in pool.providers
        for key in provider.keys
    }
    redact = process.redactor(pool).text
    waiting = [lane.lane_id for lane in pool.lanes]
    began_s = time.monotonic()
    with Asking(pool, asked, question) as asking:
        while waiting:
            seen = asking.next(_QUIET_S)
            if seen is None:
                more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
                shown = f" ({', '.join(waiting[:_SHOWN])}{more})"
                line.say(counted(len(waiting), "lane"), shown, time.monotonic() - began_s)
                continue
            line.end()
            lane = seen.lane
            waiting.remove(lane.lane_id)
            is_shorter = timeout_s < declared[lane.lane_id].timeout_s
            yield lane_answer(
                seen,
                asked[lane.lane_id],
                variable=variable_of[lane.provider, lane.key],
                set_by="--timeout" if is_shorter else "the pool's timeout_s",
                redact=redact,
            )
