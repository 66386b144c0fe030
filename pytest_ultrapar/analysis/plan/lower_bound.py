"""Compute the best lower bound on a makespan, and the prices of limits that prove this bound.

The bound and the prices are the solution of a linear program, which HiGHS solves.

Loading numpy takes a while, and loading scipy's solver takes up to a second. So modules that the
coordinator or the workers load do not import this module; for example, `eta` works without it. The
solver is loaded only for pools that need it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, cast

import msgspec
import numpy as np

from pytest_ultrapar.analysis.plan.load import resources
from pytest_ultrapar.store.lower_bound import Bound, Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_ultrapar.analysis.plan.load import Resource
    from pytest_ultrapar.pool.model import Lane, Limit

    Floats = NDArray[np.float64]
    Numbers = NDArray[np.int64]


class RequestClass(msgspec.Struct, frozen=True):
    """Requests to one model with nearly the same service time.

    Attributes:
        model: The model. Any of its lanes may answer the requests.
        service_s: The shortest service time in the class, in seconds, >= 0.
        n: How many requests the class contains, >= 1.
    """

    model: str
    service_s: float
    n: int


BUCKET = 1.01
"""In a class of requests, the longest service time is at most the shortest one times this factor.
All requests in a class are assigned its shortest time, so the bound remains valid. If seats
determine the bound, this makes it 0.5 % lower on average (half of the 1 % in this factor)."""
_INSTANT_S = 1e-9
"""All requests to a model with shorter service times than this form one class. Like any class, it
is assigned the shortest of their times."""


def request_classes(services: Mapping[str, Sequence[float] | Floats]) -> tuple[RequestClass, ...]:
    """Sort requests into classes by their service times.

    Args:
        services: For each model, the service times of its requests in seconds, excluding waits.

    Returns:
        The classes. Models are in the given order. The classes of each model are sorted from short
        to long service times.
    """
    classes = []
    for model, times in services.items():
        ordered = np.sort(np.maximum(np.asarray(times, dtype=float), 0.0))
        buckets = np.floor(np.log(np.maximum(ordered, _INSTANT_S)) / np.log(BUCKET))
        _, first, sizes = np.unique(buckets, return_index=True, return_counts=True)
        classes += [
            RequestClass(model, float(ordered[at]), int(n))
            for at, n in zip(first, sizes, strict=True)
        ]
    return tuple(classes)


def lower_bound(
    lanes: Sequence[Lane],
    limits: Iterable[Limit],
    requests: Sequence[RequestClass],
    *,
    longest_s: float = 0.0,
) -> Bound:
    """Return the highest lower bound on the makespan that prices of limits can prove.

    Args:
        lanes: All lanes that the run may use.
        limits: The pool's limits. Limits that do not apply to any of these lanes are ignored.
        requests: The requests to answer.
        longest_s: The service time of the longest episode, in seconds. The turns of an episode
            cannot overlap, so the bound is never below this.

    Raises:
        ValueError: A request's model has no lane.
    """
    named = {name for lane in lanes for name in lane.limits}
    parts = resources(limit for limit in limits if limit.name in named)
    missing = {own.model for own in requests} - {lane.model for lane in lanes}
    if missing:
        raise ValueError(f"no lane serves {', '.join(sorted(missing))}")
    seconds, shares = _Program(lanes, parts, requests).solve() if parts else (0.0, [])
    if seconds <= longest_s:
        return Bound(longest_s, (), longest_s)
    prices = [
        Price(part.limit, part.kind, share / part.per_s, share)
        for part, share in zip(parts, shares, strict=True)
        if share > 0
    ]
    prices.sort(key=lambda price: -price.share)
    return Bound(seconds, tuple(prices), longest_s)


def burst_allowance(part: Resource, requests: Sequence[RequestClass], models: set[str]) -> float:
    """Return how many requests a rate allows on top of `per_s` for each second of the makespan.

    This is its burst, minus the requests that it allows so late that they could not be answered
    within the makespan.

    Args:
        part: A resource. If it is a number of seats, the result is 0.
        requests: All requests.
        models: The models that use the resource.
    """
    if not part.is_rate:
        return 0.0
    shortest_s = min((own.service_s for own in requests if own.model in models), default=0.0)
    return part.burst - part.per_s * shortest_s


def on_paths(lanes: Sequence[Lane], parts: Sequence[Resource]) -> tuple[Numbers, Numbers]:
    """Return all pairs of a lane and a resource that applies to it, as two arrays of positions."""
    of_limit = defaultdict[str, list[int]](list)
    for at, part in enumerate(parts):
        of_limit[part.limit].append(at)
    pairs = [(n, at) for n, lane in enumerate(lanes) for one in lane.limits for at in of_limit[one]]
    lane_of, part_of = np.array(pairs, np.int64).reshape(-1, 2).T
    return lane_of, part_of


def group_similar(
    lanes: Sequence[Lane], parts: Sequence[Resource], lane_of: Numbers, part_of: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the class of each lane and of each resource; members of a class are interchangeable.

    This is colour refinement. At first, lanes or resources with the same properties form a class.
    Members of a class are then separated if they are in pairs with different classes, until nothing
    changes. It is enough to find prices that are equal within a class: if optimal prices are
    averaged over interchangeable resources, the result is also optimal. For example, 300 lanes
    become 3 classes if they serve 3 models and all keys have the same limits.

    Args:
        lanes: All lanes.
        parts: All resources.
        lane_of: The lane in each pair from `on_paths`.
        part_of: The resource in each of these pairs.

    Source: Grohe et al., "Dimension reduction via colour refinement" (2014), for linear programs.
    """
    of_lane = _numbered(np.array([[lane.model] for lane in lanes]))
    of_part = _numbered(np.array([[part.is_rate, part.per_s, part.burst] for part in parts]))
    while True:
        n_classes = of_lane.max() + of_part.max()
        of_lane = _refined(of_lane, lane_of, of_part[part_of])
        of_part = _refined(of_part, part_of, of_lane[lane_of])
        if of_lane.max() + of_part.max() == n_classes:
            return of_lane, of_part


