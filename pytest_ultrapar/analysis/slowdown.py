"""Whether answers took longer with more requests in flight; pure.

A server that batches answers is slower under load, and so are servers that share a machine. Then
the sum of the times of answers is not the time of a serial run. A run can tell if it had few
requests in flight at some time and many at another.
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
"""Blocks of a run. Their Student's t makes intervals 6 % wider than any number of blocks. More
blocks would be shorter than the ups and downs of a server. Each block needs an answer."""
_FEW_SHARE = 0.01
_LEAST_FEW = 4
"""The number of least-loaded answers that define few in flight: a single one may be alone for a
moment by chance."""
_NO_SPREAD = 1e-3
"""In logarithms: times within this are equal. A loop that keeps up reads an answer 0.2 ms late."""
_MOST_SAID = 50.0
"""In logarithms: a larger value is not a factor but the noise of equal loads."""
_LEAST_RANGE = math.log(1.5)
"""The least range of loads: a line through less is noise. In 672 simulated runs on servers that
slow down, 56 had a figure. With a range of 1.1 it was 72, for loads that had hardly differed."""
NOTICED = 1.1
"""Two runs of the same code differ by 5 % (`compare.rules`): twice that is not chance."""
_MOST_UNSURE = 1.6
"""The largest factor between a speed-up and its lower bound: 16x that may be 10x is still useful.
With 3 instead, 68 of those runs would have a figure."""


class Slowdown(msgspec.Struct, frozen=True):
    """The ratio of answer times with many requests in flight to times with few.

    Attributes:
        few: Requests in flight during the least-loaded answers of the run.
        many: Typical requests in flight.
        factor: Geometric mean of the times with `many` over the times with `few`.
        low: Lower bound of `factor` at 95 %.
        high: Upper bound of `factor` at 95 %.
        alone: Upper bound at 95 % of the ratio to times with one request in flight; None if the run
            had too little time with few requests in flight.
    """

    few: float
    many: float
    factor: float
    low: float
    high: float
    alone: float | None

    @property
    def is_seen(self) -> bool:
        """Whether answers certainly took longer, and by enough to report."""
        return self.low > 1 and self.factor >= NOTICED


def stretch(log: RequestLog) -> Slowdown | None:
    """The stretch of a run's answers; None if the load was constant or there were few answers.

    It fits a straight line through the logarithms of times against requests in flight, for all
    servers together, because servers may share hidden resources. Each model of each instance has
    its own typical time. If all answers state their tokens, times may grow with these. The load of
    a request counts until its answer, but no longer than the typical time: a long request outlives
    the others. Answers close in time may share other causes, so the error is the larger one of the
    errors of answers and of blocks.

    Servers slow down faster the more load they have, so below the observed loads the line is not
    too flat. The line may continue there for as many doublings as were observed. The further it
    continues beyond these, the more certain it must be.

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
        # Each server had a constant load.
        return None
    low, factor, high = (math.exp((slope + by) * (many - few)) for by in (-reach, 0.0, reach))
    alone = math.exp((slope + reach) * many)
    most = np.interp(many - few, (few / 2, few), (NOTICED, _MOST_UNSURE))
    known = alone if 1 <= alone <= (most if slope <= reach else NOTICED) else None
    return Slowdown(math.exp(few), math.exp(many), factor, low, high, known)


def _in_flight_s(columns: RequestColumns, moments_s: Floats) -> Floats:
    """The sum of all requests' seconds in flight, up to each moment."""
    import numpy as np  # noqa: PLC0415 - as above

    found = np.zeros(len(moments_s))
    for sign, edges in ((1, columns.sent_s), (-1, columns.ended_s)):
        n = np.searchsorted(np.sort(edges), moments_s)
        found += sign * (n * moments_s - np.insert(np.cumsum(np.sort(edges)), 0, 0.0)[n])
    return found


def _around_mean(values: Floats, groups: NDArray[np.int64]) -> Floats:
    """Each value minus the mean of its group."""
    import numpy as np  # noqa: PLC0415 - as above

    means: Floats = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return values - means[groups]
