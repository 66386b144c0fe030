"""Search in the registry by the words of a query, without embeddings, state or chance."""

from __future__ import annotations

import math
import re
from functools import cache

from bench_suites.workflow.tool import Tool, load_tools

N_HITS = 5
LONGEST_QUERY_CHARACTERS = 400

_WORD = re.compile(r"[a-z]+")
_STEM = re.compile(
    r"(.{3,}?)(?:ations?|ators?|ates?|izers?|izes?|iers?|ies|y?ing|ers?|ors?|ed|es?|s|y)?"
)
_SHORTEST_STEM = 3
_WEIGHTS = {"operation": 3.0, "keywords": 1.5, "description": 1.0, "category": 1.0, "rest": 0.4}
_IGNORED = frozenset(
    _WORD.findall("the a an of to and or in on for with let have use that it is its from")
)


def search_tools(query: str) -> tuple[Tool, ...]:
    """The tools that match a query best, at most five, best first; empty if no word is known.

    A word has more weight if it matches fewer tools, and more in a tool's operation than in its
    description. Only the first 400 characters of the query are used; the time is linear in their
    number.
    """
    scores: dict[str, float] = {}
    index = _index()
    for word in dict.fromkeys(_stems(query[:LONGEST_QUERY_CHARACTERS])):
        for name, weight in index.get(word, {}).items():
            scores[name] = scores.get(name, 0.0) + weight
    # `sorted` is stable, so ties keep the registry's order.
    best = sorted(scores, key=lambda name: -scores[name])[:N_HITS]
    return tuple(load_tools()[name] for name in best)


def _stem(word: str) -> str:
    if found := _STEM.fullmatch(word):
        word = found[1]
    return word[:-1] if len(word) > _SHORTEST_STEM and word[-1] == word[-2] else word


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _IGNORED]


@cache
def _index() -> dict[str, dict[str, float]]:
    """The tools by stem, with the weight of a match."""
    index: dict[str, dict[str, float]] = {}
    order = {name: number for number, name in enumerate(load_tools())}
    for tool in load_tools().values():
        fields = {
            "operation": tool.operation,
            "keywords": " ".join(tool.keywords),
            "description": tool.description,
            "category": tool.category.replace("_", " "),
            "rest": " ".join([tool.returns, *(p.name.replace("_", " ") for p in tool.parameters)]),
        }
        for field, text in fields.items():
            for word in set(_stems(text)):
                weights = index.setdefault(word, {})
                weights[tool.name] = max(weights.get(tool.name, 0.0), _WEIGHTS[field])
    for weights in index.values():
        rarity = math.log(1 + len(order) / len(weights))
        for name in weights:
            weights[name] *= rarity
    return {word: dict(sorted(w.items(), key=lambda x: order[x[0]])) for word, w in index.items()}