def _refined(own: Numbers, at: Numbers, meets: Numbers) -> Numbers:
    """Split each class into members that are in pairs with the same classes equally often.

    Each pair is given by its member (`at`) and by the class of the other side (`meets`).
    """
    # Represent each set by a sum of random 64-bit numbers; even for 10,000 sets, all sums differ.
    codes = np.random.default_rng(0).integers(2**63, size=meets.max(initial=0) + 1)
    sums = np.zeros(len(own), np.int64)
    np.add.at(sums, at, codes[meets])
    return _numbered(np.column_stack([own, sums]))


def _numbered(rows: NDArray[np.generic]) -> Numbers:
    """Return a number for each row. Two rows have the same number if and only if they are equal."""
    return cast("Numbers", np.unique(rows, axis=0, return_inverse=True)[1].ravel())


_ENOUGH = 1e-8
"""The search ends when the proven value is within this relative distance of the optimum."""
_ALIKE = 1e-10
"""Lanes are treated as equally costly if their costs differ by at most this share of the highest
cost."""


class _Program:
    """Divides each model's requests among lanes, so that all are answered as soon as possible.

    If each class had its own variables, 300 lanes would need 90,000 variables, and solving would
    take 1.4 s. But if a model's classes are sorted by service time, the cheapest lane changes only
    a few times from the shortest to the longest. So neighbouring classes are put into groups, with
    one group for each model at first. A group is divided among lanes as a whole. This can make
    the makespan longer, but not shorter. Groups are then split where the cheapest lane changes at
    the current prices. This is repeated until the prices prove that the optimum for the groups is
    also the optimum for the classes.
    """

    def __init__(
        self, lanes: Sequence[Lane], parts: Sequence[Resource], requests: Sequence[RequestClass]
    ) -> None:
        lane_of, part_of = on_paths(lanes, parts)
        of_lane, self._of_part = group_similar(lanes, parts, lane_of, part_of)
        first = np.sort(np.unique(of_lane, return_index=True)[1])
        # If a lane's key and the whole pool have the same limits, they share a class. The class
        # then counts twice.
        paths = np.zeros((len(first), self._of_part.max() + 1), np.int64)
        for row, at in enumerate(first):
            np.add.at(paths[row], self._of_part[part_of[lane_of == at]], 1)
        users: list[set[str]] = [set() for _ in parts]
        for n, at in zip(lane_of, part_of, strict=True):
            users[at].add(lanes[n].model)
        given_away = [
            burst_allowance(part, requests, models)
            for part, models in zip(parts, users, strict=True)
        ]
        self._part_per_s = np.array([part.per_s for part in parts])
        self._per_s = np.bincount(self._of_part, self._part_per_s)
        self._is_rate = np.bincount(self._of_part, [part.is_rate for part in parts]) > 0
        self._given = np.bincount(self._of_part, given_away)
        self._models = []
        for model in dict.fromkeys(one.model for one in requests):
            own = sorted((one.service_s, one.n) for one in requests if one.model == model)
            ways = paths[[lanes[at].model == model for at in first]]
            self._models.append(_Model(ways, *map(np.array, zip(*own, strict=True))))

    def solve(self) -> tuple[float, list[float]]:
        """Return the optimum for the classes, and each resource's share in proving it.

        A share is the resource's price times its supply per second, as in `Price`.
        """
        while True:
            optimum_s, shares = self._of_groups()
            prices = shares / self._per_s
            send, second = prices * self._is_rate, prices * ~self._is_rate
            split = [model.split(send, second) for model in self._models]
            proven_s = sum(found for found, _ in split) - prices @ self._given
            if proven_s >= optimum_s * (1 - _ENOUGH) or not any(done for _, done in split):
                parts = shares[self._of_part] * self._part_per_s / self._per_s[self._of_part]
                return max(0.0, float(proven_s)), parts.tolist()

    def _of_groups(self) -> tuple[float, Floats]:
        """Return the optimum if each group is divided as a whole.

        Also return the share of each class of resources in the proof of this optimum.
        """
        groups = [model.groups(self._is_rate) for model in self._models]
        loads = np.concatenate([load.reshape(-1, len(self._per_s)) for load in groups])
        n_groups = sum(len(load) for load in groups)
        group_of = np.repeat(
            np.arange(n_groups), np.concatenate([[load.shape[1]] * len(load) for load in groups])
        )
        n = len(loads)
        if n == n_groups:
            # Each model can be divided in only one way, for example because all keys are equal. So
            # the fullest resource sets the bound. This applies to most short runs, so they do not
            # load the solver.
            seconds = (loads.sum(axis=0) - self._given) / self._per_s
            fullest = seconds.argmax()
            return seconds[fullest], np.eye(len(seconds))[fullest]
        from scipy.optimize import linprog  # noqa: PLC0415
        from scipy.sparse import csr_array  # noqa: PLC0415

        # Measure the load on each resource in seconds, so that the dual prices are the shares
        # themselves.
        busy = np.vstack([loads / self._per_s, np.full(len(self._per_s), -1.0)])
        found = linprog(
            np.eye(1, n + 1, n)[0],
            csr_array(busy.T),
            self._given / self._per_s,
            csr_array((np.ones(n), (group_of, np.arange(n))), shape=(n_groups, n + 1)),
            np.ones(n_groups),
            method="highs",
        )
        assert found.success, found.message
        shares = np.maximum(0.0, -found.ineqlin.marginals)
        return found.fun, shares / max(shares.sum(), 1.0)


