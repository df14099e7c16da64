"""Fingerprints of data and networks, which identify the run, study or saved model they belong to."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn


def digest(*arrays: np.ndarray) -> str:
    """Fingerprint of arrays: their shapes, dtypes and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return f"sha256:{found.hexdigest()}"


def digest_of(network: nn.Module) -> str:
    """Fingerprint of the weights of a network."""
    return digest(*(parameter.detach().float().cpu().numpy() for parameter in network.parameters()))


def text_of(value: Any) -> str:
    """A setting as text, the same for dicts whose items have another order."""
    return str(dict(sorted(value.items(), key=str)) if isinstance(value, Mapping) else value)


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Names of the values in which two runs, studies or calls differ, sorted."""
    return sorted(name for name in {*there, *here} if there.get(name) != here.get(name))


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describe the values that differ, without the text of fingerprints; empty if none does."""

    def described(name: str) -> str:
        values = there.get(name), here.get(name)
        hashed = any(str(value).startswith("sha256:") for value in values)
        return f"the {name} differs" if hashed else f"{name} is {values[0]} there and {values[1]} here"

    return "; ".join(described(name) for name in differing(there, here))


def shapes(network: nn.Module) -> str:
    """Fingerprint of a network: the names and shapes of its parameters."""
    text = ", ".join(f"{name} {tuple(p.shape)}" for name, p in network.named_parameters())
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
