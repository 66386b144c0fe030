"""What is said of a lane that was asked: whether it answers, and if not what failed and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from pytest_ultrapar.engine.foreign_text import LARGEST_TEXT, beginning_of_bytes
from pytest_ultrapar.pool.model import Lane
from pytest_ultrapar.report.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.check.asking import Seen
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.failure import Failure

Word = Literal["ok", "limited", "failed"]
_SHOWN_CHARACTERS = 160
_OWN_WORDS = re.compile(
    r"^(cannot connect|certificate not trusted|no tunnel to the server): |\b\w+(Error|Timeout): "
)
"""What the cause says already, and names of Python's exceptions."""
_FAILED = "the server failed{status}"
_CAUSES = {
    "auth": "{key} was refused{status}",
    "forbidden": "{key} may not use {name}{status}",
    "quota": "{key} has no quota left{status}",
    "daily_quota": "{key} has used up its quota of the day for {model}{status}",
    "tls": "the certificate of {host} does not verify (a private CA goes into ca_file)",
    "connect": "{host} cannot be reached{proxy}",
    "transport": "the connection to {host} broke before there was an answer",
    "timeout": "no answer within {timeout}{status}",
    "rate": "it answers, but is rate limited right now{status}",
    "malformed": "the answer cannot be read{status}",
    "bad_request": "the server calls the smallest request malformed{status}{hint}",
}
"""By outcome. The same words for all lanes with the same fault, so that they can be told together.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one lane.

    Attributes:
        word: `ok`; `limited`: it answers, but only that this is too much right now; `failed`.
        latency_s: Seconds from sending to the end, making the connection included; None where
            nothing was sent.
        cause: What failed, in our words: the same for all lanes with the same fault; empty for
            `ok`.
        said: What the server or the network said of it, without secrets; perhaps empty.
    """

    lane: Lane
    word: Word
    latency_s: float | None
    cause: str = ""
    said: str = ""

    @property
    def why(self) -> str:
        """The cause with what was said."""
        return f"{self.cause}: {self.said}" if self.said else self.cause


def judge(
    seen: Seen, endpoint: Endpoint, variable: str | None, redact: Callable[[str], str]
) -> Verdict:
    """The verdict on a lane.

    Args:
        seen: What came of asking it.
        endpoint: Where it was asked.
        variable: The environment's variable that holds its key, if one does.
        redact: Takes secrets out of what the server said.
    """
    lane, failure = seen.lane, seen.failure
    if seen.unsent:
        return Verdict(lane, "failed", None, f"nothing could be sent: {redact(seen.unsent)}")
    if failure is None:
        return Verdict(lane, "ok", seen.latency_s)
    key = f"key {lane.key_name}" + (f" (environment {variable})" if variable else "")
    status = f" ({seen.answer.status})" if seen.answer is not None else ""
    cause = _cause(failure, endpoint, lane, key, status)
    said = _said(seen, failure)
    said = visible(" ".join(redact(said).split()), _SHOWN_CHARACTERS)
    if failure.retry_after_s is not None:
        back = f"come back in {failure.retry_after_s:,.3g} s"
        said = f"{said} ({back})" if said else back
    word: Word = "limited" if failure.outcome == "rate" else "failed"
    return Verdict(lane, word, seen.latency_s, redact(cause), said)


def _cause(failure: Failure, endpoint: Endpoint, lane: Lane, key: str, status: str) -> str:
    parts = urlsplit(endpoint.url)
    address = f"{parts.scheme}://{parts.netloc}{parts.path}"
    if failure.outcome == "not_found":
        return _not_found(endpoint, address, status)
    if failure.outcome == "connect" and failure.is_wordless and endpoint.route.proxy is None:
        return f"nothing listens at {parts.netloc}: the connection was refused"
    if failure.outcome == "malformed" and status.startswith(" (3"):
        return f"the server redirects elsewhere{status}, which is not followed: base_url is wrong"
    return _CAUSES.get(failure.outcome, _FAILED).format(
        key=key,
        status=status,
        host=parts.netloc,
        proxy="" if endpoint.route.proxy is None else " through the proxy",
        name=endpoint.api_name,
        model=lane.model,
        timeout=f"{endpoint.timeout_s:g} s",
        hint=_hint(failure),
    )


def _not_found(endpoint: Endpoint, address: str, status: str) -> str:
    if endpoint.method == "GET":
        if status == " (200)":
            return f"{endpoint.api_name} is not in the list of models at {address}"
        return f"there is no list of models at {address}{status}"
    what = "deployment" if endpoint.api == "azure-openai" else "model"
    fields = "base_url or api_version" if endpoint.api == "azure-openai" else "base_url"
    return (
        f"the {what} {endpoint.api_name} was not found at {address}{status}: "
        f"its name or {fields} is wrong"
    )


def _hint(failure: Failure) -> str:
    if "max_tokens" not in failure.message:
        return ""
    return " (its `parameters` in the pool say under which name max_tokens is sent)"


def _said(seen: Seen, failure: Failure) -> str:
    """In whose words it is known; nothing where the cause says it all."""
    if seen.answer is not None and failure.message.startswith("HTTP "):
        return _error_message(seen.answer.body)
    if failure.outcome == "timeout" or failure.is_wordless:
        return ""
    return _OWN_WORDS.sub("", failure.message)


def _error_message(body: bytes) -> str:
    """The message of an error in OpenAI's form or a like one, else the beginning of the body."""
    text = beginning_of_bytes(body)
    try:
        found: Any = msgspec.json.decode(body if len(body) <= LARGEST_TEXT else b"")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return text
    for name in ("error", "message", "detail"):
        if isinstance(found, dict) and name in found:
            found = found[name]
    return found if isinstance(found, str) else text
