"""What the rest of the simulator asks of a wire format, and which there are."""

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
    """Reads requests and writes answers of one kind; holds no state.

    Attributes:
        key_header: The header with the key, lower-case, beside `authorization`.
        overloaded: The status with which it says that it has too much to do for anybody.
    """

    key_header: ClassVar[bytes]
    overloaded: ClassVar[int]

    def refusal(self, error: ApiError) -> Whole:
        """The answer that says what is wrong."""

    def read(self, body: bytes, *, name: str | None, scope: Scope) -> Request:
        """The request in a body.

        Args:
            body: Of any content.
            name: The api_name that the path holds; it goes before that of the body.
            scope: The rest of the request.

        Raises:
            RefusedError: It asks for what there is not.
            Those of UNREADABLE: It is no such request.
        """

    def whole(self, request: Request, completion: Completion) -> bytes:
        """The body of the 200 response.

        It holds no time, so that the same request is answered with the same bytes.
        """

    def pieces(self, request: Request, completion: Completion) -> tuple[Piece, ...]:
        """The pieces of the 200 response where a stream is asked for."""


@cache
def resource_named(name: ResourceName) -> Resource:
    """The resource of that name; imports what only it needs."""
    return cast("Resource", import_module(f"pytest_ultrapar.simulator.wire.{name}").RESOURCE)
