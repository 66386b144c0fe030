"""The list of APIs, and the interface that each API implements.

A new API is a module with an `API` that implements `Api`, and a line in `MODULES`. All code that
checks a pool, sends a request, reads an answer or explains a failure uses this module. Other
packages can add an API with an entry point in the group `GROUP`.
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
"""The simulated provider, which a run starts itself."""
MODULES = {
    "openai": "pytest_ultrapar.apis.openai",
    "azure-openai": "pytest_ultrapar.apis.azure",
    "openai-responses": "pytest_ultrapar.apis.responses",
    "anthropic": "pytest_ultrapar.apis.anthropic",
    "gemini": "pytest_ultrapar.apis.gemini",
    SIMULATED: "pytest_ultrapar.apis.simulated",
}
"""The module of each API, by its name in `pool.toml`. A module is imported when a pool needs it,
because an API takes 5 ms to load."""
READERS = {
    "completions": "pytest_ultrapar.apis.openai",
    "embeddings": "pytest_ultrapar.apis.embeddings",
}
"""The modules that read the answers of resources that only SDKs use."""


GROUP = "pytest_ultrapar.apis"
"""The group of entry points. Each entry point has the name of an API in `pool.toml`, and refers to
its object (`package.module:API`). They are read only for names that are not in `MODULES`, to save
time."""


def api_names() -> tuple[str, ...]:
    """Return the values that `api` in `pool.toml` may have, including names from other packages."""
    return (*MODULES, *sorted(_installed().names - MODULES.keys()))


def api_named(name: str) -> Api:
    """Return the API with this name, which must be one of `api_names`.

    Raises:
        ConfigError: The package that provides the API cannot be used. The message is written to
            follow the name of the field.
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
    """The names of the members of `Api`."""
    names = {*Api.__annotations__, *vars(Api), *vars(Reader)}
    return {name for name in names if not name.startswith("_")}


def reader_named(name: str) -> Reader:
    """Return the reader of answers with this name: an API, or one of `READERS`."""
    if name in READERS:
        return cast("Reader", import_module(READERS[name]).API)
    return api_named(name)


class Reader(Protocol):
    """Reads the answers of one resource on a server.

    Set `has_state = True` if requests and answers may name state that the provider stores
    (`provider_state`). State is recorded only for such readers.
    """

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """Return the reply in the body of a 200 response, with its usage, or a failure.

        Args:
            body: Any bytes, limited to the maximum that the client reads.
            lane: The lane that answered.
            latency_s: The latency of the answer, in seconds.
        """

    def stream(self) -> Stream:
        """Return a new object that reads the pieces of one streamed answer."""


class Api(Reader, Protocol):
    """One wire format. The object itself has no state.

    Attributes:
        serves: The resources that SDKs may use: for each path below `base_url`, the name of the
            reader for its answers (`reader_named`). In a path, `{model}` stands for the model's
            name.
        base_paths: A regular expression for the part of an SDK's address before such a path.
        version_example: An example of `api_version`. None if the API has no versions; a pool must
            then not set one.
        endpoint_noun: The API's word for an instance, for messages.
        base_url_hint: A hint about a wrong `base_url`, for messages; may be empty.
        streamed: The parameters that request a stream.
    """

    version_example: ClassVar[str | None]
    endpoint_noun: ClassVar[str]
    base_url_hint: ClassVar[str]
    streamed: ClassVar[Mapping[str, Any]]
    serves: ClassVar[Mapping[str, str]]
    base_paths: ClassVar[str]

    def flaw_of(self, base_url: str) -> str | None:
        """Return what is wrong with a `base_url`, as text to follow the field's name, or None."""

    def url(self, base_url: str, name: str, version: str | None) -> str:
        """Return the URL for requests.

        Args:
            base_url: The instance's `base_url`.
            name: The instance's `api_name`.
            version: The provider's `api_version`.
        """

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """Return the URL for one of the paths in `serves`; other arguments as in `url`."""

    def headers(self, token: str) -> dict[str, str]:
        """Return the headers that this API requires, including the header with the key."""

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """Return the body of a request.

        Args:
            name: The instance's `api_name`.
            messages: The conversation in the format of chat completions.
            parameters: All other fields, under the names that are sent.

        Raises:
            TypeError: A message or parameter cannot be sent.
            UnicodeEncodeError: A text contains an unpaired surrogate. The caller escapes it and
                tries again.
        """

    def failure(
        self, status: int, body: bytes, headers: Mapping[str, str], *, epoch_s: float
    ) -> Failure:
        """Return the failure for a response that is neither 200 nor a stream.

        Args:
            status: HTTP status.
            body: Any bytes; the failure may quote the beginning.
            headers: The headers, with lower-case lookup.
            epoch_s: Wall time in seconds since the epoch, to interpret dates in headers.
        """

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        """Return the provider's limits in an answer's headers, or None."""


class Stream(Protocol):
    """One answer that arrives in pieces. Feed it until it is `done` or the body ends.

    Attributes:
        done: Whether the rest can be ignored: the server sent the end, or the stream is invalid.
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
        """Return the reply or a failure; arguments as in `Api.reply`."""
