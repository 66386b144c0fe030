"""What all hosts of a run must agree on, and what to say where one does not."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.publish import NOT_THAT_JSON
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.store.cases_file import suite_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ultrapar.records import Case

_LONGEST = 60


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Compared when a host joins; the order of the fields is that in which differences are named.

    Attributes:
        version: Of this package.
        seed: The run seed.
        mode: `ultra` or `rotate`.
        rate_mode: `fixed`, `adaptive` or `mixed`.
        policy: Name of the assignment policy.
        shard: `K/N`, or empty.
        pool: Digest of the pool's file.
        models: The models that make cases.
        n_cases: How many cases there are.
        suite: Digest of their ids, in any order.
        order: Digest of their ids as collected, by model.
        data: What the suites say of their data, by name.
    """

    version: str
    seed: int
    mode: str
    rate_mode: str
    policy: str
    shard: str
    pool: str
    models: tuple[str, ...]
    n_cases: int
    suite: str
    order: str
    data: dict[str, str] = {}

    def text(self) -> str:
        """As it is kept on the server: the same for the same run."""
        return msgspec.json.encode(self, order="deterministic").decode()


_WORDS = {
    "version": "pytest-ultrapar's version",
    "seed": "the run seed (--ultrapar-seed)",
    "mode": "the mode",
    "rate_mode": "the rate mode",
    "policy": "the policy",
    "shard": "the shard",
    "pool": "the pool file's content",
    "models": "the models",
    "n_cases": "the number of cases",
    "suite": "the cases",
    "order": "the order in which pytest collects the cases",
}
_DIGESTS = frozenset({"pool", "suite", "order"})


class NumberedCases:
    """The cases of a run as all hosts number them: model by model, as pytest collects them.

    Attributes:
        models: The models that make cases, in the order of the pool.
        ranges: For each, the first of its numbers and the one behind its last.
        cases: By number.
    """

    def __init__(self, cases: Sequence[Case], models: Sequence[str]) -> None:
        by_model: dict[str, list[Case]] = {model: [] for model in models}
        for case in cases:
            by_model.setdefault(case.model, []).append(case)
        self.models = tuple(by_model)
        self.cases: list[Case] = []
        self.ranges: list[tuple[int, int]] = []
        for own in by_model.values():
            first = len(self.cases)
            self.cases += own
            self.ranges.append((first, len(self.cases)))

    def __len__(self) -> int:
        return len(self.cases)

    def model_of(self, number: int) -> int:
        """The place in `models` of a case's model."""
        return next(i for i, (first, last) in enumerate(self.ranges) if first <= number < last)

    @property
    def suite(self) -> str:
        """Digest of the cases, whatever their order."""
        return suite_digest(self.cases)

    @property
    def order(self) -> str:
        """Digest of the cases in the order of their numbers."""
        ids = "\n".join(case.case_id for case in self.cases)
        return hashlib.sha256(ids.encode()).hexdigest()


def refuse_other(run: str, own: RunIdentity, theirs: str) -> ConfigError:
    """The error of a host that joins a run which goes on with something else.

    Args:
        run: The run's name.
        own: This host's.
        theirs: What stands on the server; anybody may have written it.
    """
    try:
        other = msgspec.json.decode(theirs, type=RunIdentity)
    except NOT_THAT_JSON:
        return ConfigError(
            f'--ultrapar-cluster-run: what the server has of run "{run}" is of another version, or '
            "was not written by pytest-ultrapar; give the run another name"
        )
    differences = "; ".join(_differences(own, other)) or "something that this version does not name"
    return ConfigError(
        f'--ultrapar-cluster-run: hosts of run "{run}" began with something else: {differences}; '
        "start this host as the others were, or give the run another name"
    )


def _differences(own: RunIdentity, other: RunIdentity) -> Iterator[str]:
    for name, word in _WORDS.items():
        here, there = getattr(own, name), getattr(other, name)
        if here == there:
            continue
        if name == "order" and own.suite != other.suite:
            continue
        if name == "suite" and own.n_cases != other.n_cases:
            continue
        if name in _DIGESTS:
            yield f"{word} is not the same" if name != "suite" else f"{word} are not the same"
        else:
            yield f"{word}: {_shown(here)} here, {_shown(there)} there"
    yield from _of_data(own.data, other.data)


def _of_data(own: Mapping[str, str], other: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*own, *other}):
        here, there = own.get(name, "none"), other.get(name, "none")
        if here != there:
            yield f"the {_shown(name)}: {_shown(here)} here, {_shown(there)} there"


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = visible(text or "none")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
