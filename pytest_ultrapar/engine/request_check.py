"""What a suite hands to `llm.chat()`, looked at before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_ultrapar.engine.reply import Messages


def check_request(messages: Messages, parameters: Mapping[str, Any]) -> None:
    """Refuse what cannot be sent, or would be sent as something else.

    Raises:
        TypeError: The messages are no list of dicts.
        ValueError: A parameter is no finite number.
    """
    # JSON has no NaN: it would be sent as null, which is to ask for something else.
    for name, value in parameters.items():
        if isinstance(value, float) and not math.isfinite(value):
            msg = f"llm.chat() got {name}={value}; a number must be finite"
            raise ValueError(msg)
    # What a suite hands over is not what its type checker saw.
    given: object = messages
    if not isinstance(given, list | tuple) or not all(isinstance(one, Mapping) for one in given):
        msg = (
            'llm.chat() takes a list of messages such as {"role": "user", "content": "..."} '
            f"(got {type(messages).__name__})"
        )
        raise TypeError(msg)
