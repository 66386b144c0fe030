"""The APIs there are, a line for each, and what the rest of the package asks of one.

A new API is a module with an `API` that has what `Api` lists, and its line in `MODULES`: whoever
checks a pool, sends a request, reads an answer or explains a failure goes through here. A package
of somebody else's brings one by an entry point of the group `GROUP`.
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
"""The provider that a run starts itself."""
MODULES = {
    "openai": "pytest_ultrapar.apis.openai",
    "azure-openai": "pytest_ultrapar.apis.azure",
    "openai-responses": "pytest_ultrapar.apis.responses",
    "anthropic": "pytest_ultrapar.apis.anthropic",
    "gemini": "pytest_ultrapar.apis.gemini",
    SIMULATED: "pytest_ultrapar.apis.simulated",
}
"""The module of each API, by the word in `pool.toml`. Imported when a pool asks for it: reading
answers takes 5 ms to load, and a run that has no use for an API should not pay for it."""
READERS = {
    "completions": "pytest_ultrapar.apis.openai",
    "embeddings": "pytest_ultrapar.apis.embeddings",
}
"""The module of what reads the answers of resources that only SDKs ask."""


GROUP = "pytest_ultrapar.apis"
"""Entry points of packages: the word in `pool.toml`, and where the API is (`package.module:API`).
Looked at where a pool has a word that is none of ours: reading what is installed takes time."""


def api_names() -> tuple[str, ...]:
    """What `api` in `pool.toml` may be, with what is installed."""
    return (*MODULES, *sorted(_installed().names - MODULES.keys()))


def api_named(name: str) -> Api:
    """The API of that name, which must be one of `api_names`.

    Raises:
        ConfigError: A package brings it that cannot be used; the message goes on after the name of
            the field.
    """
    if name in MODULES:
        return cast("Api", import_module(MODULES[name]).API)
    return _brought(name)


@functools.cache
def _installed() -> EntryPoints:
    from importlib.metadata import entry_points  # noqa: PLC0415 - most pools name an API of ours

    return entry_points(group=GROUP)


@functools.cache
def _brought(name: str) -> Api:
    points = tuple(_installed().select(name=name))
    packages = sorted(f"{one.dist.name} {one.dist.version}" for one in points if one.dist)
    if len(points) > 1:
        refuse(f'is "{name}", which several packages bring ({", ".join(packages)}): uninstall one')
    (point,) = points
    where = f'is "{name}", which {" ".join(packages)} brings as {point.value}: '
    try:
        api = point.load()
    except Exception as error:
        raise ConfigError(
            f"{where}it cannot be imported: {type(error).__name__}: {error}"
        ) from error
    missing = sorted(field for field in _wanted() if not hasattr(api, field))
    if missing:
        refuse(f"{where}it lacks {', '.join(missing)}, which every API has")
    return cast("Api", api)


def _wanted() -> set[str]:
    """What `Api` lists."""
    names = {*Api.__annotations__, *vars(Api), *vars(Reader)}
    return {name for name in names if not name.startswith("_")}


def reader_named(name: str) -> Reader:
    """What reads answers of that kind: an API, or one of `READERS`."""
    if name in READERS:
        return cast("Reader", import_module(READERS[name]).API)
    return api_named(name)


class Reader(Protocol):
    """How the answers of one resource of a server look.

    One whose requests and answers may name state of the provider (`state`) says `has_state = True`;
    of others nothing is remembered.
    """

    def reply(self, body: bytes, lane: str, latency_s: float) -> Reply | Failure:
        """The reply in the body of a 200 response, usage included, or what is wrong with it.

        Args:
            body: Of any content; at most as long as the client reads.
            lane: Which lane answered.
            latency_s: How long it took, seconds.
        """

    def stream(self) -> Stream:
        """What takes the pieces of one answer that comes as a stream."""


class Api(Reader, Protocol):
    """One wire format, without any state.

    Attributes:
        serves: What SDKs may ask of its lanes: by path below `base_url`, the name of what reads the
            answers (`reader_named`). A path with `{model}` names the model there.
        base_paths: Of an SDK's address and path, what may stand before such a path; regular
            expressions.
        version_example: What `api_version` may look like; None: the API has none, and
            a pool may not say one.
        endpoint_noun: What an instance of a pool is there, for people.
        base_url_hint: What to look at where `base_url` is wrong, for people; perhaps empty.
        streamed: The parameters that ask for a stream.
    """

    version_example: ClassVar[str | None]
    endpoint_noun: ClassVar[str]
    base_url_hint: ClassVar[str]
    streamed: ClassVar[Mapping[str, Any]]
    serves: ClassVar[Mapping[str, str]]
    base_paths: ClassVar[str]

    def flaw_of(self, base_url: str) -> str | None:
        """What is wrong with a `base_url`, to stand behind the field's name; None: nothing."""

    def url(self, base_url: str, name: str, version: str | None) -> str:
        """Where requests go.

        Args:
            base_url: Of the instance.
            name: The instance's `api_name`.
            version: The provider's `api_version`.
        """

    def resource_url(self, base_url: str, name: str, version: str | None, path: str) -> str:
        """Where one of `serves` is; arguments as of `url`."""

    def headers(self, token: str) -> dict[str, str]:
        """The headers that only this API has, that with the key among them."""

    def request(self, name: str, messages: Messages, parameters: Mapping[str, Any]) -> bytes:
        """The body of a request.

        Args:
            name: The instance's `api_name`.
            messages: The conversation, as chat completions have it.
            parameters: Everything else, under the names under which it is sent.

        Raises:
            TypeError: A message or parameter is nothing that can be sent.
            UnicodeEncodeError: A text holds a lone surrogate; the caller writes it out and tries
                again.
        """

    def failure(
        self, status: int, body: bytes, headers: Mapping[str, str], *, epoch_s: float
    ) -> Failure:
        """What a response means that is neither 200 nor a stream.

        Args:
            status: HTTP status.
            body: Of any content; its beginning may be quoted.
            headers: With lower-case lookup.
            epoch_s: Wall time, seconds since the epoch, for dates in headers.
        """

    def allowance(self, headers: Mapping[str, str]) -> Allowance | None:
        """What an answer's headers say of the provider's own limits; None: nothing."""


class Stream(Protocol):
    """One answer that comes in pieces; whoever reads it feeds it until `done` or its end.

    Attributes:
        done: Nothing that comes now matters: the server said that this was all, or it cannot be
            read.
        t_first_token_s: When the first content, reasoning or tool call came, by the clock of
            whoever feeds; None before.
    """

    done: bool
    t_first_token_s: float | None

    def feed(self, piece: bytes, now_s: float) -> None:
        """Take the next bytes of the body, which came at `now_s`."""

    def end(self, now_s: float) -> None:
        """Take note that the body came to its end as HTTP has it."""

    def reply(self, lane: str, latency_s: float) -> Reply | Failure:
        """The reply, or why there is none; arguments as of `Api.reply`."""
