"""OpenTelemetry spans and metrics of cases and their requests: a plugin on our own hooks.

It says what the tables say, when a case is over, and never what was asked or answered. Where it
goes the user's environment says (`OTEL_*`).

Source: OpenTelemetry semantic conventions 1.37.0, generative AI (names, units, buckets).
"""

from __future__ import annotations

import os
import threading
import time
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.session.collection import parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

    from opentelemetry.context import Context
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

    from pytest_ultrapar.records import Attempt, Grade

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
_SCOPE = "pytest_ultrapar"
_FLUSH_S = 5.0
"""A collector that is gone must not hold up the end of a run."""
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [4.0**power for power in range(14)]


def check_installed(environ: Mapping[str, str] = os.environ) -> None:
    """Look before a run begins whether all that it needs is there.

    Raises:
        ConfigError: The extra is not, or an exporter that the environment names.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        msg = "--ultrapar-otel needs the extra otel: pip install 'pytest-ultrapar[otel]'"
        raise ConfigError(msg)
    for signal in ("traces", "metrics"):
        _exporters(signal, environ)


class Telemetry:
    """Makes a span of each case and of each of its requests, in the process that ran it.

    Args:
        run_id: Of the run.
        worker: Of this process.
        text: Takes secrets out of names.
        tracers: Where spans go; None: where the environment says.
        meters: Where metrics go, likewise.
        environ: The environment.
    """

    def __init__(
        self,
        run_id: str,
        worker: str,
        text: Callable[[str], str],
        *,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        from opentelemetry.propagate import extract  # noqa: PLC0415 - only where it is asked for

        self._text = text
        self._facts = {"ultrapar.run": run_id, "ultrapar.worker": worker}
        self._tracers = tracers or _tracers(environ)
        self._meters = meters or _meters(environ)
        # As CI programs hand a trace on to what they start.
        given = {name: environ[name.upper()] for name in _CONTEXT if name.upper() in environ}
        self._parent: Context = extract(given)
        self._tracer = self._tracers.get_tracer(_SCOPE, schema_url=SCHEMA_URL)
        meter = self._meters.get_meter(_SCOPE, schema_url=SCHEMA_URL)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._item: pytest.Item | None = None
        self._attempts: list[Attempt] = []
        self._begun_s = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Note whose records come next. Main thread, per item."""
        self._item, self._attempts, self._begun_s = item, [], time.monotonic()

    def pytest_ultrapar_attempt(self, record: Attempt) -> None:
        """Keep a request of the case. Main thread."""
        self._attempts.append(record)

    def pytest_ultrapar_case(self, record: Grade) -> None:
        """Make the spans of a case that is over. Main thread."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415
        from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415

        item = self._item
        if item is None:
            return
        # What was measured stands on the monotonic clock.
        offset_ns = time.time_ns() - time.monotonic_ns()
        model = self._text(str(parameter(item, "model")))
        begun_s = min([self._begun_s, *(one.t_ready_s for one in self._attempts)])
        span = self._tracer.start_span(
            f"case {model}",
            self._parent,
            start_time=_ns(begun_s, offset_ns),
            attributes={
                **self._facts,
                "ultrapar.case": record.case_id,
                "ultrapar.outcome": record.outcome,
                "test.case.name": self._text(item.nodeid),
                "test.case.result.status": "fail" if record.test == "failed" else "pass",
                "gen_ai.request.model": model,
            },
        )
        if record.outcome in {"infra", "error"}:
            span.set_attribute("error.type", record.kind or record.outcome)
            span.set_status(Status(StatusCode.ERROR))
        told = set_span_in_context(span, self._parent)
        for attempt in self._attempts:
            self._tell_of(attempt, model, told, offset_ns)
        for name, score in {"outcome": None, **record.scores}.items():
            result: dict[str, Any] = {"gen_ai.evaluation.name": self._text(name)}
            if score is None:
                result["gen_ai.evaluation.score.label"] = record.outcome
            else:
                result["gen_ai.evaluation.score.value"] = float(score)
            span.add_event("gen_ai.evaluation.result", result)
        span.end()
        self._attempts = []

    def _tell_of(self, attempt: Attempt, model: str, told: Context, offset_ns: int) -> None:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415

        asked = model if not attempt.role else self._text(attempt.instance)
        common: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._text(attempt.provider),
            "gen_ai.request.model": asked,
        }
        if attempt.outcome != "ok":
            common["error.type"] = attempt.outcome
        own: dict[str, Any] = {
            "gen_ai.usage.input_tokens": attempt.tokens_in,
            "gen_ai.usage.output_tokens": attempt.tokens_out,
            "http.response.status_code": attempt.status,
            "ultrapar.instance": self._text(attempt.instance),
            "ultrapar.key": self._text(attempt.key),
            "ultrapar.turn": attempt.turn,
            "ultrapar.attempt": attempt.attempt,
            "ultrapar.role": attempt.role or None,
            "ultrapar.replayed": attempt.replayed,
            "ultrapar.wait.seats": attempt.seat_wait_s,
            "ultrapar.wait.rates": attempt.rate_wait_s,
        }
        span = self._tracer.start_span(
            f"chat {asked}",
            told,
            kind=SpanKind.CLIENT,
            start_time=_ns(attempt.t_send_s, offset_ns),
            attributes={**common, **{name: one for name, one in own.items() if one is not None}},
        )
        if attempt.t_first_token_s is not None:
            first_ns = _ns(attempt.t_first_token_s, offset_ns)
            span.add_event("ultrapar.first_token", timestamp=first_ns)
        if attempt.outcome != "ok":
            span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(attempt.t_end_s, offset_ns))
        if attempt.replayed is not None:
            return
        self._duration.record(attempt.t_end_s - attempt.t_send_s, common)
        for kind, n in (("input", attempt.tokens_in), ("output", attempt.tokens_out)):
            if n is not None:
                self._usage.record(n, {**common, "gen_ai.token.type": kind})

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Send what is left, for so long and no longer."""

        def end() -> None:
            self._tracers.shutdown()
            self._meters.shutdown()

        ending = threading.Thread(target=end, name="ultrapar-otel-end", daemon=True)
        ending.start()
        ending.join(_FLUSH_S)


