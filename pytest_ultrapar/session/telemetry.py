"""A plugin that sends OpenTelemetry spans and metrics for cases and requests.

It uses this package's hooks. When a case has ended, the plugin reports facts that the tables also
contain, but never prompts or answers. The user's environment (`OTEL_*`) sets the destination.

Source: OpenTelemetry semantic conventions 1.37.0, generative AI (names, units, buckets).
"""

from __future__ import annotations

import math
import os
import sys
import threading
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.errors import ConfigError, ResultsError, refuse
from pytest_ultrapar.session import prefetch
from pytest_ultrapar.session.collection import parameter
from pytest_ultrapar.system.clock import boot_s, utc_now_us

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from opentelemetry.context import Context
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from pytest_ultrapar.records import Attempt, EpisodeEnded, Grade

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
_SCOPE = "pytest_ultrapar"
_FLUSH_S = 5.0
"""How long a collector that does not answer may delay the end of the run, in seconds."""
_SECONDS = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
_TOKENS = [4.0**power for power in range(14)]


def check_installed() -> None:
    """Check before a run that all required packages are installed and accept their settings.

    Raises:
        ConfigError: The extra `otel`, or an exporter that the environment names, is not installed;
            or OpenTelemetry refuses a variable.
    """
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        refuse("--ultrapar-otel needs the 'otel' extra: pip install 'pytest-ultrapar[otel]'")
    # Each part of OpenTelemetry reads its own variables, sometimes during its import, and may raise
    # errors of any kind.
    try:
        for make in (_tracers, _meters):
            _, end = make(str)
            end()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"OpenTelemetry refuses its settings (OTEL_*): {str(error) or type(error).__name__}"
        ) from error


class Telemetry:
    """Makes a span for each case and for each of its requests, in the process that ran the case.

    Args:
        directory: The run's directory; its manifest is read when the first case ends.
        worker: The name of this process.
        text: Removes secrets from names.
    """

    def __init__(self, directory: Path, worker: str, text: Callable[[str], str]) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415 - only with the option

        self._directory = directory
        self._text = text
        self._facts = {"ultrapar.run": directory.name, "ultrapar.worker": worker}
        self._worker = worker
        tracers, end_spans = _tracers(text)
        meters, end_metrics = _meters(text)
        self._endings = {"spans": end_spans, "metrics": end_metrics}
        # CI systems pass a trace to the programs that they start. Use only its id, which contains
        # no key.
        given = {"traceparent": os.environ.get("TRACEPARENT", "")}
        self._parent: Context = TraceContextTextMapPropagator().extract(given)
        self._tracer = tracers.get_tracer(_SCOPE, schema_url=SCHEMA_URL)
        meter = meters.get_meter(_SCOPE, schema_url=SCHEMA_URL)
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
        self._begun_ns = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Remember the item to which the next records belong.

        Called on the main thread, for each item.
        """
        self._item, self._attempts, self._begun_ns = item, [], utc_now_us() * 1000

    def pytest_ultrapar_attempt(self, record: Attempt) -> None:
        """Store a request of the current case. Called on the main thread."""
        self._attempts.append(record)

    def pytest_ultrapar_case(self, record: Grade) -> None:
        """Make the spans of an ended case. Called on the main thread."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415
        from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415

        item = self._item
        if item is None:
            return
        ended = prefetch.state.ended if prefetch.state is not None else None
        # An earlier session has already reported the requests that it sent.
        if ended is None or ended.started_at_us < self._sent_from_us:
            self._attempts = []
        offset_ns = _offset_ns(ended, self._attempts)
        model = self._text(str(parameter(item, "model")))
        begun_ns = min([self._begun_ns, *(_ns(one.t_ready_s, offset_ns) for one in self._attempts)])
        span = self._tracer.start_span(
            f"case {model}",
            self._parent,
            start_time=begun_ns,
            attributes={
                **self._facts,
                "ultrapar.case": record.case_id,
                "ultrapar.outcome": record.outcome,
                "test.case.name": self._text(item.nodeid),
                "gen_ai.request.model": model,
            },
        )
        # The conventions have only these values, so a skipped case gets no status.
        if record.test != "skipped":
            has_passed = record.test in {"passed", "xpassed", "xfailed"}
            span.set_attribute("test.case.result.status", "pass" if has_passed else "fail")
        if record.outcome in {"infra", "error"}:
            span.set_attribute("error.type", record.kind or record.outcome)
            span.set_status(Status(StatusCode.ERROR))
        context = set_span_in_context(span, self._parent)
        for attempt in self._attempts:
            self._report(attempt, model, context, offset_ns)
        for name, score in {"outcome": None, **record.scores}.items():
            result: dict[str, Any] = {"gen_ai.evaluation.name": self._text(name)}
            if score is None:
                result["gen_ai.evaluation.score.label"] = record.outcome
            else:
                result["gen_ai.evaluation.score.value"] = float(score)
            span.add_event("gen_ai.evaluation.result", result)
        # The times come from two clocks, so the last request may seem to end slightly later than
        # now.
        ends_ns = [_ns(one.t_end_s, offset_ns) for one in self._attempts]
        span.end(max([utc_now_us() * 1000, *ends_ns]))
        self._attempts = []

    @cached_property
    def _sent_from_us(self) -> float:
        """When this session began to send requests for episodes, in us since the epoch.

        The value is infinite in a regrade, which sends no requests.
        """
        from pytest_ultrapar.store.manifest import read_manifest  # noqa: PLC0415 - when the first case ends

        try:
            manifest = read_manifest(self._directory)
        except ResultsError:
            return 0
        return math.inf if manifest.regraded is not None else manifest.measured_part.from_us

    def _report(self, attempt: Attempt, model: str, context: Context, offset_ns: int) -> None:
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
            context,
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
        """Send the remaining spans and metrics within `_FLUSH_S`, and report which were lost."""
        threads = {
            name: threading.Thread(target=end, name=f"ultrapar-otel-{name}", daemon=True)
            for name, end in self._endings.items()
        }
        for thread in threads.values():
            thread.start()
        until_s = boot_s() + _FLUSH_S
        for thread in threads.values():
            thread.join(max(until_s - boot_s(), 0))
        if late := " and ".join(name for name, thread in threads.items() if thread.is_alive()):
            sys.stderr.write(
                f"ultrapar: the collector did not accept the last {late} of {self._worker} within "
                f"{_FLUSH_S:.0f} s: check that it is running\n"
            )


