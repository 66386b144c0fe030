"""The sharpest lower bound of a makespan and its prices: a linear program, solved by HiGHS.

Loading numpy takes a while and scipy's solver up to a second, so nothing that a run's coordinating
process or a worker needs imports this module (`eta` does without), and the solver is loaded by the
first pool that needs one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_ultrapar.store.bound import RequestClass, fold, given_away, resources, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_ultrapar.pool.model import Lane, Limit
    from pytest_ultrapar.store.bound import Bound, LaneClass, ResourceClass

    Floats = NDArray[np.float64]


BUCKET = 1.01
"""Requests of one model whose service times lie within this factor form a class. A class counts
with its shortest time, so the bound stays one; it loses half of the factor, 0.5 %, on average, and
only where seats bind."""


def request_classes(services: Mapping[str, Sequence[float] | Floats]) -> tuple[RequestClass, ...]:
    """Sort requests into classes.

    Args:
        services: For each model the service times of its requests, in seconds, without waiting.

    Returns:
        Models in the order given, each from short to long.
    """
    classes = []
    for model, times in services.items():
        ordered = np.sort(np.asarray(times, dtype=float))
        n_instant = int(np.searchsorted(ordered, 0.0, side="right"))
        if n_instant:
            classes.append(RequestClass(model, 0.0, n_instant))
        timed = ordered[n_instant:]
        buckets = np.floor(np.log(timed) / np.log(BUCKET))
        _, first, sizes = np.unique(buckets, return_index=True, return_counts=True)
        classes += [
            RequestClass(model, float(timed[at]), int(n))
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
    """The sharpest bound that prices of limits can prove.

    Args:
        lanes: All that the run may use.
        limits: Those on the lanes' paths; others are left out.
        requests: What has to be answered.
        longest_s: The services of the longest episode, whose turns cannot overlap, in seconds.

    Raises:
        ValueError: A request's model has no lane.
    """
    named = {name for lane in lanes for name in lane.limits}
    parts = resources(limit for limit in limits if limit.name in named)
    missing = {own.model for own in requests} - {lane.model for lane in lanes}
    if missing:
        msg = f"no lane answers for {', '.join(sorted(missing))}"
        raise ValueError(msg)
    folded_lanes, folded = fold(lanes, parts)
    seconds, shares = _Program(folded_lanes, folded, requests).solve() if parts else (0.0, [])
    return spread(folded, seconds, shares, longest_s)


_ENOUGH = 1e-8
"""Relative distance of what is proven from the optimum at which it counts as reached."""
_ALIKE = 1e-10
"""Lanes whose costs differ by less than this share of the dearest one's cost the same."""


class _Program:
    """Which share of a model's requests goes to which lane, so that all are answered soonest.

    With variables for each class 300 lanes make 90,000 of them and take 1.4 s. But along the
    service times of a model the cheapest lane changes a few times only. So neighbouring classes
    form groups, at first one for each model. A group goes to lanes as a whole, which can only take
    longer; groups are split where the prices found make the cheapest lane change, until the prices
    prove for the classes themselves what the program found for the groups.
    """

    def __init__(
        self,
        lanes: Sequence[LaneClass],
        parts: Sequence[ResourceClass],
        requests: Sequence[RequestClass],
    ) -> None:
        self._per_s = np.array([part.per_s for part in parts])
        self._is_rate = np.array([part.is_rate for part in parts])
        self._given = np.array([given_away(at, lanes, parts, requests) for at in range(len(parts))])
        self._models = []
        for model in dict.fromkeys(one.model for one in requests):
            paths = np.zeros((sum(lane.model == model for lane in lanes), len(parts)))
            for row, lane in enumerate(lane for lane in lanes if lane.model == model):
                # A class counts twice where a lane's key and its pool offer the same and are alike.
                np.add.at(paths[row], list(lane.on), 1.0)
            own = sorted((one.service_s, one.n) for one in requests if one.model == model)
            self._models.append(_Model(paths, *map(np.array, zip(*own, strict=True))))

    def solve(self) -> tuple[float, list[float]]:
        """The optimum of the classes, and the share of each resource that proves it."""
        while True:
            optimum_s, shares = self._of_groups()
            prices = shares / self._per_s
            send, second = prices * self._is_rate, prices * ~self._is_rate
            split = [model.split(send, second) for model in self._models]
            proven_s = sum(found for found, _ in split) - prices @ self._given
            if proven_s >= optimum_s * (1 - _ENOUGH) or not any(done for _, done in split):
                return max(0.0, float(proven_s)), shares.tolist()

    def _of_groups(self) -> tuple[float, Floats]:
        """The optimum if each group is spread over lanes as one, and the shares that prove it."""
        groups = [model.groups(self._is_rate) for model in self._models]
        loads = np.concatenate([load.reshape(-1, len(self._per_s)) for load in groups])
        n_groups = sum(len(load) for load in groups)
        group_of = np.repeat(
            np.arange(n_groups), np.concatenate([[load.shape[1]] * len(load) for load in groups])
        )
        n = len(loads)
        if n == n_groups:
            # One way for each model, as where all keys are alike: nothing to choose, the fullest
            # resource bounds. Most short runs are of this kind, and need no solver to be loaded.
            seconds = (loads.sum(axis=0) - self._given) / self._per_s
            fullest = seconds.argmax()
            return seconds[fullest], np.eye(len(seconds))[fullest]
        from scipy.optimize import linprog  # noqa: PLC0415
        from scipy.sparse import csr_array  # noqa: PLC0415

        # In seconds of each resource, so that the dual prices are the shares themselves.
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
    """The requests of one model, from short to long, and the limits on the paths of its lanes."""

    def __init__(self, paths: Floats, service_s: Floats, n: Floats) -> None:
        self._paths = paths
        self._service_s = service_s
        self._n = n
        self._begins = np.array([0])

    def groups(self, is_rate: NDArray[np.bool_]) -> Floats:
        """By group, lane and resource, what there would be if all of the group went there."""
        n = np.add.reduceat(self._n, self._begins)[:, None]
        seconds = np.add.reduceat(self._n * self._service_s, self._begins)[:, None]
        return np.where(is_rate, n, seconds)[:, None, :] * self._paths

    def split(self, send: Floats, second: Floats) -> tuple[float, bool]:
        """What all cost at these prices at least, and whether groups were split therefore."""
        costs = (self._paths @ send)[:, None] + np.outer(self._paths @ second, self._service_s)
        least = costs.min(axis=0)
        # The first of those that cost the same but for rounding, or groups would be split at will.
        lane = (costs <= least + _ALIKE * costs.max()).argmax(axis=0)
        begins = np.union1d(self._begins, np.flatnonzero(np.diff(lane)) + 1)
        was_split = len(begins) > len(self._begins)
        self._begins = begins
        return float(self._n @ least), was_split
