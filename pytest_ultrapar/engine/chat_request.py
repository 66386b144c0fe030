"""The body of a chat-completions request for one endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.engine.openai_api import encode_request
from pytest_ultrapar.engine.request_check import without_surrogates

if TYPE_CHECKING:
    from pytest_ultrapar.engine.endpoints import Endpoint
    from pytest_ultrapar.engine.reply import Messages

_STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


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
    if endpoint.stream:
        parameters = {**parameters, **_STREAMED}
    if endpoint.parameters:
        parameters = _as_sent(endpoint, parameters)
    try:
        return encode_request(endpoint.model_in_body, messages, parameters)
    except UnicodeEncodeError:
        # Looking for them beforehand would take as long as encoding the request.
        return encode_request(
            endpoint.model_in_body, without_surrogates(messages), without_surrogates(parameters)
        )


def _as_sent(endpoint: Endpoint, parameters: dict[str, Any]) -> dict[str, Any]:
    sent: dict[str, Any] = {}
    for name, value in parameters.items():
        under = endpoint.parameters.get(name, name)
        if under is None:
            continue
        if under in sent:
            msg = (
                f"llm.chat() got two parameters that are both sent as {under!r} to "
                f"{endpoint.lane}, {name!r} being one: give only one of them"
            )
            raise TypeError(msg)
        sent[under] = value
    return sent
