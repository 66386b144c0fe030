"""The list of APIs, and the interface that each API implements.

To add an API, write a module whose `API` implements `Api`, and add a line to `MODULES`. All code
that checks a pool, sends a request, reads an answer or explains a failure uses this module to find
the API. Other packages can add an API with an entry point in the group `GROUP`.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from pytest_ultrapar.errors import ConfigError, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.metadata import EntryPoints

    from pytest_ultrapar.apis.failure import Failure
    from pytest_ultrapar.apis.outcome import Allowance
    from pytest_ultrapar.apis.reply import Messages, Reply


SIMULATED = "simulated"
"""The API name of the simulated provider, which the run itself starts."""
MODULES = {
    "openai": "pytest_ultrapar.apis.openai",
    "azure-openai": "pytest_ultrapar.apis.azure",
    "openai-responses": "pytest_ultrapar.apis.responses",
    "anthropic": "pytest_ultrapar.apis.anthropic",
    "gemini": "pytest_ultrapar.apis.gemini",
    SIMULATED: "pytest_ultrapar.apis.simulated",
}
"""The module of each API, by the name of the API in `pool.toml`. A module is imported only when a
pool needs it, because that takes 5 ms."""
READERS = {
    "completions": "pytest_ultrapar.apis.openai",
    "embeddings": "pytest_ultrapar.apis.embeddings",
}
"""The modules that read answers from resources that only SDKs use, by the name of the reader."""


GROUP = "pytest_ultrapar.apis"
"""The group of entry points with which other packages add APIs. An entry point's name is the name
of the API in `pool.toml`; its value refers to the API's object (`package.module:API`). To save
time, entry points are not read for the names in `MODULES`."""


def api_names() -> tuple[str, ...]:
    """Return the values that `api` in `pool.toml` may have, including names from other packages."""
    return (*MODULES, *sorted(_installed().names - MODULES.keys()))


def api_named(name: str) -> Api:
    """Return the API with this name, which must be one of `api_names`.

    Raises:
        ConfigError: The package that provides the API cannot be used. The message continues a
            sentence that begins with the name of the field.
    """
    if name in MODULES:
        return cast("Api", import_module(MODULES[name]).API)
    return _brought(name)


@functools.cache
def _installed() -> EntryPoints:
    from importlib.metadata import entry_points  # noqa: PLC0415 - rarely needed

    return entry_points(group=GROUP)


@functools.cache
def _brought(name: str) -> Api:
    points = tuple(_installed().select(name=name))
    packages = sorted(f"{one.dist.name} {one.dist.version}" for one in points if one.dist)
    if len(points) > 1:
        refuse(f'is "{name}", which several packages define ({", ".join(packages)}): keep only one')
    (point,) = points
    where = f'is "{name}", which {" ".join(packages)} defines as {point.value}: '
    try:
        api = point.load()
    except Exception as error:
        raise ConfigError(f"{where}the import failed: {type(error).__name__}: {error}") from error
    missing = sorted(field for field in _wanted() if not hasattr(api, field))
    if missing:
        refuse(f"{where}the object lacks {', '.join(missing)}, which every API must have")
    return cast("Api", api)


def _wanted() -> set[str]:
    """The names of the members that `Api` requires."""
    names = {*Api.__annotations__, *vars(Api), *vars(Reader)}
    return {name for name in names if not name.startswith("_")}


def reader_named(name: str) -> Reader:
    """Return the reader with this name, which is an API or one of `READERS`."""
    if name in READERS:
        return cast("Reader", import_module(READERS[name]).API)
    return api_named(name)


class Reader(Protocol):
    """Reads the answers from one resource on a server.

    Set `has_state = True` if requests and answers may name state that the provider stores
    (`provider_state`). Only then is such state recorded.
    """

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """Return a reply with its usage from the body of a 200 response, or return a failure.

        Args:
            body: Any bytes, but not more than the maximum that the client reads.
            lane: The lane that answered.
            latency_s: The latency of the answer, in seconds.
        """

    def stream(self) -> Stream:
        """Return a new object that reads the pieces of one streamed answer."""


class Api(Reader, Protocol):
    """One wire format. The object itself has no state.

    Attributes:
        serves: The resources that SDKs may use: their paths relative to `base_url`, each with the
            name of the reader for its answers (`reader_named`). In a path, `{model}` stands for the
            model's name.
        base_paths: A regular expression for any text that an SDK may put before such a path.
        version_example: An example of `api_version`. None if the API has no versions, so that a
            pool must not set `api_version`.
        endpoint_noun: The API's word for an instance, used in messages.
        base_url_hint: A hint about a wrong `base_url`, used in messages; may be empty.
        streamed: The parameters that request a stream.
    """

    version_example: ClassVar[str | None]
    endpoint_noun: ClassVar[str]
    base_url_hint: ClassVar[str]
    streamed: ClassVar[Mapping[str, Any]]
    serves: ClassVar[Mapping[str, str]]
    base_paths: ClassVar[str]

    def flaw_of(self, base_url: str) -> str | None:
        """Return what is wrong with a `base_url`, or None.

        The text continues a sentence that begins with the name of the field.
        """

    def url(self, base_url: str, name: str, version: str | None) -> str:
        """Return the URL to which `llm.chat()` sends requests.

        Args:
            base_url: The instance's `base_url`.
            name: The instance's `api_name`.
            version: The provider's `api_version`.
        """

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """Return the URL for one of the paths in `serves`; the other arguments are as in `url`."""

    def headers(self, token: str) -> dict[str, str]:
        """Return the headers that this API requires, including the header with the key."""

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """Return the body of a request.

        Args:
            name: The instance's `api_name`.
            messages: The conversation in the format of chat completions.
            parameters: All other fields, after the pool's `parameters` table has renamed or omitted
                some of them.

        Raises:
            TypeError: A message or parameter cannot be sent.
            UnicodeEncodeError: A text contains an unpaired surrogate. The caller escapes it and
                tries again.
        """

    def failure(
        self, status: int, body: bytes, headers: Mapping[str, str], *, epoch_s: float
    ) -> Failure:
        """Return the failure for a response that is not a stream and has a status other than 200.

        Args:
            status: HTTP status.
            body: Any bytes; the failure may quote their beginning.
            headers: The headers, by lower-case name.
            epoch_s: The current wall time, in seconds since the epoch, to interpret dates in
                headers.
        """

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        """Return the provider's limits from an answer's headers; None if they report no limits."""


class Stream(Protocol):
    """One answer that arrives in pieces. Call `feed` until `done` is true or the body ends.

    Attributes:
        done: Whether the rest can be ignored, because the server sent the end of the answer or the
            stream is invalid.
        t_first_token_s: When the first content, reasoning or tool call arrived, on the caller's
            clock; None until then.
    """

    done: bool
    t_first_token_s: float | None

    def feed(self, piece: bytes, now_s: float) -> None:
        """Process the next bytes of the body, received at `now_s`."""

    def end(self, now_s: float) -> None:
        """Record that the HTTP body ended properly."""

    def reply(self, lane: str, latency_s: float) -> Reply | Failure:
        """Return the reply or a failure; the arguments are as in `Api.reply`."""
