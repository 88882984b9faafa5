"""Questions: the kinds that workers can be asked, and which values answer them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voxpop.errors import ConfigError, DataError, require

# The names of a question's values, in their order.
VALUE_NAMES = {
    "number": ("value",),
    "slider": ("value",),
    "rating": ("value",),
    "point": ("x", "y"),
    "box": ("x", "y", "width", "height"),
}
KINDS = tuple(VALUE_NAMES)

_FIELDS = {"kind", "text", "unit", "min", "max", "step", "labels", "image"}
# No rating has more steps than a person can distinguish.
_MOST_STEPS = 101
_LONGEST = 10_000
# Estimators refuse larger numbers: one of them would end all learning.
LARGEST = 1e100


@dataclass(frozen=True)
class Question:
    """What every task of a campaign asks: a kind, its words, and the range of its values."""

    kind: str
    text: str = ""
    unit: str = ""
    min: float | None = None
    max: float | None = None
    step: float | None = None
    labels: tuple[str, str] | None = None
    image: str = "image"

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Question:
        """Check a question given as JSON values, and make it."""
        require(isinstance(given, Mapping), f"a question must be an object, not {_name(given)}")
        unknown = sorted(set(given) - _FIELDS)
        if unknown:
            known = ", ".join(sorted(_FIELDS))
            raise ConfigError(f"question: unknown field {unknown[0]!r}; the fields are {known}")
        kind = given.get("kind")
        if kind not in VALUE_NAMES:
            raise ConfigError(f"question: kind must be one of {', '.join(KINDS)}, not {kind!r}")
        question = cls(
            kind=kind,
            text=_text(given, "text", ""),
            unit=_text(given, "unit", ""),
            min=_number(given, "min"),
            max=_number(given, "max"),
            step=_number(given, "step"),
            labels=_labels(given.get("labels")),
            image=_text(given, "image", "image"),
        )
        question._check_range()
        return question

    def _check_range(self) -> None:
        low, high = self.min, self.max
        if low is not None and high is not None:
            require(low < high, f"question: min must be below max, not {low:g} and {high:g}")
        if self.step is not None:
            require(self.step > 0, f"question: step must be above 0, not {self.step:g}")
        if self.kind in ("slider", "rating"):
            if low is None or high is None:
                raise ConfigError(f"question: a {self.kind} needs min and max")
            if self.kind == "rating":
                whole = low.is_integer() and high.is_integer()
                require(whole, "question: min and max of a rating must be whole numbers")
                require(
                    high - low < _MOST_STEPS,
                    f"question: a rating has at most {_MOST_STEPS} values; use a slider",
                )

    def as_dict(self) -> dict[str, Any]:
        """The question as JSON holds it, without what was left open."""
        found: dict[str, Any] = {"kind": self.kind, "text": self.text}
        for name in ("unit", "min", "max", "step"):
            if getattr(self, name) not in (None, ""):
                found[name] = getattr(self, name)
        if self.labels is not None:
            found["labels"] = list(self.labels)
        if self.on_image:
            found["image"] = self.image
        return found

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the values of an answer."""
        return VALUE_NAMES[self.kind]

    @property
    def on_image(self) -> bool:
        """Whether workers mark a place in an image."""
        return self.dimension > 1

    @property
    def dimension(self) -> int:
        """How many values an answer has."""
        return len(self.value_names)

    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest value of a truth, where the question fixes both."""
        if self.on_image or self.min is None or self.max is None:
            return None
        return self.min, self.max

    def validate(
        self, values: Sequence[object], content: Mapping[str, Any] | None = None
    ) -> list[float]:
        """Return the values of an answer as numbers, or raise an error of one line.

        ``content`` is the task's: where it says how wide and high its image is, a point or a box
        must lie within.
        """
        names = self.value_names
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise DataError(f"value must be a list of {len(names)} numbers, not {_name(values)}")
        if len(values) != len(names):
            listed = ", ".join(names)
            raise DataError(f"value must have {len(names)} numbers ({listed}), not {len(values)}")
        numbers = [_value(name, one) for name, one in zip(names, values, strict=True)]
        if self.on_image:
            self._check_in_image(numbers, content or {})
        else:
            self._check_in_range(numbers[0])
        return numbers

    def _check_in_range(self, value: float) -> None:
        if self.min is not None and value < self.min:
            raise DataError(f"value must be at least {self.min:g}, not {value:g}")
        if self.max is not None and value > self.max:
            raise DataError(f"value must be at most {self.max:g}, not {value:g}")
        if self.kind == "rating" and not value.is_integer():
            raise DataError(f"value must be a whole number, not {value:g}")

    def _check_in_image(self, numbers: list[float], content: Mapping[str, Any]) -> None:
        if self.kind == "box":
            for name, length in zip(("width", "height"), numbers[2:], strict=True):
                if length <= 0:
                    raise DataError(f"{name} must be above 0, not {length:g}")
        for axis, (name, side) in enumerate((("x", "width"), ("y", "height"))):
            start = numbers[axis]
            end = start + (numbers[2 + axis] if self.kind == "box" else 0)
            size = content.get(side)
            if not isinstance(size, int | float):
                continue
            # A box drawn to the edge may pass it by rounding.
            if start < -1e-6 * size or end > (1 + 1e-6) * size:
                raise DataError(f"{name} must lie in the image, 0 to {size:g}, not {start:g}")


def check_content(content: object) -> dict[str, Any]:
    """Check what a task shows: text, an image, a link, and the image's width and height."""
    require(isinstance(content, dict), f"content must be an object, not {_name(content)}")
    assert isinstance(content, dict)
    for name, one in content.items():
        if name in ("width", "height"):
            good = isinstance(one, int | float) and not isinstance(one, bool)
            require(good and 0 < one <= 1e9, f"content: {name} must be above 0, at most 1e9")
        else:
            require(isinstance(one, str), f"content: {name} must be text, not {_name(one)}")
            require("\0" not in one, f"content: {name} must be text without NUL")
    return content


def _value(name: str, one: object) -> float:
    if isinstance(one, bool) or not isinstance(one, int | float):
        raise DataError(f"{name} must be a number, not {_name(one)}")
    try:
        number = float(one)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or abs(number) > LARGEST:
        raise DataError(f"{name} must be a number of at most {LARGEST:g}, not {str(one)[:20]}")
    return number


def _number(given: Mapping[str, Any], name: str) -> float | None:
    one = given.get(name)
    if one is None:
        return None
    try:
        return _value(name, one)
    except DataError as error:
        raise ConfigError(f"question: {error}") from None


def _text(given: Mapping[str, Any], name: str, default: str) -> str:
    one = given.get(name, default)
    require(isinstance(one, str), f"question: {name} must be text, not {_name(one)}")
    require(len(one) <= _LONGEST, f"question: {name} is longer than {_LONGEST} characters")
    return str(one)


def _labels(given: object) -> tuple[str, str] | None:
    if given is None:
        return None
    if isinstance(given, list | tuple) and len(given) == 2:
        low, high = given
        if isinstance(low, str) and isinstance(high, str):
            return low, high
    raise ConfigError(f"question: labels must be two texts, low and high, not {given!r}")


def _name(one: object) -> str:
    names = {"dict": "an object", "list": "a list", "str": "text", "NoneType": "null"}
    return names.get(type(one).__name__, repr(one)[:40])
