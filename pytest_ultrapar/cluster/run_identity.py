"""The facts that all hosts in a run must agree on, and the error if a host's facts differ."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.assignment import Assignment, Group
from pytest_ultrapar.cluster.claim_protocol import GroupRule
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import LaneId
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.store.cases_file import suite_digest
from pytest_ultrapar.system.files import NOT_THAT_JSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_ultrapar.pool.model import Lane
    from pytest_ultrapar.records import Case

_LONGEST = 60
_LONGEST_S = 1e9
"""The maximum delay before a group starts, in seconds. A longer delay, which no run reaches,
is cut to this value, so that the server can count it in milliseconds."""


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that are compared when a host joins.

    An error message names the differences, in the order of these fields.

    Attributes:
        version: The version of this package.
        seed: The run seed.
        mode: `ultra`, `phase` or `rotate`.
        rate_mode: `fixed`, `adaptive` or `mixed`.
        policy: The name of the assignment policy.
        groups: A digest of the policy's groups; empty without groups.
        shard: `K/N`, or empty.
        pool: A digest of the pool file.
        models: The models that have cases.
        n_cases: The number of cases.
        suite: A digest of the cases' ids that does not depend on the order.
        order: A digest of the cases' ids: model by model, in the order of collection.
        numbers: A digest of the cases' ids, in the order of the cases' numbers.
        data: The descriptions that suites give of their data, by name.
    """

    version: str
    seed: int
    mode: str
    rate_mode: str
    policy: str
    groups: str
    shard: str
    pool: str
    models: tuple[str, ...]
    n_cases: int
    suite: str
    order: str
    numbers: str
    data: dict[str, str] = {}

    def text(self) -> str:
        """Return the text to store on the server. Equal runs have equal texts."""
        return msgspec.json.encode(self, order="deterministic").decode()


_WORDS = {
    "version": "pytest-ultrapar's version",
    "seed": "the run seed (--ultrapar-seed)",
    "mode": "the mode",
    "rate_mode": "the rate mode",
    "policy": "the policy",
    "groups": "the groups of the policy differ",
    "shard": "the shard",
    "pool": "the content of the pool file differs",
    "models": "the models",
    "n_cases": "the number of cases",
    "suite": "the cases differ",
    "order": "the order in which pytest collects the cases differs",
}
_DIGESTS = frozenset({"groups", "pool", "suite", "order"})
_FOLLOWS = {"groups": ("suite", "policy"), "suite": ("n_cases",), "order": ("suite",)}
"""For some fields, the other fields that they depend on. If one of those differs, the dependent
field is not reported."""


class CaseLine(msgspec.Struct, frozen=True):
    """The cases of one model that are in the same group, or in no group (free cases).

    Attributes:
        model: The model of the cases.
        group: The index of their group in the assignment; None for free cases.
        name: The name that this host's broker uses for their group; empty for free cases.
        lanes: The only lanes that they may use; None means every lane of their model.
    """

    model: str
    group: int | None = None
    name: str = ""
    lanes: tuple[LaneId, ...] | None = None


