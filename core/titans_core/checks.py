"""Checks of single arguments, for layers, models and estimators."""

import math
from numbers import Integral, Real
from typing import Any


def is_number(value: Any) -> bool:
    """Whether ``value`` is a real number of Python or NumPy; a bool is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether ``value`` is an integer of Python or NumPy; a bool is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def at_least(name: str, value: Any, least: int = 1) -> None:
    """Raise a ValueError unless ``value`` is an integer of at least ``least``."""
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}.")


def below_one(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a number in [0, 1)."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}.")


def positive(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a finite number above 0."""
    if not is_number(value) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}.")
