"""Checks of arguments that several layers and models share."""

from numbers import Integral
from typing import Any


def at_least(name: str, value: Any, least: int) -> None:
    """Raises ValueError where an argument is no integer, or a lower one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
