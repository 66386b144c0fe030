"""How often each cell runs: `20`, or `20x3` for the first three values of a suite's parameter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import REPEATS
from pytest_ultrapar.pool.place import shown

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place

# Eighteen digits are more than any bound allows and few enough for int() and for messages.
_FORM = re.compile(r"(-?[0-9]{1,18})(?:x(-?[0-9]{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Repetitions of each cell.

    Attributes:
        n: Repetitions, >= 1.
        n_first: Only cells with one of so many first values of the parameter that the suite's mark
            names, >= 1; None takes all.
    """

    n: int
    n_first: int | None = None

    @property
    def setting(self) -> int | str:
        """As the user writes it: 20, or `20x3`."""
        return self.n if self.n_first is None else f"{self.n}x{self.n_first}"


def parse_repeats(place: Place, text: str) -> Repeats:
    """The repetitions that a text of the form `N` or `NxM` asks for.

    Args:
        place: Where the text stands, for the message.
        text: What the user wrote, without blanks around it.

    Raises:
        ConfigError: It has another form, or a number is out of its bounds.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        place.refuse(
            'must be a number of repetitions such as "20", or "20x3" for the first 3 values of the '
            f"parameter that a suite counts (got {shown(text)})"
        )
    least, most = int(REPEATS.at_least or 1), int(REPEATS.at_most)
    n = int(found[1])
    if not least <= n <= most:
        place.refuse(f"must be between {least} and {most} (got {shown(text)})")
    if found[2] is None:
        return Repeats(n)
    n_first = int(found[2])
    if not least <= n_first <= most:
        place.refuse(f"must have between {least} and {most} after the x (got {shown(text)})")
    return Repeats(n, n_first)
