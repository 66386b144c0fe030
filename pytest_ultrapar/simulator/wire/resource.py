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
    """Reads requests and writes answers of one format; holds no state.

    Attributes:
        key_header: The lower-case header of the key, in addition to `authorization`.
        overloaded: The status for an overloaded server.
    """

    key_header: ClassVar[bytes]
    overloaded: ClassVar[int]

    def refusal(self, error: ApiError) -> Whole:
        """The response for an error."""

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request:
        """The request in a body.

        Args:
            body: The body with any content.
            name: The api_name in the path; it overrides the name in the body.
            scope: The rest of the request.

        Raises:
            RefusedError: It asks for something that does not exist.
            UNREADABLE: It is not a request of this format.
        """

    def whole(self, request: Request, completion: Completion) -> bytes:
        """The body of the 200 response.

        It holds no time, so that the same request gets the same bytes.
        """

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """The pieces of the 200 response to a request for a stream."""


@cache
def resource_named(name: ResourceName) -> Resource:
    """The resource of that name; imports only the modules that it needs."""
    return cast("Resource", import_module(f"pytest_ultrapar.simulator.wire.{name}").RESOURCE)
