"""Make clients of providers' SDKs that send all their requests through the pool.

The SDKs accept an HTTP client. They get a client whose transport passes requests to `SdkSender`
instead of the network. An SDK is imported only when a suite asks for it, because the import takes 1
to 2.5 s.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.engine.answers import StreamRelay
from pytest_ultrapar.engine.sdk_request import HOME, POOL_KEY
from pytest_ultrapar.errors import refuse

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_ultrapar.engine.blocking import Wait
    from pytest_ultrapar.engine.sdk_sender import SdkSender

FAULT = "ultrapar.fault"
"""The name of an httpx extension. Each response has it, and so does its request, because some SDKs
keep only the request. The extension's value has an attribute `fault`: the `BadRequestError` or
`PromptRefused` that the answer reports, or None."""
_RETRIES = "x-stainless-retry-count"
_log = logging.getLogger(__name__)


def httpx_client(native: SdkSender, library: ModuleType | None, wait: Wait | None = None) -> Any:  # noqa: ANN401 - of either library
    """Return a client that sends every request through `sdk_sender`.

    Args:
        native: The native client of the episode.
        library: The module `httpx` or `httpx2`; None means httpx2.
        wait: If this is given, the client is synchronous, for use in threads.

    Raises:
        ConfigError: The library is not installed.
        TypeError: `library` is another module.
    """
    if library is None:
        library = _imported("httpx2", "llm.httpx_client()")
    if not hasattr(library, "AsyncBaseTransport"):
        raise TypeError(f"llm.httpx_client() takes httpx or httpx2 (got {library!r})")
    # Set no time-out: it would include the time that a request waits for the pool's limits.
    kind = library.AsyncClient if wait is None else library.Client
    return kind(transport=_transport(library)(native, wait), timeout=None, trust_env=False)


def openai_client(native: SdkSender, wait: Wait | None = None) -> Any:  # noqa: ANN401 - the SDK may be absent
    """Return OpenAI's `AsyncOpenAI`, or `OpenAI` with `wait`; both work with Azure's lanes.

    Raises:
        ConfigError: The package is not installed.
        BadRequestError: A lane of the model has another API; the case becomes an `error`.
    """
    return _sdk_client(native, wait, "OpenAI", "/chat/completions", f"{HOME}/v1")


def anthropic_client(native: SdkSender, wait: Wait | None = None) -> Any:  # noqa: ANN401 - the SDK may be absent
    """Return Anthropic's `AsyncAnthropic`, or `Anthropic` with `wait`.

    It raises the same errors as `openai_client`.
    """
    client = _sdk_client(native, wait, "Anthropic", "/v1/messages", HOME)
    # Otherwise the client would also send the value of ANTHROPIC_AUTH_TOKEN.
    client.auth_token = None
    return client


def _sdk_client(native: SdkSender, wait: Wait | None, name: str, path: str, base_url: str) -> Any:  # noqa: ANN401 - as above
    """Return the client `name` of its SDK, after checking that all lanes serve `path`."""
    package = name.lower()
    whose = f"llm.{package}()"
    native.must_serve(path, whose)
    sdk = _imported(package, whose)
    http_client = httpx_client(native, _library_of(sdk), wait)
    return getattr(sdk, name if wait else f"Async{name}")(
        api_key=POOL_KEY, base_url=base_url, http_client=http_client, max_retries=0
    )


def _library_of(sdk: Any) -> ModuleType:  # noqa: ANN401 - the SDK may be absent
    """Return the HTTP library that an SDK uses: httpx2, or httpx if the SDK is from before 2026."""
    bases = sdk.DefaultAsyncHttpxClient.__mro__
    base = next(one for one in bases if one.__module__.partition(".")[0] in {"httpx", "httpx2"})
    return import_module(base.__module__.partition(".")[0])


def _imported(package: str, whose: str) -> Any:  # noqa: ANN401
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        refuse(
            f"{whose} needs the package {package}, which is not installed: pip install {package}"
        )


@functools.cache
def _transport(library: Any) -> Any:  # noqa: ANN401 - types of either library
    class Stream(library.AsyncByteStream, library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, relay: StreamRelay, wait: Wait | None) -> None:
            self._relay = relay
            self._wait = wait
            self._loop = asyncio.get_running_loop()

        def __iter__(self) -> Any:  # noqa: ANN401
            assert self._wait is not None
            while piece := self._wait(self._relay.next()):
                yield piece

        def close(self) -> None:
            # The garbage collector may call this on any thread, even after the run.
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._relay.close)

        async def __aiter__(self) -> Any:  # noqa: ANN401
            while piece := await self._relay.next():
                yield piece

        async def aclose(self) -> None:
            self._relay.close()

        __del__ = close

    class Transport(library.AsyncBaseTransport, library.BaseTransport):  # type: ignore[misc]
        def __init__(self, native: SdkSender, wait: Wait | None) -> None:
            self._native = native
            self._wait = wait
            self._has_warned = False

        def handle_request(self, request: Any) -> Any:  # noqa: ANN401
            assert self._wait is not None
            return self._wait(self._answered(request, request.read()))

        async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401
            return await self._answered(request, await request.aread())

        async def _answered(self, request: Any, sent: bytes) -> Any:  # noqa: ANN401
            n_retries = request.headers.get(_RETRIES, "0")
            if n_retries != "0" and not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "the SDK sent a request again (%s: %s); ultrapar retries requests itself "
                    "if that may help: create the client with max_retries=0",
                    _RETRIES,
                    n_retries,
                )
            asked = self._native.checked(
                request.method, str(request.url), dict(request.headers), sent
            )
            handed = await self._native.answer(asked)
            body = handed.body
            # For a stream, store the stream itself, because it may report an error later.
            extensions = {FAULT: body if isinstance(body, StreamRelay) else handed}
            request.extensions = {**request.extensions, **extensions}
            return library.Response(
                handed.status,
                headers=handed.headers,
                stream=Stream(body, self._wait)
                if isinstance(body, StreamRelay)
                else library.ByteStream(body),
                extensions=extensions,
                request=request,
            )

    return Transport


def fault_behind(error: BaseException) -> BaseException | None:
    """Return the error that a provider reported in a request and that made an SDK raise `error`.

    None if there is no such error.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        for name in ("response", "raw_response", "request"):
            extensions = getattr(getattr(found, name, None), "extensions", None)
            if isinstance(extensions, dict):
                fault = getattr(extensions.get(FAULT), "fault", None)
                if isinstance(fault, BaseException):
                    return fault
        found = found.__cause__ or found.__context__
    return None
