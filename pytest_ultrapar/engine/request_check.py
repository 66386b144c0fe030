"""What a suite hands to `llm.chat()`, looked at before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_ultrapar.engine.reply import Messages


def without_surrogates(value: Any) -> Any:  # noqa: ANN401 - any plain data
    r"""A copy of messages or parameters in which lone surrogates are shown as `\ud800`.

    JSON in UTF-8 has none, but a model can write them as escapes, and a suite that reads these and
    sends back what it found is not at fault. It is the same form in which answers have them
    (`mending`).
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {without_surrogates(name): without_surrogates(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(one) for one in value]
    return value


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