_CONTEXT = ("traceparent", "tracestate")


def _ns(monotonic_s: float, offset_ns: int) -> int:
    return int(monotonic_s * 1e9) + offset_ns


def _tracers(environ: Mapping[str, str]) -> TracerProvider:
    """The user's provider of spans if there is one, else one as the environment says."""
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        return found
    made = TracerProvider(resource=_resource(environ), shutdown_on_exit=False)
    for exporter in _exporters("traces", environ):
        made.add_span_processor(BatchSpanProcessor(exporter.load()()))
    return made


def _meters(environ: Mapping[str, str]) -> MeterProvider:
    from opentelemetry import metrics  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    found = metrics.get_meter_provider()
    if isinstance(found, MeterProvider):
        return found
    exporters = _exporters("metrics", environ)
    readers = [PeriodicExportingMetricReader(one.load()()) for one in exporters]
    return MeterProvider(readers, resource=_resource(environ), shutdown_on_exit=False)


def _resource(environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - a type of the extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    named = "OTEL_SERVICE_NAME" in environ or "service.name" in environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if named else {"service.name": "pytest-ultrapar"})


def _exporters(signal: str, environ: Mapping[str, str]) -> list[EntryPoint]:
    """Those that `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` names; OTLP without it.

    Raises:
        ConfigError: Nothing of that name is installed.
    """
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [name.strip() for name in environ.get(variable, "otlp").split(",")]
    protocol = environ.get(
        f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL",
        environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    )
    otlp = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = []
    for name in names:
        if name in {"", "none"}:
            continue
        group = f"opentelemetry_{signal}_exporter"
        known = entry_points(group=group, name=otlp if name == "otlp" else name)
        if not known:
            installed = ", ".join(sorted(entry_points(group=group).names)) or "none"
            msg = f"{variable} = {name}: no such exporter is installed (there are: {installed})"
            raise ConfigError(msg)
        found.append(next(iter(known)))
    return found
