"""What the server counts, in a registry of its own, so that two servers in one process never share a counter."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from serving.batcher import Call
from serving.engine import Answers, Engine

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SCORES = tuple(round(at / 10, 1) for at in range(1, 11))
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Prometheus metrics of one server, all named daymill_serving_*."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.requests = Counter(
            "daymill_serving_requests", "Inference requests by HTTP status", ["code"], registry=registry
        )
        self.errors = Counter(
            "daymill_serving_errors", "Inference requests that got no answer, by reason", ["reason"], registry=registry
        )
        self.rows = Counter("daymill_serving_rows", "Texts answered, by label", ["version", "label"], registry=registry)
        self.seconds = Histogram(
            "daymill_serving_request_seconds",
            "From the whole body read to the response made",
            buckets=SECONDS,
            registry=registry,
        )
        self.model_seconds = Histogram(
            "daymill_serving_model_seconds", "One model call", buckets=SECONDS, registry=registry
        )
        self.batch_rows = Histogram(
            "daymill_serving_batch_rows", "Rows of a model call", buckets=ROWS, registry=registry
        )
        self.tokens = Counter(
            "daymill_serving_tokens", "Tokens through the model, real or padding", ["kind"], registry=registry
        )
        self.queue_rows = Gauge("daymill_serving_queue_rows", "Rows that wait for a model call", registry=registry)
        self.scores = Histogram("daymill_serving_score", "Scores given", ["version"], buckets=SCORES, registry=registry)
        self.ready = Gauge("daymill_serving_ready", "1 when a model answers", registry=registry)
        self.model = Gauge(
            "daymill_serving_model_info",
            "1 for the model that answers",
            ["name", "version", "engine", "precision"],
            registry=registry,
        )
        self.loaded = Gauge("daymill_serving_model_loaded_timestamp_seconds", "When it took over", registry=registry)
        self.swaps = Counter(
            "daymill_serving_swaps", "Models loaded, by outcome (ok or refused)", ["outcome"], registry=registry
        )
        for outcome in ("ok", "refused"):
            self.swaps.labels(outcome)
        for reason in ("bad_request", "not_found", "not_ready", "overloaded", "gone", "model", "internal"):
            self.errors.labels(reason)

    def called(self, call: Call) -> None:
        """A model call ended."""
        self.batch_rows.observe(call.rows)
        self.model_seconds.observe(call.seconds)
        self.tokens.labels("real").inc(call.tokens)
        self.tokens.labels("padding").inc(call.padded - call.tokens)

    def answered(self, version: str, answers: Answers) -> None:
        """Rows got their labels."""
        for name in answers.names():
            self.rows.labels(version, name).inc()
        scores = self.scores.labels(version)
        for score in answers.score:
            scores.observe(float(score))

    def serving(self, engine: Engine, when: float) -> None:
        """Another model took over at `when` (seconds since the epoch)."""
        manifest = engine.manifest
        self.model.clear()
        self.model.labels(manifest.name, manifest.version, engine.runtime, manifest.precision).set(1)
        self.loaded.set(when)
        self.ready.set(1)
        self.swaps.labels("ok").inc()

    def exposition(self) -> bytes:
        """The text format that Prometheus scrapes."""
        return generate_latest(self.registry)
