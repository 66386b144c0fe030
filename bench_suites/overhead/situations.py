"""Pools and cases on which forecasts are compared with runs: each is bound by something else."""

from __future__ import annotations

from dataclasses import dataclass

ONE_TURN = "bench_suites/overhead/test_overhead.py::test_one_turn"
SIX_TURNS = "bench_suites/overhead/test_episodes.py::test_six_turns"


@dataclass(frozen=True, slots=True)
class Situation:
    """A run of some seconds whose length the pool decides, and neither client nor server.

    Attributes:
        pool: The pool file's text.
        cases: Arguments that select the cases.
        earlier_mode: Mode of the earlier run that the plan stands on; None for the pool's
            latencies.
        n_processes: pytest-xdist's `-n`.
    """

    name: str
    pool: str
    cases: tuple[str, ...]
    mode: str = "ultra"
    earlier_mode: str | None = None
    n_processes: int = 0


def _pool(provider: str, *models: str) -> str:
    named = "".join(
        f'\n[[provider.model]]\nname = "{model.partition(" ")[0]}"\n{model.partition(" ")[2]}\n'
        for model in models
    )
    return f'schema = 1\n[[provider]]\nname = "sim"\napi = "simulated"\n{provider}\n{named}'


_ONE_KEY = 'keys = [{ name = "key0" }]\n'
_KEYS = 'keys = [{ name = "key0" }, { name = "key1" }, { name = "key2" }]\n'
_FIXED = 'latency = { kind = "fixed", median_s = 0.2 }\n'
_SPREAD = 'latency = { kind = "log-normal", median_s = 0.15, sigma = 0.5 }\n'
_TAIL = 'latency = { kind = "log-normal", median_s = 0.15, sigma = 1.0 }\n'
_QWENS = tuple(f"qwen2.5-{size}-instruct" for size in ("72b", "32b", "14b", "7b", "3b"))

SITUATIONS = (
    Situation(
        "seats",
        _pool(_ONE_KEY + _FIXED + "per_key = { workers = 12 }", "echo"),
        (ONE_TURN, "--overhead-cases=240"),
    ),
    Situation(
        "qps, three keys",
        _pool(_KEYS + _FIXED + "per_key = { workers = 8, qps = 15 }", "echo"),
        (SIX_TURNS, "--overhead-cases=30"),
        n_processes=2,
    ),
    Situation(
        "rpm",
        _pool(_ONE_KEY + _SPREAD + "per_key = { workers = 20, rpm = 1500 }", "echo"),
        (ONE_TURN, "--overhead-cases=100"),
    ),
    Situation(
        "long tail",
        _pool(_ONE_KEY + _TAIL + "per_key = { workers = 30 }", "echo"),
        (SIX_TURNS, "--overhead-cases=90"),
        earlier_mode="ultra",
    ),
    Situation(
        "uneven models",
        _pool(
            _KEYS + _SPREAD + "per_key = { workers = 5, qps = 18 }",
            'slow latency = { kind = "log-normal", median_s = 0.6, sigma = 0.4 }\n'
            'persona = "repairing"\nkeys = ["key0"]',
            'large persona = "sloppy"\ninstances = ["large", "large-2", "large-3"]\n'
            "per_instance = { workers = 2 }",
            'small persona = "obedient"',
        ),
        ("bench_suites/phase53", "--task-type=simple_task", "--ultrapar-repeats=1"),
        earlier_mode="ultra",
        n_processes=2,
    ),
    Situation(
        "original scripts' processes",
        _pool(_KEYS + _SPREAD + "per_key = { workers = 2, qps = 10 }", *_QWENS),
        (
            "bench_suites/phase52",
            "--task-type=simple_task",
            "--difficulty=very_easy,medium",
            "--ultrapar-repeats=2",
            "--ultrapar-phase-scale=0.05",
        ),
        mode="phase",
        earlier_mode="phase",
    ),
    Situation(
        "one after another",
        _pool(_ONE_KEY + _SPREAD + "per_key = { workers = 5 }", "echo"),
        (SIX_TURNS, "--overhead-cases=5"),
        mode="serial",
        earlier_mode="ultra",
    ),
    Situation(
        "all lanes in turn",
        _pool(
            _ONE_KEY + _SPREAD + "qps = 4",
            'echo instances = ["a", "b", "c", "d"]\nper_instance = { workers = 1 }',
        ),
        (ONE_TURN, "--overhead-cases=20"),
        mode="rotate",
    ),
)
