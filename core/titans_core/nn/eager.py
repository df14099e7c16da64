"""Where what is written for a CPU may run."""

import torch
from torch import Tensor


def eager_on_cpu(x: Tensor) -> bool:
    """Whether x is on a CPU, and neither compiled (``torch.compile``, ``torch.export``) nor transformed
    (``torch.func``): there torch's own operators are left as they are."""
    transformed: bool = torch._C._are_functorch_transforms_active()
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed
