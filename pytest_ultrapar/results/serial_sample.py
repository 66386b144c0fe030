"""The serial sample of a run as times: how long its cases took one after the other; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.results.measure import CaseMeasure


class SerialSample(msgspec.Struct, frozen=True):
    """What became of a serial sample.

    Attributes:
        n: Its completed episodes, >= 1.
        duration_s: From its first send to its last end, the gaps between its episodes included.
    """

    n: int
    duration_s: float


def with_serial_times(measures: Sequence[CaseMeasure]) -> list[CaseMeasure]:
    """The same measures; those completed in the serial sample know the seconds that they took.

    A case's seconds run from the completion before it to its own, so they add up to the sample's
    duration, and what failed episodes took is in them, as it is in the makespan of a serial run.
    """
    found = list(measures)
    place = [
        (each.serial_span.end_s, at)
        for at, each in enumerate(found)
        if each.serial_span is not None and each.completed
    ]
    if not place:
        return found
    place.sort()
    spans = [each.serial_span for each in found if each.serial_span is not None]
    before_s = min(each.first_send_s for each in spans)
    _, last = place[-1]
    end_s = max(each.end_s for each in spans)
    for own_end_s, at in place:
        until_s = end_s if at == last else own_end_s
        found[at] = found[at]._replace(serial_s=max(0.0, until_s - before_s))
        before_s = until_s
    return found


def serial_times(measures: Iterable[CaseMeasure]) -> list[float]:
    """The seconds of those that were completed in the serial sample."""
    return [each.serial_s for each in measures if each.serial_s is not None]


def serial_sample(measures: Iterable[CaseMeasure]) -> SerialSample | None:
    """The sample in short; None when the run had none or nothing of it was completed."""
    times_s = serial_times(measures)
    return SerialSample(len(times_s), sum(times_s)) if times_s else None
