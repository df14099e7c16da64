"""The version of Triton."""

import torch
import triton
from torch.torch_version import TorchVersion

# the oldest version that the kernels were tested with; earlier CUDA builds of torch bundle an older one
LEAST = "3.6"


# importing torch._dynamo for this mark takes a second, so it is only done where kernels may run
@torch.compiler.assume_constant_result  # some PyTorch versions cannot trace the comparison
def too_old() -> str | None:
    """Return Triton's version if it is too old for the kernels, else None."""
    return triton.__version__ if TorchVersion(triton.__version__) < LEAST else None
