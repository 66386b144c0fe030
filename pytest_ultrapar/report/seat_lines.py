"""Which models share seats, as text; pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.plan.seats import SeatShare

_NAMED = 3


def seat_lines(shares: Sequence[SeatShare]) -> list[str]:
    """A line for each provider that bounds requests in flight, as the documents write their sums.

    Neighbours that have as many seats each are one summand: `6 + 4 = 10: 6 shared by a and 4 more;
    4 x 1 for b, c, d and 1 more`.

    Args:
        shares: In the order of the pool file.
    """
    lines = []
    for provider, own in groupby(shares, key=lambda one: one.provider):
        parts: list[tuple[int | None, str]] = []
        for (seats, shared), alike in groupby(
            own, key=lambda one: (one.seats, len(one.models) > 1)
        ):
            parts += _summands(seats, list(alike), shared=shared)
        if all(seats is None for seats, _ in parts):
            continue
        numbers = [seats for seats, _ in parts if seats is not None]
        total = ""
        if len(numbers) == len(parts) > 1:
            total = f"{' + '.join(map(str, numbers))} = {sum(numbers)}: "
        lines.append(f"seats of {provider}: {total}{'; '.join(text for _, text in parts)}")
    return lines


def _summands(
    seats: int | None, alike: Sequence[SeatShare], *, shared: bool
) -> list[tuple[int | None, str]]:
    """What neighbours with the same seats are in the sum, and the words for it."""
    if shared:
        return [
            (seats, f"{seats} shared by {one.models[0]} and {len(one.models) - 1} more")
            for one in alike
        ]
    models = [one.models[0] for one in alike]
    named = ", ".join(models[:_NAMED])
    if len(models) > _NAMED:
        named += f" and {len(models) - _NAMED} more"
    if seats is None:
        return [(None, f"unlimited for {named}")]
    times = f"{len(models)} x " if len(models) > 1 else ""
    return [(seats * len(models), f"{times}{seats} for {named}")]
