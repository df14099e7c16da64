"""Where what is written for a CPU may run."""

import torch
from torch import Tensor

from titans_core.ops.memory.gradient import transformed


def eager_on_cpu(x: Tensor) -> bool:
    """Whether x is on a CPU, and neither compiled (``torch.compile``, ``torch.export``) nor transformed
    (``torch.func``): there torch's own operators are left as they are."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed()
