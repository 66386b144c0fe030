"""What the messages between the turns say: tools found, tools described, calls answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_SEARCH = re.compile(r'^Tools for "(.*)":', re.MULTILINE)
_HIT = re.compile(r"^\d+\. (\w+): .* Parameters: (.*)\. Needs: (.*)\.$", re.MULTILINE)
_DESCRIBED = re.compile(r"^Tool (\w+): .*\nParameters:\n((?:- .*\n)*)", re.MULTILINE)
_RESULT = re.compile(r"^Result of (\S+): (?:success|failed \((\w+)\))\n(.*)$", re.MULTILINE)
_PARAMETER = re.compile(r"(\w+) \((?:string|integer|number|boolean|array)(, required)?\)")


@dataclass(frozen=True, slots=True)
class Seen:
    """A tool that a search or a description showed.

    Attributes:
        parameters: Names of its parameters.
    """

    tool: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """A call and what came of it.

    Attributes:
        error: Error code, None for a success.
        message: The line below.
    """

    tool: str
    error: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """One message between two turns.

    Attributes:
        hits: By query, the tools found, best first.
        described: Tools that were asked about.
    """

    hits: dict[str, tuple[Seen, ...]]
    described: tuple[Seen, ...]
    answered: tuple[Answered, ...]


@lru_cache(maxsize=2048)
def read_feedback(text: str) -> Feedback:
    """What one message says; empty where it says nothing of the kind."""
    hits: dict[str, tuple[Seen, ...]] = {}
    starts = list(_SEARCH.finditer(text))
    ends = [*(found.start() for found in starts[1:]), len(text)]
    for found, end in zip(starts, ends, strict=False):
        block = text[found.end() : end]
        hits[found[1]] = tuple(Seen(hit[1], _names(hit[2])) for hit in _HIT.finditer(block))
    described = tuple(Seen(found[1], _names(found[2])) for found in _DESCRIBED.finditer(text))
    answered = tuple(Answered(found[1], found[2], found[3]) for found in _RESULT.finditer(text))
    return Feedback(hits, described, answered)


def _names(text: str) -> tuple[str, ...]:
    return tuple(found[1] for found in _PARAMETER.finditer(text))