class _Model:
    """The requests to one model, from short to long, and the limits that apply to its lanes."""

    def __init__(self, paths: Numbers, service_s: Floats, n: Floats) -> None:
        self._paths = paths
        self._service_s = service_s
        self._n = n
        self._begins = np.array([0])

    def groups(self, is_rate: NDArray[np.bool_]) -> Floats:
        """Return the load of each group on each resource, if a lane takes the whole group.

        There is one load for each group, lane and resource.
        """
        n = np.add.reduceat(self._n, self._begins)[:, None]
        seconds = np.add.reduceat(self._n * self._service_s, self._begins)[:, None]
        return np.where(is_rate, n, seconds)[:, None, :] * self._paths

    def split(self, send: Floats, second: Floats) -> tuple[float, bool]:
        """Split groups where the cheapest lane changes at these prices.

        Returns:
            The lowest cost of all requests at these prices, and whether a group was split.
        """
        costs = (self._paths @ send)[:, None] + np.outer(self._paths @ second, self._service_s)
        least = costs.min(axis=0)
        # If costs are equal apart from rounding errors, take the first lane. Otherwise groups would
        # be split at random.
        lane = (costs <= least + _ALIKE * costs.max()).argmax(axis=0)
        begins = np.union1d(self._begins, np.flatnonzero(np.diff(lane)) + 1)
        was_split = len(begins) > len(self._begins)
        self._begins = begins
        return float(self._n @ least), was_split
