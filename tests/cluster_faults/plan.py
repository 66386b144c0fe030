"""The plan of a round, drawn from its seed; pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

POOL = """\
schema = 1
[[provider]]
name = "lab"
api = "simulated"
keys = [{{ name = "key0" }}, {{ name = "key1" }}]
per_key = {{ {limits} }}
timeout_s = {timeout_s}
latency = {{ kind = "log-normal", median_s = {latency_s:.2f}, sigma = 0.4 }}
[[provider.model]]
name = "small"
[[provider.model]]
name = "large"
"""
SUITE = """\
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def answer(llm, number) -> str:
    messages = [{{"role": "user", "content": f"Say {{number}}." + " Please." * 30}}]
    return (await llm.chat(messages, max_tokens=16)).text

@pytest.mark.parametrize("number", range({n}))
def test_answers(answer, number, grade):
    grade("solved")
"""
MODELS = 2
TOKENS = 66
"""Tokens of a request: the simulated provider counts four characters as a token."""
KEYS = ("key0", "key1")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One round.

    Attributes:
        fault: The name of the fault.
        workers: `-n` of each host.
        ahead_s: Seconds by which each host's clocks since boot are ahead of the provider's.
        n_cases: The number of cases of all models together.
        seats: `workers` of each key.
        qps: `qps` of each key.
        tpm: `tpm` of each key; None for no such limit.
        latency_s: The median latency of an answer.
        after: The share of cases that are sent before the fault; None for early in the run.
        later_s: Seconds from that moment to the fault.
        victim: The number of the host that has the fault.
        away_s: Seconds until a killed process starts again.
        cut: The way to cut a link (`machines.Bridge.cut`).
        timeout_s: The timeout of a request: shorter or longer than the fault.
        seed: The seed of this plan, and of the frames lost on a slow line.
    """

    fault: str
    seed: int
    workers: tuple[int, ...]
    ahead_s: tuple[int, ...]
    n_cases: int
    seats: int
    qps: int
    tpm: int | None
    latency_s: float
    after: float | None
    later_s: float
    victim: int
    away_s: float
    cut: str
    timeout_s: int

    @property
    def pool(self):
        limits = f"workers = {self.seats}, qps = {self.qps}"
        if self.tpm is not None:
            limits += f", tpm = {self.tpm}"
        return POOL.format(limits=limits, latency_s=self.latency_s, timeout_s=self.timeout_s)

    @property
    def suite(self):
        return SUITE.format(n=self.n_cases // MODELS)


def draw(fault, seed):
    """Draw the round of a seed; the same seed always gives the same round."""
    chance = random.Random(f"{fault} {seed}")
    n_hosts = chance.choice((2, 3, 3))
    qps = chance.choice((2, 3, 4))
    n_cases = MODELS * chance.randrange(qps * 9, qps * 11)
    return Plan(
        fault=fault,
        seed=seed,
        workers=(2, 0, 0)[:n_hosts],
        ahead_s=tuple(chance.randrange(1000, 10_000_000) for _ in range(n_hosts)),
        n_cases=n_cases,
        seats=chance.choice((2, 3, 5)),
        qps=qps,
        # All cases together use less than the limit per minute, yet the limit spaces them.
        tpm=(
            None
            if chance.random() < 0.75
            else round(n_cases / len(KEYS) * TOKENS * chance.uniform(1.2, 2))
        ),
        latency_s=chance.uniform(0.2, 0.7),
        after=None if chance.random() < 0.15 else chance.uniform(0.02, 0.7),
        later_s=chance.uniform(0, 1),
        victim=chance.randrange(n_hosts),
        away_s=chance.uniform(1, 3),
        cut=chance.choice(("carrier", "silent")),
        timeout_s=chance.choice((5, 20)),
    )
