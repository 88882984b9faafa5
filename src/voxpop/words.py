"""Words: counts, shares and numbers as sentences have them."""

from __future__ import annotations

import math


def counted(n: int, what: str) -> str:
    """Count things, one or several: "1 task", "2,000 tasks"."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def percent(share: float, digits: int = 0) -> str:
    """Format a share as in "95 %"."""
    return f"{100.0 * share:.{digits}f} %"


def number_text(value: float, sd: float | None = None) -> str:
    """Format a number to the digits that its sd supports, or to its own significant digits."""
    size = abs(value) if sd is None else sd
    if not math.isfinite(value) or not size > 0 or not 1e-9 < size < 1e12:
        return f"{value:.4g}"
    digits = (2 if sd is None else 1) - math.floor(math.log10(size))
    return f"{value:.{max(digits, 0)}f}"
