"""Chromium of the system, for tests of pages: playwright's own browsers are not needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import skip_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start the browser once a file, or skip its tests."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        names = ", ".join(BROWSERS)
        skip_without("chromium", f"no Chromium on this machine: none of {names} is on the path")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_without("chromium", "playwright is not installed")
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()
