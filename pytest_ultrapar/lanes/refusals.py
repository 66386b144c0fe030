"""Sentences for requests that can never be served."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.lanes.lane_state import LaneState

MAX_SHOWN = 8


def no_such_model(model: str, models: Iterable[str]) -> str:
    """The pool has no lane for a model."""
    return f"no lane of the pool serves the model {model!r}; it serves {_shown(models)}"


def no_such_group(group: str) -> str:
    """A request names a group that the assignment lacks."""
    return f"the assignment has no group {group!r}"


def all_out(model: str, lanes: Iterable[LaneState]) -> str:
    """Every lane that could serve a request is out, or its group allows none."""
    reasons = list(dict.fromkeys(lane.reason for lane in lanes))
    if not reasons:
        return f"the group of the case allows no lane of the model {model!r}"
    return f"no lane of the model {model!r} is left: {_shown(reasons, '; ')}"


def too_large(tokens: int, lanes: Iterable[LaneState]) -> str:
    """A request that may take more tokens than any lane lets pass in a minute."""
    smallest = {
        min((one.tokens.limit, one.name) for one in lane.metered if one.tokens is not None)
        for lane in lanes
    }
    most, name = max(smallest)
    return (
        f"a request may take {tokens:,} tokens by estimate, and the limit {name} allows "
        f"{most:,.0f} per minute (tpm); ask for less (max_tokens) or raise tpm"
    )


def _shown(words: Iterable[str], separator: str = ", ") -> str:
    all_words = list(words)
    cut = [f"and {len(all_words) - MAX_SHOWN} more"] if len(all_words) > MAX_SHOWN else []
    return separator.join([*all_words[:MAX_SHOWN], *cut])
