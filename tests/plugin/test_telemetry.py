"""Spans and metrics of a run, as a collector of OpenTelemetry receives them."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.plugin.conftest import CANARY, cases

SUITE = cases(["yes", "status 500 x1", "garbage", "CANARY"], 'grade("partial", length=len(answer))')


class Collector:
    """Receive the data of exporters over HTTP, as protobuf."""

    def __init__(self):
        self.bodies = []
        self.traces, self.metrics = [], []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.bodies.append(body)
                if self.path == "/v1/traces":
                    collector.traces.append(ExportTraceServiceRequest.FromString(body))
                else:
                    collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def spans(self):
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def points(self, name):
        """The last point of each series of a histogram; histograms are cumulative."""
        return {
            (point.start_time_unix_nano, str(point.attributes)): point
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.histogram.data_points
        }.values()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector(monkeypatch):
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    yield made
    made.close()


def facts(span):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.mark.slow
def test_each_case_and_each_request_is_a_span(project, collector, monkeypatch, workers):
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    monkeypatch.setenv("TRACEPARENT", f"00-{trace}-{parent}-01")
    # A program can set its own resource; a trace context from the caller always applies.
    monkeypatch.setenv("OTEL_PROPAGATORS", "none")
    project.suite(SUITE.replace("CANARY", CANARY))
    project.run_apart(workers, "--ultrapar-otel")
    cases = [span for span in collector.spans if span.name == "case m"]
    requests = [span for span in collector.spans if span.name == "chat m"]
    assert len(cases) == 4
    assert len(requests) == len(project.server.prompts) == len(project.rows("attempts"))
    assert {span.trace_id.hex() for span in collector.spans} == {trace}
    assert {span.parent_span_id.hex() for span in cases} == {parent}
    assert {span.parent_span_id for span in requests} <= {span.span_id for span in cases}
    rows = {row["case_id"]: row for row in project.rows()}
    for span in cases:
        told = facts(span)
        row = rows[told["ultrapar.case"]]
        assert told["ultrapar.outcome"] == row["outcome"]
        assert told["gen_ai.request.model"] == "m"
        results = [facts(event) for event in span.events]
        assert results[0]["gen_ai.evaluation.score.label"] == row["outcome"]
        scores = {
            one["gen_ai.evaluation.name"]: one["gen_ai.evaluation.score.value"]
            for one in results[1:]
        }
        length = row["score.length"]
        assert scores == ({} if length is None else {"length": length})
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        assert abs(span.end_time_unix_nano / 1e9 - time.time()) < 600
    outcomes = sorted(row["outcome"] for row in project.rows("attempts"))
    assert sorted(facts(span).get("error.type", "ok") for span in requests) == outcomes
    took = collector.points("gen_ai.client.operation.duration")
    assert sum(point.count for point in took) == len(requests)
    tokens = sum(row["tokens_in"] or 0 for row in project.rows("attempts"))
    used = [
        point
        for point in collector.points("gen_ai.client.token.usage")
        if facts(point)["gen_ai.token.type"] == "input"
    ]
    assert sum(point.sum for point in used) == tokens
    assert CANARY.encode() not in b"".join(collector.bodies)


@pytest.mark.slow
@pytest.mark.parametrize("again", ["--ultrapar-resume=latest", "--ultrapar-regrade=latest"])
def test_requests_of_an_earlier_session_are_not_sent_again(project, collector, again):
    project.suite(SUITE.replace("garbage", "no").replace("status 500 x1", "maybe"))
    project.run("-n0")
    sent = len(project.server.prompts)
    project.run_apart("-n0", "--ultrapar-otel", again)
    assert len(project.server.prompts) == sent
    assert [span.name for span in collector.spans] == ["case m"] * 4
    assert not collector.points("gen_ai.client.operation.duration")


@pytest.mark.slow
def test_case_ends_after_its_requests_even_if_the_clock_was_set_back(project, collector):
    project.pytester.makeconftest("""
import time

import opentelemetry.sdk.trace  # keeps the clock that it finds

now_ns = time.time_ns
time.time_ns = lambda: now_ns() + 60_000_000_000

def pytest_ultrapar_attempt(record):
    time.time_ns = now_ns
""")
    project.suite(SUITE)
    project.run_apart("-n0", "--ultrapar-otel", "-k", "yes")
    cases = {span.span_id: span for span in collector.spans}
    (request,) = [span for span in collector.spans if span.name == "chat m"]
    case = cases[request.parent_span_id]
    assert case.start_time_unix_nano <= request.start_time_unix_nano
    assert request.end_time_unix_nano <= case.end_time_unix_nano


@pytest.mark.slow
def test_providers_of_the_user_still_work_after_a_run(project, collector):
    project.pytester.makeconftest("""
import atexit
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

def pytest_configure(config):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    atexit.register(lambda: trace.get_tracer("mine").start_span("mine, after the run").end())
""")
    project.suite(SUITE)
    project.run_apart("-n0", "--ultrapar-otel")
    names = [span.name for span in collector.spans]
    assert names.count("case m") == 4
    assert "mine, after the run" in names


@pytest.mark.slow
def test_missing_collector_does_not_delay_a_run(project, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    project.suite(SUITE)
    assert project.run_apart("-n0", "--ultrapar-otel").ret == 1
    assert len(project.rows()) == 4


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "no such exporter is installed*"),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            "not supported; use http/protobuf or grpc",
        ),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "no such exporter is installed (installed: *); "
            "pip install opentelemetry-exporter-otlp-proto-grpc",
        ),
    ],
)
def test_unusable_exporter_is_reported_before_the_run(project, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    project.suite(SUITE)
    result = project.run_here("-n0", "--ultrapar-otel")
    project.refusal(result)
    result.stderr.fnmatch_lines([f"ERROR: {variable} = {value}: {said}"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "max_queue_size must be a positive integer."),
        ("OTEL_PYTHON_TRACER_PROVIDER", "zzz", "StopIteration"),
    ],
)
def test_settings_that_opentelemetry_refuses_are_named(project, monkeypatch, variable, value, said):
    monkeypatch.setenv(variable, value)
    project.suite(SUITE)
    result = project.run_apart("-n0", "--ultrapar-otel")
    project.refusal(result)
    result.stderr.fnmatch_lines([f"ERROR: OpenTelemetry refuses its settings (OTEL_[*]): {said}"])


@pytest.mark.slow
def test_keys_in_attributes_from_the_environment_are_not_sent(project, collector, monkeypatch):
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    monkeypatch.setenv("TRACEPARENT", f"00-{trace}-{parent}-01")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"team=blue,key={CANARY}-0")
    project.suite(SUITE)
    project.run_apart("-n0", "--ultrapar-otel")
    assert {span.trace_id.hex() for span in collector.spans} == {trace}
    (told,) = {
        one.value.string_value
        for request in collector.traces
        for resource in request.resource_spans
        for one in resource.resource.attributes
        if one.key == "team"
    }
    assert told == "blue"
    assert CANARY.encode() not in b"".join(collector.bodies)


@pytest.mark.slow
def test_spans_that_a_collector_rejects_are_reported_and_the_rest_is_sent(
    project, collector, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
        project.suite(SUITE)
        result = project.run_apart("-n0", "--ultrapar-otel")
    assert len(project.rows()) == 4
    assert collector.points("gen_ai.client.operation.duration")
    result.stderr.fnmatch_lines(
        [
            "ultrapar: the collector did not accept the last spans of * within 5 s: "
            "check that it is running"
        ]
    )
