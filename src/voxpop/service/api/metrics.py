"""Metrics for Prometheus: requests by route, the writer's queue, the age of the boards."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """The metrics of one app, in its own registry, so that two apps do not mix."""

    def __init__(self, queued: Callable[[], float], board_age: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "voxpop_requests",
            "Requests answered.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "voxpop_request_seconds",
            "Time to the first byte of a response.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.limited = Counter(
            "voxpop_limited", "Requests over a rate limit.", ["by"], registry=self.registry
        )
        self.live = Gauge("voxpop_live_readers", "Open live streams.", registry=self.registry)
        queue = Gauge("voxpop_writer_queue", "Commands not yet committed.", registry=self.registry)
        queue.set_function(queued)
        age = Gauge(
            "voxpop_board_age_seconds", "Age of the oldest board in use.", registry=self.registry
        )
        age.set_function(board_age)

    def text(self) -> bytes:
        """Return all of them in Prometheus's text format."""
        return generate_latest(self.registry)
