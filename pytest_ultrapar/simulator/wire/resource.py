"""The interface of a wire format, and the list of wire formats."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, cast

if TYPE_CHECKING:
    from pytest_ultrapar.simulator.answer import Scope, Whole
    from pytest_ultrapar.simulator.api_error import ApiError
    from pytest_ultrapar.simulator.exchange import Completion, Request
    from pytest_ultrapar.simulator.stream import Piece

ResourceName = Literal["chat", "responses", "messages", "generate_content"]


class Resource(Protocol):
    """Reads requests and writes answers in one format. It has no state.

    Attributes:
        key_header: The header for the key, in lower case; `authorization` is also accepted.
        overloaded: The HTTP status with which the API reports that the server is overloaded.
    """

    key_header: ClassVar[bytes]
    overloaded: ClassVar[int]

    def refusal(self, error: ApiError) -> Whole:
        """Return the response for an error."""

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request:
        """Read the request in a body.

        Args:
            body: The body, which may contain anything.
            name: The api_name in the path; it overrides the name in the body.
            scope: The rest of the request.

        Raises:
            RefusedError: The request asks for something that does not exist.
            UNREADABLE: The body is not a request in this format.
        """

    def whole(self, request: Request, completion: Completion) -> bytes:
        """Return the body of the 200 response.

        The body contains no timestamps, so that the same request always gets the same bytes.
        """

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """Return the pieces of the 200 response to a request that asks for a stream."""


@cache
def resource_named(name: ResourceName) -> Resource:
    """Return the resource with this name; only the modules that it needs are imported."""
    return cast("Resource", import_module(f"pytest_ultrapar.simulator.wire.{name}").RESOURCE)
