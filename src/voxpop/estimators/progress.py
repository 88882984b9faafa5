"""Progress: how far an iteration is, and a bar under the cell of a notebook while one runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# A bar appears for iterations longer than this, and is updated no more often.
_PATIENCE, _PACE = 1.0, 0.2


class Fraction:
    """Share of an iteration that is done, from the changes of its sweeps.

    Changes fall by about the same factor every sweep, so progress is linear in their logarithm.
    """

    def __init__(self) -> None:
        self._highest = 0.0

    def after(self, number: int, change: float, tol: float) -> float:
        """Share done after a sweep, by its number and its change."""
        if number == 1:
            self._highest = 0.0
        if np.isfinite(change):
            self._highest = max(self._highest, change)
        if not 0 < change < np.inf or self._highest <= tol:
            return 0.0
        return float(np.log(self._highest / max(change, tol)) / np.log(self._highest / tol))


@contextmanager
def notebook_progress() -> Iterator[Callable[[str, int, float, float], None] | None]:
    """Show a bar under the cell in a notebook, and nothing elsewhere.

    It is plain HTML that is replaced in place, so that it needs no widgets: it works in Jupyter,
    VS Code and Colab alike. It goes away when the work is done.
    """
    display = _display()
    if display is None:
        yield None
        return
    fraction, handle, last = Fraction(), None, time.monotonic() + _PATIENCE - _PACE

    def on_sweep(what: str, number: int, change: float, tol: float) -> None:
        nonlocal handle, last
        done = fraction.after(number, change, tol)
        if time.monotonic() - last < _PACE:
            return
        last = time.monotonic()
        bar = f"<progress max=1 value={done:.3f}></progress> {what}: sweep {number}"
        if handle is None:
            handle = display({"text/html": bar, "text/plain": ""}, raw=True, display_id=True)
        else:
            handle.update({"text/html": bar, "text/plain": ""}, raw=True)

    try:
        yield on_sweep
    finally:
        if handle is not None:
            handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _display() -> Any:
    """IPython's display, where a notebook shows it; None on a terminal and in a script."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    if running is None or not hasattr(running, "kernel"):
        return None
    return shell.display.display  # type: ignore[union-attr]
