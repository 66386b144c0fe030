"""Checks the arguments of a tool call, and describes an error so that a model can correct it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePosixPath

from bench_suites.workflow.tool import Parameter, Tool

MOST_CHARACTERS = 1000

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
}
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class ArgumentFault:
    """The reason to refuse a call.

    Attributes:
        code: `INVALID_INPUT` or `FILE_NOT_FOUND`.
        message: The given value and the allowed values.
    """

    code: str
    message: str


def check_arguments(
    tool: Tool, arguments: Mapping[str, object], known_resources: AbstractSet[str]
) -> ArgumentFault | None:
    """Return the first error in a call's arguments, or None. Has no side effects.

    Args:
        tool: The called tool.
        arguments: Its arguments, decoded from JSON.
        known_resources: Paths and URLs that exist in this episode.
    """
    unknown = next((name for name in arguments if tool.parameter(name) is None), None)
    if unknown is not None:
        names = ", ".join(parameter.name for parameter in tool.parameters)
        return _invalid(f"parameter {_cut(unknown)} is unknown; allowed are {names}")
    for parameter in tool.parameters:
        value = arguments.get(parameter.name)
        # Many languages write null for an omitted argument.
        if value is None:
            if parameter.required:
                return _invalid(
                    f"parameter {parameter.name} is missing; {_allowed(parameter)} is required"
                )
            continue
        if isinstance(value, str) and len(value) > MOST_CHARACTERS:
            return _invalid(f"parameter {parameter.name} has over {MOST_CHARACTERS} characters")
        if not _fits(parameter, value):
            return _invalid(
                f"parameter {parameter.name} must be {_allowed(parameter)} (got {_cut(value)})"
            )
        fault = _check_resource(tool, parameter, value, known_resources)
        if fault is not None:
            return fault
    return _check_format(arguments)


def _fits(parameter: Parameter, value: object) -> bool:
    # JSON has one type of number: 5.0 is an integer.
    if parameter.type == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    # In Python True is an int; in JSON it is not.
    if isinstance(value, bool) != (parameter.type == "boolean"):
        return False
    if not isinstance(value, _TYPES[parameter.type]):
        return False
    limits = parameter.constraints
    if isinstance(value, str):
        return (
            len(value) >= (limits.min_length or 0)
            and (limits.enum is None or value in limits.enum)
            and (limits.pattern is None or re.fullmatch(limits.pattern, value) is not None)
        )
    if isinstance(value, list | tuple):
        return all(isinstance(item, str) for item in value)
    if isinstance(value, int | float):
        return (
            (isinstance(value, int) or math.isfinite(value))
            and (limits.minimum is None or value >= limits.minimum)
            and (limits.maximum is None or value <= limits.maximum)
        )
    return True


def _check_resource(
    tool: Tool, parameter: Parameter, value: object, known: AbstractSet[str]
) -> ArgumentFault | None:
    resource = parameter.constraints.resource
    if resource is None or not isinstance(value, str):
        return None
    if resource == "new_file":
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or not path.suffix:
            return _invalid(
                f"parameter {parameter.name} must be a relative path with a suffix "
                f"(got {_cut(value)})"
            )
        return None
    # `./data/x.csv` and `data/x.csv/` mean `data/x.csv`.
    if value in known or str(PurePosixPath(value)) in known:
        return None
    code = "FILE_NOT_FOUND" if "FILE_NOT_FOUND" in tool.errors else "INVALID_INPUT"
    return ArgumentFault(code, f"parameter {parameter.name}: there is nothing at {_cut(value)}")


def _check_format(arguments: Mapping[str, object]) -> ArgumentFault | None:
    source, given = arguments.get("source"), arguments.get("format")
    if not isinstance(source, str) or not isinstance(given, str):
        return None
    actual = PurePosixPath(source).suffix.removeprefix(".")
    if given == actual:
        return None
    return _invalid(
        f"parameter format must be that of the source, {_cut(actual)} (got {_cut(given)})"
    )


def _allowed(parameter: Parameter) -> str:
    limits = parameter.constraints
    if limits.enum is not None:
        return f"one of {', '.join(limits.enum)}"
    article = "an" if parameter.type in {"integer", "array"} else "a"
    kind = "array of strings" if parameter.type == "array" else parameter.type
    text = f"{article} {kind}"
    if limits.minimum is not None:
        text += f" from {limits.minimum:g}"
    if limits.maximum is not None:
        text += f" to {limits.maximum:g}"
    if limits.min_length is not None:
        text += f" of at least {limits.min_length} character{'s' * (limits.min_length > 1)}"
    if limits.pattern is not None:
        text += f" such as {_cut(parameter.example)}"
    return text


def _cut(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # A model can send anything: the answer must be short, printable and encodable.
    plain = text[:_SHOWN_CHARACTERS].encode("utf-8", "replace").decode()
    return f'"{plain}"' if isinstance(value, str) else plain


def _invalid(message: str) -> ArgumentFault:
    return ArgumentFault("INVALID_INPUT", message)
