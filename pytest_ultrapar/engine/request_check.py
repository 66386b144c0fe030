"""What a suite hands to `llm.chat()`, looked at before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from pytest_ultrapar.engine.reply import Messages

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


def sendable(value: T) -> T:
    r"""What can be sent of messages or parameters: lone surrogates are shown as `\ud800`.

    JSON in UTF-8 has none, but a model can write them as escapes, and a suite that reads these and
    sends back what it found is not at fault. It is the same form in which answers have them
    (`mending`). A value without any is given back itself.
    """
    try:
        _encoder.encode(value)
    except UnicodeEncodeError:
        shown: T = _shown(value)
        return shown
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        pass  # said better when it is to be sent
    return value


def _shown(value: Any) -> Any:  # noqa: ANN401 - any plain data
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_shown(name): _shown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(one) for one in value]
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
