"""Determine the address, the key and the request body for each lane."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pytest_ultrapar.apis.registry import Api, Reader, api_named, reader_named
from pytest_ultrapar.apis.request import BOUNDS
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.pool.network import DIRECT, Route, place_of, route_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.apis.reply import Messages
    from pytest_ultrapar.pool.model import Pool


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """The address of one lane.

    Attributes:
        url: The full URL of the resource, such as chat completions.
        token: The secret of the lane's key, in clear text; never shown (`repr` hides it).
        api_name: The model or deployment name to send.
        timeout_s: The time limit for one request, in seconds.
        stream: Whether requests ask for streams.
        max_tokens: The maximum number of tokens in an answer, if a suite does not set a maximum.
        parameters: The names under which a suite's parameters are sent, if they differ from the
            suite's names. None means that the parameter is not sent.
        patterns: The pool's regular expressions for the provider's messages, by the meaning of
            a message.
        reads_allowance: Whether to read the provider's own limits from the headers of all answers.
            The headers of failures are always read.
        route: The route to the server.
        api: The format of requests and answers.
        model: The pool's name for the model.
        base_url: The prefix that the URLs of all resources share.
        version: The provider's `api_version`.
        headers: Additional headers to send, with names in lower case.
        resource: The requested resource, one of those in the API's `serves`; empty for
            `llm.chat()`.
        query: The encoded query of the request, in addition to the lane's own query.
        read_by: The name of the reader for answers from `url`; None if the API reads them.
        api_word: The name of the API in `pool.toml`.
    """

    lane: LaneId
    provider: str
    instance: str
    key: str
    url: str
    token: str
    api_name: str
    timeout_s: float
    api: Api = field(default_factory=lambda: api_named("openai"))
    stream: bool = False
    max_tokens: int | None = None
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads_allowance: bool = False
    route: Route = DIRECT
    model: str = ""
    base_url: str = ""
    version: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    resource: str = ""
    query: str = ""
    read_by: str | None = None
    api_word: str = "openai"

    @property
    def reader(self) -> Reader:
        """The reader for answers from `url`; for `llm.chat()`, the API itself."""
        return self.api if self.read_by is None else reader_named(self.read_by)

    @property
    def authentication(self) -> dict[str, str]:
        """The API's headers, including the header that contains the secret."""
        return self.api.headers(self.token)

    def __repr__(self) -> str:
        return f"Endpoint({self.lane!r}, url={self.url!r}, token='***')"


def resource_asked(lane: Endpoint, path: str) -> tuple[str, str | None] | None:
    """Return the resource in `serves` that a path refers to, and the model if the path names one.

    The result is None if the lane does not serve the path.
    """
    for served in lane.api.serves:
        below = re.escape(served).replace(r"\{model\}", "(?P<name>[^/:]+)")
        match = re.fullmatch(f"(?:{lane.api.base_paths})?{below}", path)
        if match is not None:
            named = next((one for one in match.groupdict().values() if one is not None), None)
            return served, None if named is None else unquote(named)
    return None


def endpoints(
    pool: Pool,
    *,
    token_of: Callable[[str, str], str],
    base_url_of: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
) -> dict[LaneId, Endpoint]:
    """Make an endpoint for every lane in the pool.

    Args:
        pool: The pool with the lanes.
        token_of: Returns the secret for a provider and a key.
        base_url_of: The base URLs that are known only at run time, by provider. Only simulated
            providers have such URLs.
        environ: The environment variables for proxies and certificates; None means no variables.

    Raises:
        ConfigError: The variable for a proxy is not set, or its value is not the URL of a proxy.
    """
    place_of_provider = {p.name: place_of(pool, n) for n, p in enumerate(pool.providers)}
    found: dict[LaneId, Endpoint] = {}
    providers = {provider.name: provider for provider in pool.providers}
    for lane in pool.lanes:
        provider = providers[lane.provider]
        model = next(m for m in provider.models if m.name == lane.model)
        instance = next(i for i in model.instances if i.name == lane.instance)
        base_url = base_url_of.get(provider.name) or instance.base_url or provider.base_url
        api = api_named(provider.api)
        url = api.url(base_url, instance.api_name, provider.api_version)
        route = route_to(provider.network, url, environ or {}, place_of_provider[provider.name])
        found[lane.lane_id] = Endpoint(
            lane=lane.lane_id,
            provider=provider.name,
            instance=instance.name,
            key=lane.key,
            url=url,
            token=token_of(provider.name, lane.key),
            api_name=instance.api_name,
            timeout_s=provider.timeout_s,
            api=api,
            stream=model.stream,
            max_tokens=model.max_tokens,
            parameters=model.parameters,
            patterns=provider.patterns,
            reads_allowance=provider.rate_mode == "adaptive",
            route=route,
            model=lane.model,
            base_url=base_url,
            version=provider.api_version,
            api_word=provider.api,
        )
    return found


