"""Exact sums: whole numbers that add up to the same sum in any order, and over any parts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats

Limbs = NDArray[np.int64]
"""A sum as whole numbers: those of several parts are added."""

# The exponents that np.frexp may find, moved to start from 0, and the bits of a mantissa.
_LOWEST, _N_EXPONENTS, _BITS = -1080, 2200, 53
# A mantissa is split here, so that a block of halves adds up exactly in a float.
_SPLIT, _BLOCK = 27, 1 << 20
# Terms at once: half a megabyte in each array.
_IN_CACHE = 1 << 16
# Bits of a term in the first limb of an owner's sum, and in the second.
_LIMB = 32


def exact_sum(terms: NDArray[Any]) -> Limbs:
    """Add finite numbers up without any rounding; :func:`exact_value` is the sum."""
    flat, limbs = np.asarray(terms, dtype=np.float64).ravel(), np.zeros((2, _N_EXPONENTS), np.int64)
    for start in range(0, len(flat), _BLOCK):
        fraction, exponent = np.frexp(flat[start : start + _BLOCK])
        mantissa = (fraction * 2.0**_BITS).astype(np.int64)
        place = exponent - _LOWEST
        halves = mantissa >> _SPLIT, mantissa & ((1 << _SPLIT) - 1)
        for limb, half in zip(limbs, halves, strict=True):
            limb += np.bincount(place, half, _N_EXPONENTS).astype(np.int64)
    return limbs


def exact_value(limbs: Limbs) -> float:
    """Return the float nearest to a sum."""
    used = np.flatnonzero(limbs.any(axis=0)).tolist()
    high, low = limbs[:, used].tolist()
    total = sum(((h << _SPLIT) + b) << place for place, h, b in zip(used, high, low, strict=True))
    return float(Fraction(total) * Fraction(2) ** (_LOWEST - _BITS))


class OrderFreeSum:
    """Sums to which terms are added as whole numbers of a small unit: the same bits in any order.

    Every term is rounded to 2^-62 of what ``n`` terms, none above ``largest``, could add up to.
    """

    def __init__(self, largest: float, n: int) -> None:
        exponent = np.frexp(largest)[1] + (max(n, 1) - 1).bit_length() - 62
        self._unit = 2.0 ** max(int(exponent), -1000)
        self._units: NDArray[np.int64] | int = 0

    def add(self, terms: Floats, axis: int) -> None:
        """Add terms along an axis."""
        # The unit is a power of two: nothing is rounded by a product with its reciprocal.
        units = np.rint(terms * (1.0 / self._unit))
        self._units = self._units + units.astype(np.int64).sum(axis=axis)

    @property
    def value(self) -> Floats:
        """The sums."""
        return np.asarray(self._units * self._unit)


def order_free_sum(terms: Floats, axis: int) -> Floats:
    """Add up along an axis: the same bits in any order."""
    along = np.moveaxis(terms, axis, 0)
    total = OrderFreeSum(max(terms.max(initial=0.0), -terms.min(initial=0.0)), len(along))
    at_once = max(_IN_CACHE // max(along[:1].size, 1), 1)
    for start in range(0, max(len(along), 1), at_once):
        total.add(along[start : start + at_once], axis=0)
    return total.value


def owner_sums(owner: NDArray[Any], terms: Floats, largest: Floats) -> Limbs:
    """Add up the terms (E,) of each owner, to 64 bits of the ``largest`` (m,) that any has."""
    # Units are powers of two: nothing is rounded by a product with their reciprocals.
    of_owners = 1.0 / _unit(largest) if len(largest) < len(terms) else None
    limbs = np.zeros((2, len(largest)), dtype=np.int64)
    for start in range(0, len(terms), _IN_CACHE):
        some = slice(start, start + _IN_CACHE)
        mine = owner[some]
        per_unit = 1.0 / _unit(largest[mine]) if of_owners is None else of_owners[mine]
        for limb, part in zip(limbs, _whole_parts(terms[some] * per_unit), strict=True):
            np.add.at(limb, mine, part)
    return limbs


def owner_values(limbs: Limbs, largest: Floats) -> Floats:
    """Return the sums of :func:`owner_sums` as floats."""
    return np.asarray((limbs[0] + limbs[1] * 2.0**-_LIMB) * _unit(largest))


def column_sums(terms: Floats) -> Floats:
    """Add up the columns of (E, c): the same bits as :func:`owner_values` for a single owner."""
    largest = np.abs(terms).max(axis=0, initial=0.0)
    per_unit, limbs = 1.0 / _unit(largest), np.zeros((2, len(largest)), dtype=np.int64)
    at_once = max(_IN_CACHE // max(len(largest), 1), 1)
    for start in range(0, len(terms), at_once):
        parts = _whole_parts(terms[start : start + at_once] * per_unit)
        for limb, part in zip(limbs, parts, strict=True):
            limb += part.sum(axis=0)
    return owner_values(limbs, largest)


def largest_by_owner(owner: NDArray[Any], terms: Floats, n_owners: int) -> Floats:
    """Return the largest absolute term of each owner; 0 without any."""
    largest = np.zeros(n_owners)
    np.maximum.at(largest, owner, np.abs(terms))
    return largest


def _whole_parts(units: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Terms as whole numbers of their unit, and what is left as those of a smaller one."""
    first = np.rint(units)
    rest = np.rint((units - first) * 2.0**_LIMB)
    return first.astype(np.int64), rest.astype(np.int64)


def _unit(largest: Floats) -> Floats:
    return np.asarray(2.0 ** np.maximum(np.frexp(largest)[1] - _LIMB, _LOWEST + 2 * _LIMB))
