"""Find out whether answers took longer with more requests in flight. All functions are pure.

A server that batches requests answers each of them more slowly under load, and so do servers that
share a machine. The sum of the response times is then not the time that a serial run would take.
The effect can be measured in a run with few requests in flight at some times and many at others.
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
"""The number of blocks into which a run is cut. With 24 blocks, Student's t makes intervals 6 %
wider than with infinitely many. With more blocks, each block would be shorter than a server's
fluctuations. Each block must contain at least one answer."""
_FEW_SHARE = 0.01
_LEAST_FEW = 4
"""The minimum number of answers that define "few in flight". These are the answers with the least
load. One answer is not enough, because it may have been alone for a moment by chance."""
_NO_SPREAD = 1e-3
"""The smallest error that is assumed for the slope of the fitted line. Even an event loop that
keeps up reads answers 0.2 ms late, so times whose logarithms differ by less than this are treated
as equal."""
_MOST_SAID = 50.0
"""A factor whose logarithm exceeds this is not real. It is noise from loads that were equal."""
_LEAST_RANGE = math.log(1.5)
"""The smallest useful range of loads, as the logarithm of a ratio. A line through a smaller range
shows only noise. In simulations of 672 runs on servers that slow down under load, 56 runs
produced a figure. With a ratio of 1.1 instead of 1.5, 72 runs produced one, although the loads in
some of them hardly differed."""
NOTICED = 1.1
"""A factor below this is not reported. Two runs of the same code differ by up to 5 %
(`compare.rules`). A difference twice as large is not due to chance."""
_MOST_UNSURE = 1.6
"""The largest useful factor between a speed-up and its lower bound. For example, a speed-up of 16x
that may really be 10x is still useful. With 3 instead of 1.6, 68 of the simulated runs (see
`_LEAST_RANGE`) would produce a figure."""


class Slowdown(msgspec.Struct, frozen=True):
    """How much longer answers took with many requests in flight than with few.

    Attributes:
        few: How many requests were in flight during the answers with the least load.
        many: How many requests were typically in flight.
        factor: The geometric mean of the response times with `many` requests in flight, divided by
            the geometric mean with `few`.
        low: The lower bound of `factor` at 95 %.
        high: The upper bound of `factor` at 95 %.
        alone: The upper bound, at 95 %, of the factor by which answers took longer than with one
            request in flight. None if the run spent too little time with few requests in flight.
    """

    few: float
    many: float
    factor: float
    low: float
    high: float
    alone: float | None

    @property
    def is_seen(self) -> bool:
        """Whether answers certainly took longer, and by a factor that is worth reporting."""
        return self.low > 1 and self.factor >= NOTICED


def stretch(log: RequestLog) -> Slowdown | None:
    """Estimate how load affected response times; None for a constant load or too few answers.

    On a log-log scale, a straight line is fitted to the response time as a function of the number
    of requests in flight. One line is used for all servers together, because servers may share
    resources that are not visible here. Each model on each instance has its own typical time. If
    all answers state their tokens, the fit allows for times that grow with the number of tokens.
    The load during a request is measured until its answer, but not beyond the typical time, because
    a long request outlives the others. Answers that are close in time may share other causes of
    slowness. So the error is computed in two ways, from single answers and from blocks of
    successive answers, and the larger error is used.

    Servers slow down more steeply at high loads than at low ones. So the line is not too flat for
    loads below the observed ones. It may be extended to such loads by as many doublings of the load
    as were observed. The further it is extended, the more certain it must be.

    Args:
        log: All requests in the run.
    """
    import numpy as np  # noqa: PLC0415 - other code imports the types here without numpy

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
        # Each server's load was constant.
        return None
    low, factor, high = (math.exp((slope + by) * (many - few)) for by in (-reach, 0.0, reach))
    alone = math.exp((slope + reach) * many)
    most = np.interp(many - few, (few / 2, few), (NOTICED, _MOST_UNSURE))
    known = alone if 1 <= alone <= (most if slope <= reach else NOTICED) else None
    return Slowdown(math.exp(few), math.exp(many), factor, low, high, known)


def _in_flight_s(columns: RequestColumns, moments_s: Floats) -> Floats:
    """For each moment, return the total time that requests had spent in flight until then."""
    import numpy as np  # noqa: PLC0415 - as above

    found = np.zeros(len(moments_s))
    for sign, edges in ((1, columns.sent_s), (-1, columns.ended_s)):
        n = np.searchsorted(np.sort(edges), moments_s)
        found += sign * (n * moments_s - np.insert(np.cumsum(np.sort(edges)), 0, 0.0)[n])
    return found


def _around_mean(values: Floats, groups: NDArray[np.int64]) -> Floats:
    """Subtract from each value the mean of its group."""
    import numpy as np  # noqa: PLC0415 - as above

    means: Floats = np.bincount(groups, values) / np.maximum(np.bincount(groups), 1)
    return values - means[groups]
