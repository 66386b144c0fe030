"""Where the requests of each lane go, with the key that authenticates them, and their bodies."""

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
    """One lane's address.

    Attributes:
        url: Full URL of what is asked, such as the chat-completions resource.
        token: The secret of the lane's key, in the clear; never shown (`repr` hides it).
        api_name: The model or deployment name to send.
        timeout_s: Total deadline of one request.
        stream: Whether answers are asked for as streams.
        max_tokens: How long an answer may be where a suite does not say.
        parameters: Under which name a suite's parameter is sent, where not under its own; None: it
            is not sent.
        patterns: What the pool says of its provider's words: regular expressions by meaning.
        reads_allowance: Whether the headers of all its answers are read for the provider's own
            limits; those of failures are in any case.
        route: How its server is reached.
        api: How requests and answers look there.
        model: The pool's name of what answers there.
        base_url: Below which all resources of its API are.
        version: The provider's `api_version`.
        headers: More of them to send, names in lower case.
        resource: What is asked, one of its API's `serves`; empty for what `llm.chat()` asks.
        query: What is asked beside that, encoded, in addition to the lane's own.
        read_by: Name of what reads the answers of `url`; None: the API does.
        api_word: The word for that in `pool.toml`.
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
        """What reads the answers of `url`: its API itself where that is what `llm.chat()` asks."""
        return self.api if self.read_by is None else reader_named(self.read_by)

    @property
    def authentication(self) -> dict[str, str]:
        """The headers of its API, among them the one that carries the secret."""
        return self.api.headers(self.token)

    def __repr__(self) -> str:
        return f"Endpoint({self.lane!r}, url={self.url!r}, token='***')"


def resource_asked(lane: Endpoint, path: str) -> tuple[str, str | None] | None:
    """Which of `serves` a path is on a lane, and the model that it names, if any; None: none."""
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
    """The endpoint of every lane of the pool.

    Args:
        pool: Where the lanes are.
        token_of: The secret of (provider, key).
        base_url_of: Base URL by provider where it is known at run time only (the simulated
            provider).
        environ: The environment's variables, for proxies and trust; None: there are none.

    Raises:
        ConfigError: A variable does not hold the proxy that it should.
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
    r"""A copy of messages or parameters in which lone surrogates are shown as `\ud800`.

    JSON in UTF-8 has none, but a model can write them as escapes, and a suite that reads these and
    sends back what it found is not at fault. It is the same form in which answers have them
    (`apis.sanitise`).
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {without_surrogates(name): without_surrogates(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(one) for one in value]
    return value


def conversation_of(said: Messages | str, system: str | None) -> Messages:
    """The messages of a conversation, of which a text is the only one of the user.

    Args:
        said: As a suite has it.
        system: What goes before it, as a message of the system.

    Raises:
        TypeError: It is neither text nor list of dicts, or has a message of the system, too.
    """
    # What a suite hands over is not what its type checker saw.
    given: object = [{"role": "user", "content": said}] if isinstance(said, str) else said
    if not isinstance(given, list | tuple) or not all(isinstance(one, Mapping) for one in given):
        raise TypeError(
            'llm.chat() takes a text, or a list of messages such as {"role": "user", "content": '
            f'"..."}} (got {type(said).__name__})'
        )
    if system is None:
        return given
    if any(one.get("role") in {"system", "developer"} for one in given):
        raise TypeError(
            "llm.chat() got system= beside a message of the system: give only one of them"
        )
    return [{"role": "system", "content": system}, *given]


def check_request(parameters: Mapping[str, Any]) -> None:
    """Refuse what cannot be sent, or would be sent as something else.

    Raises:
        ValueError: A parameter is no finite number.
    """
    # JSON has no NaN: it would be sent as null, which is to ask for something else.
    for name, value in parameters.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"llm.chat() got {name}={value}; a number must be finite")


def request_body(endpoint: Endpoint, messages: Messages, parameters: dict[str, Any]) -> bytes:
    """The request as the endpoint's provider wants it; lone surrogates as text that shows them.

    Args:
        endpoint: Whose table of parameters holds.
        messages: The conversation.
        parameters: As the suite gave them.

    Raises:
        TypeError: A message or parameter is nothing that JSON can hold, or two parameters would be
            sent under one name.
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
        # Looking for them beforehand would take as long as encoding the request.
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
                f"llm.chat() got two parameters that are both sent as {under!r} to "
                f"{endpoint.lane}, {name!r} being one: give only one of them"
            )
        sent[under] = value
    return sent
