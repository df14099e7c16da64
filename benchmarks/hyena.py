"""HyenaDNA from its authors' file ``standalone_hyenadna.py`` (github.com/HazyResearch/hyena-dna).

The file is not part of this repository. It needs einops and transformers. It also imports a layer of torchvision, which
is not used at these sizes and is replaced by a stub.
"""

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

NAME = "hyenadna"
VOCAB = 6


class HyenaLM(nn.Module):
    """A language model of HyenaDNA's blocks with their published filters, with the interface of ``TitansLM``."""

    def __init__(self, path: Path, dim: int, layers: int, inner: int, longest: int) -> None:
        super().__init__()
        filters = dict(emb_dim=5, filter_order=64, local_order=3, l_max=longest, modulate=True, w=10, lr=6e-4, wd=0.0)
        self.backbone = _module(path).HyenaDNAModel(
            dim, layers, inner, VOCAB, layer={"_name_": "hyena", "lr_pos_emb": 0.0, **filters}, embed_dropout=0.0
        )
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.backbone(ids)).flatten(0, 1), targets.flatten())

    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())


def hyena(path: Path, dim: int, layers: int, longest: int, parameters: int) -> HyenaLM:
    """A model with about this number of parameters, by the width of its MLPs."""
    least = HyenaLM(path, dim, layers, 8, longest).num_parameters()
    each = 2 * dim * layers
    return HyenaLM(path, dim, layers, 8 * max(1, 1 + round((parameters - least) / each / 8)), longest)


def _module(path: Path) -> Any:
    if "standalone_hyenadna" in sys.modules:
        return sys.modules["standalone_hyenadna"]
    # import transformers first, because it looks for the real torchvision
    importlib.import_module("transformers.tokenization_utils")
    vision = types.ModuleType("torchvision.ops")
    vision.StochasticDepth = lambda p, mode: nn.Identity()  # type: ignore[attr-defined]
    sys.modules.setdefault("torchvision", types.ModuleType("torchvision"))
    sys.modules.setdefault("torchvision.ops", vision)
    spec = importlib.util.spec_from_file_location("standalone_hyenadna", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"no Python file {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules["standalone_hyenadna"] = module
    spec.loader.exec_module(module)
    return module
