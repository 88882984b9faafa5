"""What every estimator offers: its name, its arguments, and ``fit``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.errors import require
from voxpop.results.result import Result

if TYPE_CHECKING:
    import pandas as pd

OnSweep = Callable[[str, int, float, float], None]
"""Called after every sweep, for a progress bar: what runs, the sweep's number, its change, and the
change at which it stops."""


@runtime_checkable
class Estimator(Protocol):
    """A method that turns answers into a result; its fields are its arguments, and it has no state.

    Derive your own from this class; :meth:`fit_predict` comes with it.
    """

    name: ClassVar[str]
    """Name on the command line."""

    summary: ClassVar[str]
    """One line on what it does."""

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        ...

    def fit_predict(self, data: object, gold: object = None) -> pd.Series[float] | pd.DataFrame:
        """Return the estimates alone, as crowd-kit's aggregators do.

        ``data`` is a data frame with columns ``task``, ``worker`` and ``label`` (or what else
        :func:`voxpop.read_answers` takes), ``gold`` known truths by task, as crowd-kit's
        ``true_labels``. The answer is a pandas Series indexed by task with the name
        ``agg_label``; for vectors a data frame with one column per coordinate.
        """
        import pandas as pd

        known = gold.to_dict() if isinstance(gold, pd.Series) else gold
        found = self.fit(read_answers(data, gold=known))
        index = pd.Index(found.task_ids, name="task")
        if found.estimate.shape[1] == 1:
            return pd.Series(found.estimate[:, 0], index=index, name="agg_label")
        return pd.DataFrame(found.estimate, index=index, columns=list(found.value_names))


def argument(default: Any, must: str, holds: Callable[[Any], bool]) -> Any:
    """Declare an argument of a :class:`CheckedEstimator`, and what it must be."""
    return field(default=default, metadata={"must": must, "holds": holds})


def positive(default: float | None) -> Any:
    """Declare a positive number; where the default is None, that may be given, too."""
    return argument(default, "positive", lambda found: found is default is None or found > 0)


def at_least(least: int, default: int) -> Any:
    """Declare a number with a lower bound."""
    return argument(default, f"at least {least}", lambda found: bool(found >= least))


def share(default: float) -> Any:
    """Declare a number between 0 and 1."""
    return argument(default, "between 0 and 1", lambda found: 0 < found < 1)


def one_of(*choices: str) -> Any:
    """Declare a choice; the first is the default."""
    return argument(choices[0], " or ".join(map(repr, choices)), lambda found: found in choices)


@dataclass(frozen=True, kw_only=True)
class CheckedEstimator(Estimator):
    """An estimator whose arguments say themselves what they must be."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.metadata:
                found = getattr(self, each.name)
                shown = repr(found) if isinstance(found, str) else found
                message = f"{each.name} must be {each.metadata['must']}, got {shown}"
                require(each.metadata["holds"](found), message)


def plain_settings(estimator: Estimator) -> dict[str, Any]:
    """The estimator's name and arguments in a form that JSON can hold; tables by their kind."""
    return {"method": estimator.name} | {
        name: _plain(argument) for name, argument in vars(estimator).items()
    }


def _plain(item: object) -> object:
    if isinstance(item, np.ndarray | np.generic):
        item = item.tolist()
    if isinstance(item, float) and np.isinf(item):
        return None  # JSON has no infinity: a flat prior is no prior variance
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, tuple | list):
        return [_plain(part) for part in item]
    if isinstance(item, Mapping):
        return f"a mapping of {len(item)}"
    return str(item) if isinstance(item, os.PathLike) else f"a {type(item).__name__}"


def as_tuples(numbers: ArrayLike) -> object:
    """Freeze an array of any depth, so that what holds it can be compared and hashed."""
    listed = np.asarray(numbers, dtype=np.float64).tolist()

    def freeze(item: object) -> object:
        return tuple(freeze(part) for part in item) if isinstance(item, list) else item

    return freeze(listed)