class NumberedCases:
    """The cases of a run, numbered in the same way on all hosts: by line, then in pytest's order.

    Attributes:
        models: The models that have cases, in the order of the pool.
        lines: The lines of the groups, in the order of the assignment, and then a line of free
            cases for each model.
        ranges: For each line, the number of its first case and the number after its last case.
        cases: The cases by number.
    """

    def __init__(
        self, cases: Sequence[Case], models: Sequence[str], groups: Sequence[Group] = ()
    ) -> None:
        self._groups = tuple(groups)
        group_of = {case_id: place for place, group in enumerate(groups) for case_id in group.cases}
        by_model: dict[str, list[Case]] = {model: [] for model in models}
        in_groups: list[dict[str, list[Case]]] = [{} for _ in groups]
        for case in cases:
            free = by_model.setdefault(case.model, [])
            place = group_of.get(case.case_id)
            (free if place is None else in_groups[place].setdefault(case.model, [])).append(case)
        self.models = tuple(by_model)
        self.cases: list[Case] = []
        self.lines: list[CaseLine] = []
        self.ranges: list[tuple[int, int]] = []
        self._spans: list[tuple[int, int]] = []
        names = {group.name for group in groups}
        for place, (group, own) in enumerate(zip(groups, in_groups, strict=True)):
            first = len(self.lines)
            for model in (one for one in self.models if one in own):
                name = group.name
                while len(own) > 1 and name in names:
                    name += f" ({model})"
                names.add(name)
                self._add(CaseLine(model, place, name, group.lanes), own[model])
            self._spans.append((first, len(self.lines)))
        for model, free in by_model.items():
            self._add(CaseLine(model), free)

    def _add(self, line: CaseLine, cases: list[Case]) -> None:
        first = len(self.cases)
        self.cases += cases
        self.lines.append(line)
        self.ranges.append((first, len(self.cases)))

    def __len__(self) -> int:
        return len(self.cases)

    def line_of(self, number: int) -> int:
        """Return the index of a case's line in `lines`."""
        # If several lines begin with this number, all but the last one are empty.
        return bisect_right(self.ranges, (number, len(self.cases))) - 1

    def rules(self) -> list[GroupRule]:
        """Return the rules of the groups, in the form in which the server needs them."""
        places = {group.name: place for place, group in enumerate(self._groups)}
        locks: dict[str, int] = {}
        return [
            GroupRule(
                lines=span,
                after=tuple(places[name] for name in group.after),
                start_after_ms=round(min(group.start_after_s, _LONGEST_S) * 1000),
                lock=-1
                if group.exclusive is None
                else locks.setdefault(group.exclusive, len(locks)),
                at_once=group.at_once or 0,
            )
            for span, group in zip(self._spans, self._groups, strict=True)
        ]

    def own_assignment(self, assignment: Assignment, lanes: Sequence[Lane]) -> Assignment:
        """Return the part of the assignment that a host's broker enforces: the lanes of each group.

        The server enforces the order of groups, their locks and their maximum numbers of open
        cases when cases are claimed. A host that also enforced these rules would wait for cases on
        other hosts.
        """
        groups: list[Group] = []
        for line, (first, last) in zip(self.lines, self.ranges, strict=True):
            if line.group is not None:
                own = tuple(
                    lane.lane_id
                    for lane in lanes
                    if lane.model == line.model
                    and (line.lanes is None or lane.lane_id in line.lanes)
                )
                ids = tuple(case.case_id for case in self.cases[first:last])
                groups.append(Group(line.name, ids, own))
        return Assignment(assignment.home, tuple(groups))

    @property
    def groups(self) -> str:
        """A digest of the groups; empty without groups."""
        if not self._groups:
            return ""
        return hashlib.sha256(msgspec.json.encode(self._groups)).hexdigest()

    @property
    def suite(self) -> str:
        """A digest of the cases that does not depend on their order."""
        return suite_digest(self.cases)

    @property
    def numbers(self) -> str:
        """A digest of the cases in the order of their numbers."""
        return _digest(self.cases)

    @property
    def order(self) -> str:
        """A digest of the cases: model by model, in the order in which pytest collects them."""
        place = {model: number for number, model in enumerate(self.models)}
        return _digest(sorted(self.cases, key=lambda case: (place[case.model], case.index)))


def _digest(cases: Iterable[Case]) -> str:
    return hashlib.sha256("\n".join(case.case_id for case in cases).encode()).hexdigest()


def refuse_other(run: str, own: RunIdentity, theirs: str) -> ConfigError:
    """Create the error for a host that tries to join a run with different settings or cases.

    Args:
        run: The run's name.
        own: The identity of this host.
        theirs: The identity on the server, which may be any text.
    """
    try:
        other = msgspec.json.decode(theirs, type=RunIdentity)
    except NOT_THAT_JSON:
        return ConfigError(
            f'--ultrapar-cluster-run: the server\'s data for run "{run}" is from another version '
            "of pytest-ultrapar, or from another program; give the run another name"
        )
    differences = "; ".join(_differences(own, other)) or "they have a setting that it does not know"
    return ConfigError(
        f'--ultrapar-cluster-run: this host differs from the hosts of run "{run}": {differences}; '
        "start this host in the same way as the others, or give the run another name"
    )


def _differences(own: RunIdentity, other: RunIdentity) -> Iterator[str]:
    differ = {name for name in _WORDS if getattr(own, name) != getattr(other, name)}
    for name, word in _WORDS.items():
        if name in differ and differ.isdisjoint(_FOLLOWS.get(name, ())):
            here, there = _shown(getattr(own, name)), _shown(getattr(other, name))
            yield word if name in _DIGESTS else f"{word}: {here} here, {there} there"
    for name in sorted({*own.data, *other.data}):
        here, there = own.data.get(name, "none"), other.data.get(name, "none")
        if here != there:
            yield f"the {_shown(name)}: {_shown(here)} here, {_shown(there)} there"


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    text = visible(text or "none")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
