"""Pools and servers for tests of the simulated provider, built by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.model import (
    Instance,
    Key,
    Lane,
    LaneId,
    Latency,
    Level,
    Limit,
    Model,
    Pool,
    Provider,
    Simulation,
)
from pytest_ultrapar.pool.setting_values import Overrides
from pytest_ultrapar.simulator.address import default_token
from pytest_ultrapar.simulator.faults.file import load_faults
from pytest_ultrapar.simulator.faults.script import FaultScript
from pytest_ultrapar.simulator.process import SimulatorProcess
from pytest_ultrapar.simulator.refuse_option import refusal_faults
from tests.warm import warm_children

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PROVIDER = "lab"
AT_ONCE = Latency("fixed", 0.0)
NEVER = Latency("fixed", 3600.0)
MESSAGES = [{"role": "user", "content": "what is the answer"}]
PARAMETERS = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["query", "n"],
}
"""The name of a tool that a test declares."""
ARGUMENTS = {"query": "what is the answer", "n": 0}
"""The arguments with which the simulator calls it after `MESSAGES`."""


def simulated_pool(
    *,
    models: dict[str, Sequence[str]] | None = None,
    keys: Sequence[str] = ("key0",),
    latency: Latency | Mapping[str, Latency] = AT_ONCE,
    per_key: Limit | None = None,
    per_instance: Limit | None = None,
    more: Sequence[Limit] = (),
    seed: int = 0,
) -> Pool:
    """A pool of one provider, `lab`, whose models echo.

    `latency` is for all models, or by model. `per_key` and `per_instance` are patterns: their
    numbers are used, with new names. Limits in `more` are on the path of every lane.
    """
    models = models or {"m": ("m",)}
    limits = {limit.name: limit for limit in more}
    lanes = []
    for model, instances in models.items():
        for instance in instances:
            for key in keys:
                path = [limit.name for limit in more]
                places: tuple[tuple[Limit | None, str, Level], ...] = (
                    (per_key, f"{PROVIDER}/{key}", "key"),
                    (per_instance, f"{PROVIDER}/{instance}", "instance"),
                )
                for pattern, name, level in places:
                    if pattern is not None:
                        limits[name] = Limit(name, level, pattern.workers, pattern.qps, pattern.rpm)
                        path.append(name)
                lane = LaneId(f"{PROVIDER}/{instance}/{key}")
                lanes.append(Lane(lane, PROVIDER, model, instance, key, tuple(path), 0.0, 60.0))
    provider = Provider(
        PROVIDER,
        "simulated",
        "",
        tuple(Key(key) for key in keys),
        tuple(
            Model(
                model,
                tuple(Instance(name, name, "") for name in instances),
                simulation=Simulation(
                    latency=latency if isinstance(latency, Latency) else latency[model]
                ),
            )
            for model, instances in models.items()
        ),
        simulation_seed=seed,
    )
    return Pool("pool.toml", "0" * 64, (provider,), tuple(lanes), limits)


def pool_text(
    per_key: str = "workers = 4",
    latency_s: float = 0.01,
    *,
    name: str = "sim",
    keys: int = 1,
    sigma: float = 0.0,
    provider: str = "",
    models: Sequence[str] = ("m",),
    model: str = "",
) -> str:
    """A pool of one simulated provider; `provider` and `model` are more of their tables' fields.

    Answers take `latency_s`, or that as the median of a log-normal distribution with `sigma`.
    """
    listed = ", ".join(f'{{ name = "key{n}" }}' for n in range(keys))
    kind = "log-normal" if sigma else "fixed"
    spread = f", sigma = {sigma}" if sigma else ""
    head = f"""schema = 1
[[provider]]
name = "{name}"
api = "simulated"
keys = [{listed}]
per_key = {{ {per_key} }}
latency = {{ kind = "{kind}", median_s = {latency_s}{spread} }}
{provider}
"""
    return head + "".join(f'[[provider.model]]\nname = "{one}"\n{model}\n' for one in models)


def serving(
    text: str,
    log_path: Path,
    *,
    faults: str = "",
    refusals: Mapping[str, int] | None = None,
    **options: object,
) -> SimulatorProcess:
    """Start a server of the pool with this text and the faults of a faults file's text."""
    path = log_path.with_suffix(".toml")
    path.write_text(text, encoding="utf-8")
    pool = load_pool(path, environ={}, overrides=Overrides())
    script = faults_of(pool, log_path.parent, faults) if faults else None
    script = refusing(pool, refusals or {}, script)
    return _started(pool, log_path, faults=script, **options)


def running(pool: Pool, directory: Path, **options: object) -> SimulatorProcess:
    """Start a server of the pool; its log is `directory / "server.log"`."""
    return _started(pool, directory / "server.log", **options)


def _started(pool: Pool, log_path: Path, **options: object) -> SimulatorProcess:
    with warm_children():
        return SimulatorProcess.start(pool, log_path=log_path, **options)


def asking(server: SimulatorProcess) -> str:
    """The option with which a run uses this server."""
    return f"--ultrapar-simulator=http://127.0.0.1:{server.port}"


def refusing(
    pool: Pool, status_of: Mapping[str, int], script: FaultScript | None = None
) -> FaultScript:
    """A script with refusals, as from `--refuse`, before its own faults."""
    return (script or FaultScript()).preceded_by(refusal_faults(pool, status_of))


def bearer(key: str = "key0") -> dict[str, str]:
    """The header that the default server accepts."""
    return {"authorization": f"Bearer {default_token(PROVIDER, key)}"}


def question(text: str = "hello", model: str = "m") -> dict[str, object]:
    """A request's body."""
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def faults_of(pool: Pool, directory: Path, text: str) -> FaultScript:
    """The script of a faults file with that text."""
    path = directory / "faults.toml"
    path.write_text(text, encoding="utf-8")
    return load_faults(path, pool)
