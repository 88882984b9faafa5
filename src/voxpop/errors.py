"""What can go wrong, in one vocabulary: every error of voxpop is a ``VoxpopError``."""


class VoxpopError(Exception):
    """Anything voxpop refuses to do; the message is one line for the user."""


class DataError(VoxpopError, ValueError):
    """The answers, the truth or a file cannot be used as they are."""


class ConfigError(VoxpopError, ValueError):
    """An argument is out of range or does not fit the data."""


class DataWarning(UserWarning):
    """The data can be used, but say less than they seem to."""


class ConvergenceWarning(UserWarning):
    """An iteration stopped at its limit of sweeps, before it settled."""


def require(condition: bool, message: str) -> None:
    """Raise ``ConfigError(message)`` unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def shorten(names: object, limit: int = 3) -> str:
    """Name the first few of many, and count the rest: ``'a', 'b', 'c' and 7 more``."""
    listed = [_cut(repr(_plain(name))) for name in names]  # type: ignore[attr-defined]
    if len(listed) <= limit:
        return ", ".join(listed)
    return f"{', '.join(listed[:limit])} and {len(listed) - limit} more"


def _plain(name: object) -> object:
    """Unwrap a numpy scalar, whose repr would show its type instead of the id."""
    item = getattr(name, "item", None)
    return item() if callable(item) else name


def _cut(text: str) -> str:
    """Keep the beginning of what no line has room for."""
    return text if len(text) <= 100 else f"{text[:100]}..."
