"""Whether answers took longer where more requests were in flight; pure.

A server that batches answers is slower the more it does at once, and servers that share a machine
are, too. Then the times of answers, added up, are not those of one case after another. A run knows
it where it had few requests in flight at some time and many at another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.statistics import critical_t

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_ultrapar.analysis.requests import RequestColumns, RequestLog

    Floats = NDArray[np.float64]


_BLOCKS = 24
"""Stretches of a run. Their t makes intervals 6 % wider than any number of them would, and more of
them would be shorter than what comes and goes at a server. Each has to have an answer."""
_FEW_SHARE = 0.01
_LEAST_FEW = 4
"""So many answers, of those with the least company, say what few in flight is: one may be alone for
a moment, by chance."""
_NO_SPREAD = 1e-3
"""Of a logarithm: times that are equal up to this are equal, as a loop that keeps up reads an
answer 0.2 ms late."""
_MOST_SAID = 50.0
"""Of a logarithm: what is larger is no factor but the noise of equal loads."""
_LEAST_RANGE = math.log(1.5)
"""Of loads: a line through less is one through noise. In 672 simulated runs on servers that slow
down 56 had a figure, and 72 with a range of 1.1, for loads that had hardly differed."""
NOTICED = 1.1
"""Two runs of the same code differ by 5 % (`compare.rules`): twice that is no chance."""
_MOST_UNSURE = 1.6
"""So much lower may a speed-up be than its figure: 16x that may be 10x still says something. With
3 instead, 68 of those runs would have one."""


class Stretch(msgspec.Struct, frozen=True):
    """How much longer answers took with many requests in flight than with few.

    Attributes:
        few: In flight while those answers of the run came that had the least company.
        many: In flight at a time, typically.
        factor: Geometric mean of the times with `many` over that with `few`.
        low: Its bounds at 95 %; see `high`.
        alone: Upper bound at 95 % of the same beside one request in flight; None where that would
            be a guess: too little was seen of few requests in flight.
    """

    few: float
    many: float
    factor: float
    low: float
    high: float
    alone: float | None

    @property
    def is_seen(self) -> bool:
        """Whether answers took longer for sure, and by enough to be said."""
        return self.low > 1 and self.factor >= NOTICED


def stretch(log: RequestLog) -> Stretch | None:
    """The stretch of a run's answers; None where the load was the same all the time, or few came.

    A straight line is put through the logarithms of times over those of requests in flight, of all
    servers together: servers may share hidden resources. Each model of each instance has its
    own typical time, and where all answers say their tokens, times may grow with these. Counted is
    what is in flight until the answer, but no longer than the typical time: a long one outlives the
    others. Neighbours in time may share what else there is, so the error is that of
    answers, or of stretches of the run where these say more.

    Servers slow down ever faster the more they have to do, so the line is not too flat below what
    was seen; it may go on there for as many doublings as there are in what was seen, and the
    further it goes on beyond these, the surer it has to be.

    Args:
        log: All requests of the run.
    """
    import numpy as np  # noqa: PLC0415 - the types here are read where it is not loaded

    columns = log.columns()
    served = columns.of(columns.served & (columns.ended_s > columns.sent_s))
    if len(served.lane) < _BLOCKS:
        return None
    names = [(lane.provider, lane.instance, lane.model) for lane in log.lanes]
    numbers = {name: at for at, name in enumerate(names)}
    server = np.array([numbers[name] for name in names])[served.lane]
    took_s = served.ended_s - served.sent_s
    typical_s = np.zeros(len(took_s))
    for at in np.unique(server):
        typical_s[server == at] = np.median(took_s[server == at])
    span_s = np.minimum(took_s, typical_s)
    beside_s = _in_flight_s(served, served.sent_s + span_s) - _in_flight_s(served, served.sent_s)
    load = np.log1p(np.maximum(0.0, beside_s - span_s) / span_s)
    n_few = max(_LEAST_FEW, math.ceil(_FEW_SHARE * len(load)))
    few, many = float(np.sort(load)[:n_few].mean()), float(load.mean())
    if many - few < _LEAST_RANGE:
        return None
    explains = [load, np.log(served.tokens)] if (served.tokens > 0).all() else [load]
    in_order = np.argsort(served.sent_s)
    times, *own = (_around_mean(each, server)[in_order] for each in (np.log(took_s), *explains))
    moved = np.column_stack(own)
    inverse = np.linalg.pinv(moved.T @ moved)
    slopes = inverse @ moved.T @ times
    left = times - moved @ slopes
    blocks = np.add.reduceat(moved * left[:, None], np.arange(_BLOCKS) * len(left) // _BLOCKS)
    alone_variance = inverse * (left @ left) / max(1, len(left) - len(numbers) - 2)
    variance = inverse @ blocks.T @ blocks @ inverse * _BLOCKS / (_BLOCKS - 1)
    error = math.sqrt(max(0.0, alone_variance[0, 0], variance[0, 0]))
    slope = float(slopes[0])
    reach = critical_t(_BLOCKS, 0.95) * max(error, _NO_SPREAD)
    if inverse[0, 0] <= 0 or (abs(slope) + reach) * many > _MOST_SAID:
        # Each server had the same load all the time.
        return None
    low, factor, high = (math.exp((slope + by) * (many - few)) for by in (-reach, 0.0, reach))
    alone = math.exp((slope + reach) * many)
    most = np.interp(many - few, (few / 2, few), (NOTICED, _MOST_UNSURE))
    known = alone if 1 <= alone <= (most if slope <= reach else NOTICED) else None
    return Stretch(math.exp(few), math.exp(many), factor, low, high, known)


def _in_flight_s(columns: RequestColumns, moments_s: Floats) -> Floats:
    """Seconds in flight of all requests together, up to each moment."""
    import numpy as np  # noqa: PLC0415 - as above

    found = np.zeros(len(moments_s))
    for sign, edges in ((1, columns.sent_s), (-1, columns.ended_s)):
        n = np.searchsorted(np.sort(edges), moments_s)
        found += sign * (n * moments_s - np.insert(np.cumsum(np.sort(edges)), 0, 0.0)[n])
    return found


def _around_mean(values: Floats, groups: NDArray[np.int64]) -> Floats:
    """Values less the mean of their group."""
    import numpy as np  # noqa: PLC0415 - as above

    means: Floats = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return values - means[groups]
