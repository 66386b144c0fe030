"""The LiteLLM proxy with a limit on requests per minute, in an environment of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_ultrapar.simulator.address import default_token
from tests.proxies.daemon import serving
from tests.proxies.fronts import Front, Nginx, at_work

_CONFIG = """\
model_list:
  - model_name: m
    litellm_params:
      model: openai/m
      api_base: http://127.0.0.1:{upstream}/up/v1
      api_key: {token}
      rpm: {rpm}
router_settings:
  optional_pre_call_checks: ["enforce_model_rate_limits"]
  num_retries: 0
general_settings:
  master_key: {token}
"""
_START_S = 300.0
_RECORDER = Nginx(location="rewrite ^/up/(.*)$ /$1 break;")
"""LiteLLM has no log with times of a millisecond, so nginx in front of it keeps one."""


@dataclass(frozen=True, slots=True)
class Litellm:
    """The proxy with one deployment.

    Attributes:
        environment: A virtual environment; made if it is not there, which takes a minute.
    """

    rpm: int
    environment: Path


@contextlib.contextmanager
def litellm_at_work(proxy: Litellm, upstream: int, directory: Path) -> Iterator[Front]:
    """Start the proxy, ask it once so that it has loaded all it needs, and end it."""
    directory.mkdir(parents=True)
    python = _installed(proxy.environment)
    token = default_token("up", "key0")
    config = directory / "litellm.yaml"
    config.write_text(
        _CONFIG.format(upstream=upstream, token=token, rpm=proxy.rpm), encoding="utf-8"
    )

    def command(port: int) -> list[str]:
        return [
            *("env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=CRITICAL"),
            *(str(python.with_name("litellm")), "--config", str(config), "--telemetry", "False"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ]

    with serving(command, directory / "litellm.log", start_s=_START_S) as port:
        _ask(port, token)
        with at_work(_RECORDER, port, directory / "nginx") as front:
            yield front


def _installed(environment: Path) -> Path:
    python = environment.absolute() / "bin" / "python"
    if not python.with_name("litellm").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "litellm[proxy]"]
        subprocess.run(install, check=True, stderr=subprocess.DEVNULL)
    return python


def _ask(port: int, token: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "say hello"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_START_S) as answer:
        answer.read()
