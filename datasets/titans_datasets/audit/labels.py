"""What both audits say of labels."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["commonest", "per_class"]


def commonest(labels: NDArray) -> float:
    """Accuracy of always answering the commonest label."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def per_class(parts: Mapping[str, float]) -> str:
    """Parts from 0 to 1 as text: ``"negative 94.7%, positive 3.1%"``."""
    return ", ".join(f"{name} {part:.1%}" for name, part in parts.items())
