"""How busy a vLLM server is, out of the text that its `/metrics` gives."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_LARGEST_CHARACTERS = 4 * 1024 * 1024
_LONGEST_LINE = 4096
_LARGEST = 1e9
_SAMPLE = re.compile(
    r"vllm:num_requests_(running|waiting)"
    r'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?'
    r"[ \t]+(\S+)(?:[ \t]+-?[0-9]+)?\s*"
)
_MODEL = re.compile(r'(?:^|,)\s*model_name="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


class ServerLoad(NamedTuple):
    """Requests at one server, summed over its engines; None: the text does not say.

    Attributes:
        running: Requests being worked on, >= 0.
        waiting: Requests in the queue, >= 0.
    """

    running: float | None
    waiting: float | None


def parse_load(text: str, *, model: str | None = None) -> ServerLoad:
    """What Prometheus text says of vLLM's queue; never raises.

    Args:
        text: The body of `/metrics`; what stands beyond 4 MiB is not looked at.
        model: Count only samples of this `model_name`, the name that requests give; None counts
            all.

    Source: Prometheus, "Text-based format"; vLLM, "Production Metrics" (`vllm:num_requests_running`
    and `vllm:num_requests_waiting`, gauges labelled `model_name` and, since its engine V1,
    `engine`).
    """
    sums: dict[str, float] = {}
    for line in text[:_LARGEST_CHARACTERS].split("\n"):
        if not line.startswith("vllm:num_requests_") or len(line) > _LONGEST_LINE:
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None or not _is_of(model, sample[2] or ""):
            continue
        value = _value(sample[3])
        if value is not None:
            sums[sample[1]] = sums.get(sample[1], 0.0) + value
    return ServerLoad(sums.get("running"), sums.get("waiting"))


def _is_of(model: str | None, labels: str) -> bool:
    if model is None:
        return True
    named = _MODEL.search(labels)
    return named is not None and _ESCAPE.sub(_meant, named[1]) == model


def _meant(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= _LARGEST else None
