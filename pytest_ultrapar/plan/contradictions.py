"""What of a pool and its settings is inconsistent: a plan refuses it and shows the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.plan.amounts import service_s
from pytest_ultrapar.plan.busy_seats import seat_uses
from pytest_ultrapar.plan.token_demand import too_large

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ultrapar.plan.busy_seats import Service
    from pytest_ultrapar.plan.expectations import Expected
    from pytest_ultrapar.pool.model import Lane, Pool

REFUSED_ABOVE = 10.0
"""Seats for each one that rates keep busy. Latencies spread and sends bunch, so a few times as many
are sensible and more are waste; of ten times as many, either number is wrong."""


def contradictions(
    pool: Pool,
    lanes: Sequence[Lane],
    expected: Sequence[Expected],
    services: Mapping[str, Service],
    *,
    episode_timeout_s: float,
) -> tuple[str, ...]:
    """A sentence for each contradiction.

    Args:
        pool: What is to be run on.
        lanes: All of the run.
        expected: Its episodes.
        services: Of each model; an assumed one contradicts nothing.
        episode_timeout_s: Deadline of an episode.
    """
    return (
        *_empty_seats(pool, lanes, services),
        *_late_requests(pool, lanes, services),
        *_late_episodes(expected, services, episode_timeout_s),
        *too_large(pool, lanes, expected),
    )


def _empty_seats(
    pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]
) -> Iterator[str]:
    for use in seat_uses(pool, lanes, services):
        if use.ratio > REFUSED_ABOVE and not use.service.is_assumed:
            yield (
                f"{use}; write workers = {use.useful} to {REFUSED_ABOVE * use.useful:g}, or a "
                "higher rate"
            )


def _late_requests(
    pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]
) -> Iterator[str]:
    timeouts = {provider.name: provider.timeout_s for provider in pool.providers}
    for provider, model in dict.fromkeys((lane.provider, lane.model) for lane in lanes):
        service, timeout_s = services[model], timeouts[provider]
        if service.mean_s > timeout_s and not service.is_assumed:
            yield (
                f"{provider}/{model}: requests that take {service.mean_s:.3g} s on average end at "
                f"timeout_s = {timeout_s:g}"
            )


def _late_episodes(
    expected: Sequence[Expected], services: Mapping[str, Service], timeout_s: float
) -> Iterator[str]:
    by_model: dict[str, list[float]] = {}
    for one in expected:
        by_model.setdefault(one.model, []).append(service_s(one))
    for model, own in by_model.items():
        mean_s = sum(own) / len(own)
        if mean_s > timeout_s and not services[model].is_assumed:
            yield (
                f"{model}: episodes that take {mean_s:.4g} s on average, waiting left out, end at "
                f"--ultrapar-episode-timeout {timeout_s:g}"
            )
