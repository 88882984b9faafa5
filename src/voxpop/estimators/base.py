"""What every estimator offers: its name, its arguments, and ``fit``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from voxpop.data.read import read_answers
from voxpop.errors import require
from voxpop.estimators.progress import notebook_progress
from voxpop.results.result import Result

if TYPE_CHECKING:
    import pandas as pd

OnSweep = Callable[[str, int, float, float], None]
"""Called after every sweep, for a progress bar: what runs, the sweep's number, its change, and the
change at which it stops."""


@runtime_checkable
class Estimator(Protocol):
    """A method that turns answers into a result; its fields are its arguments, and it has no state.

    Derive your own from this class, with a ``fit`` that takes ``Answers``. What comes with it:
    ``fit`` then also takes all that :func:`voxpop.read_answers` takes, shows progress in a
    notebook, and fills in the method's name and arguments; :meth:`fit_predict`; and the parameters
    as scikit-learn has them.
    """

    name: ClassVar[str]
    """Name on the command line."""

    summary: ClassVar[str]
    """One line on what it does."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "fit" in vars(cls):
            cls.fit = _reading(cls.fit)  # type: ignore[method-assign]

    def fit(self, answers: Any, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers: ``Answers``, or a frame, data set, path or mapping of columns."""
        ...

    def fit_predict(self, data: object, gold: object = None) -> pd.Series[float] | pd.DataFrame:
        """Return the estimates alone, as crowd-kit's aggregators do.

        ``data`` is a data frame with columns ``task``, ``worker`` and ``label`` (or anything else
        that :func:`voxpop.read_answers` takes), ``gold`` known truths by task, like crowd-kit's
        ``true_labels``. Returns a pandas Series indexed by task with the name ``agg_label``; for
        vectors a data frame with one column per coordinate.
        """
        import pandas as pd

        known = gold.to_dict() if isinstance(gold, pd.Series) else gold
        found = self.fit(read_answers(data, gold=known))
        index = pd.Index(found.task_ids, name="task")
        if found.estimate.shape[1] == 1:
            return pd.Series(found.estimate[:, 0], index=index, name="agg_label")
        return pd.DataFrame(found.estimate, index=index, columns=list(found.value_names))

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the arguments by name, as scikit-learn's estimators do."""
        return {name: getattr(self, name) for name in arguments(type(self))}

    def set_params(self, **params: Any) -> Self:
        """Change arguments in place and return the estimator, as scikit-learn's do.

        They are checked as when the estimator is made; after an error nothing has changed.
        """
        known = arguments(type(self))
        for name in params:
            require(name in known, f"{type(self).__name__} takes no {name}; it has {[*known]}")
        made = type(self)(**{**self.get_params(), **params})
        for name, item in vars(made).items():
            object.__setattr__(self, name, item)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params())


def arguments(kind: type[Estimator]) -> dict[str, Parameter]:
    """Arguments that an estimator is made with."""
    several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    parameters = signature(kind).parameters.items()
    return {name: argument for name, argument in parameters if argument.kind not in several}


def _reading(fit: Callable[..., Result]) -> Callable[..., Result]:
    """Let a ``fit`` take anything that answers can be read from, and let its result know them."""
    has_sweeps = len(signature(fit).parameters) > 2

    @wraps(fit)
    def fit_any(self: Estimator, answers: Any, on_sweep: OnSweep | None = None) -> Result:
        table = read_answers(answers)
        if not has_sweeps:
            found = fit(self, table)
        elif on_sweep is not None:
            found = fit(self, table, on_sweep)
        else:
            with notebook_progress() as shown:
                found = fit(self, table, shown)
        named = {} if "method" in found.settings else plain_settings(self)
        return replace(found, settings={**named, **found.settings}, _answers=table)

    return fit_any


def argument(default: Any, must: str, holds: Callable[[Any], bool]) -> Any:
    """Declare an argument of a :class:`CheckedEstimator`, and what it must be."""
    return field(default=default, metadata={"must": must, "holds": holds})


def positive(default: float | None) -> Any:
    """Declare a positive number, or None where that is the default."""
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
    """An estimator whose arguments declare their own conditions."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.metadata:
                found = getattr(self, each.name)
                shown = repr(found) if isinstance(found, str) else found
                message = f"{each.name} must be {each.metadata['must']}, got {shown}"
                require(each.metadata["holds"](found), message)


def plain_settings(estimator: Estimator) -> dict[str, Any]:
    """The estimator's name and arguments as JSON values; tables by their kind."""
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
    """Freeze an array of any depth, so that its owner can be compared and hashed."""
    listed = np.asarray(numbers, dtype=np.float64).tolist()

    def freeze(item: object) -> object:
        return tuple(freeze(part) for part in item) if isinstance(item, list) else item

    return freeze(listed)
