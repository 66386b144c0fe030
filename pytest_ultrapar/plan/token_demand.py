"""What requests take of limits on tokens, and what a plan cannot say of that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.plan.expectations import Expected
    from pytest_ultrapar.pool.model import Lane, Pool


def request_tokens(one: Expected) -> int | None:
    """Tokens, in and out, of each request of an episode, on average; None where nobody knows."""
    if one.tokens_in is None or one.tokens_out is None:
        return None
    return math.ceil((one.tokens_in + one.tokens_out) / len(one.services_s))


def too_large(pool: Pool, lanes: Sequence[Lane], expected: Sequence[Expected]) -> Iterator[str]:
    """A sentence for each model whose requests take more on average than any lane lets pass."""
    sizes: dict[str, list[int]] = {}
    for one in expected:
        tokens = request_tokens(one)
        if tokens is not None:
            sizes.setdefault(one.model, []).append(tokens)
    for model, own in sizes.items():
        most, name = max(
            (_smallest(pool, lane) for lane in lanes if lane.model == model),
            default=(math.inf, ""),
        )
        mean = sum(own) / len(own)
        if mean > most:
            yield (
                f"{model}: requests of {mean:,.0f} tokens on average never fit into {name}, whose "
                f"tpm is {most:,.0f}"
            )


def unjudged(pool: Pool, lanes: Sequence[Lane], expected: Sequence[Expected]) -> Iterator[str]:
    """What a plan leaves out about limits on tokens."""
    asked = {one.model for one in expected}
    names = {name for lane in lanes if lane.model in asked for name in lane.limits}
    metered = [name for name in pool.limits if name in names and pool.limits[name].tpm is not None]
    if not metered:
        return
    more = f" and {len(metered) - 1} more" if len(metered) > 1 else ""
    yield (
        f"the lower bound does not count tokens (tpm of {metered[0]}{more}); the times of the "
        "modes do, with each request at the mean of its episode"
    )
    unknown = sum(request_tokens(one) is None for one in expected)
    if unknown:
        cases = "case" if len(expected) == 1 else "cases"
        yield (
            f"tokens of {unknown:,} of {len(expected):,} {cases} are not known: to the tpm of "
            f"{metered[0]}{more} they count as none; say tokens_in and tokens_out in the mark "
            "ultrapar(expect=...), or name a run with --ultrapar-plan-from"
        )


def _smallest(pool: Pool, lane: Lane) -> tuple[float, str]:
    """The least `tpm` on a lane's path and whose it is; infinity where it has none."""
    found = [(pool.limits[name].tpm, name) for name in lane.limits]
    return min(((tpm, name) for tpm, name in found if tpm is not None), default=(math.inf, ""))