def _offset_ns(ended: EpisodeEnded | None, attempts: Sequence[Attempt]) -> int:
    """The offset in ns that turns the attempts' monotonic times into times since the epoch."""
    if ended is None or not attempts:
        return 0
    return ended.started_at_us * 1000 - _ns(min(one.t_lease_s for one in attempts), 0)


def _ns(monotonic_s: float, offset_ns: int) -> int:
    return int(monotonic_s * 1e9) + offset_ns


def _tracers(text: Callable[[str], str]) -> tuple[TracerProvider, Callable[[], object]]:
    """The user's tracer provider, or by default one that the environment configures.

    The second value of the result is a function that sends the remaining spans.
    """
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    found = trace.get_tracer_provider()
    if isinstance(found, TracerProvider):
        # Other code may still use the user's provider after this plugin has ended.
        return found, found.force_flush
    made = TracerProvider(resource=_resource(text), shutdown_on_exit=False)
    for exporter in _exporters("traces"):
        made.add_span_processor(BatchSpanProcessor(exporter.load()()))
    return made, made.shutdown


def _meters(text: Callable[[str], str]) -> tuple[MeterProvider, Callable[[], object]]:
    """Like `_tracers`, with metrics instead of spans."""
    from opentelemetry import metrics  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    found = metrics.get_meter_provider()
    if isinstance(found, MeterProvider):
        return found, found.force_flush
    exporters = _exporters("metrics")
    readers = [PeriodicExportingMetricReader(one.load()()) for one in exporters]
    made = MeterProvider(readers, resource=_resource(text), shutdown_on_exit=False)
    return made, made.shutdown


def _resource(text: Callable[[str], str]) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    made = Resource.create()
    attributes = {
        name: text(one) if isinstance(one, str) else one for name, one in made.attributes.items()
    }
    if str(attributes["service.name"]).startswith("unknown_service"):
        attributes["service.name"] = "pytest-ultrapar"
    return Resource(attributes, made.schema_url)


_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""The names under which OTLP exporters are installed, by protocol."""


def _exporters(signal: str) -> list[EntryPoint]:
    """The exporters that `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` names; by default OTLP.

    Raises:
        ConfigError: No exporter with that name, or for the requested protocol, is installed.
    """
    known = entry_points(group=f"opentelemetry_{signal}_exporter")
    found: list[EntryPoint] = []
    # According to the specification, an empty variable is the same as an unset one.
    named = f"OTEL_{signal.upper()}_EXPORTER"
    for each in (os.environ.get(named) or "otlp").split(","):
        variable, name = named, each.strip()
        if name in {"", "none"}:
            continue
        installed_as, cure = name, ""
        if name == "otlp":
            variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
            if not os.environ.get(variable):
                variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
            name = os.environ.get(variable) or "http/protobuf"
            if name not in _PROTOCOLS:
                refuse(f"{variable} = {name}: not supported; use {' or '.join(_PROTOCOLS)}")
            installed_as = _PROTOCOLS[name]
            cure = f"; pip install opentelemetry-exporter-{installed_as.replace('_', '-')}"
        if installed_as not in known.names:
            installed = ", ".join(sorted(known.names)) or "none"
            refuse(
                f"{variable} = {name}: no such exporter is installed (installed: {installed}){cure}"
            )
        found.append(known[installed_as])
    return found
