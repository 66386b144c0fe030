"""Check requests that a provider's own client has written, and make them ready to send."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from pytest_ultrapar.apis.provider_state import flaw_of_request
from pytest_ultrapar.apis.request import Asked, asked_of
from pytest_ultrapar.apis.server_json import MOST_OBJECTS, UNREADABLE, has_too_many_objects
from pytest_ultrapar.broker.protocol import TokenBounds
from pytest_ultrapar.engine.answers import Pieces
from pytest_ultrapar.engine.endpoints import resource_asked
from pytest_ultrapar.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping, Sequence

    from pytest_ultrapar.apis.reply import Messages
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.token_estimate import TokenEstimates

POOL_KEY = "pool"
"""The key that an SDK gets. Requests are sent with the keys of their lanes instead."""
HOME = "https://pool.invalid"
"""The address that an SDK gets. No request is sent there."""
PUBLIC_HOMES = frozenset(
    {"api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "api.mistral.ai"}
)
"""The default addresses of SDKs. If a client has one of these, the suite has not set an address."""
LARGEST_REQUEST_BYTES = 100_000_000
_OF_CASE = ("its case uses", "llm")
_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_KEY_PARAMETER = "key"
_NOT_SENT = re.compile(
    # Headers with the client's identity, with the account that pays, or for the connection.
    r"authorization|cookie|(x-|x-goog-)?api-key|openai-(organization|project)|x-stainless-.*"
    r"|x-goog-(api-client|user-project)|user-agent|host|connection|keep-alive|te|trailer|upgrade"
    r"|proxy-.*|transfer-encoding|content-length|accept-encoding|x-ultrapar-.*"
)
_OPTIONS, _USAGE = "stream_options", "include_usage"
_LEAVES_USAGE = frozenset({"/chat/completions", "/completions"})
"""Resources whose streams report token usage only if the request asks for it."""


class Progress:
    """The progress of a request, and whether a client waits for its answer.

    Attributes:
        is_sent: Whether the request has been given a lane. Until then, it waits in the queue.
        is_wanted: Whether a client waits for the answer, or was told to send the request again.
    """

    __slots__ = ("is_sent", "is_wanted")

    def __init__(self) -> None:
        self.is_sent = False
        self.is_wanted = True


@dataclass(frozen=True, slots=True)
class SdkRequest:
    """A request that has passed the checks. It implements `answers.Request`.

    Attributes:
        model: The pool's name for the model.
        path: The resource: one of those that the API lists in `serves`.
        query: The query to send, in addition to the query of the lane's URL.
        fields: The fields of the body, undecoded.
        asked: The parsed content of the request.
        progress: The progress of the request, for the waiting client.
        asks_usage: Whether the plugin asks for the token usage of the stream because the client
            did not.
        asker: Facts about the client; empty if the client belongs to an episode.
    """

    model: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    fields: dict[str, msgspec.Raw]
    asked: Asked
    tokens: int
    most: TokenBounds | None
    pieces: Pieces | None
    progress: Progress
    asks_usage: bool = False
    asker: dict[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> Messages:
        """The readable text of the request."""
        return self.asked.messages

    def begin(self) -> bool:
        """Record that a lane is free for the request; return whether a client is still waiting."""
        self.progress.is_sent = self.progress.is_wanted
        return self.progress.is_wanted

    def on(self, endpoint: Endpoint) -> tuple[Endpoint, bytes]:
        """Return the address and the body to send."""
        url = endpoint.api.resource_url(
            endpoint.base_url, endpoint.api_name, endpoint.version, self.path
        )
        query = urlencode(self.query)
        if query:
            url += ("&" if "?" in url else "?") + query
        fields = dict(self.fields)
        if "model" in fields:
            fields["model"] = msgspec.Raw(msgspec.json.encode(endpoint.api_name))
        # Some servers do not know the option. For such servers, the pool leaves it out.
        if self.asks_usage and endpoint.parameters.get(_OPTIONS, _OPTIONS) is not None:
            own = msgspec.json.decode(fields.get(_OPTIONS, b"null")) or {}
            fields[_OPTIONS] = msgspec.Raw(msgspec.json.encode({**own, _USAGE: True}))
        there = replace(
            endpoint,
            url=url,
            headers=self.headers,
            stream=self.pieces is not None,
            resource=self.path,
            query=query,
            read_by=endpoint.api.serves[self.path],
        )
        return there, msgspec.json.encode(fields)


def check_client(url: str, headers: Mapping[str, str], keys: Container[str]) -> None:
    """Refuse a client whose address or key the suite has set itself.

    Args:
        url: The whole URL of the client's request.
        headers: The headers, with lower-case names.
        keys: The keys that the client may use.

    Raises:
        BadRequestError: The client has such an address or key. The message says what to pass to the
            client instead.
    """
    split = urlsplit(url)
    if split.hostname not in PUBLIC_HOMES and split.hostname != urlsplit(HOME).hostname:
        raise BadRequestError(
            f"a client made with llm has a base URL on {split.hostname}, but its requests go to "
            f"the pool's lanes: do not set a base URL (or set it to {HOME})"
        )
    if any(key not in keys for key in keys_of(split.query, headers)):
        raise BadRequestError(
            "a client made with llm has its own key, but its requests use the pool's keys: "
            "create the client with api_key=llm.api_key"
        )


def keys_of(query: str, headers: Mapping[str, str]) -> list[str]:
    """Return the keys in a request, from all places where an API may expect one.

    Args:
        query: The query of the request's URL.
        headers: The headers, with lower-case names.
    """
    found = [headers[name].removeprefix("Bearer ") for name in _KEY_HEADERS if name in headers]
    given = parse_qsl(query, keep_blank_values=True)
    return found + [value for name, value in given if name == _KEY_PARAMETER]


def read_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    model: str,
    lanes: Sequence[Endpoint],
    tokens: TokenEstimates | None,
    kept: Callable[[str], int],
    role: str = "",
) -> SdkRequest:
    """Check a client's request and make it ready to send.

    Args:
        method: The HTTP method. It and the next three arguments come from the client, unchanged.
        url: The client's URL; only the resource and the query matter.
        headers: The client's headers, with lower-case names.
        body: The whole body.
        model: The pool's name for the model.
        lanes: All lanes of that model.
        tokens: Estimates the tokens of requests; None if no limit counts tokens.
        kept: Returns the number of tokens in a conversation that is stored at the provider, given
            the conversation's id.
        role: The role of the model; empty for the case's own model.

    Raises:
        BadRequestError: The request may not be sent.
    """
    split = urlsplit(url)
    if len(body) > LARGEST_REQUEST_BYTES:
        raise BadRequestError(too_large())
    path, named = _resource(method, split.path, model, lanes)
    fields, plain = _fields(body)
    if (flaw := flaw_of_request(plain)) is not None:
        raise BadRequestError(f"a request {flaw}")
    named = plain.get("model", named)
    names = {model, *(lane.api_name for lane in lanes)}
    if named is not None and (not isinstance(named, str) or named not in names):
        about, llm = (f"role {role} uses", f"llm.role({role!r})") if role else _OF_CASE
        raise BadRequestError(
            f"a request asks for the model {named!r}, but {about} {model!r}: use model={llm}.model"
        )
    is_stream = plain.get("stream") is True or ":stream" in path
    options = plain.get(_OPTIONS) or {}
    asks_usage = is_stream and path in _LEAVES_USAGE and isinstance(options, dict)
    asked = asked_of(plain)
    if path == "/embeddings":
        asked = msgspec.structs.replace(asked, bound=1)
    n_tokens, most = 0, None
    if tokens is not None:
        n_kept = 0 if asked.goes_on is None else kept(asked.goes_on)
        n_tokens = tokens.of_request(model, asked, n_kept)
        most = tokens.most_of(model, len(body), asked, n_kept)
    query = parse_qsl(split.query, keep_blank_values=True)
    # The URL of a lane contains its own version.
    own = {_KEY_PARAMETER, "api-version"}
    return SdkRequest(
        model,
        path,
        [(name, value) for name, value in query if name not in own],
        {name: value for name, value in headers.items() if not _NOT_SENT.fullmatch(name)},
        fields,
        asked,
        n_tokens,
        most,
        Pieces() if is_stream else None,
        Progress(),
        asks_usage and not options.get(_USAGE),
    )


def _fields(body: bytes) -> tuple[dict[str, msgspec.Raw], dict[str, Any]]:
    """Return the fields of a body twice: undecoded for sending, and decoded for the checks."""
    if has_too_many_objects(body):
        raise BadRequestError(f"a request has more than {MOST_OBJECTS} objects")
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return fields, {name: msgspec.json.decode(field) for name, field in fields.items()}
    except UNREADABLE as error:
        raise BadRequestError(f"the body of a request is not a JSON object: {error}") from None


def _resource(
    method: str, path: str, model: str, lanes: Sequence[Endpoint]
) -> tuple[str, str | None]:
    """Return the resource in a path, and the model if the path contains a model."""
    found: tuple[str, str | None] | None = None
    for lane in lanes:
        found = None if method != "POST" else resource_asked(lane, path)
        if found is None:
            served = frozenset.intersection(*(frozenset(one.api.serves) for one in lanes))
            raise not_served(method, path, served, f" for the model {model!r}")
    if found is None:
        raise BadRequestError(f"the pool has no lane for the model {model!r}")
    return found


def not_served(method: str, path: str, served: Collection[str], whom: str = "") -> BadRequestError:
    """Make the error for a request whose resource the pool does not serve.

    Args:
        method: The client's method.
        path: The client's path.
        served: The resources that the pool serves.
        whom: A phrase that begins with a space and names the model; empty if the model does not
            matter.
    """
    listed = ", ".join(f"POST {one}" for one in sorted(served)) or "nothing"
    return BadRequestError(
        f"a request asks for {method} {path}, which the pool does not serve{whom}; "
        f"it serves {listed}"
    )


def too_large() -> str:
    """The message for any client whose request is too large."""
    return f"a request is larger than the maximum of {LARGEST_REQUEST_BYTES:,} bytes"
