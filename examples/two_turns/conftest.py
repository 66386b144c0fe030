"""The strengths of the models, three simulated models, and a simulated judge."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from examples.stand_in import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    Message = dict[str, Any]
    Row = Mapping[str, Any]

ROUNDS = 50


def strengths(rows: Sequence[Row]) -> dict[str, float]:
    """Bradley-Terry strengths of the models on the Elo scale, with a mean of 1000.

    Each model of a pair gets an extra half win, so that every strength is finite.
    """
    won: dict[tuple[str, str], float] = defaultdict(lambda: 0.5)
    for row in rows:
        for other, share in json.loads(row["value"]).items():
            won[row["model"], other] += share
            won[other, row["model"]] += 1 - share
    names = {name for pair in won for name in pair}
    strength = dict.fromkeys(names, 1.0)
    for _ in range(ROUNDS):
        strength = {
            one: sum(won[one, other] for other in names - {one})
            / sum(
                (won[one, other] + won[other, one]) / (strength[one] + strength[other])
                for other in names - {one}
            )
            for one in names
        }
    logs = {name: 400 * math.log10(value) for name, value in strength.items()}
    mean = sum(logs.values()) / len(logs)
    return {name: 1000 + value - mean for name, value in logs.items()}


def pytest_ultrapar_figures(rows: Sequence[Row]) -> dict[str, Callable[[Sequence[Row]], float]]:
    """Compute the strength of each model. For its interval, the run resamples the cases."""

    def strength(model: str, rows: Sequence[Row]) -> float:
        return strengths(compared(rows))[model]

    def compared(rows: Sequence[Row]) -> list[Row]:
        return [one for one in rows if one["test_name"] == "test_wins" and one["value"]]

    return {f"strength_{name}": partial(strength, name) for name in strengths(compared(rows))}


# -- simulated models ------------------------------------------------------------------------------

KNOWN = {
    "metals": "silver, copper, gold",
    "cheap": "copper, aluminium, iron",
    "rivers": "the Danube, the Rhine, the Po",
    "Black": "the Danube, the Dnieper, the Don",
    "violin": "E, A, D",
    "highest": "E",
    "planets": "Saturn, Uranus, Neptune",
    "brightest": "Saturn",
    "games": "chess, draughts, reversi",
    "queen": "chess",
    "trees": "spruce, fir, pine",
    "lose": "larch",
}


def lists(most: int, unknown: set[str], messages: list[Message]) -> Message:
    """Answer with up to `most` known items on the topic of the question."""
    words = messages[-1]["content"].rstrip("?.").split()
    (topic,) = [word for word in words if word in KNOWN]
    items = KNOWN[topic].split(", ")[:most]
    return {"content": "I do not know." if topic in unknown else f"{', '.join(items)}."}


def n_items(answer: str) -> int:
    """The number of items in an answer."""
    return 0 if "not know" in answer else answer.count(",") + answer.count(".")


def judge(messages: list[Message]) -> Message:
    """Rate an answer by its number of items, and prefer the answer with more items."""
    prompt = messages[-1]["content"]
    if prompt.startswith("Rate"):
        return {"content": str(1 + 3 * n_items(prompt.split("Answer: ")[1]))}
    first, second = (n_items(part) for part in prompt.split("[A]\n")[1].split("[B]\n"))
    return {"content": "tie" if first == second else "A" if first > second else "B"}


def pytest_configure(config: pytest.Config) -> None:
    """Start the simulated models once, in xdist's controller."""
    if not hasattr(config, "workerinput"):
        players = {
            "terse": partial(lists, 1, set[str]()),
            "plain": partial(lists, 2, {"rivers", "Black"}),
            "fond-of-lists": partial(lists, 3, {"violin", "games", "queen"}),
        }
        serve(8433, {**players, "judge": judge})
