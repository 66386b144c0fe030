"""The words that --ultrapar-policy takes: those shipped, and those that conftests offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.options import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OPTION = "--ultrapar-policy"
PHASE = "phase"
"""The mode whose rules are a benchmark's own: only what is offered for it can be used in it."""

NONE = "none"
"""The policy of the modes that run one case at a time: there is nothing to choose."""

ONE_AT_A_TIME = ("serial", "rotate")
"""The modes that run one case at a time."""

_BATCH = "batch"


def settle_policy(given: str | None, *, mode: str, offered: Sequence[str]) -> str:
    """The policy in force: what was given, else the mode's default.

    Args:
        given: The option's word, None when it was not given.
        mode: The settled mode.
        offered: Names that conftests and plugins offer for this mode, theirs first that comes
            first. A name with an argument is offered as `name:ARGUMENT`.

    Raises:
        ConfigError: The word is none of the allowed ones, or has no say in this mode, or nobody
            offers one for mode `phase`.
    """
    if mode in ONE_AT_A_TIME:
        if given is None:
            return NONE
        msg = (
            f"{OPTION} {given!r} has no say in mode {mode}, which runs one case at a time; "
            "leave it out, or choose mode ultra or phase"
        )
        raise ConfigError(msg)
    if mode == PHASE and not offered:
        msg = (
            "--ultrapar-mode phase: no conftest or plugin of this project says what its phases "
            "are (hook pytest_ultrapar_policies); allowed are serial, rotate, ultra"
        )
        raise ConfigError(msg)
    allowed = list(dict.fromkeys(offered if mode == PHASE else (*POLICIES, *offered)))
    if given is None:
        return allowed[0]
    if any(is_called(given, name) for name in allowed):
        if mode != PHASE and given.partition(":")[0] == _BATCH:
            batch_size(given)
        return given
    where = f" in mode {mode}" if mode == PHASE else ""
    msg = f"{OPTION} {given!r} is unknown{where}; allowed are {', '.join(allowed)}"
    raise ConfigError(msg)


def is_called(word: str, name: str) -> bool:
    """Whether a word is a policy's name; `batch:3` and `batch:` are both called `batch:N`."""
    head, colon, _ = name.partition(":")
    return word.startswith(head + colon) if colon else word == name


def batch_size(word: str) -> int:
    """The N of `batch:N`.

    Raises:
        ConfigError: It is no number of models, >= 1.
    """
    text = word.partition(":")[2]
    if not (text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= 1):  # noqa: PLR2004 - a million models
        msg = f"{OPTION} {word!r}: batch:N needs how many models run at once, 1 to 999999"
        raise ConfigError(msg)
    return int(text)


def read_offered(answers: Iterable[object]) -> list[str]:
    """The names in all answers to the hook `pytest_ultrapar_policies`, in their order.

    Raises:
        ConfigError: An answer is no sequence of words.
    """
    names: list[str] = []
    for answer in answers:
        if isinstance(answer, str) or not hasattr(answer, "__iter__"):
            msg = f"pytest_ultrapar_policies must return a sequence of names (got {answer!r})"
            raise ConfigError(msg)
        for name in answer:
            if not isinstance(name, str) or not name or name.split() != [name]:
                msg = f"pytest_ultrapar_policies: a policy's name must be one word (got {name!r})"
                raise ConfigError(msg)
            names.append(name)
    return names
