"""The clients of a gateway: each of their requests becomes a case, which runs without a test."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from pytest_ultrapar.apis.failure import beginning
from pytest_ultrapar.apis.server_json import UNREADABLE
from pytest_ultrapar.engine.answers import ClientGoneError, StreamRelay
from pytest_ultrapar.engine.endpoints import Endpoint, resource_asked
from pytest_ultrapar.engine.episode import EpisodeSkipped, Work
from pytest_ultrapar.engine.sdk_request import not_served, read_request
from pytest_ultrapar.engine.sdk_sender import KEPT_TOKENS
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.errors import BadRequestError, InfraError
from pytest_ultrapar.records import ASKED_FOR, Case, EpisodeEnded, Grade, Scalar, by_key
from pytest_ultrapar.store.journal import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.apis.reply import Messages
    from pytest_ultrapar.engine.answers import ClientAnswer
    from pytest_ultrapar.engine.llm import Llm
    from pytest_ultrapar.engine.sdk_request import SdkRequest

SUITE = "gateway"
_NAMED = re.compile(r"/(?:models|deployments)/(?P<model>[^/:]+)")
_LEFT = "the client disconnected, or was told to try again later, before the answer arrived"
_MOST = 80
"""How many characters of a client's text are stored at most."""


class _Model(msgspec.Struct):
    model: str | None = None


