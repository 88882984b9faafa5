"""Drawing: new axes and saved figures, without pyplot's global state; matplotlib on demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxpop.data.files import replacing
from voxpop.errors import ConfigError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#1f5fa8", "#d9480f", "0.55"
"""Results, highlights, and references to compare with."""


def new_axes(width: float = 7.0, height: float = 4.5) -> Axes:
    """Axes in a new figure.

    Made by Figure, not pyplot: there is no window, no backend to choose, nothing to close.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("a plot needs matplotlib: pip install 'voxpop[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def save_figure(figure: Figure | Any, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF; an older file is replaced only when it is complete."""
    place = Path(path)
    require(
        place.suffix in (".png", ".svg", ".pdf"),
        f"a plot is a .png, .svg or .pdf file, got {place.name!r}",
    )
    with replacing(place) as temporary:
        figure.savefig(temporary, dpi=150)
    return place
