"""The ideal time of a workload, from the latencies that the simulated provider draws.

A latency depends only on the conversation, the model and the pool's seed. This module therefore
simulates the conversations without HTTP. The result is exact, and the same on a busy machine.
(Times in the server's log contain the server's own delays, so every client would look better than
it is.)
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.overhead.conversation import answer, follow_up, opening
from benchmarks.overhead.workload import Workload
from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.pool.providers import mean_s
from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.random_draws import Draw
from pytest_ultrapar.simulator.served_pool import persona_by_name

Episodes = list[list[float]]
"""The seconds of each turn, by case."""


@dataclass(frozen=True, slots=True)
class Ideal:
    """Times that no client can beat.

    Attributes:
        n_seats: The maximum number of requests in flight.
        bound_s: The lower bound: all seats are always busy. It is at least the longest episode,
            whose turns follow each other.
        mean_s: The time of all requests at the mean latency in the pool file, on all seats. The
            workloads' goals use it. Drawn latencies differ from it by chance; fixed ones do not.
        greedy_s: The time of a scheduler without overhead that starts cases in their order and does
            not know latencies in advance. If episodes differ, this is the best time in practice.
    """

    n_seats: int
    bound_s: float
    mean_s: float
    greedy_s: float


def ideal_of(workload: Workload) -> Ideal:
    """The ideal times of a workload on its pool, if any episode can run on any seat."""
    pool = workload.pool()
    n_seats = pool.seats(pool.lanes)
    assert n_seats is not None
    ((model,),) = (provider.models for provider in pool.providers)
    episodes = play(pool, n_cases=workload.n_cases, n_turns=workload.n_turns)
    durations_s = [sum(episode) for episode in episodes]
    return Ideal(
        n_seats,
        bound_s=max(sum(durations_s) / n_seats, *durations_s),
        mean_s=workload.n_cases * workload.n_turns * mean_s(model.simulation.latency) / n_seats,
        greedy_s=greedy_s(durations_s, n_seats),
    )


def greedy_s(durations_s: Sequence[float], n_seats: int) -> float:
    """The end of the last episode if they start in the given order, each on the first free seat.

    Source: Graham's list scheduling (1966); at most `2 - 1/n_seats` times the optimum.
    """
    free_at_s = [0.0] * n_seats
    for duration_s in durations_s:
        heapq.heapreplace(free_at_s, free_at_s[0] + duration_s)
    return max(free_at_s)


def play(pool: Pool, *, n_cases: int, n_turns: int) -> Episodes:
    """The latencies of the first cases on the pool's only model."""
    (provider,) = pool.providers
    (model,) = provider.models
    simulation = model.simulation
    persona = persona_by_name(simulation.persona)
    episodes: Episodes = []
    for number in range(n_cases):
        messages = [_seen(opening(number))]
        episodes.append([])
        for turn in range(n_turns):
            draw = Draw(
                messages, model=model.name, seed=provider.simulation_seed, request_seed=None
            )
            episodes[-1].append(draw.latency_s(simulation.latency))
            reply = persona(messages, draw.rng(), simulation.skill)
            messages += [_seen(answer(reply.content)), _seen(follow_up(turn))]
    return episodes


def _seen(message: dict[str, str]) -> ChatMessage:
    """The message in the type that a persona reads."""
    return ChatMessage(message["role"], message["content"])
