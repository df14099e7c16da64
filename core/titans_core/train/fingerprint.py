"""Fingerprints of data and networks, which identify the run, study or saved model they belong to."""

import hashlib

import numpy as np
from torch import nn


def digest(*arrays: np.ndarray) -> str:
    """Fingerprint of arrays: their shapes, dtypes and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return f"sha256:{found.hexdigest()}"


def shapes(network: nn.Module) -> str:
    """Fingerprint of a network: the names and shapes of its parameters."""
    text = ", ".join(f"{name} {tuple(p.shape)}" for name, p in network.named_parameters())
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
