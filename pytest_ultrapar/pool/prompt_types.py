"""Workers times the number of prompt types, as the documents give closed Azure models 200 x 3.

The number is the pool's own (`[pool] prompt_types`), not counted in the suite: limits must not
change with `-k`, and every process must know them before it collects anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import PROMPT_TYPES, WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.pool.limits import Caps
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.pool.schema import PoolFile


@dataclass(frozen=True, slots=True)
class Multiplier:
    """What the bounds on a model's own requests in flight are multiplied by.

    Rates are not: they are what the provider allows, whatever the number of prompts.

    Attributes:
        n: Number of prompt types, >= 1.
        file_name: How the origin calls the pool file.
    """

    n: int
    file_name: str

    def applied(self, place: Place, caps: Caps) -> tuple[Caps, str | None]:
        """The caps with their `workers` multiplied, and where that product comes from.

        The origin is None if nothing was multiplied.

        Raises:
            ConfigError: The product is out of bounds.
        """
        if caps.workers is None or self.n == 1:
            return caps, None
        product = caps.workers * self.n
        if product > WORKERS.at_most:
            place.at("workers").refuse(
                f"times {self.n} prompt types must be <= {WORKERS.at_most} (got {product})"
            )
        origin = f"{self.file_name}, {caps.workers} x {self.n} prompt types"
        return replace(caps, workers=product), origin


def check_prompt_types(place: Place, file: PoolFile) -> int | None:
    """The pool's number of prompt types, None if it says none.

    Args:
        place: The file.
        file: Its tables.

    Raises:
        ConfigError: The number is out of bounds, a model wants it and it is missing, or no model
            wants it.
    """
    number = file.pool.prompt_types if file.pool is not None else None
    wanting = [
        place.at("provider").item(p).at("model").item(m).at("multiply_by_prompt_types")
        for p, provider in enumerate(file.provider)
        for m, model in enumerate(provider.model)
        if model.multiply_by_prompt_types
    ]
    if number is None:
        if wanting:
            wanting[0].refuse("= true needs the number of prompt types: prompt_types in [pool]")
        return None
    where = place.at("pool").at("prompt_types")
    PROMPT_TYPES.check(where, number)
    if not wanting:
        where.refuse("multiplies nothing: no model has multiply_by_prompt_types = true")
    return number


def check_multiplies(place: Place, own: Iterable[Caps]) -> None:
    """Make sure that a model that wants its workers multiplied has any of its own.

    Raises:
        ConfigError: It has none.
    """
    if all(caps.workers is None for caps in own):
        place.at("multiply_by_prompt_types").refuse(
            "= true multiplies nothing: there are no workers in per_instance, per_lane or the "
            "provider's per_key_model"
        )