@dataclass(eq=False, repr=False)
class GatewayClients:
    """All clients that have the gateway's token, as one `gateway.GatewaySender`.

    Attributes:
        endpoints: The endpoints of all lanes.
        tokens: Estimates how many tokens requests use; None if no limit counts tokens.
        run_id: Id of the run, from which the ids of its cases are made.
        plan: Called with each case before it is submitted. Each accepted request becomes one
            case.
        submit: Submits cases to the engine.
        shown: Turns a client's text into one line without secrets.
        models: The names of the pool's models.
    """

    endpoints: Sequence[Endpoint]
    tokens: TokenEstimates | None
    run_id: str
    plan: Callable[[Case], object]
    submit: Callable[[list[Work]], object]
    shown: Callable[[str], str]

    def __post_init__(self) -> None:
        """Start with no requests."""
        self._lanes = by_key((lane.model, lane) for lane in self.endpoints)
        self.models = tuple(self._lanes)
        self._numbers = itertools.count()
        self._coming: dict[str, asyncio.Future[ClientAnswer]] = {}

    def read(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> SdkRequest:
        """Read a request and find the model that it names.

        Raises:
            BadRequestError: The pool does not have the model, or the request must not be sent.
        """
        path = urlsplit(url).path
        if method != "POST" or not any(resource_asked(lane, path) for lane in self.endpoints):
            # Check the path before the body: the request may be for another resource or have no
            # body.
            raise not_served(method, path, {a for one in self.endpoints for a in one.api.serves})
        model = self._model(path, body)
        request = read_request(
            method,
            url,
            headers,
            body,
            model=model,
            lanes=self._lanes[model],
            tokens=self.tokens,
            kept=lambda _: KEPT_TOKENS,
        )
        said = {
            ASKED_FOR: headers.get("x-ultrapar-label", ""),
            "client": headers.get("user-agent", ""),
            "path": request.path,
            "prompt": _prompt(request.messages),
        }
        asker = {name: without_surrogates(beginning(text)) for name, text in said.items()}
        return replace(request, asker={name: self.shown(s)[:_MOST] for name, s in asker.items()})

    def _model(self, path: str, body: bytes) -> str:
        named = _NAMED.search(path)
        name = None if named is None else unquote(named["model"])
        try:
            name = msgspec.json.decode(body, type=_Model).model or name
        except UNREADABLE as error:
            raise BadRequestError(
                "a request to the gateway must be a JSON object that names a model (got "
                f"something else: {error})"
            ) from None
        if name not in self._lanes:
            found = "no model" if name is None else f"the model {name!r}"
            raise BadRequestError(f"a request names {found}; the pool has {', '.join(self.models)}")
        return name

    async def answer(self, asked: SdkRequest) -> ClientAnswer:
        """Send a request and return the provider's answer.

        Raises:
            InfraError: There is no answer.
            ClientGoneError: The client had already disconnected; nothing was sent.
        """
        case = self._case(asked)
        came: asyncio.Future[ClientAnswer] = asyncio.get_running_loop().create_future()
        self._coming[case.case_id] = came
        start = partial(_run, asked, came)
        self.submit([Work(case.index, case.case_id, case.model, "", case.seed, start)])
        return await came

    def end(self, told: Iterable[tuple[Work, EpisodeEnded]]) -> None:
        """Report errors for cases that ended before they started, such as a case without a lane."""
        for work, ended in told:
            _fail(self._coming.pop(work.case_id), InfraError(ended.kind or "", ended.detail or ""))

    def _case(self, asked: SdkRequest) -> Case:
        n = next(self._numbers)
        digest = hashlib.sha256(f"{self.run_id} {n}".encode()).hexdigest()
        names = filter(None, (asked.model, asked.asker.get(ASKED_FOR), str(n)))
        nodeid = f"{SUITE}::request[{'-'.join(names)}]"
        params: dict[str, Scalar] = {"request": n, **asked.asker}
        case = Case(n, digest[:16], nodeid, SUITE, asked.model, 0, params, int(digest[16:31], 16))
        self.plan(case)
        return case


def _prompt(messages: Messages) -> str:
    """The text of the first message that is not an instruction."""
    said = next((one for one in messages if one.get("role") not in {"system", "developer"}), {})
    content = said.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return " ".join(text for text in texts if isinstance(text, str))


async def _run(asked: SdkRequest, came: asyncio.Future[ClientAnswer], llm: Llm) -> dict[str, int]:
    """Run an episode: send the request, pass on the answer, and wait for the end of a stream."""
    if came.done():
        # The client no longer waits: it disconnected, or got an error when the case was
        # interrupted.
        raise EpisodeSkipped(_LEFT)
    asking = asyncio.ensure_future(llm.native().answer(asked))
    # If the client disconnects, cancel its request but not its episode, which must be recorded.
    came.add_done_callback(lambda done: asking.cancel() if done.cancelled() else None)
    try:
        handed = await asking
    except ClientGoneError as error:
        _fail(came, error)
        raise EpisodeSkipped(_LEFT) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            asking.cancel()
            _fail(came, InfraError("interrupted", "the gateway has ended"))
            raise
        raise EpisodeSkipped(_LEFT) from None
    except Exception as error:
        _fail(came, error)
        raise
    if came.done():
        if isinstance(handed.body, StreamRelay):
            handed.body.close()
        raise EpisodeSkipped(_LEFT)
    came.set_result(handed)
    if isinstance(handed.body, StreamRelay) and not await handed.body.ended():
        raise EpisodeSkipped(_LEFT)
    if handed.fault is not None:
        llm.conversation.fail(handed.fault)
    return {"status": handed.status}


def _fail(came: asyncio.Future[ClientAnswer], error: Exception) -> None:
    if not came.done():
        came.set_exception(error)
        # Retrieve the exception here. If the client has disconnected, no other code does, and
        # asyncio would print a warning.
        came.exception()


def grade_of(ended: EpisodeEnded) -> Grade | None:
    """Make the grade of a request. No test checks its answer: an answered request is `solved`.

    Returns:
        None if the request was interrupted because the gateway ended.
    """
    if ended.ending == "interrupted":
        return None
    outcome, test = {
        "returned": ("solved", "passed"),
        "refused": ("unsolved", "passed"),
        "infra": ("infra", "failed"),
        "error": ("error", "failed"),
        "skipped": ("skipped", "skipped"),
    }[ended.ending]
    return Grade(
        case_id=ended.case_id,
        worker=ended.worker,
        outcome=outcome,  # type: ignore[arg-type]  # a word of the table
        test=test,
        at_us=ended.ended_at_us,
        kind=ended.kind,
        error=ended.detail,
    )
