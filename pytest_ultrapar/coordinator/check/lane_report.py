"""Describe the result for each checked lane: whether it answers, and if not, why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.apis.outcome import Allowance
from pytest_ultrapar.broker.protocol import DAILY_QUOTA, KnownLane
from pytest_ultrapar.pool.model import Lane
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.text import counted, duration, listed, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_ultrapar.apis.failure import Failure
    from pytest_ultrapar.coordinator.check.lane_requests import Seen
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.pool.model import Level, Pool
    from pytest_ultrapar.store.manifest import Manifest


Word = Literal["ok", "limited", "unsure", "failed"]
_SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class LaneAnswer:
    """The result for one lane.

    Attributes:
        word: `ok`, `limited`, `unsure` or `failed`. A lane is `limited` if it is rate-limited now
            (429, or 503 with `Retry-After`) or a daily limit in the pool is used up. It is `unsure`
            after a failure that may be temporary, so that a run would send the request again.
        latency_s: Seconds from sending the request to the end of the answer, including the time to
            connect; None if nothing was sent.
        label: The name of the outcome in `CLASSES`, or `not sent` if no request could be sent;
            empty for `ok`.
        cause: The description of the failure, without the server's message; empty for `ok`. If a
            request was sent, it is mostly from `CLASSES`.
        said: The message from the server or the network, without secrets; may be empty.
        known: Facts about the lane that a run should know before it starts; None if there is no
            such fact.
        allowance: The provider's own limits, read from the headers of the answer.
    """

    lane: Lane
    word: Word
    latency_s: float | None
    label: str = ""
    cause: str = ""
    said: str = ""
    known: KnownLane | None = None
    allowance: Allowance | None = None

    @property
    def why(self) -> str:
        """The cause, followed by the message if there is one."""
        return f"{self.cause}: {self.said}" if self.said else self.cause


def lane_answer(seen: Seen, endpoint: Endpoint, *, redact: Callable[[str], str]) -> LaneAnswer:
    """Describe the result for one lane.

    Args:
        seen: The result of the lane's request.
        endpoint: The endpoint that got the request.
        redact: Removes secrets from the server's message.
    """
    lane, failure = seen.lane, seen.failure
    if seen.unsent is not None:
        cause = redact(str(seen.unsent))
        if seen.unsent.kind == DAILY_QUOTA:
            # The plugin's own count has reached the daily limit, as can happen in a run. The lane
            # itself is healthy.
            return LaneAnswer(lane, "limited", None, DAILY_QUOTA, cause)
        return LaneAnswer(lane, "failed", None, "not sent", f"could not send a request: {cause}")
    if failure is None:
        return LaneAnswer(lane, "ok", seen.latency_s, allowance=seen.allowance)
    word, outcome = _word(failure), failure.outcome
    at = f"instance {lane.provider}/{lane.instance}"
    why = CLASSES[outcome].why.format(key=lane.key_title, instance=at, model=lane.model, back="")
    cause = redact(why + _what_to_do(failure, endpoint))
    said = failure.message
    if failure.retry_after_s is not None:
        said = f"(retry after {duration(failure.retry_after_s)}) {said}"
    said = in_short(redact(said))
    known = None
    if word == "limited":
        known = KnownLane(lane.lane_id, seen.at_s, retry_after_s=failure.retry_after_s)
    elif word == "failed" and outcome not in ANSWERED:
        known = KnownLane(lane.lane_id, seen.at_s, removed=f"in the initial check, {redact(why)}")
    return LaneAnswer(lane, word, seen.latency_s, outcome, cause, said, known)


def in_short(redacted: str) -> str:
    """The server's message, shortened to one line.

    Redact the message first: this function collapses spaces, so a secret that contains spaces might
    not be recognised afterwards.
    """
    return shortened(" ".join(redacted.split()), _SHOWN_CHARACTERS)


def _word(failure: Failure) -> Word:
    """Choose the word for a failure.

    If no connection to a lane can be made, the lane is `failed`: a run would soon remove it.
    """
    its_class = CLASSES[failure.outcome]
    if its_class.pauses:
        return "limited"
    if its_class.budget and failure.outcome != "malformed":
        return "unsure"
    return "failed"


def _what_to_do(failure: Failure, endpoint: Endpoint) -> str:
    """Name the pool settings that may be wrong, unless the text of the failure class names them."""
    if failure.outcome in {"not_found", "malformed", "transport"}:
        parts = urlsplit(endpoint.url)
        asked = f"{parts.scheme}://{parts.netloc}{parts.path}"
        fields = f"base_url{endpoint.api.base_url_hint}"
        fields += ", api_version" if endpoint.api.version_example else ""
        what = f"the {endpoint.api.endpoint_noun} {endpoint.api_name}"
        return f" (the request for {what} went to {asked}; check {fields} and the name)"
    if failure.outcome == "bad_request" and "max_tokens" in failure.message:
        return " (check the name under which the pool's `parameters` send max_tokens)"
    return ""


_WIDEST = 60


def first_line(pool: Pool) -> str:
    """The line about the requests that the check is about to send."""
    models = {lane.model for lane in pool.lanes}
    simulated = " SIMULATED," if pool.is_simulated else ""
    return (
        f"pool {pool.path},{simulated} {counted(len(pool.lanes), 'lane')} of "
        f"{counted(len(models), 'model')}: one chat completion of 1 token per lane"
    )


def lane_line(answer: LaneAnswer, lanes: Sequence[Lane]) -> str:
    """The line about one lane: how fast it answers, or why it does not.

    Args:
        answer: The result for the lane.
        lanes: All checked lanes, which determine the width of the column.
    """
    width = min(_WIDEST, max(len(lane.lane_id) for lane in lanes))
    took = "" if answer.latency_s is None else duration(answer.latency_s)
    line = f"{answer.word:<8} {answer.lane.lane_id:<{width}} {took:>9}  {answer.why}"
    return line.rstrip()


def summary_lines(pool: Pool, answers: Sequence[LaneAnswer]) -> Iterator[str]:
    """Lines about all lanes together: how many answer, and which failures and limits they share.

    Args:
        pool: The pool whose lanes were checked.
        answers: The results so far, in any order. One line names the lanes without a result.
    """
    known = {one.lane.lane_id for one in answers}
    unknown = [lane.lane_id for lane in pool.lanes if lane.lane_id not in known]
    yield counts(pool, answers)
    yield from failures(answers, least=2)
    yield from _stated_limits(pool, answers)
    if unknown:
        yield f"no result for {listed(unknown)}"
    dead = _models_without_lane(pool, answers)
    if dead:
        yield f"no lane is ok for the model{'s' if len(dead) > 1 else ''} {listed(dead)}"


def _stated_limits(pool: Pool, answers: Sequence[LaneAnswer]) -> Iterator[str]:
    """Lines about limits in headers that differ from the declared limits, for the user to check."""
    in_order = sorted(answers, key=lambda one: one.lane.lane_id)
    found = by_key((one.allowance, one.lane) for one in in_order if one.allowance is not None)
    for told, lanes in found.items():
        offer = _offer(pool, lanes[0], "key_model", {"rpm": told.requests, "tpm": told.tokens})
        if offer:
            yield f"headers from {listed([lane.lane_id for lane in lanes])} state {offer}"


def learned_limits(pool: Pool, manifest: Manifest) -> Iterator[str]:
    """Lines about limits that a run with the same models estimated, next to the declared limits."""
    levels = {limit.name: limit.level for limit in manifest.pool_limits}
    estimated = {one.lane: one.estimated for one in manifest.lanes}
    found = {one.limit: (one, lane) for lane in pool.lanes if (one := estimated.get(lane.lane_id))}
    offers: dict[str, list[str]] = {}
    for name, (one, lane) in found.items():
        own = {"workers": one.workers, "qps": one.qps}
        offers.setdefault(_offer(pool, lane, levels.get(name, "lane"), own), []).append(name)
    offers.pop("", None)
    for offer, names in offers.items():
        yield f"run {manifest.run_id} estimated limits for {listed(names)}: {offer}"


def _offer(pool: Pool, lane: Lane, level: Level, found: Mapping[str, float | None]) -> str:
    """Text about limits that were found but not declared, and how to declare them; may be empty."""
    rows = (row for name in lane.limits for row in pool.limits[name].rows)
    declared = [f"{row.kind.word} = {row.amount:.15g}" for row in rows]
    stated = [f"{word} = {round(n, 3):.15g}" for word, n in found.items() if n]
    said = ", ".join(text for text in stated if text not in declared)
    table = "the limit's table" if level in {"pool", "provider"} else f"per_{level} = {{ {said} }}"
    told = f"{said} (declared: {', '.join(declared) or 'nothing'}); to declare it, use {table}"
    return told if said else ""


def counts(pool: Pool, answers: Sequence[LaneAnswer]) -> str:
    """A line that says how many lanes are ok, how fast they are, and why the others are not ok."""
    took_s = [one.latency_s for one in answers if one.word == "ok" and one.latency_s is not None]
    text = "SIMULATED: " if pool.is_simulated else ""
    text += f"{len(took_s):,} of {counted(len(pool.lanes), 'lane')} ok"
    if len(took_s) > 1:
        text += f" (median {duration(median(took_s))}, slowest {duration(max(took_s))})"
    others = Counter(one.label for one in answers if one.word != "ok")
    if others:
        # Answers arrive in any order, so sort: two checks of the same pool print the same line.
        most_first = sorted(others.items(), key=lambda item: (-item[1], item[0]))
        text += ": " + ", ".join(f"{n:,} {label}" for label, n in most_first)
    return text


def failures(answers: Sequence[LaneAnswer], *, least: int = 1) -> Iterator[str]:
    """A line for each failure that occurred on at least `least` lanes: the lanes and the cause."""
    in_order = sorted(answers, key=lambda one: one.lane.lane_id)
    found = by_key(((one.word, one.label), one) for one in in_order if one.word != "ok")
    for (word, label), own in sorted(found.items()):
        if len(own) < least:
            continue
        first = own[0]
        lanes = listed([one.lane.lane_id for one in own])
        if len({one.why for one in own}) == 1:
            yield f"{word}: {lanes}: {first.why}"
        elif len({one.cause for one in own}) == 1:
            yield f"{word}: {lanes}: {first.cause}"
        else:
            yield f"{word}: {lanes}: {label}; for example, {first.lane.lane_id}: {first.why}"


def _models_without_lane(pool: Pool, answers: Sequence[LaneAnswer]) -> list[str]:
    """Models for which every lane was checked and no lane is ok; empty if that is every model."""
    not_ok = {one.lane.lane_id for one in answers if one.word != "ok"}
    alive = {lane.model for lane in pool.lanes if lane.lane_id not in not_ok}
    if not alive:
        return []
    return [model for model in pool.models if model not in alive and pool.lanes_of(model)]
