"""Fingerprints of data and networks, by which a run, a study or a saved model knows its own."""

import hashlib

import numpy as np
from torch import nn


def digest(*arrays: np.ndarray) -> str:
    """A fingerprint of data: its shapes, types and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return f"sha256:{found.hexdigest()}"


def shapes(network: nn.Module) -> str:
    """A fingerprint of a network: the names and shapes of its parameters."""
    text = ", ".join(f"{name} {tuple(p.shape)}" for name, p in network.named_parameters())
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
