"""Helpers for labels, used by both audits."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["commonest", "per_class"]


def commonest(labels: NDArray) -> float:
    """Accuracy of always answering the most common label."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def per_class(parts: Mapping[str, float]) -> str:
    """Format fractions as text: ``"negative 94.7%, positive 3.1%"``."""
    return ", ".join(f"{name} {part:.1%}" for name, part in parts.items())
