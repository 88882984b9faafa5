"""One at a time: methods of an object that threads share, each of which runs alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Lock:
    """A lock that a thread may take again while it holds it; a copy of it is a new lock."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()


class HasLock(Protocol):
    """An object with its own lock."""

    _lock: Lock


_S = TypeVar("_S", bound=HasLock)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def one_at_a_time(
    method: Callable[Concatenate[_S, _P], _R],
) -> Callable[Concatenate[_S, _P], _R]:
    """Let a method wait until no other thread is in one of the object's methods."""

    @wraps(method)
    def alone(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self._lock:
            return method(self, *args, **kwargs)

    return alone