def without_surrogates(value: Any) -> Any:  # noqa: ANN401 - any plain data
    r"""Copy messages or parameters, but write unpaired surrogates as text such as `\ud800`.

    JSON in UTF-8 cannot contain surrogates. But a model can write them as escapes, and a suite may
    legitimately send such an answer back. Answers show them in the same form (`apis.server_json`).
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {without_surrogates(name): without_surrogates(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(one) for one in value]
    return value


def conversation_of(said: Messages | str, system: str | None) -> Messages:
    """Return the messages of a conversation; a string becomes one user message.

    Args:
        said: The suite's messages or string.
        system: The system message to put first, if any.

    Raises:
        TypeError: `said` is neither a string nor a list of dicts, or contains a system message in
            addition to `system`.
    """
    # A suite that does not use a type checker may pass values of any type.
    given: object = [{"role": "user", "content": said}] if isinstance(said, str) else said
    if not isinstance(given, list | tuple) or not all(isinstance(one, Mapping) for one in given):
        raise TypeError(
            'llm.chat() takes a string, or a list of messages such as {"role": "user", "content": '
            f'"..."}} (got {type(said).__name__})'
        )
    if system is None:
        return given
    if any(one.get("role") in {"system", "developer"} for one in given):
        raise TypeError(
            "llm.chat() got both system= and a system message in the list: pass only one of them"
        )
    return [{"role": "system", "content": system}, *given]


def check_request(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be sent, or whose meaning would change when they are sent.

    Raises:
        ValueError: A parameter is not a finite number.
    """
    # JSON has no NaN. The number would be sent as null, which has a different meaning.
    for name, value in parameters.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"llm.chat() got {name}={value}; a number must be finite")


def request_body(endpoint: Endpoint, messages: Messages, parameters: dict[str, Any]) -> bytes:
    """Return a request body in the format of the endpoint's API, with surrogates as visible text.

    Args:
        endpoint: The endpoint, with its table of parameters.
        messages: The conversation.
        parameters: The suite's parameters.

    Raises:
        TypeError: A message or a parameter cannot be written as JSON, or two parameters would be
            sent under the same name.
    """
    if endpoint.max_tokens is not None and not BOUNDS & parameters.keys():
        parameters = {**parameters, "max_tokens": endpoint.max_tokens}
    if endpoint.stream:
        parameters = {**parameters, **endpoint.api.streamed}
    if endpoint.parameters:
        parameters = _as_sent(endpoint, parameters)
    try:
        return endpoint.api.request(endpoint.api_name, messages, parameters)
    except UnicodeEncodeError:
        # Do not search for surrogates first: that would take as long as encoding the request.
        return endpoint.api.request(
            endpoint.api_name, without_surrogates(messages), without_surrogates(parameters)
        )


def _as_sent(endpoint: Endpoint, parameters: dict[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for name, value in parameters.items():
        under = endpoint.parameters.get(name, name)
        if under is None:
            continue
        if under in sent:
            raise TypeError(
                f"llm.chat() got {name!r} and another parameter that is also sent as {under!r} to "
                f"{endpoint.lane}: pass only one of them"
            )
        sent[under] = value
    return sent
