"""When the hand-written CPU code paths may run."""

import torch
from torch import Tensor

from titans_core.ops.memory.gradient import transformed


def eager_on_cpu(x: Tensor) -> bool:
    """Whether ``x`` is on CPU and is neither compiled nor transformed by ``torch.func``.

    Under ``torch.compile``, ``torch.export`` and ``torch.func``, PyTorch's own operators are used.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not transformed()
