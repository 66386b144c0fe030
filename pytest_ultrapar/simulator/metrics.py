"""What a server that queues says of itself, as vLLM's `/metrics` does.

Source: vLLM's gauges `vllm:num_requests_running` and `vllm:num_requests_waiting`, in the text
format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.simulator.served import ServedProvider

METRICS_HEADERS = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


def encode_metrics(provider: ServedProvider) -> bytes:
    """Requests at work and waiting at each instance that has a knee."""
    lines = []
    for name, says in (
        ("running", "Number of requests that are worked on."),
        ("waiting", "Number of requests that wait to be worked on."),
    ):
        gauge = f"vllm:num_requests_{name}"
        lines += [f"# HELP {gauge} {says}", f"# TYPE {gauge} gauge"]
        for api_name, station in provider.stations.items():
            n = station.n_running if name == "running" else station.n_waiting
            lines.append(f'{gauge}{{model_name="{api_name}"}} {n}.0')
    return ("\n".join(lines) + "\n").encode()
