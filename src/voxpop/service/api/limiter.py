"""Limiter: how many requests a token or an address may make, by moving windows in memory."""

from __future__ import annotations

import time

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from voxpop.service.api.metrics import Metrics
from voxpop.service.api.problems import Problem
from voxpop.service.api.settings import Settings


class Limiter:
    """Counts requests by token, and failures and arrivals by address.

    Many workers may share one address (a school, an office), so an address is limited by its failed
    requests only.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.metrics = metrics
        self.windows = SlidingWindowCounterRateLimiter(MemoryStorage())
        self.limits = {
            "token": parse(settings.token_limit),
            "address": parse(settings.address_limit),
            "enter": parse(settings.enter_limit),
        }

    def take(self, by: str, whose: str) -> None:
        """Count a request; refuse it when there are too many."""
        if not self.windows.hit(self.limits[by], by, whose):
            self._refuse(by, whose)

    def check(self, by: str, whose: str) -> None:
        """Refuse without counting, after too many failures."""
        if not self.windows.test(self.limits[by], by, whose):
            self._refuse(by, whose)

    def _refuse(self, by: str, whose: str) -> None:
        self.metrics.limited.labels(by).inc()
        until = self.windows.get_window_stats(self.limits[by], by, whose).reset_time
        seconds = max(1, int(until - time.time()) + 1)
        what = {"token": "requests", "address": "failed requests", "enter": "arrivals"}[by]
        raise Problem(
            429,
            "too_many_requests",
            f"too many {what}: at most {self.limits[by]}; try again in {seconds} s",
            {"Retry-After": str(seconds)},
        )
