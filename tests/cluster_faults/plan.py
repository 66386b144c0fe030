"""What a round will be, drawn from its seed; pure."""

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
"""Of a request: the simulated provider counts four characters as a token."""
KEYS = ("key0", "key1")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One round.

    Attributes:
        fault: Its name.
        workers: `-n` of each host.
        ahead_s: What each host's clocks since boot are ahead of the provider's.
        n_cases: How many cases there are, all models together.
        seats: `workers` of each key.
        qps: Of each key.
        tpm: Of each key; None for no such limit.
        latency_s: Median of an answer's.
        after: The fault comes when this share of the cases was asked; None for early in the run.
        later_s: And that much later.
        victim: Number of the host that it is done to.
        away_s: How long what was killed stays away.
        cut: How a link is cut (`machines.Bridge.cut`).
        timeout_s: Of a request: shorter than what is down or stopped, or longer.
        seed: Of all this, and of what is lost on a slow line.
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
    """The round of that seed; the same whenever it is drawn."""
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
        # All cases together are less than what a minute allows, yet kept apart by it.
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
