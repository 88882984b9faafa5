"""Ids: dense numbers for them, their positions, and the type they had before they were text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Codes, Ids
from voxpop.data.files import refuse_missing
from voxpop.errors import DataError


def number_ids(ids: ArrayLike, column: str, missing_ok: bool = False) -> tuple[Codes, Ids]:
    """Give ids dense numbers in order of first appearance; any hashable thing is an id.

    Where ``missing_ok``, a missing id has the number -1.
    """
    import pandas as pd

    is_numeric = isinstance(ids, np.ndarray) and ids.dtype.kind in "iuf"
    array = np.asarray(ids) if is_numeric else id_array(list(ids))  # type: ignore[arg-type]
    try:
        codes, distinct = pd.factorize(array)
    except TypeError:
        raise DataError(f"column {column!r} holds ids that cannot be hashed") from None
    if not missing_ok:
        refuse_missing(codes < 0, column)
    return codes.astype(np.int32), np.asarray(distinct)


def id_array(ids: Sequence[Any]) -> Ids:
    """Return ids as an array that keeps their types."""
    if ids and all(type(identity) is int for identity in ids):
        return np.array(ids)
    array = np.empty(len(ids), dtype=object)
    # One by one: as an array, a list of 1 and "1" would become text, and one of tuples a matrix.
    for i, identity in enumerate(ids):
        array[i] = identity
    return array


def id_keys(ids: Ids) -> NDArray[np.uint64]:
    """Hash the texts of ids: numbers that order them at random, the same in every process."""
    from pandas.util import hash_array

    texts = np.array([str(identity) for identity in ids.tolist()], dtype=object)
    return hash_array(texts, categorize=False)


def plain(identity: Any) -> Any:
    """Unwrap a numpy scalar: 1 and np.int64(1) are the same id."""
    return identity.item() if isinstance(identity, np.generic) else identity


class Positions:
    """The position of an id: found as it is, or else by its text.

    One file may hold ids 1 and 2, another 1 and z: text there, numbers here, the same tasks.
    """

    def __init__(self, ids: Ids) -> None:
        listed = ids.tolist()
        self._exact = {identity: i for i, identity in enumerate(listed)}
        self._by_text = {str(identity): i for i, identity in enumerate(listed)}

    def get(self, identity: object) -> int | None:
        """Return the position, or None."""
        identity = plain(identity)
        return self._exact.get(identity, self._by_text.get(str(identity)))


# How to restore an id of a type that files do not have from its text.
_FROM_TEXT: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": lambda text: text == "True",
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
    "Timestamp": lambda text: _timestamp(text),
    "UUID": UUID,
    "Decimal": Decimal,
}


def _timestamp(text: str) -> object:
    import pandas as pd

    return pd.Timestamp(text)


def id_kind(ids: Ids) -> str:
    """Name the type that all ids have: ``int``, ``float``, ``date``, ``UUID`` …; else ``text``."""
    kinds = {type(identity).__name__ for identity in ids.tolist()}
    kind = kinds.pop() if len(kinds) == 1 else "text"
    return kind if kind in _FROM_TEXT else "text"


def restore_ids(ids: Ids, kind: str) -> Ids:
    """Turn the ids of a file back into the type they had before they were written."""
    if kind == "int" and ids.dtype.kind in "iu":
        return ids
    texts = [str(identity) for identity in ids.tolist()]
    if kind in ("int", "float"):
        return np.array([_FROM_TEXT[kind](text) for text in texts])
    restored = np.empty(len(texts), dtype=object)
    restored[:] = [_FROM_TEXT[kind](text) for text in texts] if kind in _FROM_TEXT else texts
    return restored
